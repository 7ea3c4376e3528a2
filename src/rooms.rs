//! Who is in a room: the member lists that this server sends by.
//!
//! A list is kept with the seq of the membership change that led to it. The commit of a message says which change it
//! came after, so a list that is older is loaded again before anything is sent by it: no server needs to tell the
//! others.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ids::{MessageId, RoomId, UserId};
use crate::store::{Changed, Error, Membership, Refusal, Store};

/// How many member lists are kept. Of a room that falls out, the list is loaded again.
const LISTS: usize = 50_000;

/// How long a list may take, the wait for who reads it included.
const LIMIT: Duration = Duration::from_secs(5);

/// How many direct rooms are kept by their pair of users.
const DIRECTS: usize = 50_000;

/// Member lists and direct rooms, as far as they are known here. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Rooms(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    lists: Cache<RoomId, Arc<Membership>>,
    /// The latest change that was heard of, by room: a list that was being loaded meanwhile may be older.
    changes: Cache<RoomId, u64>,
    directs: Cache<(UserId, UserId), RoomId>,
}

impl Rooms {
    /// Knows nothing yet.
    pub fn new(store: Store) -> Self {
        Self(Arc::new(Inner {
            store,
            lists: Cache::new(LISTS),
            changes: Cache::new(LISTS),
            directs: Cache::new(DIRECTS),
        }))
    }

    /// The members of a room, as of the change `version` or a later one; 0 takes any.
    ///
    /// # Errors
    /// `NotFound` where there is no such room; [`Error::Unavailable`] where there is no answer within 5 s; otherwise what
    /// the store says.
    pub async fn members(&self, room: &RoomId, version: u64) -> Result<Arc<Membership>, Error> {
        if let Some(list) = self.0.lists.get(room).filter(|list| list.version >= version) {
            return Ok(list);
        }
        // Boxed, so that who mostly finds the list here need not have room for reading it.
        timeout(LIMIT, Box::pin(self.find(room, version)))
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the member list took too long".into())))
    }

    /// Reads a list that is not here. Those who look for it meanwhile wait for the same read: many send into a room that
    /// has just come to be known, and each with a read of its own would take the database from all others.
    async fn find(&self, room: &RoomId, version: u64) -> Result<Arc<Membership>, Error> {
        // A read that others wait for may have begun before the change that is asked for, or one that was heard of since.
        let version = version.max(self.0.changes.get(room).unwrap_or(0));
        loop {
            let (list, began) = self.read_once(room).await?;
            // After it is in: a change that came while it was read has been noted by now, or will find it.
            if let Some(latest) = self.0.changes.get(room) {
                self.forget_older(room, latest);
            }
            if list.version >= version || began {
                return Ok(list);
            }
            self.forget_older(room, version);
            // The one who has read it may not have come to put it there.
            yield_now().await;
        }
    }

    /// The list that is here by now, or read; and whether the read was begun here.
    async fn read_once(&self, room: &RoomId) -> Result<(Arc<Membership>, bool), Error> {
        match self.0.lists.get_value_or_guard_async(room).await {
            Ok(list) => Ok((list, false)),
            Err(guard) => {
                let list = Arc::new(self.0.store.membership(room).await?.ok_or(Refusal::NotFound)?);
                // Where it was taken out meanwhile, the next one reads it again.
                let _ = guard.insert(Arc::clone(&list));
                Ok((list, true))
            }
        }
    }

    /// Learns of a membership change: what is older is forgotten.
    pub fn changed(&self, room: &RoomId, version: u64) {
        // Most who connect meet nothing new.
        if self.0.changes.get(room).is_none_or(|latest| latest < version) {
            self.0.changes.insert(room.clone(), version);
        }
        self.forget_older(room, version);
    }

    fn forget_older(&self, room: &RoomId, version: u64) {
        if self.0.lists.get(room).is_some_and(|list| list.version < version) {
            self.0.lists.remove(room);
        }
    }

    /// The direct room of two users, made when it is missing; with the entry that its making wrote.
    ///
    /// # Errors
    /// What the store says.
    pub async fn direct(&self, from: &UserId, to: &UserId, id: MessageId) -> Result<Changed, Error> {
        let pair = if from <= to { (from.clone(), to.clone()) } else { (to.clone(), from.clone()) };
        if let Some(room) = self.0.directs.get(&pair) {
            return Ok(Changed { room, entry: None });
        }
        let changed = Box::pin(self.0.store.direct(from, to, id)).await?;
        self.0.directs.insert(pair, changed.room.clone());
        Ok(changed)
    }
}

impl Membership {
    /// The members, without the seq of their join.
    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        self.members.iter().map(|(user, _)| user)
    }

    /// The members who see the entry `seq`: those whose last join is not after it.
    pub fn seeing(&self, seq: u64) -> impl Iterator<Item = &UserId> + Clone {
        self.members.iter().filter(move |(_, since)| *since <= seq).map(|(user, _)| user)
    }

    /// Whether a user is a member.
    pub fn has(&self, user: &UserId) -> bool {
        self.members.binary_search_by(|(member, _)| member.cmp(user)).is_ok()
    }
}
