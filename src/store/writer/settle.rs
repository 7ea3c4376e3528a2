//! Finds out what became of messages whose commit was not answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Done, Job};
use crate::store::Store;

/// The most messages that are being settled at once, in all lanes. Others keep their answer, that it is unknown.
const MAX_SETTLING: usize = 4_096;

/// How long a message is asked for.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The first wait between two questions; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The longest wait between two questions.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Asks the store, apart from the lanes, so that they are not held up.
#[derive(Clone)]
pub(super) struct Settler {
    store: Store,
    tasks: TaskTracker,
    stop: CancellationToken,
    room: Arc<Semaphore>,
}

impl Settler {
    pub(super) fn new(store: Store, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { store, tasks, stop, room: Arc::new(Semaphore::new(MAX_SETTLING)) }
    }

    /// Settles `jobs`, and says of those that are stored after all that they are.
    pub(super) fn settle<T: Send + 'static>(&self, jobs: Vec<Job<T>>, done: &mpsc::Sender<Vec<Done<T>>>) {
        if jobs.is_empty() {
            return;
        }
        let Ok(room) = self.room.clone().try_acquire_many_owned(jobs.len() as u32) else {
            tracing::warn!(messages = jobs.len(), "Too many messages of unknown outcome: these are not settled");
            return;
        };
        let (store, stop, done) = (self.store.clone(), self.stop.clone(), done.clone());
        self.tasks.spawn(async move {
            let _room = room;
            if let Some(unsettled) = stop.run_until_cancelled_owned(ask_until_certain(&store, jobs, &done)).await
                && unsettled > 0
            {
                tracing::warn!(messages = unsettled, "Messages stay of unknown outcome");
            }
        });
    }
}

/// Asks until each message is found, or cannot be on its way any more. Answers how many are left open.
///
/// A statement whose connection was lost may still be running, or wait to be read by a database that was stopped. So a
/// message counts as not stored only when it is not there a whole statement's time after the database answered again.
async fn ask_until_certain<T>(store: &Store, mut jobs: Vec<Job<T>>, done: &mpsc::Sender<Vec<Done<T>>>) -> usize {
    let give_up = Instant::now() + SETTLE_TIMEOUT;
    let mut certain = None;
    let mut wait = FIRST_WAIT;
    while Instant::now() < give_up {
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        let asked = Instant::now();
        let (found, rest, answered) = ask(store, jobs).await;
        jobs = rest;
        if !found.is_empty() && done.send(found).await.is_err() || jobs.is_empty() {
            return 0;
        }
        if !answered {
            certain = None;
        } else if asked > *certain.get_or_insert(asked + store.longest_statement()) {
            return 0;
        }
    }
    jobs.len()
}

/// Asks for each message once: those that are stored, the rest, and whether the database answered throughout.
async fn ask<T>(store: &Store, jobs: Vec<Job<T>>) -> (Vec<Done<T>>, Vec<Job<T>>, bool) {
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    let mut answered = true;
    for job in jobs {
        let stored = match answered {
            true => store.stored(&job.append).await,
            false => Ok(None),
        };
        answered &= stored.is_ok();
        match stored {
            Ok(Some(appended)) => found.push(job.done(Ok(appended))),
            Ok(None) | Err(_) => rest.push(job),
        }
    }
    (found, rest, answered)
}
