//! Messages that are committed together.

use foldhash::{HashSet, HashSetExt};

use super::{Done, Job, Place, Queued};
use crate::ids::RoomId;
use crate::store::{Append, Appended, Error};

/// The most bytes of bodies in one commit.
const MAX_BYTES: usize = 1 << 20;

/// The most rooms in one commit: each costs some pages that may have to be read, and that are kept until they are written.
const MAX_ROOMS: usize = 512;

/// Messages in the order in which they came.
#[derive(Debug)]
pub(super) struct Batch<T> {
    appends: Vec<Append>,
    /// Of each message, where it came from and its place in the queue.
    tags: Vec<(T, Place)>,
    rooms: HashSet<RoomId>,
    bytes: usize,
}

impl<T> Batch<T> {
    pub(super) fn new() -> Self {
        Self { appends: Vec::new(), tags: Vec::new(), rooms: HashSet::new(), bytes: 0 }
    }

    /// Whether one more fits, where there may be `most`. The first always does.
    pub(super) fn fits(&self, next: &Queued<T>, most: usize) -> bool {
        let append = &next.job.append;
        let in_bounds = self.appends.len() < most && self.bytes + append.body.len() <= MAX_BYTES;
        let has_room = self.rooms.len() < MAX_ROOMS || self.rooms.contains(&append.room);
        self.appends.is_empty() || in_bounds && has_room
    }

    pub(super) fn push(&mut self, Queued { job, place }: Queued<T>) {
        self.bytes += job.append.body.len();
        if !self.rooms.contains(&job.append.room) {
            self.rooms.insert(job.append.room.clone());
        }
        self.appends.push(job.append);
        self.tags.push((job.origin, place));
    }

    pub(super) fn appends(&self) -> &[Append] {
        &self.appends
    }

    /// Whether it is of more than one room.
    pub(super) fn is_of_several_rooms(&self) -> bool {
        self.rooms.len() > 1
    }

    /// One batch for each room.
    pub(super) fn by_room(self) -> Vec<Self> {
        let mut rooms: Vec<Self> = Vec::new();
        for queued in self.into_queued() {
            let same = |batch: &&mut Self| batch.appends[0].room == queued.job.append.room;
            match rooms.iter_mut().find(same) {
                Some(batch) => batch.push(queued),
                None => rooms.push([queued].into_iter().collect()),
            }
        }
        rooms
    }

    /// The earlier and the later half.
    pub(super) fn halves(self) -> [Self; 2] {
        let half = self.appends.len() / 2;
        let mut queued = self.into_queued();
        [queued.by_ref().take(half).collect(), queued.collect()]
    }

    /// What is said of it once its outcomes are known. Its places in the queue are free then.
    pub(super) fn done(self, outcomes: Vec<Appended>) -> Vec<Done<T>> {
        let outcomes = outcomes.into_iter().map(Ok);
        self.into_queued().zip(outcomes).map(|(queued, outcome)| queued.job.done(outcome)).collect()
    }

    /// What is said of it when it failed as a whole.
    pub(super) fn failed(self, error: &Error) -> Vec<Done<T>> {
        self.into_queued().map(|queued| queued.job.done(Err(error.clone()))).collect()
    }

    fn into_queued(self) -> impl Iterator<Item = Queued<T>> {
        self.appends
            .into_iter()
            .zip(self.tags)
            .map(|(append, (origin, place))| Queued { job: Job { append, origin }, place })
    }
}

impl<T> FromIterator<Queued<T>> for Batch<T> {
    fn from_iter<I: IntoIterator<Item = Queued<T>>>(queued: I) -> Self {
        let mut batch = Self::new();
        queued.into_iter().for_each(|queued| batch.push(queued));
        batch
    }
}

impl<T> Job<T> {
    pub(super) fn done(self, outcome: Result<Appended, Error>) -> Done<T> {
        Done { append: self.append, origin: self.origin, outcome }
    }
}
