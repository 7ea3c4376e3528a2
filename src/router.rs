//! From a client's frame to those it is for: the only part that sees both local sessions and other servers.
//!
//! What must be known to decide is asked first, what is decided is plain data (`plan`), and what is decided is done
//! without waiting: an append goes to the writer, a committed message to the feed and the forwarder. So a connection
//! never waits for a commit, and a `sent` never waits for a look-up.

mod accept;
mod committed;
mod forward;
mod gathering;
mod places;
mod plan;
mod positions;
mod presence;
mod receipts;
mod remembered;
mod rooms;
mod settings;
mod signal;
mod whereabouts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tracing::debug;

use crate::claims::Claims;
use crate::cluster::Cluster;
use crate::feed::{Arrival, Feed};
use crate::ids::{RoomId, ServerId, Snowflakes};
use crate::lifecycle::Lifecycle;
use crate::metrics::{Drop, Metrics};
use crate::peers::{Heard, Peers, Sent};
use crate::protocol::TracePath;
use crate::registry::Registry;
use crate::rooms::Rooms;
use crate::sessions::{Session, Sessions};
use crate::store::writer::{self, Writer};
use crate::store::{Entry, Membership, Position, Store};
use crate::wire;
use forward::Publication;
use gathering::Gathering;
use positions::Positions;
use presence::Presence;
use remembered::Remembered;
pub use whereabouts::Whereabouts;

/// What is for more users than these costs more than the turn of a task should: others have theirs after it.
const CROWD: usize = 16;

/// What the router works with.
#[derive(Debug)]
pub struct Parts {
    /// This server's id.
    pub own: ServerId,
    /// Who is here.
    pub sessions: Sessions,
    /// What the registry is told of them.
    pub claims: Claims,
    /// Who is anywhere.
    pub registry: Arc<dyn Registry>,
    /// There are no other servers, so nothing is looked up to be sent on.
    pub alone: bool,
    /// The log.
    pub store: Store,
    /// Member lists.
    pub rooms: Rooms,
    /// Entries to local sessions.
    pub feed: Feed,
    /// Items to other servers.
    pub peers: Peers,
    /// Which servers need to be asked as well, and whether places may be remembered.
    pub cluster: Cluster,
    /// Fresh ids.
    pub ids: Arc<Snowflakes>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The most members of a room who are told how far the others have come; 0 for none.
    pub receipt_members: usize,
}

/// The router. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Parts,
    writer: Writer<Arc<Session>>,
    gathering: Gathering,
    remembered: Remembered,
    positions: Positions,
    presence: Presence,
}

impl Router {
    /// Starts the tasks that follow commits, look recipients up, note positions and tell of them, and hear what became
    /// of items.
    pub fn start(parts: Parts, heard: mpsc::Receiver<Heard>, lifecycle: &Lifecycle) -> Self {
        let (writer, lanes) =
            writer::start(parts.store.clone(), parts.store.lanes(), &lifecycle.tasks, lifecycle.end.clone());
        let (grown, told) = mpsc::channel(receipts::ROUNDS);
        let positions = Positions::start(parts.store.clone(), Arc::clone(&parts.metrics), grown, lifecycle);
        let (gathering, remembered, presence) = (Gathering::default(), Remembered::default(), Presence::default());
        let router = Self(Arc::new(Inner { parts, writer, gathering, remembered, positions, presence }));
        for committed in lanes {
            let this = router.clone();
            lifecycle.spawn("committed", async move { this.follow_commits(committed).await });
        }
        let (this, end) = (router.clone(), lifecycle.end.clone());
        lifecycle.spawn("forward", async move { this.forward_all(end).await });
        let (this, end) = (router.clone(), lifecycle.end.clone());
        lifecycle.spawn("receipts", async move { this.tell_all(told, end).await });
        let (this, end) = (router.clone(), lifecycle.end.clone());
        lifecycle.spawn("heard", async move { this.hear_all(heard, end).await });
        let (this, stop) = (router.clone(), lifecycle.stop.clone());
        lifecycle.spawn("presence", async move { this.watch_all(stop).await });
        router
    }

    /// What it works with.
    pub fn parts(&self) -> &Parts {
        &self.0.parts
    }

    /// Waits until the registry knows that the session's user is here, at most for `patience`: the first where all is
    /// well, the second where the registry is known to be away. Sessions of the same device elsewhere are ended.
    pub async fn register(&self, session: &Session, patience: (Duration, Duration)) {
        let parts = &self.0.parts;
        let patience = if parts.claims.is_degraded() { patience.1 } else { patience.0 };
        let settled = parts.claims.settled(&session.user, patience).await;
        let Some(device) = &session.device else { return };
        // Those whose users the registry may not name are told, too.
        let asked = parts.cluster.asked(settled.is_some());
        let others: BTreeSet<_> = settled.unwrap_or_default().into_iter().chain(asked).collect();
        for server in others {
            let (user, device) = (session.user.to_string(), device.to_string());
            let kick = wire::Kick { user, device, newer_than: session.id.0 };
            if parts.peers.kick(&server, kick) != Sent::Queued {
                debug!(%server, user = %session.user, "could not end the older session of a device there");
            }
        }
    }

    /// Takes the cursor that a session starts with as an acknowledgement.
    pub fn note_cursor(&self, session: &Session, room: &RoomId, cursor: u64) {
        let (user, device) = (session.user.clone(), session.device.clone());
        let position = Position { user, room: room.clone(), device, delivered: cursor, read: 0 };
        // Where too many wait, the client's next acknowledgement says the same.
        let _ = self.0.positions.note(position, session.id);
    }

    /// Brings up to date what is read elsewhere rather than counted.
    pub fn refresh_metrics(&self) {
        let (parts, metrics) = (&self.0.parts, &self.0.parts.metrics);
        metrics.store_queue_bytes.set(self.0.writer.queued_bytes() as i64);
        let stats = parts.peers.stats();
        metrics.relay_queue_bytes.set(parts.peers.queue_bytes() as i64);
        metrics.raise(&metrics.relay_items_resent, stats.resent.load(Relaxed));
        metrics.raise(&metrics.relay_messages_sent, stats.stream_messages_sent.load(Relaxed));
        metrics.dropped_in_all(Drop::RelayTooOld, stats.dropped_deadline.load(Relaxed));
        metrics.dropped_in_all(Drop::SignalWaited, stats.dropped_old.load(Relaxed));
        metrics.dropped_in_all(Drop::RelayToUnknown, stats.dropped_unknown.load(Relaxed));
        metrics.dropped_in_all(Drop::SecondLookup, stats.not_here_lost.load(Relaxed));
    }

    /// Sends an entry of a room's log on its way: to the sessions here at once, to the other servers as soon as it is known
    /// which they are.
    async fn publish(&self, entry: Entry, origin: Option<Arc<Session>>, members: Arc<Membership>) {
        let parts = &self.0.parts;
        let arrival = Arrival::new(entry, parts.own.clone(), TracePath::Local, origin);
        let publication = Publication::stored(&arrival, members);
        parts.feed.arrive(arrival, publication.audience());
        let is_for_many = publication.audience_size() > CROWD;
        if !parts.alone
            && let Some(publication) = self.forward_now(publication)
            && !self.0.gathering.put(publication).await
        {
            // Nobody forwards any more: the other servers look into the store.
            parts.peers.leave_to_the_store();
        }
        if is_for_many {
            yield_now().await;
        }
    }

    fn fresh_id(&self) -> Result<u64, crate::ids::Exhausted> {
        self.0.parts.ids.next()
    }
}
