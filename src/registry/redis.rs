//! In Redis, for a cluster: a Redis on its own, a master behind Sentinels, or a Redis Cluster; Valkey speaks the same.
//!
//! | key | what |
//! |---|---|
//! | `ws:user:server:<user>` | the ids of the servers that hold a session of this user, comma-separated; expires |
//! | `ws:user:seen:<user>` | when they were last known to be connected, in ms since 1970; expires |
//! | `ws:server:<server>` | a server's row: `boot`, `relay`, `state`, `version`; expires with the lease |
//! | `ws:servers` | the ids of the servers, sorted by lease end in Redis time |
//! | `ws:cluster` | the id of the database that belongs to this registry |
//!
//! Keys are built in `keys`. Every command is about one key. `fleet` sends it to the node that owns the key, `node`
//! keeps the connection to one node and knows whether it answers.

mod address;
mod discover;
mod fleet;
mod keys;
mod layout;
mod node;
mod reply;
mod route;
mod scripts;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::address::{Address, Kind};
use self::fleet::{Fleet, Request};
use self::node::Node;
use self::scripts::{Lua, SCRIPTS};
use super::{ENTRY_TTL, Enlisted, Error, Registry, Renewed, ServerRow, Truth};
use crate::clock::{millis, unix_ms};
use crate::ids::{BootId, ServerId, UserId};

/// How many keys one `MGET` reads. Redis does nothing else meanwhile.
const KEYS_PER_MGET: usize = 512;

/// How long after its end a lease stays in the list of servers, for people to see who was there.
const DEAD_FOR: Duration = Duration::from_secs(60);

/// How long it is kept when a user was last seen.
const SEEN_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// How the connections are to behave.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long connecting may take, handshake and all. Default 1 s.
    pub connect_timeout: Duration,
    /// How long a node may take to answer before it counts as away. Default 500 ms.
    pub response_timeout: Duration,
    /// How often a node that is away is probed. Default 250 ms.
    pub probe_every: Duration,
    /// A PEM file with the certificates to trust for `rediss` URLs, in place of the public ones. Default none.
    pub ca_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            probe_every: Duration::from_millis(250),
            ca_file: None,
        }
    }
}

/// Why there is no registry to begin with. Says where and what, and never the password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL, or the CA file beside it, cannot be used.
    #[error("the Redis URL cannot be used: {0}")]
    Url(String),
    /// Nobody there, or nobody who lets us in.
    #[error("cannot connect to Redis at {place}: {problem}")]
    Unreachable {
        /// The nodes of the URL, `host:port`.
        place: String,
        /// What they, or the network, said.
        problem: String,
    },
}

/// A registry in Redis, as one server sees it.
pub struct RedisRegistry {
    fleet: Arc<Fleet>,
    own: ServerId,
    lease: Duration,
}

