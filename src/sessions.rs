//! Who is connected here: user -> sessions of this server.
//!
//! What this map says is the truth about this server's users; the registry is told of each change. No guard of the map
//! leaves this module, and nothing in here waits.

mod outbox;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::quality::RandomState;
use tokio::sync::Notify;

use crate::ids::{Cid, DeviceId, RoomId, SessionId, UserId};
use crate::protocol::{Close, Frame};
use outbox::Outbox;
pub use outbox::{Expected, Owed, Push, Waiting};

/// The most sends of one session that may be waiting for their answer.
const MAX_OUTSTANDING: usize = 1_024;

/// The local session map. A clone is another handle to the same map.
#[derive(Debug, Clone, Default)]
pub struct Sessions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    users: DashMap<UserId, Vec<Arc<Session>>, RandomState>,
    /// Users whose first session came or whose last one left, until they are taken; a set, so that it cannot outgrow
    /// the users.
    changed: Mutex<HashSet<UserId>>,
    wake: Notify,
    /// How many sessions are entering their rooms.
    entering: AtomicUsize,
}

/// One connection of one user.
#[derive(Debug)]
pub struct Session {
    /// Its id, unique in the cluster.
    pub id: SessionId,
    /// Whose it is.
    pub user: UserId,
    /// On which of their devices.
    pub device: Option<DeviceId>,
    /// Whether it wants to be told how messages travelled.
    pub trace: bool,
    /// It has entered the rooms that its user was in when it came.
    entered: AtomicBool,
    outbox: Mutex<Outbox>,
    wake: Notify,
    end: OnceLock<Close>,
}

/// A seat in the map. The session leaves it when this is dropped, however its task ends.
#[derive(Debug)]
pub struct Seat {
    /// The session that sits here.
    pub session: Arc<Session>,
    sessions: Sessions,
}

impl Seat {
    /// Says that the session has entered its rooms: from now on it hears of entries from the rooms themselves.
    pub fn entered(&self) {
        if !self.session.entered.swap(true, Ordering::SeqCst) {
            self.sessions.0.entering.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.entered();
        self.sessions.leave(&self.session);
    }
}

impl Sessions {
    /// Seats a session. Sessions of the same user and device that were seated before it are ended: the new one
    /// replaces them.
    pub fn seat(&self, session: Session) -> Seat {
        let session = Arc::new(session);
        self.0.entering.fetch_add(1, Ordering::SeqCst);
        let first = {
            let mut seated = self.0.users.entry(session.user.clone()).or_default();
            seated.push(Arc::clone(&session));
            seated.len() == 1
        };
        if first {
            self.note_change(&session.user);
        }
        if let Some(device) = &session.device {
            self.replace(&session.user, device, session.id);
        }
        Seat { session, sessions: self.clone() }
    }

    /// Ends the sessions of this user and device that are older than `newer`. Says how many.
    pub fn replace(&self, user: &UserId, device: &DeviceId, newer: SessionId) -> usize {
        let older = self.of(user).into_iter().filter(|old| old.device.as_ref() == Some(device) && old.id < newer);
        older.map(|old| old.end(Close::Replaced)).count()
    }

    /// The sessions of a user.
    pub fn of(&self, user: &UserId) -> Vec<Arc<Session>> {
        self.called(user.as_str())
    }

    /// The sessions of the user of this name.
    pub fn called(&self, name: &str) -> Vec<Arc<Session>> {
        self.0.users.get(name).map(|seated| seated.clone()).unwrap_or_default()
    }

    /// Those of the users' sessions that have not entered their rooms yet. Costs next to nothing while there are none.
    pub fn entering<'a>(&self, users: impl Iterator<Item = &'a UserId>) -> Vec<Arc<Session>> {
        if self.0.entering.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        users.flat_map(|user| self.of(user)).filter(|session| !session.entered.load(Ordering::SeqCst)).collect()
    }

    /// The user of this name, if they have a session here.
    pub fn named(&self, name: &str) -> Option<UserId> {
        self.0.users.get(name).map(|entry| entry.key().clone())
    }

