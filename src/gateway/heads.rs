//! Where those who connect stand in their rooms: who comes while the store is asked shares the next question.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::lifecycle::Lifecycle;
use crate::store::{Comer, Error, Stand, Store};

/// How many are asked for at once.
const BATCH: usize = 64;

/// How many rooms of each are read at a time.
pub(super) const ROOMS_PAGE: u32 = 200;

/// How long an answer may take, the wait for a turn included. A client that waits longer had better try elsewhere.
const LIMIT: Duration = Duration::from_secs(5);

/// How many questions may be under way.
const UNDER_WAY: usize = 4;

/// How long one may take before the next does not wait for it.
const PATIENCE: Duration = Duration::from_millis(20);

/// How many may wait to be asked for; more wait for their turn.
const QUEUE: usize = 4_096;

/// Asks the store on behalf of all connections.
#[derive(Debug)]
pub(super) struct Heads(mpsc::Sender<Ask>);

#[derive(Debug)]
struct Ask {
    comer: Comer,
    tell: oneshot::Sender<Result<Vec<Stand>, Error>>,
}

impl Heads {
    /// Starts the task that asks.
    pub(super) fn start(store: Store, lifecycle: &Lifecycle) -> Self {
        let (asks, queue) = mpsc::channel(QUEUE);
        let (end, spawner) = (lifecycle.end.clone(), lifecycle.clone());
        lifecycle.spawn("heads", async move { _ = end.run_until_cancelled(answer_all(store, queue, spawner)).await });
        Self(asks)
    }

    /// Up to [`ROOMS_PAGE`] rooms of someone, in no order, as they are after this was called.
    ///
    /// # Errors
    /// What the store says, and [`Error::Unavailable`] where there is no answer within [`LIMIT`].
    pub(super) async fn of(&self, comer: Comer) -> Result<Vec<Stand>, Error> {
        let (tell, told) = oneshot::channel();
        let answer = async {
            self.0.send(Ask { comer, tell }).await.ok()?;
            told.await.ok()
        };
        match timeout(LIMIT, answer).await {
            Ok(answer) => answer.unwrap_or_else(|| Err(Error::Unavailable("the server is about to end".into()))),
            Err(_) => Err(Error::Unavailable("too many connect".into())),
        }
    }
}

/// Asks for all who wait, again and again. Who comes while a question is under way shares the next one, unless it takes
/// long: a slow answer to some must not hold up the others.
async fn answer_all(store: Store, mut queue: mpsc::Receiver<Ask>, lifecycle: Lifecycle) {
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let asks = gather(&mut queue).await;
        if asks.is_empty() {
            return;
        }
        let (ended, end) = oneshot::channel::<()>();
        let store = store.clone();
        lifecycle.spawn("question for heads", async move {
            answer(&store, asks).await;
            drop((place, ended));
        });
        let _ = timeout(PATIENCE, end).await;
    }
}

async fn answer(store: &Store, asks: Vec<Ask>) {
    // Who has gone meanwhile is not asked for.
    let asks = asks.into_iter().filter(|ask| !ask.tell.is_closed());
    let (comers, told): (Vec<_>, Vec<_>) = asks.map(|ask| (ask.comer, ask.tell)).unzip();
    if comers.is_empty() {
        return;
    }
    match store.stands(&comers, ROOMS_PAGE).await {
        Ok(stands) => told.into_iter().zip(stands).for_each(|(tell, stands)| drop(tell.send(Ok(stands)))),
        Err(error) => told.into_iter().for_each(|tell| drop(tell.send(Err(error.clone())))),
    }
}

/// Waits for one who asks, and takes all who do by then; nobody when all is done.
async fn gather(queue: &mut mpsc::Receiver<Ask>) -> Vec<Ask> {
    let mut asks = Vec::new();
    queue.recv_many(&mut asks, BATCH).await;
    // Those whose claims were answered together are about to ask: they go first.
    yield_now().await;
    while asks.len() < BATCH
        && let Ok(ask) = queue.try_recv()
    {
        asks.push(ask);
    }
    asks
}
