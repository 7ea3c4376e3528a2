//! The client side of the relay: for each other server one queue, one task and one long-lived stream.
//!
//! [`Peers::send`] puts an item into the queue of one server and never waits. The stream takes whatever has queued as
//! one message, so that a lone item leaves at once and a crowd travels together. Each item is answered; what was sent
//! and not answered stays in the queue's budget of bytes, so that a stuck peer fills its own queue and nothing else.
//!
//! | what comes back | what becomes of the item |
//! |---|---|
//! | answered | delivered, or queued there |
//! | answered, some `not_here` | [`Heard::NotHere`] with these recipients: the sender looks up once more |
//! | answered, some `elsewhere` | [`Heard::Elsewhere`] with these recipients: delivered there, and the sender looks up who else holds them |
//! | answered, some `full` | delivered as far as we are concerned: the receiver heals those from the store |
//! | an answer to an unknown id | ignored, and counted |
//! | a recipient out of range | ignored |
//! | the stream breaks, for whatever reason | stored items are sent again, in order and before all else of their room, on the next stream; the receiver drops repeats by room and seq. Volatile ones are lost |
//! | `FAILED_PRECONDITION`: not the server or the run we meant | nothing is delivered to it; the items wait for a newer view of the cluster |
//! | `UNAUTHENTICATED` | the cluster secrets differ: logged once as an error, tried again slowly |
//! | no answer within the deadline, or the queue is full | stored items are left to the store: the count in `Status.dropped` grows, and the receiver compares its rooms with it. Volatile ones are lost |
//! | the server was restarted, or is gone from the cluster | stored items come back as [`Heard::NotHere`] with all recipients. Volatile ones are lost |
//!
//! A stream is open for items once the other side has answered the hello with its response headers, so that nothing is
//! sent into a stream that is going to be refused.

mod backoff;
mod encode;
mod introductions;
mod item;
mod link;
mod queue;
mod report;
mod stats;
mod task;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ids::{BootId, ServerId, UserId};
use crate::registry::ServerRow;
use crate::wire;

pub use encode::{Batch, Numbered};
pub use item::Item;
pub use stats::PeerStats;

use link::{Link, Target};
use queue::{Limits, Queue};
use stats::add;
use task::{Shared, Task};

/// How many reports may wait for the reader before the tasks of the peers wait for it.
const HEARD_CAPACITY: usize = 1024;

/// How this server speaks to the others.
#[derive(Clone)]
pub struct Options {
    /// The own id; rows with it are passed over.
    pub own: ServerId,
    /// The own run.
    pub boot: BootId,
    /// The own version, such as `0.1.0`.
    pub version: String,
    /// What all servers of the cluster share.
    pub secret: Arc<str>,
    /// The most bytes queued and unanswered for one peer.
    pub queue_bytes: usize,
    /// How long a stored item may wait for its answer before it is left to the store.
    pub item_deadline: Duration,
    /// How long a connection may take to come up; the answer to the hello has as long again.
    pub connect_timeout: Duration,
    /// How often a silent connection is probed.
    pub keep_alive: Duration,
    /// How long a probe may go unanswered.
    pub keep_alive_timeout: Duration,
}

impl Options {
    /// The usual bounds: 16 MiB and 10 s per item, 2 s to connect, a probe each 3 s answered within 3 s.
    pub fn new(own: ServerId, boot: BootId, version: impl Into<String>, secret: impl Into<Arc<str>>) -> Self {
        Self {
            own,
            boot,
            version: version.into(),
            secret: secret.into(),
            queue_bytes: 16 << 20,
            item_deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(3),
            keep_alive_timeout: Duration::from_secs(3),
        }
    }
}

/// What comes back from the other servers.
#[derive(Debug)]
pub enum Heard {
    /// These recipients were not there. Of volatile items it is told for two seconds, and only if there is room.
    NotHere {
        /// The server the item was meant for.
        server: ServerId,
        /// The item.
        item: Arc<Item>,
        /// Some or all of its recipients; never empty.
        users: Vec<UserId>,
    },
    /// These recipients were there, and have a session on another server, too, which the sender did not remember. Told
    /// as [`NotHere`](Self::NotHere) is.
    Elsewhere {
        /// The server the item was meant for.
        server: ServerId,
        /// The item.
        item: Arc<Item>,
        /// Some or all of its recipients; never empty.
        users: Vec<UserId>,
    },
    /// The stream to this server was built, or built again.
    Connected {
        /// The server.
        server: ServerId,
        /// The run of it that accepted the stream.
        boot: BootId,
    },
    /// The stream to this server broke, or the server at that address is not the one meant.
    Lost {
        /// The server.
        server: ServerId,
    },
}

