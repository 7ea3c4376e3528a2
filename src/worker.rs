//! This server's right to make ids: a worker number, leased in the store and renewed in good time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::ids::{BootId, Snowflakes};
use crate::lifecycle::Lifecycle;
use crate::store::{Error, Store};

/// How long a lease lasts. An id cannot be made later than that after the database was last heard of.
const LEASE: Duration = Duration::from_secs(60);

/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(15);

/// How often it is tried after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Leases a worker number for this run and keeps it until the end.
///
/// # Errors
/// What the store says, where it gives none.
pub async fn start(store: Store, holder: BootId, lifecycle: &Lifecycle) -> Result<Arc<Snowflakes>, Error> {
    let ids = Arc::new(Snowflakes::new(store.lease_worker(holder, LEASE).await?));
    let (kept, end) = (Arc::clone(&ids), lifecycle.end.clone());
    lifecycle.spawn("worker lease", async move {
        let mut pause = RENEW;
        while end.run_until_cancelled(sleep(pause)).await.is_some() {
            pause = if renew(&store, holder, &kept).await { RENEW } else { RETRY };
        }
        if let Err(error) = store.release_worker(holder, kept.worker(), kept.used_ms()).await {
            info!(%error, "cannot give the worker number back; it is free when its lease ends");
        }
    });
    Ok(ids)
}

/// Renews the lease, or takes another number where it was lost. Whether there is a lease.
async fn renew(store: &Store, holder: BootId, ids: &Snowflakes) -> bool {
    let renewed = match store.renew_worker(holder, ids.worker(), LEASE, ids.used_ms()).await {
        Ok(Some(lease)) => Ok(lease),
        Ok(None) => store.lease_worker(holder, LEASE).await,
        Err(error) => Err(error),
    };
    match renewed {
        Ok(lease) => ids.renew(lease),
        Err(ref error) => warn!(%error, "cannot renew the lease on the worker number yet"),
    }
    renewed.is_ok()
}
