//! Where users were when they were last looked up.
//!
//! Only who was on one server is remembered. That this is still so, or not, is what the server says that an item goes to:
//! a server that takes a user whom another one has tells that one before it welcomes them. So nobody misses anything by
//! what is remembered here, and it need not be told to anyone. That somebody is nowhere is never remembered.

use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::ids::{ServerId, UserId};

/// How many users are remembered.
const USERS: usize = 65_536;

/// For how long: as long as a server may be unable to hear of another that has its user.
const LASTS: Duration = Duration::from_secs(10);

/// What is remembered.
#[derive(Debug)]
pub(super) struct Memory(Cache<UserId, Seen>);

#[derive(Debug, Clone)]
struct Seen {
    server: ServerId,
    since: Instant,
}

impl Default for Memory {
    fn default() -> Self {
        Self(Cache::new(USERS))
    }
}

impl Memory {
    /// Where someone was, if that may still be relied on.
    pub(super) fn recall(&self, user: &UserId, now: Instant) -> Option<ServerId> {
        let seen = self.0.get(user)?;
        (now.saturating_duration_since(seen.since) < LASTS).then_some(seen.server)
    }

    /// Remembers where someone was found by a look-up that began at `since`.
    pub(super) fn note(&self, user: UserId, server: ServerId, since: Instant) {
        self.0.insert(user, Seen { server, since });
    }

    pub(super) fn forget(&self, user: &UserId) {
        self.0.remove(user);
    }

    /// Forgets all: a server may be gone, and its users with it.
    pub(super) fn forget_all(&self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_ends_by_time_and_by_word() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (alice, server): (UserId, ServerId) = ("alice".parse().unwrap(), "local1".parse().unwrap());
        memory.note(alice.clone(), server.clone(), now);
        assert_eq!(memory.recall(&alice, now), Some(server.clone()));
        assert_eq!(memory.recall(&alice, now + LASTS), None);
        memory.forget(&alice);
        assert_eq!(memory.recall(&alice, now), None);
        memory.note(alice.clone(), server, now);
        memory.forget_all();
        assert_eq!(memory.recall(&alice, now), None);
    }
}