/// The outcome of handing something over for a peer.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It waits for the stream.
    Queued,
    /// The queue is full, or the item is larger than a stream message may be. It was dropped; for a stored item the
    /// receiver will be told to compare its rooms with the store.
    Full,
    /// No such server is known. It was dropped; for a stored item the server, when it becomes known, will be told to
    /// compare its rooms with the store.
    NoSuchPeer,
}

/// All other servers. A cheap handle.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    table: RwLock<Table>,
}

/// The peers, and what they are told of this server: together, so that a peer that is added just then misses nothing.
#[derive(Default)]
struct Table {
    links: HashMap<ServerId, Arc<Link>, RandomState>,
    status: Option<wire::Status>,
    /// More than any forgotten peer was told of dropped messages: one that comes back must see the count grow.
    told: u64,
}

impl Peers {
    /// Starts without any peer. Each later one gets a task in `tasks`, which ends within about a second of `stop`.
    ///
    /// The receiver is bounded. While it is full the peers wait for it, at most a second for a batch of
    /// [`Heard::NotHere`]; what then finds no room is dropped and counted.
    pub fn start(options: Options, tasks: &TaskTracker, stop: CancellationToken) -> (Self, mpsc::Receiver<Heard>) {
        let (reports, heard) = mpsc::channel(HEARD_CAPACITY);
        let shared = Arc::new(Shared::new(options, reports, stop));
        let inner = Inner { shared, tasks: tasks.clone(), table: RwLock::default() };
        (Self { inner: Arc::new(inner) }, heard)
    }

    /// Takes in a newer view of the cluster.
    ///
    /// New servers get a stream. One with another address is connected there; one with another boot id, too, and what
    /// was queued for the run before comes back as [`Heard::NotHere`]. One that is missing is forgotten, unless its
    /// stream is up: what answers is not gone.
    pub fn reconcile(&self, rows: &[ServerRow]) {
        if self.inner.shared.stop.is_cancelled() {
            return;
        }
        let mut table = self.inner.write();
        for row in rows.iter().filter(|row| row.id != self.inner.shared.options.own) {
            let target = Target { boot: row.boot, address: row.relay.clone() };
            match table.links.get(&row.id) {
                Some(link) => link.retarget(target),
                None => self.inner.add(&mut table, row.id.clone(), target),
            }
        }
        let present: HashSet<_> = rows.iter().map(|row| &row.id).collect();
        let Table { links, told, .. } = &mut *table;
        links.retain(|server, link| {
            let stays = present.contains(server) || !link.leave_if_down();
            if !stays {
                *told = (*told).max(link.put(|queue| queue.dropped()) + 1);
            }
            stays
        });
    }

    /// Queues an item for one server. Never waits.
    pub fn send(&self, server: &ServerId, item: Item) -> Sent {
        let is_stored = item.is_stored();
        let sent = self.with(server, |link| link.put(|queue| queue.push(item, Instant::now())));
        if sent == Sent::NoSuchPeer && is_stored {
            // The server may be so new that its users are found and it is not: it is told when it is known.
            add(&self.inner.shared.stats.dropped_unknown, 1);
        }
        sent
    }

    /// Queues what is for one server, as an item, if that server [responds](Self::responds); else gives it back. Never waits.
    pub fn send_if_responding<T>(
        &self,
        server: &ServerId,
        now: Instant,
        patience: Duration,
        what: T,
        into_item: impl FnOnce(T) -> Item,
    ) -> Result<Sent, T> {
        match self.inner.read().links.get(server) {
            Some(link) => link.put_if_responding(now, patience, what, |queue, what| queue.push(into_item(what), now)),
            None => Err(what),
        }
    }

    /// Tells all servers, as if an item had been dropped for each, to compare their rooms with the store.
    pub fn leave_to_the_store(&self) {
        for link in self.inner.read().links.values() {
            link.put(Queue::leave_to_the_store);
        }
        // For those that are not known yet.
        add(&self.inner.shared.stats.dropped_unknown, 1);
    }

    /// Queues a kick for one server. Never waits. It may arrive twice.
    pub fn kick(&self, server: &ServerId, kick: wire::Kick) -> Sent {
        self.with(server, |link| link.put(|queue| queue.kick(kick)))
    }

    /// Queues a heal for one server. Never waits. It may be dropped.
    pub fn heal(&self, server: &ServerId, heal: wire::Heal) -> Sent {
        self.with(server, |link| link.put(|queue| queue.heal(heal)))
    }

    /// Tells a server that a user of whom it has a session has one here, too. Never waits. What comes back is told when the
    /// server has answered, and closed where it will not: it is not known, it knows no introductions, its run ends, or too
    /// many wait for it.
    pub fn introduce(&self, server: &ServerId, user: &UserId) -> oneshot::Receiver<()> {
        let table = self.inner.read();
        match table.links.get(server) {
            Some(link) => link.introduce(user.clone()),
            None => oneshot::channel().1,
        }
    }

