//! What this server says of its users: in the registry, and to other servers that have the same ones.
//!
//! One task writes, for each user whose state may have changed, what the session map says at that moment; so a write
//! describes state, there is one at a time per user, and what changes meanwhile is written after it. A write without
//! an answer may or may not have happened, now or later: the truth is written again at once and once more after half a
//! minute.

mod book;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::ids::{ServerId, UserId};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::registry::{Error, Registry};
use crate::sessions::Sessions;
pub use book::Presence;
use book::{Book, Stranger, tell};

/// How many users are written in one round trip.
const BATCH: usize = 512;

/// How far apart two writes begin: whoever comes or goes meanwhile is in the next one. So where many do, several share a
/// round trip, also to the store, which they ask as soon as they are written; where few do, nobody waits.
const PACE: Duration = Duration::from_millis(10);

/// How often every user is asserted anew, in seconds: far more often than an entry expires. Each second has its share
/// of the users.
const ASSERT_EVERY_S: u64 = 300;

/// How long who comes waits until other servers that have their user know of them.
const ACQUAINT: Duration = Duration::from_millis(500);

/// How long a server may take to answer an introduction. One that has not by then is most likely lost, and is introduced to
/// anew when its stream is back.
const LAST_INTRODUCTION: Duration = Duration::from_secs(10);

/// How long to wait after a write failed.
const RETRY: Duration = Duration::from_millis(250);

/// The claims of this server. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Claims(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<dyn Registry>,
    sessions: Sessions,
    peers: Peers,
    book: Book,
    degraded: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    lifecycle: Lifecycle,
    /// Nothing more is to be written.
    abandoned: CancellationToken,
    /// All is written, or abandoned, and nothing more will be.
    finished: CancellationToken,
}

impl Claims {
    /// Starts the task that writes.
    pub fn start(
        registry: Arc<dyn Registry>,
        sessions: Sessions,
        peers: Peers,
        metrics: Arc<Metrics>,
        lifecycle: &Lifecycle,
    ) -> Self {
        let claims = Self(Arc::new(Inner {
            registry,
            sessions,
            peers,
            book: Book::default(),
            degraded: watch::Sender::new(false),
            metrics,
            lifecycle: lifecycle.clone(),
            abandoned: CancellationToken::new(),
            finished: CancellationToken::new(),
        }));
        let (this, stop) = (claims.clone(), lifecycle.clone());
        lifecycle.spawn("claims", async move {
            this.0.abandoned.run_until_cancelled(this.run(&stop)).await;
            this.0.finished.cancel();
        });
        claims
    }

    /// Waits until the registry has answered that `user` is here, at most for `patience`, and until the other servers that
    /// have them know it, as far as these are up and for half a second at most. Answers these servers; none where the
    /// registry gave no answer: the connection is taken all the same, and this server says that it is degraded.
    pub async fn settled(&self, user: &UserId, patience: Duration) -> Option<Vec<ServerId>> {
        let (tell, told) = oneshot::channel();
        self.0.book.wait(user, tell);
        tokio::time::timeout(patience, told).await.ok()?.ok()
    }

    /// What is known of where `user` is, who has a session here.
    pub fn presence(&self, user: &UserId) -> Presence {
        self.0.book.presence(user)
    }

