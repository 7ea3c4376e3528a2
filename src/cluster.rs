//! This server among the others: its own lease, its view of the rest, and what servers say of themselves.
//!
//! One task renews the lease, looks at the other servers' rows and tells peers how this server is. A view that could
//! not be refreshed is kept. Whenever something may have been missed, a *doubt* is raised: the one who waits for it
//! compares this server's sessions with the store.

mod view;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use crate::claims::Claims;
use crate::ids::{BootId, ServerId};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::registry::{Enlisted, Error, Registry, Renewed, ServerRow};
use crate::wire;
use view::View;

/// Renewals within one lease: two may fail in a row.
const RENEWALS_PER_LEASE: u32 = 3;

/// How much longer than the rest of a lease a server waits for its own id, in case clocks run apart.
const LEASE_MARGIN: Duration = Duration::from_millis(250);

/// How old a view of the others may be, with this lease, while the registry answers: for so long a server that is new may
/// be unknown. With a margin for a slow round.
pub fn view_age(lease: Duration) -> Duration {
    lease / RENEWALS_PER_LEASE + Duration::from_secs(1)
}

/// Why a server cannot be part of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another run holds the id and is alive.
    #[error("a server with the id {0} is alive; give this one another --server-id")]
    Held(ServerId),
    /// The registry gave no answer.
    #[error("{0}")]
    Registry(#[from] Error),
}

/// What a server knows of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its lease lasts, or its stream answers.
    There,
    /// It was there. Its lease has ended, and its stream does not answer.
    Gone,
    /// It was never seen: it is new, or was gone before this server came.
    Unknown,
}

/// The cluster as this server knows it. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Cluster(Arc<Inner>);

/// A stream from another server, while it is open.
#[derive(Debug)]
pub struct OpenStream {
    cluster: Cluster,
    server: ServerId,
    boot: BootId,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.cluster.view().closed(&self.server, self.boot);
        self.cluster.weigh();
    }
}

#[derive(Debug)]
struct Inner {
    registry: Arc<dyn Registry>,
    database: String,
    own: ServerId,
    row: Mutex<ServerRow>,
    lease: Duration,
    peers: Peers,
    claims: Claims,
    metrics: Arc<Metrics>,
    view: Mutex<View>,
    /// See [`Cluster::all_introduce`] and [`Cluster::is_calm`]. Written by `weigh` only.
    all_introduce: AtomicBool,
    calm: AtomicBool,
    doubt: Notify,
    changed: Notify,
    /// Nothing more is renewed.
    left: CancellationToken,
    /// The task that renews.
    running: TaskTracker,
    usurped: CancellationToken,
}

impl Cluster {
    /// This server as `row` says, whose registry belongs to this database, not joined yet. One that never joins is on its
    /// own.
    pub fn new(
        registry: Arc<dyn Registry>,
        database: &str,
        row: ServerRow,
        lease: Duration,
        peers: Peers,
        claims: Claims,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self(Arc::new(Inner {
            registry,
            database: database.to_owned(),
            own: row.id.clone(),
            row: Mutex::new(row),
            lease,
            peers,
            claims,
            metrics,
            view: Mutex::default(),
            all_introduce: AtomicBool::new(false),
            calm: AtomicBool::new(false),
            doubt: Notify::new(),
            changed: Notify::new(),
            left: CancellationToken::new(),
            running: TaskTracker::new(),
            usurped: CancellationToken::new(),
        }))
    }

    /// Takes this server's id and starts to renew it. An id that is held is waited for, one lease: so long it may
    /// belong to a run of this server that was killed.
    ///
    /// # Errors
    /// [`JoinError`] where the id is another's, or the registry does not answer.
    pub async fn join(&self, lifecycle: &Lifecycle) -> Result<(), JoinError> {
        let started = self.enlist().await?;
        let generation = self.0.registry.generation().await?;
        self.view().renewed(started, &generation);
        self.0.claims.allow_until(started + self.0.lease);
        self.0.claims.assert_all();
        self.look_around().await;
        let this = self.clone();
        lifecycle.spawn("cluster", self.0.running.track_future(async move { this.run().await }));
        Ok(())
    }

