//! What servers say.

use std::fmt;

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Body, Close, Reject};
use crate::ids::{Cid, MessageId, RoomId, ServerId, SessionId, UserId};

/// What a frame takes at most as a rule, beside its body.
const USUAL_BYTES: usize = 192;

/// An encoded server frame. Encoded once; a clone shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(Utf8Bytes);

impl Frame {
    /// Takes a frame that another server encoded.
    ///
    /// # Errors
    /// Gives the bytes' fault back where they are not UTF-8: such a frame would end every connection it is written to.
    pub fn from_relay(bytes: Bytes) -> Result<Self, std::str::Utf8Error> {
        Utf8Bytes::try_from(bytes).map(Self)
    }

    /// The same frame with the sender's mark, as the sender's own sessions get it.
    #[must_use]
    pub fn with_cid(&self, cid: &Cid) -> Self {
        let Some(open) = self.0.as_str().strip_suffix('}') else { return self.clone() };
        let mut text = String::with_capacity(open.len() + cid.as_str().len() + 16);
        text.push_str(open);
        text.push_str(",\"cid\":");
        text.push_str(&serde_json::to_string(cid).unwrap_or_default());
        text.push('}');
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes; no frame has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    /// The text, as the socket takes it, without a copy.
    pub fn into_text(self) -> Utf8Bytes {
        self.0
    }
}

/// Shows the length only: a frame holds what people wrote, and logs must not.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.len())
    }
}

/// What a server says, before it is encoded.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame<'a> {
    /// You are connected; the rest of each room follows.
    Welcome {
        /// As whom.
        user: &'a UserId,
        /// By which session.
        session: SessionId,
        /// To which server.
        server: &'a ServerId,
        /// How often the server pings, in ms.
        ping_interval_ms: u64,
    },
    /// Your message is stored.
    Sent {
        /// Your mark.
        cid: &'a Cid,
        /// Where.
        room: &'a RoomId,
        /// Its id.
        id: MessageId,
        /// Its place in the room's log.
        seq: u64,
        /// When, in ms since 1970.
        at: u64,
    },
    /// An entry of a room's log.
    Message(MessageView<'a>),
    /// Something volatile.
    Signal {
        /// To which room, or to you alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        room: Option<&'a RoomId>,
        /// From whom.
        from: &'a UserId,
        /// What.
        body: &'a Body,
    },
    /// Someone writes.
    Typing {
        /// Where.
        room: &'a RoomId,
        /// Who.
        user: &'a UserId,
    },
    /// Whether someone is online.
    Presence {
        /// Who.
        user: &'a UserId,
        /// Absent where it cannot be told.
        #[serde(skip_serializing_if = "Option::is_none")]
        online: Option<bool>,
        /// When they were last seen, in ms since 1970, where they are not online and that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_seen: Option<u64>,
    },
    /// Someone has come further in a room.
    Receipt {
        /// Where.
        room: &'a RoomId,
        /// Who.
        user: &'a UserId,
        /// They have acknowledged up to here.
        #[serde(skip_serializing_if = "Option::is_none")]
        delivered: Option<u64>,
        /// They have read up to here.
        #[serde(skip_serializing_if = "Option::is_none")]
        read: Option<u64>,
    },
    /// A room, as you see it.
    Room {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
        /// The room.
        #[serde(flatten)]
        info: RoomInfo<'a>,
    },
    /// Rooms you are in.
    Rooms {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
        /// A page of them, by id.
        rooms: Vec<RoomInfo<'a>>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// Who is in a room.
    Members {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
        /// Which.
        room: &'a RoomId,
        /// A page of them, by id.
        users: &'a [&'a UserId],
        /// How far each of these has come, where the room is small enough for receipts.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        receipts: &'a [ReceiptView<'a>],
        /// Whether there are more after the last.
        more: bool,
    },
    /// Part of a room's log.
    History {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
        /// Which.
        room: &'a RoomId,
        /// The entries, by seq.
        messages: Vec<MessageView<'a>>,
        /// Whether there are more in the direction that was asked for.
        more: bool,
    },
    /// A frame of yours had no effect.
    Error {
        /// Its mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
        /// One of the codes.
        code: &'a str,
        /// In words for a developer.
        message: &'a str,
        /// When a repeat may succeed, in ms.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// How a message travelled.
    Trace {
        /// Its room.
        room: &'a RoomId,
        /// Its place there.
        seq: u64,
        /// The server it was sent to.
        origin: &'a ServerId,
        /// Its way.
        path: TracePath,
        /// From its commit to your server's queue for you, in ms.
        ms: u64,
    },
    /// This connection is about to be closed.
    Closing {
        /// Why: the reason of the close code.
        reason: &'a str,
        /// When to come back, in ms; absent where not to.
        #[serde(skip_serializing_if = "Option::is_none")]
        reconnect_after_ms: Option<u64>,
    },
    /// Done.
    Ok {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
    },
    /// I am here.
    Pong {
        /// Your mark.
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<&'a Cid>,
    },
}

/// An entry of a room's log, as clients see it.
#[derive(Debug, Serialize)]
pub struct MessageView<'a> {
    /// Where.
    pub room: &'a RoomId,
    /// Its id.
    pub id: MessageId,
    /// Its place in the room's log.
    pub seq: u64,
    /// By whom.
    pub from: &'a UserId,
    /// When it was committed, in ms since 1970.
    pub at: u64,
    /// What they wrote, to the letter.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "verbatim")]
    pub body: Option<&'a str>,
    /// Or what happened to the membership: created, joined, left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<&'static str>,
    /// To whom it happened.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub users: &'a [UserId],
    /// The sender's mark, in the sender's own sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cid: Option<&'a Cid>,
}

