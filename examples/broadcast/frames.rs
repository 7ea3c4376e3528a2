//! As much of the protocol as the load generator needs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A frame of a client.
#[derive(Debug, Deserialize)]
pub(crate) struct Said<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) cid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) to: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) room: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) body: Option<&'a RawValue>,
    pub(crate) members: Option<Vec<String>>,
}

/// A frame of the server.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Says<'a> {
    Welcome {
        user: &'a str,
    },
    Signal {
        #[serde(skip_serializing_if = "Option::is_none")]
        room: Option<&'a str>,
        from: &'a str,
        body: &'a RawValue,
    },
    Message {
        room: &'a str,
        id: String,
        seq: u64,
        from: &'a str,
        at: u64,
        body: &'a RawValue,
    },
    Sent {
        cid: &'a str,
        room: &'a str,
        id: String,
        seq: u64,
        at: u64,
    },
    Room {
        room: &'a str,
    },
    Error {
        code: &'a str,
        message: &'a str,
    },
}

impl Says<'_> {
    pub(crate) fn encode(&self) -> String {
        // Writing these into memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