    /// Says from now on that this server is about to leave.
    pub fn drain(&self) {
        self.0.row.lock().unwrap_or_else(PoisonError::into_inner).draining = true;
        self.0.changed.notify_one();
    }

    /// Gives the id back, at the end.
    pub async fn leave(&self) {
        self.0.left.cancel();
        // A renewal under way would write the row again.
        self.0.running.close();
        self.0.running.wait().await;
        let row = self.row();
        if let Err(error) = self.0.registry.withdraw(&row.id, row.boot).await {
            warn!(%error, "cannot give the server id back; it is free when its lease ends");
        }
    }

    /// Ends when another run has taken this server's id. This one must end then.
    pub async fn usurped(&self) {
        self.0.usurped.cancelled().await;
    }

    /// The servers that are to be asked about everyone, whatever the registry says: those that cannot register their
    /// users, as they say; all of them where the registry has lost things or does not answer.
    pub fn asked(&self, registry_answers: bool) -> Vec<ServerId> {
        self.asked_by(&self.view(), registry_answers)
    }

    fn asked_by(&self, view: &View, registry_answers: bool) -> Vec<ServerId> {
        // One whose stream is being built again is asked, too: what it then does not get in time, it is told to look for.
        let others = || self.0.peers.servers().into_iter().map(|(server, _)| server).collect();
        view.asked(registry_answers, Instant::now(), others)
    }

    /// Whether all other servers tell this one of the users that they share with it.
    pub fn all_introduce(&self) -> bool {
        self.0.all_introduce.load(Relaxed)
    }

    /// Whether this one may rely on what it knows of places: all others tell it of the users that they share with it, and
    /// none is to be [asked](Self::asked) about others. Costs no lock.
    pub fn is_calm(&self) -> bool {
        self.0.calm.load(Relaxed)
    }

    /// Notes that a run of a server has opened a stream to this one, until what is given back is dropped.
    pub fn opened(&self, server: &ServerId, boot: BootId) -> OpenStream {
        self.view().opened(server, boot);
        self.weigh();
        OpenStream { cluster: self.clone(), server: server.clone(), boot }
    }

    /// Says anew what follows from the view; after each change of it.
    fn weigh(&self) {
        let view = self.view();
        let all_introduce = view.all_introduce(&self.0.own);
        let calm = all_introduce && self.asked_by(&view, true).is_empty();
        // Under the view's lock, so that the last word is the latest.
        self.0.all_introduce.store(all_introduce, Relaxed);
        self.0.calm.store(calm, Relaxed);
    }

    /// What this server knows of another one.
    pub fn standing(&self, server: &ServerId) -> Standing {
        if self.0.peers.knows(server) {
            Standing::There
        } else if self.view().has_departed(server) {
            Standing::Gone
        } else {
            Standing::Unknown
        }
    }

    /// Takes what another server says of itself.
    pub fn heard(&self, server: &ServerId, boot: BootId, status: wire::Status) {
        let dropped = self.view().heard(server, boot, status);
        self.0.peers.note_introduces(server, status.introduces);
        self.weigh();
        if dropped {
            info!(%server, "a server has dropped messages for this one; comparing with the store");
            self.doubt();
        }
    }

    /// Waits until something may have been missed. Meant for one waiter.
    pub async fn doubted(&self) {
        self.0.doubt.notified().await;
    }

    /// Raises a doubt.
    pub fn doubt(&self) {
        self.0.doubt.notify_one();
    }

    /// Whether the lease is still good.
    pub fn has_lease(&self) -> bool {
        self.view().has_lease(self.0.lease)
    }

    /// Whether this server cannot register its users.
    pub fn is_degraded(&self) -> bool {
        self.0.claims.is_degraded() || self.view().failing
    }

    /// Whether others can register theirs, as far as they say.
    pub fn others_are_well(&self) -> bool {
        let view = self.view();
        self.0.peers.servers().iter().any(|(server, up)| *up && view.is_well(server))
    }

