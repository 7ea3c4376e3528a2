//! What the store takes and gives.

use crate::ids::{Cid, DeviceId, MessageId, RoomId, UserId};

/// The most members a room can have.
pub const MAX_MEMBERS: usize = 5_000;

/// One entry of a room's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The room.
    pub room: RoomId,
    /// Its place in the room's log: contiguous from 1.
    pub seq: u64,
    /// Its id.
    pub id: MessageId,
    /// Who wrote it, or who made the change.
    pub sender: UserId,
    /// The sender's mark; absent for a membership change.
    pub cid: Option<Cid>,
    /// When it was committed, in ms since 1970, by the database's clock.
    pub at: u64,
    /// What it says.
    pub content: Content,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A message: the JSON text that the client sent, to the letter.
    Body(Box<str>),
    /// A change of the membership.
    Event(Event),
}

/// A change of a room's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To whom.
    pub users: Vec<UserId>,
}

/// What happened to a room's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The room came to be, with these members.
    Created,
    /// They are members from this entry on, by themselves or added by the sender.
    Joined,
    /// They are members no more, by themselves or removed by the sender.
    Left,
}

/// A message to be stored.
#[derive(Debug, Clone)]
pub struct Append {
    /// Where.
    pub room: RoomId,
    /// By whom.
    pub sender: UserId,
    /// The sender's mark, by which a repeat is known.
    pub cid: Cid,
    /// A fresh id.
    pub id: MessageId,
    /// JSON text.
    pub body: Box<str>,
}

/// What became of an [`Append`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It is stored.
    Stored {
        /// Its place in the room's log.
        seq: u64,
        /// Its id: the one of the first time, where it was a repeat.
        id: MessageId,
        /// When it was committed, in ms since 1970.
        at: u64,
        /// The seq of the room's latest membership change.
        members_version: u64,
        /// False where it was a repeat.
        fresh: bool,
    },
    /// The sender is not a member, or there is no such room: the two are not told apart.
    NotMember,
    /// The sender has used this cid for something else.
    CidReused,
}

/// A room as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomView {
    /// Which.
    pub room: RoomId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// For a direct chat, the other person.
    pub peer: Option<UserId>,
    /// Whether anyone may join.
    pub open: bool,
    /// The seq of its latest entry.
    pub head: u64,
    /// The seq at which this member's view begins: that of their last join.
    pub since: u64,
    /// Up to where this member has acknowledged.
    pub delivered: u64,
    /// Up to where this member has read.
    pub read: u64,
    /// Whether this member wants no pushes of this room.
    pub muted: bool,
    /// How many members it has.
    pub count: u64,
}

/// Someone who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comer {
    /// Who.
    pub user: UserId,
    /// On which of their devices, if it has a name.
    pub device: Option<DeviceId>,
    /// The last of their rooms that was read before.
    pub after: Option<RoomId>,
}

/// Where someone who connects stands in one of their rooms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stand {
    /// Which.
    pub room: RoomId,
    /// The seq of its latest entry.
    pub head: u64,
    /// The seq at which this member's view begins: that of their last join.
    pub since: u64,
    /// Up to where this member has acknowledged, by whichever device.
    pub delivered: u64,
    /// Up to where this device has, if it has a name and ever did.
    pub cursor: Option<u64>,
    /// The seq of its latest membership change.
    pub members_version: u64,
}

/// A member of a room as the others see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Who.
    pub user: UserId,
    /// Up to where they have acknowledged.
    pub delivered: u64,
    /// Up to where they have read.
    pub read: u64,
}

/// The members of a room, as of one membership change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The seq of the change that led to it.
    pub version: u64,
    /// Each member with the seq of their last join, sorted by user.
    pub members: Vec<(UserId, u64)>,
}

/// Some of a room's log, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The entries, by seq, contiguous.
    pub entries: Vec<Entry>,
    /// The room's head when they were read.
    pub head: u64,
}

/// A room to be made.
#[derive(Debug, Clone)]
pub struct NewRoom {
    /// Its name in the store.
    pub room: RoomId,
    /// Who makes it; a member too.
    pub creator: UserId,
    /// The other members.
    pub members: Vec<UserId>,
    /// What people call it.
    pub name: Option<String>,
    /// Whether anyone may join.
    pub open: bool,
    /// The id of the entry `created`.
    pub id: MessageId,
}

/// A change of a room's membership that was asked for.
#[derive(Debug, Clone)]
pub enum Change {
    /// The actor joins: an open room, or one they are in already.
    Join,
    /// The actor leaves.
    Leave,
    /// The actor, the room's creator, adds these.
    Add(Vec<UserId>),
    /// The actor, the room's creator, removes these.
    Remove(Vec<UserId>),
}

/// What came of a change: the room as it is, and the entry that the change made, if it changed anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The room.
    pub room: RoomId,
    /// The new entry of its log; none where all was so already.
    pub entry: Option<Entry>,
}

/// Where a room of one user stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Whose room.
    pub user: UserId,
    /// Which.
    pub room: RoomId,
    /// The seq of its latest entry.
    pub head: u64,
    /// The seq at which this member's view begins.
    pub since: u64,
}

/// How far a device of a user has come in a room. Positions only grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Whose.
    pub user: UserId,
    /// Where.
    pub room: RoomId,
    /// By which device, if it has a name.
    pub device: Option<DeviceId>,
    /// Acknowledged up to here; 0 says nothing.
    pub delivered: u64,
    /// Read up to here; 0 says nothing.
    pub read: u64,
}

/// How far a member of a room has come, once a position has moved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    /// Where.
    pub room: RoomId,
    /// Who.
    pub user: UserId,
    /// Acknowledged up to here, by whichever device.
    pub delivered: u64,
    /// Read up to here.
    pub read: u64,
}