/// A room as one of its members sees it.
#[derive(Debug, Serialize)]
pub struct RoomInfo<'a> {
    /// Which.
    pub room: &'a RoomId,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The other person, where it is a direct chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<&'a UserId>,
    /// Whether anyone may join.
    pub open: bool,
    /// The seq of the latest entry.
    pub head: u64,
    /// The seq of your last join: your view begins there.
    pub since: u64,
    /// Up to where you have acknowledged.
    pub delivered: u64,
    /// Up to where you have read.
    pub read: u64,
    /// How many members.
    pub count: u64,
    /// Whether you want no pushes of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub muted: bool,
}

/// How far a member has come.
#[derive(Debug, Serialize)]
pub struct ReceiptView<'a> {
    /// Who.
    pub user: &'a UserId,
    /// Up to where they have acknowledged.
    pub delivered: u64,
    /// Up to where they have read.
    pub read: u64,
}

/// The way of a message to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TracePath {
    /// Sender and recipient are on one server.
    Local,
    /// From another server.
    Relay,
    /// Read from the store.
    Healed,
}

impl TracePath {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Relay => "relay",
            Self::Healed => "healed",
        }
    }
}

impl<'a> ServerFrame<'a> {
    /// Encodes it, once for all who get it.
    pub fn encode(&self) -> Frame {
        let mut text = Vec::with_capacity(self.usual_bytes());
        // Serializing these types into memory cannot fail, and JSON is UTF-8: no map with odd keys, no writer.
        let _ = serde_json::to_writer(&mut text, self);
        Frame(String::from_utf8(text).unwrap_or_default().into())
    }

    /// About how long it becomes, so that what is encoded often is so without moving.
    fn usual_bytes(&self) -> usize {
        let body = match self {
            Self::Message(view) => view.body.map_or(0, str::len),
            Self::Signal { body, .. } => body.as_str().len(),
            _ => 0,
        };
        body + USUAL_BYTES
    }

    /// The answer to a frame that had no effect.
    pub fn error(cid: Option<&'a Cid>, reject: &'a Reject) -> Self {
        Self::Error {
            cid,
            code: reject.code.name(),
            message: &reject.message,
            retry_after_ms: reject.code.retry_after_ms(),
        }
    }

    /// The announcement of `close`.
    pub fn closing(close: Close, reconnect_after_ms: Option<u64>) -> Self {
        Self::Closing { reason: close.reason(), reconnect_after_ms }
    }
}

/// Writes JSON text into JSON as it is. It was checked when it was taken.
fn verbatim<S: Serializer>(body: &Option<&str>, serializer: S) -> Result<S::Ok, S::Error> {
    match body {
        Some(text) => as_raw(text).map_err(serde::ser::Error::custom)?.serialize(serializer),
        None => serializer.serialize_none(),
    }
}

/// Sees JSON text as a raw value.
fn as_raw(text: &str) -> Result<&RawValue, serde_json::Error> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests;
