//! One room as this server's sessions see it: who is live in it, what comes next, what came too early.
//!
//! A state machine without I/O. It is driven by arrivals, in any order and any number of times, and pushes each entry
//! once, in `seq` order, to the sessions that are live.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Arrival;
use super::arrival::Pushed;
use crate::ids::{RoomId, SessionId, UserId};
use crate::sessions::{Owed, Session};
use crate::store::EventKind;

/// How far ahead of what is expected an arrival is kept. With more missing than this, sessions read the store instead,
/// each at its own pace.
const MAX_EARLY: u64 = if cfg!(test) { 8 } else { 1_024 };

/// How many bytes of early arrivals a room keeps.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// A room in which this server has sessions.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) id: RoomId,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    room: RoomId,
    /// What the live sessions expect; all that is below is in the store.
    next: u64,
    /// The latest seq known to exist.
    known: u64,
    seated: Vec<Seated>,
    live: usize,
    early: BTreeMap<u64, Arrival>,
    early_bytes: usize,
    /// A task is filling the gap.
    pub(super) healing: bool,
    /// Taken out of the map: whoever still holds it looks again.
    pub(super) retired: bool,
}

#[derive(Debug)]
struct Seated {
    session: Arc<Session>,
    /// What is below this the session has, or is not to have: it is pushed from here on, or reads from here on.
    from: u64,
    /// It is pushed what comes; otherwise it reads the store.
    live: bool,
}

/// What a session is in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Pushed what comes.
    Live,
    /// Reading from the store.
    CatchingUp,
    /// Not in it.
    Out,
}

/// What an arrival came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// How many sessions were pushed a message, of what had waited for this one included.
    pub(super) delivered: u64,
    /// Who has come to be a member, with the seq of their join: their sessions are to be told.
    pub(super) joined: Vec<(UserId, u64)>,
    /// Something is missing before what is known.
    pub(super) gap: bool,
}

