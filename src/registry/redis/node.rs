//! One Redis process: its connection, whether it answers, and how both are mended.
//!
//! The rule is that a caller waits for one answer at most. Who finds the node silent marks it away; from then on calls
//! are refused at once, and a task of the node's own pings it, or connects anew, until it answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::Place;
use super::scripts::SCRIPTS;
use super::{Error, Options, reply};

/// After so many silences in a row a connection is given up: what is between us and the node may have forgotten it,
/// and only a new one can tell.
const SILENCES: u32 = 3;

/// How many times as rarely as it is probed a node that is well is looked at: to see whether it is still wanted.
const WELL: u32 = 8;

/// How many calls may wait to be written to a connection; more wait for their turn, within their deadline.
const BACKLOG: usize = 1024;

/// One Redis process.
pub(super) struct Node {
    pub(super) place: Place,
    client: Client,
    settings: AsyncConnectionConfig,
    /// Numbers the connections of all nodes, so that no two are taken for one.
    connections: Arc<AtomicU64>,
    /// A std lock, since it is never held over an await.
    link: Mutex<Link>,
    /// Wakes the mending task.
    trouble: Notify,
}

#[derive(Default)]
struct Link {
    connection: Option<MultiplexedConnection>,
    number: u64,
    /// Set by who found it silent or broken, cleared by the mending task when it answers.
    away: bool,
    /// Silences since the last answer.
    silences: u32,
}

/// Who used a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Call,
    Probe,
}

/// A connection as it was handed out, to be judged by how it served.
struct Lent {
    connection: MultiplexedConnection,
    number: u64,
}

impl Node {
    /// A node that is not connected yet, and so away.
    pub(super) fn new(place: Place, client: Client, options: &Options, connections: Arc<AtomicU64>) -> Self {
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            .set_pipeline_buffer_size(BACKLOG);
        let link = Mutex::new(Link { away: true, ..Link::default() });
        Self { place, client, settings, connections, link, trouble: Notify::new() }
    }

    /// Starts the task that mends this node while it is in use, until `stop`.
    pub(super) fn keep(self: &Arc<Self>, options: &Options, tasks: &TaskTracker, stop: CancellationToken) {
        let (node, every) = (Arc::downgrade(self), options.probe_every);
        tasks.spawn(async move { stop.run_until_cancelled(keep_mending(node, every)).await });
    }

    /// Whether calls are refused at once.
    pub(super) fn is_away(&self) -> bool {
        self.link().away
    }

    /// The number of the connection in use.
    pub(super) fn connection_number(&self) -> u64 {
        self.link().number
    }

    /// Sends commands together and answers their replies in order; a reply may be a [`Value::ServerError`].
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
        let mut lent = self.lend().ok_or(Error::Away)?;
        match lent.connection.req_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(replies) => {
                self.answered(lent.number, Asker::Call);
                Ok(replies)
            }
            Err(error) => {
                self.failed(lent.number, Asker::Call, &error);
                Err(Error::Away)
            }
        }
    }

    /// Makes all scripts known to the node.
    pub(super) async fn load_scripts(&self) -> Result<(), Error> {
        self.send(&SCRIPTS.load()).await.map(|_| ())
    }

    /// Refuses calls until the node answers a probe.
    pub(super) fn mark_away(&self) {
        self.link().away = true;
        self.trouble.notify_one();
    }

    /// Drops the connection: the place may lead to another node by now.
    pub(super) fn disconnect(&self) {
        self.link().connection = None;
        self.mark_away();
    }

    /// Connects, or connects anew, to a master. A replica is refused: what it holds may be old.
    pub(super) async fn connect(&self) -> RedisResult<()> {
        let mut connection = self.open().await?;
        let told = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
        if reply::info(&told, "role").is_some_and(|role| role != "master") {
            return Err((redis::ErrorKind::Client, "it is a replica").into());
        }
        self.install(connection);
        Ok(())
    }

    /// Connects to whatever is there, for one question.
    pub(super) async fn connect_to_any(&self) -> RedisResult<()> {
        let connection = self.open().await?;
        self.install(connection);
        Ok(())
    }

    async fn open(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&self.settings).await?;
        SCRIPTS.load().exec_async(&mut connection).await.map_err(first)?;
        Ok(connection)
    }

    fn install(&self, connection: MultiplexedConnection) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        *self.link() = Link { connection: Some(connection), number, away: false, silences: 0 };
    }

    async fn mend(&self) {
        if !self.is_away() {
            return;
        }
        let connection = self.link().connection.clone();
        let outcome = match connection {
            Some(connection) => self.probe(connection).await,
            None => self.connect().await,
        };
        match outcome {
            Ok(()) => tracing::info!(node = %self.place, "Redis answers"),
            Err(error) => tracing::debug!(node = %self.place, %error, "Redis is still away"),
        }
    }

    async fn probe(&self, mut connection: MultiplexedConnection) -> RedisResult<()> {
        let number = self.connection_number();
        let outcome = redis::cmd("PING").exec_async(&mut connection).await;
        match &outcome {
            Ok(()) => self.answered(number, Asker::Probe),
            Err(error) => self.failed(number, Asker::Probe, error),
        }
        outcome
    }

    fn lend(&self) -> Option<Lent> {
        let link = self.link();
        let connection = if link.away { None } else { link.connection.clone() };
        connection.map(|connection| Lent { connection, number: link.number })
    }

    /// Only a probe brings a node back: a call that was answered may have been sent before the one that was not.
    fn answered(&self, number: u64, asker: Asker) {
        let mut link = self.link();
        if link.number == number {
            link.silences = 0;
            link.away &= asker == Asker::Call;
        }
    }

    fn failed(&self, number: u64, asker: Asker, error: &RedisError) {
        let mut link = self.link();
        if link.number != number || link.connection.is_none() {
            return;
        }
        // Many calls in flight meet one silence; the first of them counts for all.
        let news = !link.away;
        link.silences += u32::from(news || asker == Asker::Probe);
        link.away = true;
        // An answer such as "loading" says that the connection is well. Silence may mean a slow node, a few times.
        let answered = error.code().is_some();
        let silent = error.is_timeout() && link.silences < SILENCES;
        if !answered && !silent {
            link.connection = None;
        }
        drop(link);
        if news {
            tracing::warn!(node = %self.place, %error, "Redis is away");
            self.trouble.notify_one();
        }
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node that refuses one command of a pipeline mostly refuses all, for the same reason: said once, it is a line.
fn first(error: RedisError) -> RedisError {
    match error.clone().into_server_errors().as_deref() {
        Some([(_, refused), ..]) => refused.clone().into(),
        _ => error,
    }
}

async fn keep_mending(node: Weak<Node>, every: Duration) {
    while let Some(node) = Weak::upgrade(&node) {
        node.mend().await;
        let wait = if node.is_away() { every } else { every * WELL };
        tokio::select! {
            () = node.trouble.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}
