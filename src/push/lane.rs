//! The pushes of one kind on their way: taken from the store, a few at a time, and made side by side.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::Target;
use super::pause::Pause;
use super::recorder::{self, Noted};
use super::verdict::{counted, settle};
use crate::lifecycle::Lifecycle;
use crate::metrics::{PushCounts, Pushed};
use crate::store::{Became, Push, PushOutcome, Store};

/// How many are made side by side.
const PLACES: usize = 16;

/// How often is looked when nothing is due.
const POLL: Duration = Duration::from_millis(500);

/// How long to wait when the database is away.
const RETRY: Duration = Duration::from_secs(1);

/// How long a push is ours: longer than a try takes, which is at most five calls one after the other, and the note of it.
const HOLD: Duration = Duration::from_secs(90);

/// The pushes of one kind.
#[derive(Debug)]
pub(super) struct Lane {
    target: Target,
    store: Store,
    counts: PushCounts,
    places: Arc<Semaphore>,
    pause: Pause,
    outcomes: mpsc::Sender<Noted>,
}

impl Lane {
    /// Makes pushes until `lifecycle` stops, and finishes those that are on their way then.
    pub(super) fn start(target: Target, store: Store, counts: PushCounts, lifecycle: &Lifecycle) {
        let (outcomes, noted) = mpsc::channel(PLACES);
        lifecycle.spawn("push outcomes", recorder::run(store.clone(), noted));
        let places = Arc::new(Semaphore::new(PLACES));
        let lane = Arc::new(Self { target, store, counts, places, pause: Pause::default(), outcomes });
        lifecycle.spawn("pushes", lane.run(lifecycle.clone()));
    }

    async fn run(self: Arc<Self>, lifecycle: Lifecycle) {
        let mut away = false;
        while let Some(limit) = lifecycle.stop.run_until_cancelled(self.ready()).await {
            // Not cut short by the end: what is taken would be left lying until its hold ends.
            let wait = match self.take(limit, &lifecycle).await {
                Ok(count) => {
                    if std::mem::take(&mut away) {
                        info!(kind = self.target.kind().as_str(), "pushes are made again");
                    }
                    // There may be more than were asked for.
                    if count == limit { Duration::ZERO } else { POLL }
                }
                Err(error) => {
                    if !std::mem::replace(&mut away, true) {
                        warn!(kind = self.target.kind().as_str(), %error, "no pushes can be made for now");
                    }
                    RETRY
                }
            };
            lifecycle.stop.run_until_cancelled(sleep(wait)).await;
        }
    }

    /// Waits until pushes can be made, and answers how many. Only one task asks, so these places stay free for it.
    async fn ready(&self) -> usize {
        loop {
            // It is never closed.
            drop(self.places.acquire().await);
            match self.pause.left(Instant::now()) {
                Duration::ZERO => return self.places.available_permits(),
                left => sleep(left).await,
            }
        }
    }

    /// Takes what is due, up to `limit`, and begins to make it. Answers how many were taken.
    async fn take(self: &Arc<Self>, limit: usize, lifecycle: &Lifecycle) -> Result<usize, crate::store::Error> {
        let until = Instant::now() + HOLD;
        let pushes = self.store.take_pushes(&[self.target.kind()], limit as u32, HOLD).await?;
        let count = pushes.len();
        for push in pushes {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { break };
            lifecycle.spawn("push", Arc::clone(self).make(push, until, place));
        }
        Ok(count)
    }

    /// Makes one push, and has it noted what became of it.
    async fn make(self: Arc<Self>, push: Push, until: Instant, _place: OwnedSemaphorePermit) {
        let became = if push.wanted {
            self.try_once(&push).await
        } else {
            self.counts.count(Pushed::Cancelled);
            Became::Done
        };
        let outcome = PushOutcome { id: push.id, hold: push.hold, became };
        // The receiver ends after the last sender.
        let _ = self.outcomes.send(Noted { outcome, until }).await;
    }

    async fn try_once(&self, push: &Push) -> Became {
        let verdict = self.target.send(push).await;
        let rest = self.pause.note(&verdict, Instant::now());
        let became = settle(push, verdict, rest);
        self.counts.count(counted(&became));
        tell(push, &became);
        became
    }
}

/// One line about a push, without what it says and to which device.
fn tell(push: &Push, became: &Became) {
    let (kind, user, id) = (push.kind.as_str(), &push.user, push.message);
    match became {
        Became::Done => debug!(kind, %user, %id, "pushed"),
        Became::Unregistered => debug!(kind, %user, %id, "the device is not registered any more"),
        Became::Again { after_ms, reason, .. } => {
            debug!(kind, %user, %id, tries = push.tries, after_ms, reason, "the push is to be tried again");
        }
        Became::Dead { reason } => warn!(kind, %user, %id, tries = push.tries, reason, "the push is given up"),
    }
}
