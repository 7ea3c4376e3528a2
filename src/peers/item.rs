//! One payload for the recipients on one server.

use std::sync::Arc;

use bytes::Bytes;

use crate::ids::{Cid, MessageId, RoomId, ServerId, UserId};
use crate::wire;

/// One payload, encoded once, for the recipients that one server is thought to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The room, if it goes to one.
    pub room: Option<RoomId>,
    /// The place in the room's log; 0 for what is volatile.
    pub seq: u64,
    /// Its id; 0 for what is volatile.
    pub id: MessageId,
    /// When it was committed, in ms since 1970; 0 for what is volatile.
    pub at: u64,
    /// Who sent it.
    pub sender: UserId,
    /// The frame as clients get it.
    pub frame: Bytes,
    /// Whom it is for, on that server.
    pub recipients: Vec<UserId>,
    /// Of the recipients that are on several servers, each of these, sorted: all of them have been sent it. Not part of the
    /// wire.
    pub copies: Vec<(UserId, ServerId)>,
    /// The sender's mark, for the sender's own other sessions.
    pub cid: Option<Cid>,
    /// Set where the entry changes the room's membership.
    pub event: Option<wire::Event>,
    /// Set where it says how far the sender has come in the room.
    pub receipt: Option<wire::Receipt>,
    /// Sent again after `not here` or `elsewhere`.
    pub again: bool,
    /// Sent though the registry does not name the server: it, or the registry, may have lost its users.
    pub asked: bool,
    /// The places of so many recipients, the first, were not looked up for this: who of them is on other servers, too, is to
    /// be named.
    pub remembered: u32,
}

/// Recipients of an item whose place was another than was thought, or not the only one.
#[derive(Debug, PartialEq)]
pub(super) struct Returned {
    pub(super) item: Arc<Item>,
    pub(super) users: Vec<UserId>,
    /// They were there, and are on other servers, too.
    pub(super) here: bool,
}

/// An upper bound of what the encoding adds to one string: tag and length.
const STRING_EXTRA: usize = 6;

/// An upper bound of what the encoding adds to the strings: numbers, flags, the heads of the item and of the frame.
const ITEM_EXTRA: usize = 96;

impl Item {
    /// An item in no room, with a seq, an id and a time of 0, and nothing else set: something volatile, unless more is set
    /// on it.
    pub fn new(sender: UserId, frame: Bytes, recipients: Vec<UserId>) -> Self {
        Self {
            room: None,
            seq: 0,
            id: MessageId(0),
            at: 0,
            sender,
            frame,
            recipients,
            copies: Vec::new(),
            cid: None,
            event: None,
            receipt: None,
            again: false,
            asked: false,
            remembered: 0,
        }
    }

    /// Whether it is in the store, so that it may be sent again and must not be forgotten.
    pub(super) fn is_stored(&self) -> bool {
        self.seq > 0
    }

    /// What keeps its order: the room, or else what the sender sends.
    pub(super) fn key(&self) -> &str {
        self.room.as_ref().map_or(self.sender.as_str(), RoomId::as_str)
    }

    /// What it costs the receiver to deliver, in recipients.
    pub(super) fn work(&self) -> usize {
        1 + self.recipients.len()
    }

    /// At least the bytes of its encoding; also what it costs in a queue, near enough.
    pub(super) fn cost(&self) -> usize {
        let text = |text: &str| text.len() + STRING_EXTRA;
        ITEM_EXTRA
            + self.frame.len()
            + text(self.sender.as_str())
            + self.room.as_ref().map_or(0, |room| text(room.as_str()))
            + self.cid.as_ref().map_or(0, |cid| text(cid.as_str()))
            + self.recipients.iter().map(|user| text(user.as_str())).sum::<usize>()
            + self.copies.len() * size_of::<(UserId, ServerId)>()
            + self.event.iter().flat_map(|event| &event.users).map(|user| text(user)).sum::<usize>()
    }

    /// The recipients an answer names, each once; what is out of range is passed over.
    pub(super) fn named(&self, mut indices: Vec<u32>) -> Vec<UserId> {
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().filter_map(|index| self.recipients.get(index as usize).cloned()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An item of which nothing has its default value.
    pub(in crate::peers) fn full() -> Item {
        Item {
            room: Some("team".parse().unwrap()),
            seq: u64::MAX,
            id: MessageId(u64::MAX),
            at: u64::MAX,
            sender: "x".repeat(128).parse().unwrap(),
            frame: Bytes::from(vec![7; 70_000]),
            recipients: (0..1_000).map(|n| format!("user-{n}").parse().unwrap()).collect(),
            copies: Vec::new(),
            cid: Some("c".parse().unwrap()),
            event: Some(wire::Event { kind: 2, users: vec!["y".repeat(128); 300] }),
            receipt: Some(wire::Receipt { delivered: u64::MAX, read: u64::MAX }),
            again: true,
            asked: true,
            remembered: u32::MAX,
        }
    }

    #[test]
    fn an_answer_names_each_recipient_once_and_none_out_of_range() {
        let names: Vec<_> = full().named(vec![3, 1, 3, 1_000, u32::MAX]).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["user-1", "user-3"]);
    }
}
