//! The group commit: many messages of many connections in one commit.
//!
//! Messages queue in lanes, a room always in the same one, and each lane has one commit under way at a time. A message
//! that finds its lane idle is committed at once; what comes while a commit is under way gathers for the next. So
//! nobody waits for a timer, and the load makes the batches as large as they need to be.

mod batch;
mod lane;
mod settle;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Append, Appended, Error, Store};
use crate::ids::RoomId;
use lane::{Committer, Lane};
use settle::Settler;

/// The most messages that wait in all lanes together.
pub const MAX_QUEUED: usize = 8_192;

/// The most bytes of bodies that wait in all lanes together.
pub const MAX_QUEUED_BYTES: usize = 32 << 20;

/// How many committed batches of a lane wait for who takes them; after that the lane waits too.
const UNTAKEN: usize = 4;

/// A message to be stored.
#[derive(Debug)]
pub struct Job<T> {
    /// The message.
    pub append: Append,
    /// Where it came from; handed on as it is.
    pub origin: T,
}

/// What became of a message.
///
/// After [`Error::Unknown`] there is a second one, of the same origin, if the message turns out to be stored.
#[derive(Debug)]
pub struct Done<T> {
    /// The message.
    pub append: Append,
    /// Where it came from.
    pub origin: T,
    /// What became of it.
    pub outcome: Result<Appended, Error>,
}

/// What a lane has committed, batch by batch.
pub type Committed<T> = mpsc::Receiver<Vec<Done<T>>>;

/// The queue is full, or the writer has stopped: the job comes back.
#[derive(Debug, thiserror::Error)]
#[error("too many messages wait for the database")]
pub struct Full<T>(pub Job<T>);

/// Takes messages. A cheap handle; the lanes end when the last one is dropped.
#[derive(Debug)]
pub struct Writer<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    lanes: Vec<mpsc::Sender<Queued<T>>>,
    room: Room,
}

/// What room is left in the queue.
#[derive(Debug)]
struct Room {
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// A place in the queue, free again when it is dropped.
#[derive(Debug)]
struct Place {
    _message: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Queued<T> {
    job: Job<T>,
    place: Place,
}

impl Room {
    fn new() -> Self {
        Self { messages: Arc::new(Semaphore::new(MAX_QUEUED)), bytes: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)) }
    }

    fn take(&self, bytes: usize) -> Option<Place> {
        Some(Place {
            _message: self.messages.clone().try_acquire_owned().ok()?,
            _bytes: self.bytes.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()?,
        })
    }
}

impl<T> Clone for Writer<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> Writer<T> {
    /// Queues a message. Never waits.
    ///
    /// # Errors
    /// [`Full`] where [`MAX_QUEUED`] or [`MAX_QUEUED_BYTES`] would be exceeded, and once the writer stops.
    pub fn submit(&self, job: Job<T>) -> Result<(), Full<T>> {
        let Some(place) = self.shared.room.take(job.append.body.len()) else { return Err(Full(job)) };
        let lane = lane_of(&job.append.room, self.shared.lanes.len());
        self.shared.lanes[lane].try_send(Queued { job, place }).map_err(|refused| Full(refused.into_inner().job))
    }

    /// The bytes of bodies that wait or are being committed.
    pub fn queued_bytes(&self) -> usize {
        MAX_QUEUED_BYTES - self.shared.room.bytes.available_permits()
    }
}

/// Starts `lanes` lanes (at least one) as tasks of `tasks`. When `stop` is cancelled they take nothing new, finish what
/// is queued, and end.
///
/// Answers one receiver per lane: each item is what one commit came to. A room's messages come in the order in which
/// they were committed. Who does not take them holds up the lane.
pub fn start<T: Clone + Send + 'static>(
    store: Store,
    lanes: usize,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> (Writer<T>, Vec<Committed<T>>) {
    let settler = Settler::new(store.clone(), tasks.clone(), stop.clone());
    let (senders, receivers) = (0..lanes.max(1))
        .map(|_| {
            let (jobs, queue) = mpsc::channel(MAX_QUEUED);
            let (done, receiver) = mpsc::channel(UNTAKEN);
            let committer = Committer::new(store.clone(), done, settler.clone());
            tasks.spawn(Lane::new(queue, committer, stop.clone()).run());
            (jobs, receiver)
        })
        .unzip();
    (Writer { shared: Arc::new(Shared { lanes: senders, room: Room::new() }) }, receivers)
}

fn lane_of(room: &RoomId, lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    room.hash(&mut hasher);
    (hasher.finish() % lanes as u64) as usize
}
