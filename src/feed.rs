//! A room's log to this server's sessions: in `seq` order, each entry once, gaps healed from the store.
//!
//! Entries come from the router (committed here) and from the relay (committed elsewhere), in any order. A session in
//! a room is either live, and is pushed what comes, or catching up, and reads pages from the store until a page ends
//! at what has been pushed. The rules are in `room`; this file finds the room and fills its gaps.

mod arrival;
mod receipts;
mod room;

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::quality::RandomState;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::warn;

use crate::ids::{RoomId, ServerId, SessionId, UserId};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::protocol::TracePath;
use crate::rooms::Rooms;
use crate::sessions::{Session, Sessions};
use crate::store::{Error, Head, Page, Store};
pub use arrival::{Arrival, Given, message_view};
pub use receipts::Receipt;
use receipts::Shown;
pub use room::Standing;
use room::{Effect, Room};

/// How long a gap may close by itself before the store is asked. Two servers that send into one room at once are
/// apart by a network round trip.
const REORDER_WINDOW: Duration = Duration::from_millis(50);

/// How long to wait after the store failed to answer, or did not have what is said to exist.
const HEAL_RETRY: Duration = Duration::from_millis(500);

/// How often the store is asked for entries that it does not have before they are given up: about a minute.
const HEAL_TRIES: u32 = 120;

/// How many gaps are filled at once; the others wait. Healing must not take the database from those who send.
const HEALS_AT_ONCE: usize = 8;

/// The most entries, and bytes, that one read of a heal asks for.
const HEAL_PAGE: (u32, usize) = (200, 128 * 1024);

/// How many users' rooms are compared with the store in one read.
const COMPARE_CHUNK: usize = 200;

/// The rooms in which this server has sessions. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    own: ServerId,
    rooms: DashMap<RoomId, Arc<Room>, RandomState>,
    sessions: Sessions,
    lists: Rooms,
    store: Store,
    lifecycle: Lifecycle,
    metrics: Arc<Metrics>,
    heals: Semaphore,
    shown: Shown,
}

/// A session's place in a room; it is given up when this is dropped.
#[derive(Debug)]
pub struct Attachment {
    feed: Feed,
    room: Arc<Room>,
    session: SessionId,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let effect = self.room.lock().detach(self.session);
        self.feed.follow_up(&self.room, effect);
        self.feed.retire_unused(&self.room.id);
    }
}

impl Attachment {
    /// What the session is in the room now.
    pub fn standing(&self) -> Standing {
        self.room.lock().standing(self.session)
    }

    /// The seq from which the session is to read on, if it is in the room.
    pub fn from(&self) -> Option<u64> {
        self.room.lock().from(self.session)
    }

    /// Tries to make the session live, which has all up to `last` of a room whose latest entry is at or past `head`.
    /// Where more has been pushed or is known, it is to read on.
    pub fn go_live(&self, last: u64, head: u64) -> Standing {
        let (effect, standing) = {
            let mut state = self.room.lock();
            (state.learn(head), state.go_live(self.session, last))
        };
        self.feed.follow_up(&self.room, effect);
        standing
    }
}

impl Feed {
    /// An empty feed of server `own`.
    pub fn new(
        own: ServerId,
        sessions: Sessions,
        lists: Rooms,
        store: Store,
        lifecycle: Lifecycle,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (rooms, heals, shown) = (DashMap::default(), Semaphore::new(HEALS_AT_ONCE), Shown::new());
        Self(Arc::new(Inner { own, rooms, sessions, lists, store, lifecycle, metrics, heals, shown }))
    }

    /// Takes a session into a room, catching up, which has all below `from`.
    pub fn attach(&self, session: &Arc<Session>, room: &RoomId, from: u64) -> Attachment {
        let room = {
            let entry = self.0.rooms.entry(room.clone()).or_insert_with(|| Arc::new(Room::new(room.clone())));
            // Under the map's guard, so that the room is not retired before the session is in it.
            entry.lock().attach(session, from);
            Arc::clone(&entry)
        };
        Attachment { feed: self.clone(), room, session: session.id }
    }

