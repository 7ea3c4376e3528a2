//! Where users were when they were last looked up.
//!
//! Only who was on one server is remembered. That this is still so, or not, is what the server says that an item goes to:
//! one that takes a user whom another has tells that one before it welcomes them. Where it cannot, or the one does not
//! answer, others may miss what is sent for as long as a place is remembered; they read it in the store. That somebody is
//! nowhere is never remembered.

use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::ids::{ServerId, UserId};

/// How many users are remembered.
const USERS: usize = 65_536;

/// For how long. Short, since it is what bounds all that is above; a look-up each ten seconds costs nothing.
const LASTS: Duration = Duration::from_secs(10);

/// What is remembered.
#[derive(Debug)]
pub(super) struct Remembered(Cache<UserId, Seen>);

#[derive(Debug, Clone)]
struct Seen {
    server: ServerId,
    since: Instant,
}

impl Default for Remembered {
    fn default() -> Self {
        Self(Cache::new(USERS))
    }
}

impl Remembered {
    /// Where someone was, if that may still be relied on.
    pub(super) fn recall(&self, user: &UserId, now: Instant) -> Option<ServerId> {
        let seen = self.0.get(user)?;
        (now.saturating_duration_since(seen.since) < LASTS).then_some(seen.server)
    }

    /// Remembers where someone was found by a look-up that began at `since`.
    pub(super) fn note(&self, user: UserId, server: ServerId, since: Instant) {
        self.0.insert(user, Seen { server, since });
    }

    /// Forgets where someone was.
    pub(super) fn forget(&self, user: &UserId) {
        self.0.remove(user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_ends_by_time_and_by_word() {
        let (remembered, now) = (Remembered::default(), Instant::now());
        let (alice, server): (UserId, ServerId) = ("alice".parse().unwrap(), "local1".parse().unwrap());
        remembered.note(alice.clone(), server.clone(), now);
        assert_eq!(remembered.recall(&alice, now), Some(server.clone()));
        assert_eq!(remembered.recall(&alice, now + LASTS), None);
        remembered.forget(&alice);
        assert_eq!(remembered.recall(&alice, now), None);
    }
}
