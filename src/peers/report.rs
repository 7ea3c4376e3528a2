//! The way back: what the peers report to who reads it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Heard;
use super::item::Returned;
use super::stats::{PeerStats, add};
use crate::ids::ServerId;

/// How long one batch of returned items may wait for a reader that is behind, before the rest of it is dropped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reports to one bounded queue.
#[derive(Debug)]
pub(super) struct Reports {
    to: mpsc::Sender<Heard>,
    stats: Arc<PeerStats>,
    stop: CancellationToken,
}

impl Reports {
    pub(super) fn new(to: mpsc::Sender<Heard>, stats: Arc<PeerStats>, stop: CancellationToken) -> Self {
        Self { to, stats, stop }
    }

    /// Reports what must not be missed. Waits for the reader, but not past the stop.
    pub(super) async fn certainly(&self, heard: Heard) {
        tokio::select! {
            biased;
            // First the report, so that it is made when there is room even while stopping.
            _ = self.to.send(heard) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Reports who was not there, or not only there, item by item. Volatile items are worth no waiting.
    pub(super) async fn returned(&self, server: &ServerId, returned: Vec<Returned>) {
        let until = Instant::now() + PATIENCE;
        for Returned { item, users, here } in returned {
            let (stored, server) = (item.is_stored(), server.clone());
            let heard =
                if here { Heard::Elsewhere { server, item, users } } else { Heard::NotHere { server, item, users } };
            let lost = match self.to.try_send(heard) {
                Err(mpsc::error::TrySendError::Full(heard)) if stored => self.wait(heard, until).await,
                result => result.is_err(),
            };
            add(&self.stats.not_here_lost, usize::from(lost));
        }
    }

    async fn wait(&self, heard: Heard, until: Instant) -> bool {
        tokio::select! {
            biased;
            // First the report, as above.
            sent = timeout_at(until, self.to.send(heard)) => !matches!(sent, Ok(Ok(()))),
            () = self.stop.cancelled() => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::ids::UserId;
    use crate::peers::Item;

    fn returned(seq: u64) -> Returned {
        let bob: UserId = "bob".parse().unwrap();
        let item = Item {
            room: None,
            seq,
            id: crate::ids::MessageId(1),
            at: 1,
            ..Item::new("alice".parse().unwrap(), bytes::Bytes::new(), vec![bob.clone()])
        };
        Returned { item: Arc::new(item), users: vec![bob], here: false }
    }

    fn reports() -> (Reports, mpsc::Receiver<Heard>) {
        let (to, heard) = mpsc::channel(1);
        (Reports::new(to, Arc::default(), CancellationToken::new()), heard)
    }

    fn seq(heard: Option<Heard>) -> Option<u64> {
        if let Some(Heard::NotHere { item, .. }) = heard { Some(item.seq) } else { None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_behind_loses_volatile_items_at_once_and_stored_ones_only_after_a_while() {
        let (reports, mut heard) = reports();
        let server: ServerId = "local2".parse().unwrap();
        let began = Instant::now();
        reports.returned(&server, vec![returned(1), returned(0), returned(0)]).await;
        assert_eq!((began.elapsed(), reports.stats.not_here_lost.load(Relaxed)), (Duration::ZERO, 2));
        reports.returned(&server, vec![returned(2), returned(3)]).await;
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
        assert_eq!(reports.stats.not_here_lost.load(Relaxed), 4);
        assert_eq!(seq(heard.recv().await), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn stored_items_wait_for_a_reader_that_comes_back() {
        let (reports, mut heard) = reports();
        let server: ServerId = "local2".parse().unwrap();
        let read = async { [seq(heard.recv().await), seq(heard.recv().await), seq(heard.recv().await)] };
        let write = reports.returned(&server, [1, 2, 3].map(returned).into());
        let (read, ()) = tokio::join!(read, write);
        assert_eq!(read, [Some(1), Some(2), Some(3)]);
        assert_eq!(reports.stats.not_here_lost.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn a_stop_ends_all_waiting_for_the_reader() {
        let (reports, _heard) = reports();
        let server: ServerId = "local2".parse().unwrap();
        reports.stop.cancel();
        reports.certainly(Heard::Lost { server: server.clone() }).await;
        reports.certainly(Heard::Lost { server: server.clone() }).await;
        reports.returned(&server, vec![returned(1)]).await;
    }
}
