//! What the store takes and gives about people who have not acknowledged: rooms to look at, pushes to be made.

use std::fmt;

use crate::ids::{MessageId, RoomId, UserId};

/// A room with entries for which it is not decided who is to be pushed, held for one who looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRoom {
    /// Which.
    pub room: RoomId,
    /// Up to this seq all is decided, for every member.
    pub swept: u64,
    /// The seq up to which this look goes. There may be more, for a later one.
    pub upto: u64,
    /// The mark of the hold: it is over when another has taken the room.
    pub hold: i64,
}

/// A room in the eyes of one who looks: its undecided messages, and the members who may not have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRoom {
    /// Which, and how far.
    pub due: DueRoom,
    /// Undecided messages, by seq; membership changes are none. At the least the first open one of each member.
    pub messages: Vec<OpenMessage>,
    /// The members with entries up to `upto` that are open for them, by id.
    pub members: Vec<OpenMember>,
}

/// A message for which it is not decided who is to be pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenMessage {
    /// Its place in the room's log.
    pub seq: u64,
    /// Its id.
    pub id: MessageId,
    /// By whom.
    pub sender: UserId,
    /// How long ago it was committed, in ms, by the database's clock.
    pub age_ms: u64,
}

/// A member who has not acknowledged all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenMember {
    /// Who.
    pub user: UserId,
    /// Up to this seq nothing is open: acknowledged, read, decided before, or from before their last join.
    pub done: u64,
    /// They want no pushes of this room, or of any.
    pub muted: bool,
}

/// What one who looked has decided about a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The room, as it was taken.
    pub due: DueRoom,
    /// Up to this seq all is decided now, for every member.
    pub swept: u64,
    /// In how many ms the room is to be looked at again, if something is open.
    pub again_ms: u64,
    /// Members for whom all is decided further than `swept`, and up to where.
    pub decided: Vec<(UserId, u64)>,
    /// For whom a push is to be made, of which message: at most [`MAX_PUSHES`](super::MAX_PUSHES). Where there are more,
    /// a look has to end earlier than its `upto`.
    pub pushes: Vec<(UserId, u64)>,
}

/// By which way pushes leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PushKind {
    /// An HTTP call to the application's backend, one per message and user.
    Webhook,
    /// A notification by Firebase Cloud Messaging, one per message, user and device.
    Fcm,
}

/// A push to be made now, held for one who makes it. Written for debugging it shows neither the token, with which anyone
/// can write to the device, nor what the message says.
#[derive(Clone, PartialEq, Eq)]
pub struct Push {
    /// Its number in the store.
    pub id: i64,
    /// The mark of the hold: it is over when another has taken the push.
    pub hold: i64,
    /// The way.
    pub kind: PushKind,
    /// The device's registration token; empty for a webhook.
    pub token: String,
    /// For whom.
    pub user: UserId,
    /// Where the message is.
    pub room: RoomId,
    /// What people call the room.
    pub room_name: Option<String>,
    /// The message's place in the room's log.
    pub seq: u64,
    /// The message's id.
    pub message: MessageId,
    /// Who wrote it.
    pub from: UserId,
    /// When it was committed, in ms since 1970.
    pub at: u64,
    /// What it says: JSON text.
    pub body: Box<str>,
    /// How often it was tried before.
    pub tries: u32,
    /// How long ago it was decided, or replayed, in ms, by the database's clock.
    pub age_ms: u64,
    /// False where it is not to be made any more: it was acknowledged or muted meanwhile, the user has left (and may
    /// have come back later), or the device is not theirs any more.
    pub wanted: bool,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, hold, kind, user, room, seq, message, tries, age_ms, wanted, .. } = self;
        f.debug_struct("Push")
            .field("id", id)
            .field("hold", hold)
            .field("kind", kind)
            .field("user", user)
            .field("room", room)
            .field("seq", seq)
            .field("message", message)
            .field("tries", tries)
            .field("age_ms", age_ms)
            .field("wanted", wanted)
            .finish_non_exhaustive()
    }
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// Its number in the store.
    pub id: i64,
    /// The mark of the hold.
    pub hold: i64,
    /// What.
    pub became: Became,
}

/// What became of a push, once it was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// It is made, or not wanted any more: it is forgotten.
    Done,
    /// It failed, and may succeed later.
    Again {
        /// In how many ms it is to be tried again.
        after_ms: u64,
        /// Why it failed, in one line.
        reason: String,
        /// It counts as a try. It does not where the target asked for a pause.
        counts: bool,
    },
    /// It will not succeed: it is a dead letter.
    Dead {
        /// Why, in one line.
        reason: String,
    },
    /// The device's token is of no more use: it is forgotten, with all pushes on their way to it. Of a webhook, which
    /// has no token, it says nothing.
    Unregistered,
}

/// A push that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number in the store.
    pub id: i64,
    /// The way it was to go.
    pub kind: PushKind,
    /// For whom.
    pub user: UserId,
    /// Where the message is.
    pub room: RoomId,
    /// The message's place in the room's log.
    pub seq: u64,
    /// The message's id.
    pub message: MessageId,
    /// How often it was tried, with the last time.
    pub tries: u32,
    /// Why it was given up, in one line.
    pub reason: String,
    /// When, in ms since 1970.
    pub at: u64,
}
