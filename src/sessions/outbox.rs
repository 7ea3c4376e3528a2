//! What waits for one session's task: frames, bounded in bytes, and notes that there is more to read.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{Cid, RoomId};
use crate::protocol::Frame;

/// What became of a frame for one session.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// It waits in the session's outbox.
    Queued,
    /// There was no room for it.
    Full,
    /// The session has ended.
    Gone,
}

/// Whether the answer to a send is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// From now on.
    Now,
    /// It was before: the client repeats itself.
    Before,
    /// It is not: too many are.
    TooMany,
}

/// What had gathered for a session's task.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Frames to write, in order.
    pub frames: VecDeque<Frame>,
    /// Rooms with entries that the session was not live for, with the latest seq known to exist.
    pub notes: HashMap<RoomId, u64>,
    /// Answers to sends whose entries were not pushed to the session.
    pub owed: Vec<Owed>,
}

/// The answer to a send, to be written unless the session is about to read that entry from the store anyway.
#[derive(Debug)]
pub struct Owed {
    /// Where it is stored.
    pub room: RoomId,
    /// Its place there.
    pub seq: u64,
    /// The sender's mark.
    pub cid: Cid,
    /// The answer.
    pub sent: Frame,
}

/// Empty, it owns no memory beyond itself: most sessions are idle most of the time.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Waiting,
    bytes: usize,
    limit: usize,
    outstanding: HashSet<Cid>,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self { waiting: Waiting::default(), bytes: 0, limit, outstanding: HashSet::new() }
    }

    pub(super) fn push(&mut self, frame: &Frame) -> Push {
        self.push_within(frame, self.limit)
    }

    pub(super) fn push_volatile(&mut self, frame: &Frame) -> Push {
        self.push_within(frame, self.limit / 2)
    }

    fn push_within(&mut self, frame: &Frame, limit: usize) -> Push {
        if self.bytes + frame.len() > limit {
            return Push::Full;
        }
        self.bytes += frame.len();
        self.waiting.frames.push_back(frame.clone());
        Push::Queued
    }

    pub(super) fn note(&mut self, room: &RoomId, known: u64) {
        match self.waiting.notes.get_mut(room) {
            Some(noted) => *noted = known.max(*noted),
            None => _ = self.waiting.notes.insert(room.clone(), known),
        }
    }

    /// Bounded by what the client may have outstanding, since each answers one of its frames.
    pub(super) fn owe(&mut self, owed: Owed) {
        self.waiting.owed.push(owed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.frames.is_empty() && self.waiting.notes.is_empty() && self.waiting.owed.is_empty()
    }

    pub(super) fn awaits(&self, cid: &Cid) -> bool {
        self.outstanding.contains(cid)
    }

    pub(super) fn is_awaiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    pub(super) fn take(&mut self) -> Waiting {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn expect(&mut self, cid: &Cid, most: usize) -> Expected {
        if self.outstanding.contains(cid) {
            Expected::Before
        } else if self.outstanding.len() >= most {
            Expected::TooMany
        } else {
            self.outstanding.insert(cid.clone());
            Expected::Now
        }
    }

    pub(super) fn answered(&mut self, cid: &Cid) -> bool {
        let was = self.outstanding.remove(cid);
        if self.outstanding.is_empty() {
            self.outstanding = HashSet::new();
        }
        was
    }
}