    /// Gets the id, and says when the lease on it began.
    async fn enlist(&self) -> Result<Instant, JoinError> {
        let row = self.row();
        let mut started = Instant::now();
        if let Enlisted::Held { left, .. } = self.0.registry.enlist(&row).await? {
            info!(server = %row.id, wait_ms = left.as_millis(), "the id is held, perhaps by a run that was killed; waiting for its lease to end");
            sleep(left + LEASE_MARGIN).await;
            started = Instant::now();
            if let Enlisted::Held { .. } = self.0.registry.enlist(&row).await? {
                return Err(JoinError::Held(row.id));
            }
        }
        Ok(started)
    }

    async fn run(&self) {
        let mut renewals = interval(self.0.lease / RENEWALS_PER_LEASE);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut degraded = self.0.claims.degraded();
        loop {
            tokio::select! {
                biased;
                () = self.0.left.cancelled() => return,
                // The claims, and with them their watch, live as long as this.
                _ = degraded.changed() => {}
                _ = renewals.tick() => self.renew().await,
                () = self.0.changed.notified() => self.renew().await,
            }
            self.tell();
        }
    }

    /// Renews the lease and looks at the others.
    async fn renew(&self) {
        let started = Instant::now();
        match self.try_to_renew().await {
            Ok((Renewed::Usurped(boot), _)) => self.give_up(&boot.to_string()),
            Ok((renewed, generation)) => self.renewed(started, renewed, &generation),
            Err(error) => {
                if !std::mem::replace(&mut self.view().failing, true) {
                    warn!(%error, "cannot renew the lease; will go on trying");
                }
            }
        }
        self.weigh();
        self.look_around().await;
    }

    async fn try_to_renew(&self) -> Result<(Renewed, String), Error> {
        let Inner { registry, database, .. } = &*self.0;
        // One that was wiped has forgotten whose it is, and another cluster may have found it.
        let owner = registry.bind_database(database).await?;
        if owner != *database {
            return Err(Error::Refused(format!("it belongs to a cluster with another database now ({owner})")));
        }
        let renewed = registry.renew(&self.row()).await?;
        Ok((renewed, registry.generation().await?))
    }

    fn renewed(&self, started: Instant, renewed: Renewed, generation: &str) {
        let lapsed = !self.has_lease();
        self.0.claims.allow_until(started + self.0.lease);
        let lost = self.view().renewed(started, generation) || renewed == Renewed::Restored;
        if lost || lapsed {
            info!(
                lapsed,
                restored = renewed == Renewed::Restored,
                "the registry may have lost users; registering all again"
            );
            self.view().suspect_until(started + self.0.lease);
            self.weigh();
            self.0.claims.assert_all();
        }
    }

    /// Another run has taken this server's id: whoever looks for its users will ask that one.
    fn give_up(&self, boot: &str) {
        error!(server = %self.row().id, other = boot, "another run has taken this server's id; ending");
        self.0.claims.abandon();
        self.0.left.cancel();
        self.0.usurped.cancel();
    }

    /// Reads the other servers' rows. A view that cannot be read is kept.
    async fn look_around(&self) {
        match self.0.registry.servers().await {
            Ok(rows) => {
                self.0.peers.reconcile(&rows);
                let gone = self.view().look(&rows, &self.0.peers.servers());
                self.weigh();
                if gone {
                    self.doubt();
                }
            }
            Err(error) => debug!(%error, "cannot read the servers' rows; keeping the last view"),
        }
    }

    /// Tells the peers how this server is, and raises a doubt when it is well again: whoever looked for its users in
    /// between may not have found them.
    fn tell(&self) {
        let degraded = self.is_degraded();
        self.0.metrics.degraded.set(degraded.into());
        let status = wire::Status { degraded, draining: self.row().draining, dropped: 0, introduces: true };
        // Two servers with the same user learn of each other when both are registered again; until then, who remembers
        // the one sends the other nothing.
        let all_are_registered = self.view().take_end_of_suspicion(Instant::now());
        if all_are_registered {
            self.weigh();
        }
        if self.0.claims.take_trouble() || all_are_registered {
            self.doubt();
        }
        if self.view().told.replace(status) != Some(status) {
            self.0.peers.say(status);
        }
    }

    fn row(&self) -> ServerRow {
        self.0.row.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.0.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
