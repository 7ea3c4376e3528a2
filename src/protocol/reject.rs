//! What a client did that cannot be done: an `error` frame, and the connection lives.

use std::borrow::Cow;

/// The codes of `error` frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The frame is not a JSON object with a `type`.
    BadFrame,
    /// The `type` is not one the server knows.
    UnknownType,
    /// A field is missing or not of its form; the message names it.
    BadField,
    /// The body exceeds [`super::MAX_BODY_BYTES`].
    TooLarge,
    /// There is no such room, or the user is not in it.
    NotFound,
    /// The user may not do this.
    Forbidden,
    /// The room would have too many members.
    RoomFull,
    /// The room id is another's.
    RoomTaken,
    /// The `cid` was used for something else.
    CidReused,
    /// A position past the head of the room.
    PastHead,
    /// A token that cannot be accepted; the session goes on under the old one.
    BadToken,
    /// The server has too much to do; the frame was not taken. Try again.
    Busy,
    /// The frame may or may not have had its effect. Try again with the same `cid`.
    Unavailable,
}

impl Code {
    /// All of them, in the order of the protocol document.
    pub const ALL: [Self; 13] = [
        Self::BadFrame,
        Self::UnknownType,
        Self::BadField,
        Self::TooLarge,
        Self::NotFound,
        Self::Forbidden,
        Self::RoomFull,
        Self::RoomTaken,
        Self::CidReused,
        Self::PastHead,
        Self::BadToken,
        Self::Busy,
        Self::Unavailable,
    ];

    /// Its name on the wire, in logs and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadFrame => "bad_frame",
            Self::UnknownType => "unknown_type",
            Self::BadField => "bad_field",
            Self::TooLarge => "too_large",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::RoomFull => "room_full",
            Self::RoomTaken => "room_taken",
            Self::CidReused => "cid_reused",
            Self::PastHead => "past_head",
            Self::BadToken => "bad_token",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }

    /// When a repeat may succeed, in ms; none where it would fail the same way.
    pub const fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::Busy => Some(500),
            Self::Unavailable => Some(1_000),
            _ => None,
        }
    }
}

/// Why a frame had no effect, in words for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The code.
    pub code: Code,
    /// What was wrong and what would be right.
    pub message: Cow<'static, str>,
}

impl Reject {
    /// With `code` and `message`.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// A field that is missing or malformed.
    pub(crate) fn field(name: &str, problem: impl std::fmt::Display) -> Self {
        Self::new(Code::BadField, format!("{name}: {problem}"))
    }

    /// Too much to do.
    pub fn busy() -> Self {
        Self::new(Code::Busy, "too many messages are waiting to be stored; try again")
    }

    /// The store gives no answer.
    pub fn unavailable() -> Self {
        Self::new(Code::Unavailable, "the outcome is unknown; try again with the same cid")
    }
}