    /// Whether a server is one of them and, as far as it has said, knows introductions.
    pub fn is_acquaintable(&self, server: &ServerId) -> bool {
        self.inner.read().links.get(server).is_some_and(|link| link.is_acquaintable())
    }

    /// Notes whether a server knows introductions, as it says of itself.
    pub fn note_introduces(&self, server: &ServerId, introduces: bool) {
        if let Some(link) = self.inner.read().links.get(server) {
            link.note_introduces(introduces);
        }
    }

    /// Tells all peers, and those to come, what this server now says of itself. `dropped` is filled in for each.
    pub fn say(&self, status: wire::Status) {
        let mut table = self.inner.write();
        for link in table.links.values() {
            link.put(|queue| queue.say(status));
        }
        table.status = Some(status);
    }

    /// All peers, and whether their stream is up.
    pub fn servers(&self) -> Vec<(ServerId, bool)> {
        self.inner.read().links.iter().map(|(server, link)| (server.clone(), link.is_up())).collect()
    }

    /// Whether this server is one of them: its row is there, or its stream is up.
    pub fn knows(&self, server: &ServerId) -> bool {
        self.inner.read().links.contains_key(server)
    }

    /// Whether the stream to this server is up and all that was sent to it more than `patience` ago is answered.
    pub fn responds(&self, server: &ServerId, now: Instant, patience: Duration) -> bool {
        self.inner.read().links.get(server).is_some_and(|link| link.responds(now, patience))
    }

    /// Whether the stream to this server is up.
    pub fn is_up(&self, server: &ServerId) -> bool {
        self.inner.read().links.get(server).is_some_and(|link| link.is_up())
    }

    /// Bytes that are queued for the peers and unanswered.
    pub fn queue_bytes(&self) -> usize {
        self.inner.read().links.values().map(|link| link.queue_bytes()).sum()
    }

    /// Counters over all peers.
    pub fn stats(&self) -> &Arc<PeerStats> {
        &self.inner.shared.stats
    }

    /// Acts under the lock of the table, so that nothing is queued for a peer that has just been forgotten.
    fn with(&self, server: &ServerId, act: impl FnOnce(&Link) -> Sent) -> Sent {
        self.inner.read().links.get(server).map_or(Sent::NoSuchPeer, |link| act(link))
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peers").field(&self.servers()).finish()
    }
}

impl Inner {
    fn add(&self, table: &mut Table, server: ServerId, target: Target) {
        let options = &self.shared.options;
        let limits = Limits { bytes: options.queue_bytes, deadline: options.item_deadline };
        let mut queue = Queue::new(limits, self.shared.stats.clone());
        if let Some(status) = &table.status {
            queue.say(*status);
        }
        queue.owe(table.told + self.shared.stats.dropped_unknown.load(Relaxed));
        let link = Arc::new(Link::new(server.clone(), target, queue));
        self.tasks.spawn(Task::new(link.clone(), self.shared.clone()).run());
        table.links.insert(server, link);
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;

    fn row(id: &str) -> ServerRow {
        // Nobody is there, so the link stays down.
        let (id, relay, version) = (id.parse().unwrap(), "127.0.0.1:1".to_owned(), String::new());
        ServerRow { id, boot: BootId(7), relay, draining: false, version }
    }

    fn item() -> Item {
        Item {
            room: None,
            seq: 1,
            id: MessageId(1),
            ..Item::new("alice".parse().unwrap(), bytes::Bytes::new(), vec!["bob".parse().unwrap()])
        }
    }

    fn told(peers: &Peers, server: &str) -> u64 {
        peers.inner.read().links[&server.parse::<ServerId>().unwrap()].put(|queue| queue.dropped())
    }

    #[tokio::test]
    async fn a_server_that_becomes_known_is_told_of_what_was_dropped_before_each_time() {
        let options = Options::new("local1".parse().unwrap(), BootId(1), "0", "secret");
        let stop = CancellationToken::new();
        let (peers, _heard) = Peers::start(options, &TaskTracker::new(), stop.clone());
        peers.reconcile(&[row("local2")]);
        assert_eq!(told(&peers, "local2"), 0, "nothing was dropped");
        assert_eq!(peers.send(&"local3".parse().unwrap(), item()), Sent::NoSuchPeer);
        peers.reconcile(&[row("local2"), row("local3")]);
        let first = told(&peers, "local3");
        assert!(first > 0);
        peers.reconcile(&[row("local2")]);
        peers.reconcile(&[row("local2"), row("local3")]);
        assert!(told(&peers, "local3") > first, "the count grows, or the server would not notice");
        stop.cancel();
    }
}