    /// Whom of `users` the registry is known to have here and nowhere else. Another server that takes them tells this one.
    pub fn alone<'a>(&self, users: impl Iterator<Item = &'a UserId>) -> Vec<&'a UserId> {
        let mut alone = self.0.book.alone(users);
        alone.retain(|user| self.0.sessions.holds(user));
        alone
    }

    /// Has this server introduced anew to one whose stream is up again, or for the first time: what it was told before it may
    /// have lost, or never had.
    pub fn reintroduce(&self, server: &ServerId) {
        self.0.book.reintroduce(server);
    }

    /// Takes in that `server` has a session of the user, too.
    pub fn introduce(&self, user: &UserId, server: &ServerId) {
        self.0.book.introduce(user, server);
    }

    /// Writes the truth about a user again: someone was told otherwise.
    pub fn write_again(&self, user: &UserId) {
        self.0.book.mark([user.clone()]);
    }

    /// Writes the truth about all users again: the registry may have lost it. Until that is done, this server is
    /// degraded.
    pub fn assert_all(&self) {
        self.0.book.assert_all(self.0.sessions.users());
    }

    /// Lets the task write until then: a server whose lease has ended writes no user key. Before the first call there
    /// is no such bound.
    pub fn allow_until(&self, end: Instant) {
        self.0.book.allow_until(end);
    }

    /// Writes nothing more, not even at the end: another run speaks for this server's id.
    pub fn abandon(&self) {
        self.0.abandoned.cancel();
    }

    /// Waits until, the server being about to stop, the last user has left and that is written.
    pub async fn finished(&self) {
        self.0.finished.cancelled().await;
    }

    /// Whether users are connected here whom the registry is not known to have: writes have failed, are not allowed, or
    /// not all users have been asserted since the registry lost some.
    pub fn is_degraded(&self) -> bool {
        self.0.book.is_degraded()
    }

    /// Whether it was, since the last time this was asked when it was over: whoever looked for users of this server
    /// meanwhile may not have found them.
    pub fn take_trouble(&self) -> bool {
        self.0.book.take_trouble()
    }

    /// The same as [`is_degraded`](Self::is_degraded), to be watched.
    pub fn degraded(&self) -> watch::Receiver<bool> {
        self.0.degraded.subscribe()
    }

    async fn run(&self, lifecycle: &Lifecycle) {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut count, mut pace) = (0, Pace(Instant::now()));
        loop {
            let stopping = lifecycle.stop.is_cancelled();
            tokio::select! {
                () = self.0.sessions.changed() => {}
                () = self.0.book.changed() => {}
                () = lifecycle.stop.cancelled(), if !stopping => {}
                _ = second.tick() => {
                    count += 1;
                    self.0.book.mark(self.due(count));
                }
            }
            self.write_marked(&mut pace).await;
            // At the end the sessions leave by and by; the last write is that of the last leave.
            if lifecycle.stop.is_cancelled() && self.0.sessions.is_empty() && self.0.book.is_settled() {
                return;
            }
        }
    }

    /// This second's share of the users, and those whose write had no answer half a minute ago.
    fn due(&self, second: u64) -> Vec<UserId> {
        let share = |user: &UserId| share_of(user) == second % ASSERT_EVERY_S;
        let mut due: Vec<_> = self.0.sessions.users().into_iter().filter(share).collect();
        due.extend(self.0.book.take_repairs(Instant::now()));
        due
    }

    async fn write_marked(&self, pace: &mut Pace) {
        loop {
            pace.keep().await;
            // Those who came or left while the last batch was written are in this one.
            self.0.book.mark(self.0.sessions.take_changed());
            let truths = self.0.book.take_marked(BATCH, |user| self.0.sessions.holds(user));
            if truths.is_empty() {
                return;
            }
            pace.began(truths.len());
            let answers = self.0.registry.write(&truths).await;
            let failed = answers.iter().find_map(|answer| answer.as_ref().err()).cloned();
            for stranger in self.0.book.settle(truths, answers) {
                let this = self.clone();
                self.0.lifecycle.spawn("introduction", async move { this.acquaint(stranger).await });
            }
            self.report(failed.as_ref());
            if failed.is_some() {
                sleep(RETRY).await;
            }
        }
    }

    /// Makes it known to the other servers that have a user that they are here, too: from then on these say so to whoever
    /// sends by what it remembers. Those who wait are not kept for a server that does not answer; it is told later, and
    /// what went there only meanwhile is looked for in the store.
    async fn acquaint(&self, stranger: Stranger) {
        let Stranger { user, servers, new, waiting } = stranger;
        let peers = &self.0.peers;
        let awaited = waiting.iter().any(|waiting| !waiting.is_closed());
        let (near, far): (Vec<_>, Vec<_>) = servers.iter().partition(|server| peers.is_up(server));
        let introduce = |servers: &[&_]| join_all(servers.iter().map(|server| self.introduce_to(server, &user)));
        let (mut near_know, far_know) = (Box::pin(introduce(&near)), introduce(&far));
        let in_time = timeout(ACQUAINT, &mut near_know).await.ok();
        let is_late = in_time.is_none() || far.iter().any(|server| peers.is_acquaintable(server));
        tell(waiting, &servers);
        let rest = async {
            let near_know = match in_time {
                Some(know) => know,
                None => near_know.await,
            };
            [near_know, far_know.await].concat()
        };
        let Some(know) = self.0.lifecycle.stop.run_until_cancelled(rest).await else { return };
        if is_late || new && !awaited {
            debug!(%user, "was here while a server that has them, too, did not know it");
            self.0.metrics.late_introductions.inc();
            // Of those that do not know it yet, the introduction that they answer will say the same.
            if know.iter().all(|knows| *knows) {
                self.0.book.trouble();
            }
        }
    }

    /// Tells a server that a user of it is here, too; what is given back says whether it knows then.
    fn introduce_to(&self, server: &ServerId, user: &UserId) -> impl Future<Output = bool> + use<> {
        let answer = timeout(LAST_INTRODUCTION, self.0.peers.introduce(server, user));
        async { answer.await.is_ok_and(|answer| answer.is_ok()) }
    }

    fn report(&self, failed: Option<&Error>) {
        self.0.metrics.unsettled_claims.set(self.0.book.unsettled() as i64);
        let degraded = self.0.book.is_degraded();
        let turned = self.0.degraded.send_replace(degraded) != degraded;
        match failed {
            Some(error) if turned => warn!(%error, "cannot register users; will go on trying"),
            None if turned && !degraded => info!("all users are registered again"),
            _ => {}
        }
    }
}

/// When the next write may begin.
struct Pace(Instant);

impl Pace {
    /// Waits until it may.
    async fn keep(&self) {
        if Instant::now() < self.0 {
            sleep_until(self.0).await;
        }
    }

    /// One began. A full one is followed at once, since more wait than a moment brings.
    fn began(&mut self, users: usize) {
        if users < BATCH {
            self.0 = Instant::now() + PACE;
        }
    }
}

/// In which second of the round a user is asserted.
fn share_of(user: &UserId) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish() % ASSERT_EVERY_S
}