    /// Whether a user has a session here.
    pub fn holds(&self, user: &UserId) -> bool {
        self.0.users.contains_key(user)
    }

    /// Whether a session has its seat here still.
    pub fn has(&self, session: &Session) -> bool {
        self.0.users.get(&session.user).is_some_and(|seated| seated.iter().any(|seated| seated.id == session.id))
    }

    /// All users with a session here.
    pub fn users(&self) -> Vec<UserId> {
        self.0.users.iter().map(|entry| entry.key().clone()).collect()
    }

    /// All sessions.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.0.users.iter().flat_map(|entry| entry.value().clone()).collect()
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.0.users.is_empty()
    }

    /// Waits until users may have come or left. Meant for one waiter.
    pub async fn changed(&self) {
        self.0.wake.notified().await;
    }

    /// Takes the users of whom the first session came or the last one left since the last call.
    pub fn take_changed(&self) -> Vec<UserId> {
        std::mem::take(&mut *self.changes()).into_iter().collect()
    }

    fn leave(&self, session: &Session) {
        let Entry::Occupied(mut entry) = self.0.users.entry(session.user.clone()) else { return };
        entry.get_mut().retain(|seated| seated.id != session.id);
        let last = entry.get().is_empty();
        if last {
            // The guard is given up with the entry, before the change is told.
            entry.remove();
        } else {
            drop(entry);
        }
        if last {
            self.note_change(&session.user);
        }
    }

    fn note_change(&self, user: &UserId) {
        self.changes().insert(user.clone());
        self.0.wake.notify_one();
    }

    fn changes(&self) -> std::sync::MutexGuard<'_, HashSet<UserId>> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// A session whose outbox holds at most `queue_bytes` of frames.
    pub fn new(id: SessionId, user: UserId, device: Option<DeviceId>, trace: bool, queue_bytes: usize) -> Self {
        let outbox = Mutex::new(Outbox::new(queue_bytes));
        let entered = AtomicBool::new(false);
        Self { id, user, device, trace, entered, outbox, wake: Notify::new(), end: OnceLock::new() }
    }

    /// Queues a frame, if there is room for it. What comes of one that finds none is the caller's to decide.
    pub fn push(&self, frame: &Frame) -> Push {
        self.queue(|outbox| outbox.push(frame))
    }

    /// Queues a frame that may be dropped, and is where the outbox is more than half full: what is volatile never ends
    /// a session and never takes the room of what is stored.
    pub fn push_volatile(&self, frame: &Frame) -> Push {
        self.queue(|outbox| outbox.push_volatile(frame))
    }

    fn queue(&self, push: impl FnOnce(&mut Outbox) -> Push) -> Push {
        let push = if self.is_closed() { Push::Gone } else { push(&mut self.outbox()) };
        if push == Push::Queued {
            self.wake.notify_one();
        }
        push
    }

    /// Tells the session's task that `room` has entries, up to `known` at least, which it was not live for.
    pub fn note(&self, room: &RoomId, known: u64) {
        self.outbox().note(room, known);
        self.wake.notify_one();
    }

    /// Hands the session's task the answer to a send whose entry is not pushed to it, to be written unless the session
    /// is about to read that entry from the store anyway.
    pub fn owe(&self, owed: Owed) {
        self.outbox().owe(owed);
        self.wake.notify_one();
    }

    /// Waits until something is queued or noted, or the session has ended. Cancel-safe; meant for the session's own
    /// task.
    pub async fn ready(&self) {
        while self.outbox().is_idle() && self.ended().is_none() {
            self.wake.notified().await;
        }
    }

    /// Waits until something is queued or noted, whether or not the session has ended. Cancel-safe; meant for the
    /// session's own task.
    pub async fn queued(&self) {
        while self.outbox().is_idle() {
            self.wake.notified().await;
        }
    }

    /// Waits until the session has ended. Cancel-safe; meant for the session's own task.
    pub async fn ending(&self) {
        while self.ended().is_none() {
            self.wake.notified().await;
        }
    }

    /// Whether a send waits for its answer.
    pub fn awaits_answers(&self) -> bool {
        self.outbox().is_awaiting()
    }

    /// Takes all that waits, if anything does.
    pub fn take(&self) -> Option<Waiting> {
        let mut outbox = self.outbox();
        (!outbox.is_idle()).then(|| outbox.take())
    }

    /// Notes a send that waits for its answer.
    pub fn expect(&self, cid: &Cid) -> Expected {
        self.outbox().expect(cid, MAX_OUTSTANDING)
    }

    /// Queues the answer to a send, if that is waited for. One step, so that it is never neither waited for nor queued:
    /// where there is no room for it, it is waited for still.
    pub fn answer(&self, cid: &Cid, answer: impl FnOnce() -> Frame) -> Option<Push> {
        let mut outbox = self.outbox();
        if !outbox.awaits(cid) {
            return None;
        }
        let push = if self.is_closed() { Push::Gone } else { outbox.push(&answer()) };
        if push != Push::Full {
            outbox.answered(cid);
        }
        drop(outbox);
        if push == Push::Queued {
            self.wake.notify_one();
        }
        Some(push)
    }

    /// Takes a send off the list of those that wait. Whether it was on it.
    pub fn answered(&self, cid: &Cid) -> bool {
        self.outbox().answered(cid)
    }

    /// Ends the session; the first reason counts.
    pub fn end(&self, close: Close) {
        let _ = self.end.set(close);
        self.wake.notify_one();
    }

    /// Why it ends, if it does.
    pub fn ended(&self) -> Option<Close> {
        self.end.get().copied()
    }

    /// Nothing more is taken: the session has ended. One that is sent away takes the answers to what it has sent.
    fn is_closed(&self) -> bool {
        self.ended().is_some_and(|close| close != Close::GoingAway)
    }

    fn outbox(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ServerFrame;

    fn session(id: u64, user: &str, device: Option<&str>) -> Session {
        let device = device.map(|device| device.parse().unwrap());
        Session::new(SessionId(id), user.parse().unwrap(), device, false, 100)
    }

    fn pong() -> Frame {
        ServerFrame::Pong { cid: None }.encode()
    }

    #[tokio::test]
    async fn a_user_is_here_until_the_last_session_leaves_and_each_change_is_told_once() {
        let sessions = Sessions::default();
        let alice: UserId = "alice".parse().unwrap();
        let phone = sessions.seat(session(1, "alice", None));
        sessions.changed().await;
        assert_eq!(sessions.take_changed(), std::slice::from_ref(&alice));
        let laptop = sessions.seat(session(2, "alice", None));
        drop(phone);
        assert!(sessions.holds(&alice));
        assert!(sessions.take_changed().is_empty());
        drop(laptop);
        assert!(!sessions.holds(&alice));
        sessions.changed().await;
        assert_eq!(sessions.take_changed(), [alice]);
    }

    #[test]
    fn a_newer_session_of_the_same_device_replaces_the_older_and_no_other() {
        let sessions = Sessions::default();
        let old = sessions.seat(session(1, "alice", Some("phone")));
        let other = sessions.seat(session(2, "alice", Some("laptop")));
        let nameless = sessions.seat(session(3, "alice", None));
        let new = sessions.seat(session(4, "alice", Some("phone")));
        assert_eq!(old.session.ended(), Some(Close::Replaced));
        for seat in [&other, &nameless, &new] {
            assert_eq!(seat.session.ended(), None);
        }
        drop(old);
        assert_eq!(sessions.of(&"alice".parse().unwrap()).len(), 3, "the late leave of the old one takes no other");
    }

    #[test]
    fn volatile_frames_leave_half_of_the_outbox_to_what_is_stored_and_no_full_outbox_ends_a_session() {
        let session = session(1, "alice", None);
        let mut volatile = 0;
        while session.push_volatile(&pong()) == Push::Queued {
            volatile += 1;
        }
        assert_eq!(volatile, 100 / 2 / pong().len());
        let mut stored = 0;
        while session.push(&pong()) == Push::Queued {
            stored += 1;
        }
        assert_eq!(volatile + stored, 100 / pong().len());
        assert_eq!(session.ended(), None);
        session.end(Close::Slow);
        assert_eq!(session.push(&pong()), Push::Gone);
    }
}