impl RedisRegistry {
    /// Connects as the server `own`, whose rows live for one `lease` at a time.
    ///
    /// `url` is `redis://[user:password@]host[:port][/db]`; `redis+cluster://` with some `host:port` of a Redis Cluster,
    /// comma-separated; or `redis+sentinel://[user:password@]host[:port],.../master[/db]` with some Sentinels, which are
    /// asked without credentials. With `rediss` in place of `redis` all is TLS. Connections are mended by tasks of
    /// `tasks` until `stop`; cancel that only after the last write.
    ///
    /// # Errors
    ///
    /// If the URL is malformed, no node answers within the timeout, or it refuses the credentials or the scripts.
    pub async fn connect(
        url: &str,
        own: ServerId,
        lease: Duration,
        options: Options,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, ConnectError> {
        let address = Address::parse(url, options.ca_file.as_deref()).map_err(ConnectError::Url)?;
        let place = address.places();
        match Fleet::connect(address, options, tasks, stop).await {
            Ok(fleet) => Ok(Self { fleet, own, lease }),
            Err(problem) => Err(ConnectError::Unreachable { place, problem }),
        }
    }

    async fn one(&self, key: &str, command: Cmd) -> Result<Value, Error> {
        self.fleet.run(&[Request::new(key, command)]).await.pop().unwrap_or(Err(Error::Away))
    }

    /// Whoever has just come has no entry in most cases: then a plain command, which does nothing where there is one, costs
    /// a third of the script.
    fn first_try(&self, truth: &Truth) -> Request {
        if !truth.fresh {
            return self.by_script(truth);
        }
        let key = keys::user(&truth.user);
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(self.own.as_str()).arg("NX").arg("GET").arg("PX").arg(millis(ENTRY_TTL));
        Request::new(&key, command)
    }

    fn by_script(&self, truth: &Truth) -> Request {
        let key = keys::user(&truth.user);
        let script = if truth.here { &SCRIPTS.claim } else { &SCRIPTS.release };
        let mut command = script.on(&key);
        command.arg(self.own.as_str());
        if truth.here {
            command.arg(millis(ENTRY_TTL));
        }
        Request::new(&key, command)
    }

    /// Writes by script what the plain command did not, because there was an entry or Redis is older than 7.0.
    async fn write_rest(&self, truths: &[Truth], outcomes: &mut [Result<Value, Error>]) {
        let tried = truths.iter().zip(&*outcomes).enumerate();
        let undone = tried.filter(|(_, (truth, outcome))| truth.fresh && is_undone(outcome));
        let rest: Vec<usize> = undone.map(|(index, _)| index).collect();
        if rest.is_empty() {
            return;
        }
        let requests: Vec<Request> = rest.iter().map(|index| self.by_script(&truths[*index])).collect();
        for (index, outcome) in rest.into_iter().zip(self.fleet.run(&requests).await) {
            outcomes[index] = outcome;
        }
    }

    fn note_seen(user: &UserId) -> Request {
        let key = keys::seen(user);
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(unix_ms()).arg("PX").arg(millis(SEEN_TTL));
        Request::new(&key, command)
    }

    /// One `MGET` for many keys where one node has them all; else one `GET` each, which the fleet sends to each node
    /// in one pipeline.
    fn reads(&self, users: &[UserId], key: impl Fn(&UserId) -> String) -> Vec<Request> {
        let at_once = if self.fleet.address.kind == Kind::Cluster { 1 } else { KEYS_PER_MGET };
        users
            .chunks(at_once)
            .map(|chunk| {
                let keys: Vec<String> = chunk.iter().map(&key).collect();
                let mut command = redis::cmd(if at_once == 1 { "GET" } else { "MGET" });
                command.arg(&keys);
                Request::new(&keys[0], command)
            })
            .collect()
    }

    /// What is kept of each user under `key`, in order.
    async fn read<T>(
        &self,
        users: &[UserId],
        key: impl Fn(&UserId) -> String,
        value: impl Fn(&Value) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut values = Vec::with_capacity(users.len());
        for outcome in self.fleet.run(&self.reads(users, key)).await {
            match outcome? {
                Value::Array(replies) => values.extend(replies.iter().map(&value)),
                reply => values.push(value(&reply)),
            }
        }
        Ok(values)
    }

    /// A script that writes a row, after asking whose it is.
    async fn put_row(&self, script: &Lua, row: &ServerRow) -> Result<Value, Error> {
        let key = keys::server(&row.id);
        let mut command = script.on(&key);
        command.arg(row.boot.to_string()).arg(millis(self.lease)).arg(&row.relay);
        command.arg(reply::state(row.draining)).arg(&row.version);
        self.one(&key, command).await
    }

    /// Puts a server whose row was just written on the list.
    async fn mark(&self, id: &ServerId) -> Result<(), Error> {
        let mut command = SCRIPTS.mark.on(keys::SERVERS);
        command.arg(id.as_str()).arg(millis(self.lease));
        self.one(keys::SERVERS, command).await.map(|_| ())
    }
}

/// Whether the plain command has not written: it answers nothing where it has.
fn is_undone(outcome: &Result<Value, Error>) -> bool {
    !matches!(outcome, Ok(Value::Nil) | Err(Error::Away))
}

#[async_trait]
impl Registry for RedisRegistry {
    async fn write(&self, truths: &[Truth]) -> Vec<Result<Vec<ServerId>, Error>> {
        let entries = truths.iter().map(|truth| self.first_try(truth));
        // After the entries, and in the same round trip. Whether it got there is of no account.
        let seen = truths.iter().filter(|truth| truth.seen).map(|truth| Self::note_seen(&truth.user));
        let requests: Vec<Request> = entries.chain(seen).collect();
        let mut outcomes = self.fleet.run(&requests).await;
        outcomes.truncate(truths.len());
        self.write_rest(truths, &mut outcomes).await;
        outcomes.into_iter().map(|outcome| reply::others(&outcome?)).collect()
    }