    /// Takes an entry. `recipients` are the members for whom it came; sessions of theirs that are in no such room yet
    /// are told to look.
    pub fn arrive<'a>(&self, arrival: Arrival, recipients: impl Iterator<Item = &'a UserId> + Clone) {
        // Before the room is looked for: a session that is not entering any more is in the room that is found.
        for session in self.0.sessions.entering(recipients.clone()) {
            session.note(&arrival.room, arrival.seq);
        }
        let path = arrival.path;
        self.forget_older_list(&arrival);
        let Some(room) = self.room(&arrival.room) else { return self.announce(&arrival, recipients) };
        let mut state = room.lock();
        if state.retired {
            drop(state);
            return self.arrive(arrival, recipients);
        }
        let effect = state.arrive(arrival);
        drop(state);
        self.0.metrics.delivered(path, effect.delivered);
        self.follow_up(&room, effect);
    }

    /// Learns that a room has entries up to `seq`, without having them.
    pub fn learn(&self, room: &RoomId, seq: u64) {
        if let Some(room) = self.room(room) {
            let effect = room.lock().learn(seq);
            self.follow_up(&room, effect);
        }
    }

    /// The latest seq that is known of a room; 0 where nothing is.
    pub fn known(&self, room: &RoomId) -> u64 {
        self.room(room).map_or(0, |room| room.lock().known())
    }

    /// Compares the rooms of all sessions with the store and heals what is missing: entries in rooms they are in, and
    /// rooms they do not know of.
    pub async fn compare_with_store(&self) {
        for users in self.0.sessions.users().chunks(COMPARE_CHUNK) {
            while let Err(error) = self.compare_users(users).await {
                warn!(%error, "cannot compare with the store yet");
                sleep(HEAL_RETRY).await;
            }
        }
    }

    async fn compare_users(&self, users: &[UserId]) -> Result<(), Error> {
        self.compare(&self.0.store.heads(users).await?);
        Ok(())
    }

    fn compare(&self, heads: &[Head]) {
        for head in heads {
            self.remind(&head.room, head.head, &head.user);
        }
    }

    /// Sees to it that the sessions of a member lack nothing of a room up to `seq`, which exists: an entry that is
    /// missing, or the room altogether. Costs next to nothing where nothing is.
    pub fn remind(&self, room: &RoomId, seq: u64, member: &UserId) {
        self.learn(room, seq);
        for session in self.0.sessions.of(member) {
            let standing = self.room(room).map(|room| room.lock().standing(session.id));
            if standing.unwrap_or(Standing::Out) == Standing::Out {
                session.note(room, seq);
            }
        }
    }

    /// Sees to it that, where this is a membership change, signals go by it: whichever way it came.
    pub fn forget_older_list(&self, arrival: &Arrival) {
        if arrival.event.is_some() {
            self.0.lists.changed(&arrival.room, arrival.seq);
        }
    }

    fn room(&self, room: &RoomId) -> Option<Arc<Room>> {
        self.0.rooms.get(room).map(|entry| Arc::clone(&entry))
    }

    fn retire_unused(&self, room: &RoomId) {
        self.0.rooms.remove_if(room, |_, room| {
            let mut state = room.lock();
            state.retired = state.is_unused();
            state.retired
        });
    }

    /// An entry of a room in which no session is: those whom it is for are connecting, or have just become members.
    fn announce<'a>(&self, arrival: &Arrival, recipients: impl Iterator<Item = &'a UserId>) {
        if let Some(origin) = &arrival.origin {
            origin.note(&arrival.room, arrival.seq);
            room::owe(arrival);
        }
        for session in recipients.flat_map(|user| self.0.sessions.of(user)) {
            session.note(&arrival.room, arrival.seq);
        }
    }

    fn follow_up(&self, room: &Arc<Room>, effect: Effect) {
        self.tell_joined(&room.id, &effect);
        if effect.gap {
            self.heal(room);
        }
    }

    /// Sessions of users who have become members are told to read from their join on.
    fn tell_joined(&self, room: &RoomId, effect: &Effect) {
        for (user, seq) in &effect.joined {
            for session in self.0.sessions.of(user) {
                session.note(room, *seq);
            }
        }
    }

    /// Sees to it that a room's gap is filled; by one task a room.
    fn heal(&self, room: &Arc<Room>) {
        if std::mem::replace(&mut room.lock().healing, true) {
            return;
        }
        let (feed, room) = (self.clone(), Arc::clone(room));
        self.0.lifecycle.spawn("heal", async move { feed.fill_gap(&room).await });
    }

    async fn fill_gap(&self, room: &Room) {
        sleep(REORDER_WINDOW).await;
        // The semaphore is never closed.
        let _permit = self.0.heals.acquire().await;
        let mut tries = 0;
        while let Some(after) = self.gap(room, tries) {
            let page = self.0.store.range(&room.id, after, HEAL_PAGE.0, HEAL_PAGE.1).await;
            match page {
                Ok(page) if !page.entries.is_empty() => self.apply(room, page),
                Ok(_) => tries += 1,
                Err(error) => warn!(room = %room.id, %error, "cannot fill a gap yet"),
            }
            if self.0.lifecycle.stop.is_cancelled() {
                return;
            }
            if room.lock().next() == after + 1 {
                sleep(HEAL_RETRY).await;
            }
        }
    }

    /// The seq after which something is missing; none, and no longer healing, where nothing is.
    fn gap(&self, room: &Room, tries: u32) -> Option<u64> {
        let mut state = room.lock();
        if tries > HEAL_TRIES && state.has_gap() {
            warn!(room = %room.id, seq = state.next(), "an entry that was announced is not in the store");
            state.forget_gap();
        }
        state.healing = state.has_gap();
        state.healing.then(|| state.next() - 1)
    }

    fn apply(&self, room: &Room, page: Page) {
        for entry in page.entries {
            let arrival = Arrival::new(entry, self.0.own.clone(), TracePath::Healed, None);
            self.forget_older_list(&arrival);
            let effect = room.lock().arrive(arrival);
            self.0.metrics.delivered(TracePath::Healed, effect.delivered);
            self.tell_joined(&room.id, &effect);
        }
    }
}