impl Room {
    pub(super) fn new(id: RoomId) -> Self {
        let state = State {
            room: id.clone(),
            next: 1,
            known: 0,
            seated: Vec::new(),
            live: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            healing: false,
            retired: false,
        };
        Self { id, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a session in, catching up, which has all below `from`.
    pub(super) fn attach(&mut self, session: &Arc<Session>, from: u64) {
        if self.seat(session.id).is_none() {
            self.seated.push(Seated { session: Arc::clone(session), from, live: false });
        }
    }

    /// Puts a session out.
    pub(super) fn detach(&mut self, session: SessionId) -> Effect {
        let mut effect = Effect::default();
        if let Some(index) = self.seated.iter().position(|seated| seated.session.id == session) {
            self.remove(index);
            self.settle(&mut effect);
        }
        effect
    }

    /// Nobody is in it.
    pub(super) fn is_unused(&self) -> bool {
        self.seated.is_empty()
    }

    /// The sessions that are in it.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.seated.iter().map(|seated| &seated.session)
    }

    /// What a session is here.
    pub(super) fn standing(&self, session: SessionId) -> Standing {
        match self.seat(session) {
            Some(seated) if seated.live => Standing::Live,
            Some(_) => Standing::CatchingUp,
            None => Standing::Out,
        }
    }

    /// The seq from which a session is pushed, or has to read on; none where it is out.
    pub(super) fn from(&self, session: SessionId) -> Option<u64> {
        self.seat(session).map(|seated| seated.from)
    }

    /// Makes a session live that has all up to `last`, if nothing past that was pushed or is known; otherwise it must
    /// read on.
    pub(super) fn go_live(&mut self, session: SessionId, last: u64) -> Standing {
        if self.live == 0 {
            self.next = self.next.max(self.known + 1);
        }
        let (behind, first) = (last + 1 < self.next, self.live == 0);
        let Some(seated) = self.seated.iter_mut().find(|seated| seated.session.id == session) else {
            return Standing::Out;
        };
        if seated.live {
            return Standing::Live;
        }
        seated.from = seated.from.max(last + 1);
        if behind {
            return Standing::CatchingUp;
        }
        seated.live = true;
        self.live += 1;
        if first {
            self.next = last + 1;
        }
        Standing::Live
    }

    /// What is expected next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The latest seq known to exist; 0 where none is.
    pub(super) fn known(&self) -> u64 {
        self.known.max(self.next - 1)
    }

    /// Whether entries up to what is known are missing to live sessions.
    pub(super) fn has_gap(&self) -> bool {
        self.live > 0 && self.next <= self.known
    }

    /// Learns that `seq` exists, without having it. The effect says whether something is missing now.
    pub(super) fn learn(&mut self, seq: u64) -> Effect {
        let mut effect = Effect::default();
        self.known = self.known.max(seq);
        if self.live > 0 && self.known >= self.next + MAX_EARLY {
            self.demote(&mut effect);
        }
        self.settle(&mut effect);
        effect.gap = self.has_gap();
        effect
    }

    /// Gives up on entries that the store does not have.
    pub(super) fn forget_gap(&mut self) {
        self.known = self.next - 1;
        self.early.clear();
        self.early_bytes = 0;
    }

    /// Takes an entry, from wherever it comes.
    pub(super) fn arrive(&mut self, arrival: Arrival) -> Effect {
        let mut effect = Effect::default();
        self.known = self.known.max(arrival.seq);
        if arrival.seq < self.next {
            self.answer_origin(&arrival);
            // It may have been skipped while nobody was live, and then nobody was told who joined.
            note_joined(&arrival, &mut effect);
        } else if self.live == 0 {
            self.answer_origin(&arrival);
            self.follow(&arrival, &mut effect);
        } else if arrival.seq == self.next {
            self.push(&arrival, &mut effect);
            self.push_early(&mut effect);
        } else {
            self.keep(arrival, &mut effect);
        }
        self.settle(&mut effect);
        effect.gap = self.has_gap();
        effect
    }

    /// Keeps an entry that came before one that is expected first.
    fn keep(&mut self, arrival: Arrival, effect: &mut Effect) {
        let bytes = arrival.frame.len();
        if let std::collections::btree_map::Entry::Vacant(place) = self.early.entry(arrival.seq) {
            place.insert(arrival);
            self.early_bytes += bytes;
        }
        if self.known >= self.next + MAX_EARLY || self.early_bytes > MAX_EARLY_BYTES {
            self.demote(effect);
        }
    }

    /// Pushes what had waited for the entry before it.
    fn push_early(&mut self, effect: &mut Effect) {
        while let Some(waited) = self.early.remove(&self.next) {
            self.early_bytes -= waited.frame.len();
            self.push(&waited, effect);
        }
    }

    /// Pushes the entry that was expected. A session that has no room for it reads on in the store, at its own pace: a
    /// burst must not cost a healthy client its connection.
    fn push(&mut self, arrival: &Arrival, effect: &mut Effect) {
        self.next = arrival.seq + 1;
        for seated in self.seated.iter_mut().filter(|seated| seated.is_pushed(arrival.seq)) {
            match arrival.push_to(&seated.session) {
                Pushed::Delivered => effect.delivered += 1,
                Pushed::Answered => {}
                Pushed::Full => {
                    seated.session.note(&self.room, self.known);
                    seated.from = arrival.seq;
                    seated.live = false;
                    self.live -= 1;
                }
            }
        }
        let is_answered = |origin: &Arc<Session>| self.seat(origin.id).is_some_and(|seat| seat.is_pushed(arrival.seq));
        if !arrival.origin.as_ref().is_some_and(is_answered) {
            self.answer_origin(arrival);
        }
        self.follow(arrival, effect);
    }

    /// The list of sessions follows the log: who left gets nothing from the next entry on, who joined is to be told.
    fn follow(&mut self, arrival: &Arrival, effect: &mut Effect) {
        note_joined(arrival, effect);
        let Some(event) = arrival.event.as_ref().filter(|event| event.kind == EventKind::Left) else { return };
        // A session that is past this has read of a later join in the store, which this must not undo.
        let leaves = |seated: &Seated| seated.from <= arrival.seq && event.users.contains(&seated.session.user);
        while let Some(index) = self.seated.iter().position(leaves) {
            self.remove(index);
        }
    }

    /// Where the sending session is not answered by what it is pushed, its task answers; and where it is not in the
    /// room, its own join being on the way, it is told to look.
    fn answer_origin(&self, arrival: &Arrival) {
        let Some(origin) = &arrival.origin else { return };
        if self.seat(origin.id).is_none() {
            origin.note(&arrival.room, arrival.seq);
        }
        owe(arrival);
    }

    /// Too much is missing to wait for: everyone reads the store, at their own pace.
    fn demote(&mut self, effect: &mut Effect) {
        for seated in self.seated.iter_mut().filter(|seated| seated.live) {
            // What it has is what was pushed: it reads on from there.
            seated.from = seated.from.max(self.next);
            seated.live = false;
            seated.session.note(&self.room, self.known);
        }
        self.live = 0;
        self.settle(effect);
    }

    fn remove(&mut self, index: usize) {
        self.live -= usize::from(self.seated.swap_remove(index).live);
    }

    fn seat(&self, session: SessionId) -> Option<&Seated> {
        self.seated.iter().find(|seated| seated.session.id == session)
    }

    /// With nobody live, nothing is expected: what is known can be read from the store. Of what came early, the changes
    /// of the membership count, and that its senders wait for an answer.
    fn settle(&mut self, effect: &mut Effect) {
        if self.live > 0 {
            return;
        }
        for arrival in std::mem::take(&mut self.early).into_values() {
            self.answer_origin(&arrival);
            self.follow(&arrival, effect);
        }
        self.early_bytes = 0;
        self.next = self.next.max(self.known + 1);
    }
}

impl Seated {
    fn is_pushed(&self, seq: u64) -> bool {
        self.live && self.from <= seq
    }
}

fn note_joined(arrival: &Arrival, effect: &mut Effect) {
    let joined = arrival.event.iter().filter(|event| event.kind != EventKind::Left).flat_map(|event| &event.users);
    effect.joined.extend(joined.map(|user| (user.clone(), arrival.seq)));
}

/// Hands the sending session's task the answer, to be written unless the session gets it in another way.
pub(super) fn owe(arrival: &Arrival) {
    if let (Some(origin), Some(cid)) = (&arrival.origin, &arrival.cid) {
        let (room, cid) = (arrival.room.clone(), cid.clone());
        origin.owe(Owed { room, seq: arrival.seq, sent: arrival.sent(&cid), cid });
    }
}

#[cfg(test)]
mod tests;
