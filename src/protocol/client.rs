//! What clients say.
//!
//! A frame is split into its fields in one pass, each kept as the text it was; then its `type` decides which fields are
//! read. So a body is never parsed, a field that does not belong to the type is ignored whatever it holds, and a key
//! that comes twice is an error rather than a choice.

mod fields;

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Code, Reject};
use crate::ids::{Cid, DeviceId, RoomId, UserId};
use fields::Fields;

/// A frame of a client, with the mark that its answer carries.
#[derive(Debug)]
pub struct Parsed {
    /// The client's mark, if it gave one.
    pub cid: Option<Cid>,
    /// The frame, or what is wrong with it.
    pub frame: Result<ClientFrame, Reject>,
}

/// What a client asks for.
#[derive(Debug, PartialEq)]
pub enum ClientFrame {
    /// Who I am and where I was.
    Hello(Hello),
    /// Store this and deliver it.
    Send {
        /// The mark by which a repeat is known.
        cid: Cid,
        /// Where it goes.
        to: Target,
        /// What.
        body: Body,
    },
    /// Deliver this to who is there now.
    Signal {
        /// Where it goes.
        to: Target,
        /// What.
        body: Body,
    },
    /// I am writing.
    Typing(RoomId),
    /// I have all up to here.
    Ack(Place),
    /// I have read all up to here.
    Read(Place),
    /// Show me part of the log.
    History {
        /// Which room's.
        room: RoomId,
        /// From where.
        from: HistoryFrom,
        /// How much.
        limit: u32,
    },
    /// Make a room.
    Create {
        /// Its id, where the client chooses it.
        room: Option<RoomId>,
        /// Who is in it besides the creator.
        members: Vec<UserId>,
        /// What people call it.
        name: Option<String>,
        /// Whether anyone may join.
        open: bool,
    },
    /// Let me in.
    Join {
        /// Where.
        room: RoomId,
        /// Make it, open to all, when it is missing.
        create: bool,
    },
    /// Let me out.
    Leave(RoomId),
    /// Let them in.
    Add(RoomId, Vec<UserId>),
    /// Put them out.
    Remove(RoomId, Vec<UserId>),
    /// Which rooms am I in?
    Rooms {
        /// Those after this one.
        after: Option<RoomId>,
        /// How many.
        limit: u32,
    },
    /// Who is in it?
    Members {
        /// In which.
        room: RoomId,
        /// Those after this one.
        after: Option<UserId>,
        /// How many.
        limit: u32,
    },
    /// Are they online? And tell me when that changes.
    Presence(Vec<UserId>),
    /// Push me, or do not.
    Settings {
        /// Of which room; none: of any.
        room: Option<RoomId>,
        /// Whether I want no pushes of it.
        muted: bool,
    },
    /// Push this device by this token, or no more.
    DeviceToken(DeviceToken),
    /// Are you there?
    Ping,
}

/// The first frame of every client.
#[derive(Debug, Default, PartialEq)]
pub struct Hello {
    /// A JWT, where it did not come with the request.
    pub token: Option<String>,
    /// The device's name.
    pub device: Option<DeviceId>,
    /// Whether to tell how each message travelled.
    pub trace: bool,
    /// The last seq the client has, by room.
    pub cursors: HashMap<RoomId, u64>,
    /// Whether another `hello` follows with more cursors.
    pub more: bool,
}

/// A position in a room's log.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The room.
    pub room: RoomId,
    /// The seq, from 1.
    pub seq: u64,
}

/// How a push service reaches the session's device.
#[derive(Debug, PartialEq, Eq)]
pub struct DeviceToken {
    /// Which service.
    pub provider: Provider,
    /// By which token.
    pub token: PushToken,
    /// Forget it.
    pub remove: bool,
}

/// A push service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Firebase Cloud Messaging.
    Fcm,
}

impl Provider {
    const ALL: [Self; 1] = [Self::Fcm];

    /// Its name on the wire and in the store.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcm => "fcm",
        }
    }
}

/// What a push service knows a device by: 1 to [`PushToken::MAX_BYTES`] bytes, no control characters. Who has it can
/// write to the device, so it never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct PushToken(Box<str>);

impl PushToken {
    /// The longest that is taken: those of today are a few hundred bytes long. With a user's id it must fit a row of an
    /// index in PostgreSQL, of 2,704 bytes at the most.
    pub const MAX_BYTES: usize = 2048;

    fn new(text: String) -> Option<Self> {
        let fits = matches!(text.len(), 1..=Self::MAX_BYTES) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.into()))
    }

    /// The text, for the store and for the service.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PushToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushToken(********)")
    }
}

/// What a message says: JSON that was checked when it was read, kept and written to the letter.
#[derive(Debug, Serialize)]
pub struct Body(Box<RawValue>);

impl Body {
    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The JSON text, owned.
    pub fn into_text(self) -> Box<str> {
        self.0.into()
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// Whom a message is for.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// The members of a room.
    Room(RoomId),
    /// One user: the direct room with them.
    User(UserId),
}

/// Which part of the log.
#[derive(Debug, PartialEq, Eq)]
pub enum HistoryFrom {
    /// The last entries before this seq.
    Before(u64),
    /// The first entries after this seq.
    After(u64),
}

impl Parsed {
    /// Reads one text frame.
    pub fn read(text: &str) -> Self {
        let fields: Fields<'_> = match serde_json::from_str(text) {
            Ok(fields) => fields,
            Err(error) => return Self { cid: None, frame: Err(not_a_frame(text, &error)) },
        };
        match fields.cid() {
            Ok(cid) => Self { frame: fields.frame(cid.as_ref()), cid },
            Err(reject) => Self { cid: None, frame: Err(reject) },
        }
    }
}

fn not_a_frame(text: &str, error: &serde_json::Error) -> Reject {
    let problem = if !text.trim_start().starts_with('{') {
        "a frame is one JSON object, such as {\"type\":\"ping\"}".into()
    } else if error.is_data() {
        // Such as `duplicate field` or `missing field`: serde's words name the field and quote no values.
        format!("a frame is one JSON object with a type: {error}")
    } else {
        format!("not JSON: {error}")
    };
    Reject::new(Code::BadFrame, problem)
}

#[cfg(test)]
mod tests;
