//! The end of a server: nobody is cut off who could be told, nothing is left in the registry, and it does not last.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::parts::Assembled;
use crate::lifecycle::Lifecycle;
use crate::protocol::Close;
use crate::sessions::Sessions;

/// How many sessions are sent away in a second: others must be able to take them.
const PER_SECOND: u32 = 2_000;

/// How often is looked whether the last session has left.
const LOOK: Duration = Duration::from_millis(20);

/// What is kept of the limit for what comes after the sessions.
const RESERVE: u32 = 3;

/// Sends everyone away, releases the registry and waits for all tasks, at most for `limit`.
pub(super) async fn drain(server: &Assembled, limit: Duration, lifecycle: &Lifecycle) {
    let end = Instant::now() + limit;
    info!(sessions = server.sessions.all().len(), "draining");
    server.cluster.drain();
    let sessions_end = end - limit / RESERVE;
    if timeout_at(sessions_end, send_away(&server.sessions, limit / 2)).await.is_err() {
        warn!(sessions = server.sessions.all().len(), "some sessions did not end in time");
    }
    if timeout_at(end - limit / (2 * RESERVE), server.claims.finished()).await.is_err() {
        warn!("users could not be taken out of the registry in time; their entries name a server that is gone");
    }
    lifecycle.end.cancel();
    let rest = async {
        server.cluster.leave().await;
        server.registry_end.cancel();
        lifecycle.tasks.close();
        lifecycle.tasks.wait().await;
    };
    if timeout_at(end, rest).await.is_err() {
        warn!(tasks = lifecycle.tasks.len(), "the limit for the drain has passed; ending what is left");
    }
    info!("ended");
}

/// Ends the sessions, spread over a time that grows with their number but is at most `longest`.
async fn send_away(sessions: &Sessions, longest: Duration) {
    let all = sessions.all();
    let count = all.len().max(1) as u32;
    let pause = (Duration::from_secs(1) / PER_SECOND).min(longest / count);
    let start = Instant::now();
    for (index, session) in all.into_iter().enumerate() {
        session.end(Close::GoingAway);
        // A timer is not as fine as the pace; it is kept on the whole.
        if let Some(ahead) = (pause * index as u32).checked_sub(start.elapsed()).filter(|ahead| *ahead >= LOOK) {
            sleep(ahead).await;
        }
    }
    while !sessions.is_empty() {
        // Those who came through at the last moment.
        sessions.all().iter().for_each(|session| session.end(Close::GoingAway));
        let _ = timeout(LOOK, sessions.changed()).await;
    }
}
