//! Where those who connect stand in their rooms: who comes while the store is asked shares the next question.

use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;
use crate::store::{Comer, Error, Stand, Store};

/// How many are asked for at once.
const BATCH: usize = 64;

/// How many rooms of each are read at a time.
pub(super) const ROOMS_PAGE: u32 = 200;

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
        let end = lifecycle.end.clone();
        lifecycle.spawn("heads", async move { answer_all(&store, queue, &end).await });
        Self(asks)
    }

    /// Up to [`ROOMS_PAGE`] rooms of someone, in no order, as they are after this was called.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn of(&self, comer: Comer) -> Result<Vec<Stand>, Error> {
        let (tell, told) = oneshot::channel();
        let over = || Error::Unavailable("the server is about to end".into());
        self.0.send(Ask { comer, tell }).await.map_err(|_| over())?;
        told.await.unwrap_or_else(|_| Err(over()))
    }
}

/// One question at a time, since more would only make each smaller.
async fn answer_all(store: &Store, mut queue: mpsc::Receiver<Ask>, end: &CancellationToken) {
    while let Some(asks) = end.run_until_cancelled(gather(&mut queue)).await.filter(|asks| !asks.is_empty()) {
        let (comers, told): (Vec<_>, Vec<_>) = asks.into_iter().map(|ask| (ask.comer, ask.tell)).unzip();
        match store.stands(&comers, ROOMS_PAGE).await {
            Ok(stands) => told.into_iter().zip(stands).for_each(|(tell, stands)| drop(tell.send(Ok(stands)))),
            Err(error) => told.into_iter().for_each(|tell| drop(tell.send(Err(error.clone())))),
        }
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
