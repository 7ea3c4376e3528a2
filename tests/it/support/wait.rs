//! Waiting for a condition, in place of sleeping and hoping.

use std::time::Duration;

use tokio::time::Instant;

/// How long a condition may take before a test gives up: long, since it only matters when something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `look` until it answers something, and panics with `what` if it never does.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
