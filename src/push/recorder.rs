//! Notes what became of pushes: those that end while one note is written go into the next one together.

use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::store::{PushOutcome, Store};

/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The most that is noted at once.
const MOST: usize = 256;

/// What became of a push, and until when noting it is of use: then the hold ends, and another may have taken it.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) outcome: PushOutcome,
    pub(super) until: Instant,
}

/// Notes what comes, until nobody is left who could send more.
pub(super) async fn run(store: Store, mut outcomes: Receiver<Noted>) {
    let mut batch = Vec::new();
    while outcomes.recv_many(&mut batch, MOST).await > 0 {
        note(&store, std::mem::take(&mut batch)).await;
    }
}

/// Notes a batch, as often as it takes while that is of use. A note that was made already changes nothing.
async fn note(store: &Store, mut batch: Vec<Noted>) {
    let mut failed = false;
    while !batch.is_empty() {
        let outcomes: Vec<PushOutcome> = batch.iter().map(|noted| noted.outcome.clone()).collect();
        match store.finish_pushes(&outcomes).await {
            Ok(()) if failed => return info!("what became of pushes is noted again"),
            Ok(()) => return,
            Err(error) if !failed => warn!(%error, "cannot note yet what became of pushes"),
            Err(_) => {}
        }
        failed = true;
        sleep(RETRY).await;
        let now = Instant::now();
        batch.retain(|noted| noted.until > now);
    }
    if failed {
        warn!("what became of some pushes could not be noted in time; they are made once more, under the same keys");
    }
}
