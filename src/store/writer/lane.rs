//! One lane of the writer: gather, commit, say what became of it.

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::batch::Batch;
use super::settle::Settler;
use super::{Done, Job, Queued};
use crate::store::failure::Failure;
use crate::store::{Error, Store};

/// How many rooms of a batch are tried side by side when one of them is locked.
const APART: usize = 4;

/// A lane's queue.
pub(super) struct Lane<T> {
    queue: mpsc::Receiver<Queued<T>>,
    /// Taken from the queue, but too large for the batch that was gathered.
    next: Option<Queued<T>>,
    committer: Committer<T>,
    stop: CancellationToken,
}

/// A lane's way into the store.
pub(super) struct Committer<T> {
    store: Store,
    done: mpsc::Sender<Vec<Done<T>>>,
    settler: Settler,
}

impl<T: Clone + Send + 'static> Lane<T> {
    pub(super) fn new(queue: mpsc::Receiver<Queued<T>>, committer: Committer<T>, stop: CancellationToken) -> Self {
        Self { queue, next: None, committer, stop }
    }

    pub(super) async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            self.committer.commit(batch).await;
        }
    }

    /// Waits for a message, and takes what else is there; none when all is done.
    async fn gather(&mut self) -> Option<Batch<T>> {
        let (mut batch, most) = (Batch::new(), self.committer.store.most_in_commit());
        batch.push(self.first().await?);
        while let Ok(queued) = self.queue.try_recv() {
            if !batch.fits(&queued, most) {
                self.next = Some(queued);
                break;
            }
            batch.push(queued);
        }
        Some(batch)
    }

    async fn first(&mut self) -> Option<Queued<T>> {
        if self.next.is_some() {
            return self.next.take();
        }
        // Asked to stop comes first, or a steady stream of messages would go on for ever.
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if !self.queue.is_closed() => self.queue.close(),
            queued = self.queue.recv() => return queued,
        }
        self.queue.recv().await
    }
}

impl<T: Clone + Send + 'static> Committer<T> {
    pub(super) fn new(store: Store, done: mpsc::Sender<Vec<Done<T>>>, settler: Settler) -> Self {
        Self { store, done, settler }
    }

    /// Commits a batch, and where it fails by the fault of a part, its parts, so that the part fails alone.
    fn commit(&self, batch: Batch<T>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.store.try_append(batch.appends()).await {
                Ok(outcomes) => self.say(batch.done(outcomes)).await,
                // The rooms that are not locked are done while the one that is waits once more.
                Err(Failure::Locked(_)) if self.store.locks_rooms() && batch.is_of_several_rooms() => {
                    stream::iter(batch.by_room()).for_each_concurrent(APART, |room| self.commit(room)).await;
                }
                // One after the other, since a room's messages may be in both halves.
                Err(Failure::Rejected(_) | Failure::Conflict(_)) if batch.appends().len() > 1 => {
                    for half in batch.halves() {
                        self.commit(half).await;
                    }
                }
                Err(failure) => self.fail(batch, failure.into()).await,
            }
        })
    }

    async fn fail(&self, batch: Batch<T>, error: Error) {
        tracing::warn!(messages = batch.appends().len(), %error, "Messages were not stored");
        let done = batch.failed(&error);
        let unknown: Vec<_> = match error {
            Error::Unknown(_) => done.iter().map(Job::again).collect(),
            _ => Vec::new(),
        };
        self.say(done).await;
        self.settler.settle(unknown, &self.done);
    }

    async fn say(&self, done: Vec<Done<T>>) {
        if self.done.send(done).await.is_err() {
            tracing::debug!("Nobody takes what became of messages");
        }
    }
}

impl<T: Clone> Job<T> {
    fn again(done: &Done<T>) -> Self {
        Self { append: done.append.clone(), origin: done.origin.clone() }
    }
}