    async fn locate(&self, users: &[UserId]) -> Result<Vec<Vec<ServerId>>, Error> {
        self.read(users, keys::user, reply::entry).await
    }

    async fn last_seen(&self, users: &[UserId]) -> Result<Vec<Option<u64>>, Error> {
        self.read(users, keys::seen, reply::number).await
    }

    async fn enlist(&self, row: &ServerRow) -> Result<Enlisted, Error> {
        let outcome = reply::enlisted(&self.put_row(&SCRIPTS.enlist, row).await?)?;
        if outcome == Enlisted::Ours {
            self.mark(&row.id).await?;
        }
        Ok(outcome)
    }

    async fn renew(&self, row: &ServerRow) -> Result<Renewed, Error> {
        let outcome = reply::renewed(&self.put_row(&SCRIPTS.renew, row).await?, row.boot)?;
        if !matches!(outcome, Renewed::Usurped(_)) {
            self.mark(&row.id).await?;
        }
        Ok(outcome)
    }

    async fn withdraw(&self, id: &ServerId, boot: BootId) -> Result<(), Error> {
        let key = keys::server(id);
        let mut command = SCRIPTS.withdraw.on(&key);
        command.arg(boot.to_string());
        if self.one(&key, command).await? == Value::Int(1) {
            let mut command = redis::cmd("ZREM");
            command.arg(keys::SERVERS).arg(id.as_str());
            self.one(keys::SERVERS, command).await?;
        }
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<ServerRow>, Error> {
        let mut command = SCRIPTS.roster.on(keys::SERVERS);
        command.arg(millis(DEAD_FOR));
        let ids = reply::ids(&self.one(keys::SERVERS, command).await?)?;
        let requests: Vec<Request> = ids.iter().map(|id| read_row(&keys::server(id))).collect();
        let rows = self.fleet.run(&requests).await;
        // A row that is not there has expired with its lease.
        ids.into_iter().zip(rows).filter_map(|(id, row)| row.map(|row| reply::row(id, &row)).transpose()).collect()
    }

    async fn generation(&self) -> Result<String, Error> {
        let layout = self.fleet.layout();
        let mut marks: Vec<String> =
            join_all(layout.nodes.iter().map(|node| mark_of(node))).await.into_iter().collect::<Result<_, _>>()?;
        marks.sort_unstable();
        Ok(marks.join(" "))
    }

    async fn bind_database(&self, id: &str) -> Result<String, Error> {
        let mut set = redis::cmd("SET");
        set.arg(keys::CLUSTER).arg(id).arg("NX");
        let mut get = redis::cmd("GET");
        get.arg(keys::CLUSTER);
        let requests = [Request::new(keys::CLUSTER, set), Request::new(keys::CLUSTER, get)];
        let mut outcomes = self.fleet.run(&requests).await;
        reply::text(&outcomes.pop().unwrap_or(Err(Error::Away))?)
    }
}

impl fmt::Debug for RedisRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRegistry")
            .field("own", &self.own)
            .field("nodes", &self.fleet.address.places())
            .finish_non_exhaustive()
    }
}

fn read_row(key: &str) -> Request {
    let mut command = redis::cmd("HGETALL");
    command.arg(key);
    Request::new(key, command)
}

/// What would change if this node had lost anything: its run, its replication history, which changes whenever its role
/// does, and our connection to it.
async fn mark_of(node: &Node) -> Result<String, Error> {
    let mut ask = redis::pipe();
    ask.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    let number = node.connection_number();
    let replies = node.send(&ask).await?;
    let [server, replication] = &replies[..] else { return Err(Error::Away) };
    let told = |value, field| reply::info(value, field).unwrap_or_default();
    if told(replication, "role") == "slave" {
        node.disconnect();
        return Err(Error::Away);
    }
    Ok(format!("{}/{}/{}/{number}", node.place, told(server, "run_id"), told(replication, "master_replid")))
}
