//! What is said on the wire, and what was heard: the one place that knows which kind of server it is.

mod minichat;
mod nats;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::mark::Mark;
use crate::ws;

/// The shortest payload that holds a mark: its digits in quotes.
pub(crate) const LEAST_PAYLOAD: usize = Mark::LEN + 2;

/// The protocol that the servers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// minichat's own, of which `broadcast` speaks a part
    Minichat,
    /// NATS over its WebSocket listener: a subject for each user and each room, nothing stored
    Nats,
}

/// Whom a flow is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    User(&'a str),
    Room(&'a str),
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The answer to the greeting.
    Welcome,
    /// Something volatile, of ours.
    Signal(Mark),
    /// An entry of a room's log, with our mark unless it is a membership change.
    Message { room: &'a [u8], seq: u64, mark: Option<Mark> },
    /// The answer to a send.
    Sent { room: &'a [u8], seq: u64, mark: Option<Mark> },
    /// The answer to a create.
    Room,
    /// To be answered with this.
    Ping(&'static [u8]),
    /// Something was refused: the code.
    Error(&'a [u8]),
    /// Anything else.
    Other,
}

/// Bytes that are none of the dialect's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message that a server of this dialect sends")]
pub(crate) struct Foreign;

impl Dialect {
    /// The path that opens a socket. `anonymous`: no token says who it is.
    pub(crate) fn path(self, user: &str, anonymous: bool) -> String {
        match self {
            Self::Minichat if anonymous => format!("/ws?user={user}"),
            Self::Minichat => "/ws".into(),
            Self::Nats => "/".into(),
        }
    }

    /// The kind of frame that holds what is said.
    pub(crate) fn frame(self) -> ws::Kind {
        match self {
            Self::Minichat => ws::Kind::Text,
            Self::Nats => ws::Kind::Binary,
        }
    }

    /// Whether users say themselves in which rooms they are, in their greeting.
    pub(crate) fn users_join(self) -> bool {
        self == Self::Nats
    }

    /// How long it may take after the last welcome until each server knows who is where.
    pub(crate) fn settles_in(self) -> Duration {
        match self {
            Self::Minichat => Duration::ZERO,
            Self::Nats => nats::SPREADS_IN,
        }
    }

    /// The first thing a user says; answered with [`Heard::Welcome`].
    ///
    /// `rooms` are those of which the user has the first entry or, where [`Self::users_join`], those the user is in.
    pub(crate) fn greeting(self, user: &str, rooms: &[Arc<str>], token: Option<&str>) -> String {
        match self {
            Self::Minichat => minichat::hello(rooms),
            Self::Nats => nats::connect(user, rooms, token),
        }
    }

    /// A target as [`Self::write_message`] takes it.
    pub(crate) fn target(self, target: Target<'_>) -> String {
        match self {
            Self::Minichat => minichat::target(target),
            Self::Nats => nats::subject(target),
        }
    }

    /// Writes a message with a body of `payload` bytes. `durable`: it is to be stored, which NATS does not do.
    pub(crate) fn write_message(self, out: &mut Vec<u8>, durable: bool, target: &str, mark: Mark, payload: usize) {
        match self {
            Self::Minichat => minichat::write_message(out, durable, target, mark, payload),
            Self::Nats => nats::write_message(out, target, mark, payload),
        }
    }

    /// Writes an acknowledgement of a room's entries; only of such as were stored.
    pub(crate) fn write_ack(self, out: &mut Vec<u8>, room: &str, seq: u64) {
        match self {
            Self::Minichat => minichat::write_ack(out, room, seq),
            Self::Nats => {}
        }
    }

    /// The first message of a pair, where that makes their room.
    pub(crate) fn first_message(self, target: &str) -> Option<String> {
        (self == Self::Minichat).then(|| minichat::first_message(target))
    }

    /// What makes a room, where the server keeps rooms.
    pub(crate) fn create(self, room: &str, members: &[String]) -> Option<String> {
        (self == Self::Minichat).then(|| minichat::create(room, members))
    }

    /// The first message of `bytes`, which came in frames, and how many bytes it takes; none while it is not here as a
    /// whole.
    pub(crate) fn read(self, bytes: &[u8]) -> Result<Option<(Heard<'_>, usize)>, Foreign> {
        match self {
            // A frame is a message.
            Self::Minichat => Ok((!bytes.is_empty()).then(|| (minichat::read(bytes), bytes.len()))),
            Self::Nats => nats::read(bytes),
        }
    }
}
