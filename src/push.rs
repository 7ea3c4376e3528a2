//! How people are told who are not there: pushes that are due leave the store by a webhook or by Firebase Cloud
//! Messaging.
//!
//! Whether someone is pushed is decided elsewhere. Here a push is taken, held against other servers, tried, and what
//! became of it is noted. It is forgotten only when its target has it, so it is never lost; where a server dies between
//! the two, another makes it once more when the hold ends, under the same key.

mod call;
mod fcm;
mod google;
mod key;
mod lane;
mod pause;
mod recorder;
mod verdict;
mod webhook;

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::config;
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::store::{Push, PushKind, Store};

use fcm::Fcm;
use lane::Lane;
use verdict::Verdict;
use webhook::Webhook;

/// How long a dead letter can be read and replayed.
const KEEP_DEAD: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often older ones are removed, on the average: each server does so, and not at the same time.
const PURGE: Duration = Duration::from_secs(3600);

/// Why pushes cannot leave. One line, without a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key of the service account cannot sign.
    #[error("the private_key in --fcm-key-file is no RSA key in PEM form (-----BEGIN PRIVATE KEY-----)")]
    Key,
    /// No HTTP client could be made.
    #[error("there is no HTTP client for pushes: {0}")]
    Client(String),
}

/// One way for pushes to leave.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of each in a process")]
enum Target {
    Webhook(Webhook),
    Fcm(Fcm),
}

impl Target {
    fn kind(&self) -> PushKind {
        match self {
            Self::Webhook(_) => PushKind::Webhook,
            Self::Fcm(_) => PushKind::Fcm,
        }
    }

    /// Tries once to make a push. Ends in time.
    async fn send(&self, push: &Push) -> Verdict {
        match self {
            Self::Webhook(webhook) => webhook.send(push).await,
            Self::Fcm(fcm) => fcm.send(push).await,
        }
    }
}

/// The ways that are configured.
pub fn kinds(config: &config::Push) -> Vec<PushKind> {
    let webhook = config.webhook.as_ref().map(|_| PushKind::Webhook);
    let fcm = config.fcm.as_ref().map(|_| PushKind::Fcm);
    webhook.into_iter().chain(fcm).collect()
}

/// Checks the configuration as far as that goes without a network.
///
/// # Errors
/// See [`Error`].
pub fn check(config: &config::Push) -> Result<(), Error> {
    targets(config).map(drop)
}

/// Makes the pushes that are due, until `lifecycle` stops; what is on its way then is finished. Does nothing where no
/// way is configured.
///
/// # Errors
/// See [`Error`].
pub fn start(config: &config::Push, store: &Store, metrics: &Metrics, lifecycle: &Lifecycle) -> Result<(), Error> {
    let targets = targets(config)?;
    if targets.is_empty() {
        return Ok(());
    }
    for target in targets {
        let counts = metrics.pushes(target.kind().as_str());
        // A lane of its own for each, so that a slow one does not hold up the other.
        Lane::start(target, store.clone(), counts, lifecycle);
    }
    let (store, stop) = (store.clone(), lifecycle.stop.clone());
    lifecycle.spawn("purge of dead pushes", async move {
        stop.run_until_cancelled(purge(store)).await;
    });
    Ok(())
}

fn targets(config: &config::Push) -> Result<Vec<Target>, Error> {
    let webhook = config.webhook.as_ref().map(|webhook| Webhook::new(webhook, config.preview).map(Target::Webhook));
    let fcm = config.fcm.as_ref().map(|fcm| Fcm::new(fcm, config.preview).map(Target::Fcm));
    webhook.into_iter().chain(fcm).collect()
}

async fn purge(store: Store) {
    loop {
        sleep(rand::random_range(PURGE / 2..PURGE * 3 / 2)).await;
        match store.purge_dead_pushes(KEEP_DEAD).await {
            Ok(0) => {}
            Ok(count) => info!(count, "removed dead pushes that were older than a week"),
            Err(error) => warn!(%error, "cannot remove old dead pushes yet"),
        }
    }
}
