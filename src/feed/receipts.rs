//! How far people have come, shown to the sessions that are in a room with them: only what is further than what was
//! shown before.
//!
//! Two servers may write one member's positions and tell of them in the other order. So each server keeps in mind what
//! it has shown, and of a receipt that comes late nothing is left.

use quick_cache::sync::Cache;

use super::Feed;
use crate::ids::{RoomId, SessionId, UserId};
use crate::metrics::Drop;
use crate::protocol::{Frame, ServerFrame};
use crate::sessions::Push;

/// Of how many members it is kept in mind what was shown of them, in all rooms. Of one that falls out a receipt that is
/// late could be shown once more.
const MEMBERS: usize = 100_000;

/// That someone has come further in a room. Volatile: the store knows, and is asked by who wants to be sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Where.
    pub room: RoomId,
    /// Who.
    pub user: UserId,
    /// They have acknowledged up to here; 0 says nothing.
    pub delivered: u64,
    /// They have read up to here; 0 says nothing.
    pub read: u64,
}

impl Receipt {
    /// As clients get it.
    pub fn frame(&self) -> Frame {
        let said = |seq: u64| (seq > 0).then_some(seq);
        let (delivered, read) = (said(self.delivered), said(self.read));
        ServerFrame::Receipt { room: &self.room, user: &self.user, delivered, read }.encode()
    }
}

/// What sessions of this server were shown of each member: delivered, read.
#[derive(Debug)]
pub(super) struct Shown(Cache<(RoomId, UserId), (u64, u64)>);

impl Shown {
    pub(super) fn new() -> Self {
        Self(Cache::new(MEMBERS))
    }

    /// What of a receipt is further than what was shown before, if anything; that counts as shown from now on. Meant to
    /// be called for one room by one thread at a time.
    fn further(&self, receipt: &Receipt) -> Option<Receipt> {
        let member = (receipt.room.clone(), receipt.user.clone());
        let before = self.0.get(&member).unwrap_or_default();
        let now = (before.0.max(receipt.delivered), before.1.max(receipt.read));
        if now == before {
            return None;
        }
        self.0.insert(member, now);
        let news = |seq: u64, shown: u64| if seq > shown { seq } else { 0 };
        let (delivered, read) = (news(receipt.delivered, before.0), news(receipt.read, before.1));
        Some(Receipt { delivered, read, ..receipt.clone() })
    }
}

impl Feed {
    /// Shows a receipt, encoded in `frame`, to the sessions that are in its room, `but` one if that has caused it. Who
    /// has left sees none any more. A session that has no room for it does without.
    pub fn show(&self, receipt: &Receipt, frame: &Frame, but: Option<SessionId>) {
        let Some(room) = self.room(&receipt.room) else { return };
        // Held until it is in the outboxes, so that no later one comes to be in front of it.
        let state = room.lock();
        let Some(news) = self.0.shown.further(receipt) else { return };
        let frame = if news == *receipt { frame.clone() } else { news.frame() };
        for session in state.sessions().filter(|session| but != Some(session.id)) {
            match session.push_volatile(&frame) {
                Push::Queued => _ = self.0.metrics.receipt_deliveries.inc(),
                Push::Full => self.0.metrics.dropped(Drop::SignalToSlow),
                Push::Gone => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(user: &str, delivered: u64, read: u64) -> Receipt {
        Receipt { room: "team".parse().unwrap(), user: user.parse().unwrap(), delivered, read }
    }

    #[test]
    fn of_a_receipt_only_what_is_further_is_left_whatever_the_order() {
        let shown = Shown::new();
        for (said, left) in [
            ((5, 0), Some((5, 0))),
            ((5, 0), None),
            ((4, 0), None),
            ((4, 3), Some((0, 3))),
            ((7, 2), Some((7, 0))),
            ((9, 9), Some((9, 9))),
            ((8, 9), None),
        ] {
            let further = shown.further(&receipt("bob", said.0, said.1));
            assert_eq!(further, left.map(|(delivered, read)| receipt("bob", delivered, read)), "{said:?}");
        }
        assert_eq!(shown.further(&receipt("carol", 1, 0)), Some(receipt("carol", 1, 0)), "each member by themselves");
    }

    #[test]
    fn a_receipt_has_the_fields_that_say_something() {
        let text = r#"{"type":"receipt","room":"team","user":"bob","read":3}"#;
        assert_eq!(receipt("bob", 0, 3).frame().as_str(), text);
    }
}
