//! Several servers with one Redis and one database.

use std::net::SocketAddr;

use super::postgres::Postgres;
use super::proxy::Proxy;
use super::redis::{Redis, free_port};
use super::server::{FailedStart, Server};
use super::wait::eventually;

/// What the servers show each other.
pub(crate) const SECRET: &str = "a-secret-of-tests-0123456789";

/// Servers `local1`, `local2` and so on, that know each other.
///
/// The fields are dropped from the top: the servers end first.
#[derive(Debug)]
pub(crate) struct Cluster {
    servers: Vec<Server>,
    /// What is between each server and the rest, where that was asked for.
    links: Vec<Links>,
    pub(crate) redis: Redis,
    /// The URL of the database.
    pub(crate) database: String,
    options: Options,
}

/// How a cluster is to be.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How many servers.
    pub(crate) servers: usize,
    /// Their lease: short, so that its end is soon.
    pub(crate) lease: &'static str,
    /// Whether there are [`Links`] that can be cut.
    pub(crate) proxied: bool,
    /// An empty database other than a fresh one in the PostgreSQL that tests share.
    pub(crate) database: Option<String>,
    /// Flags for all of them, besides.
    pub(crate) flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { servers: 2, lease: "2s", proxied: false, database: None, flags: Vec::new() }
    }
}

/// The ways of one server that can be cut.
#[derive(Debug)]
pub(crate) struct Links {
    /// From the other servers to its relay.
    pub(crate) relay: Proxy,
    /// From it to Redis.
    pub(crate) redis: Proxy,
    /// From it to the database.
    pub(crate) database: Proxy,
    /// From some of its clients to it.
    pub(crate) clients: Proxy,
    relay_listen: SocketAddr,
    listen: SocketAddr,
}

impl Cluster {
    /// `servers` servers that are connected to each other.
    pub(crate) async fn of(servers: usize) -> Self {
        Self::with(Options { servers, ..Options::default() }).await
    }

    /// The same, each with its [`Links`].
    pub(crate) async fn proxied(servers: usize) -> Self {
        Self::with(Options { servers, proxied: true, ..Options::default() }).await
    }

    /// A cluster as asked for, when all servers are connected to each other.
    pub(crate) async fn with(options: Options) -> Self {
        let database = match &options.database {
            Some(url) => url.clone(),
            None => Postgres::shared().fresh_database().await,
        };
        let mut cluster = Self { servers: Vec::new(), links: Vec::new(), redis: Redis::start(), database, options };
        for number in 1..=cluster.options.servers {
            if cluster.options.proxied {
                cluster.links.push(cluster.link().await);
            }
            let flags = cluster.flags(number);
            let server = Server::start(&borrowed(&flags)).await;
            cluster.servers.push(server);
        }
        cluster.until_connected().await;
        cluster
    }

    /// One of them: 1 is `local1`.
    pub(crate) fn server(&self, number: usize) -> &Server {
        &self.servers[number - 1]
    }

    /// All of them.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// What is between a server and the rest, in a cluster that is `proxied`.
    pub(crate) fn links(&self, number: usize) -> &Links {
        &self.links[number - 1]
    }

    /// Where clients reach a server by a road that can be cut, in a cluster that is `proxied`.
    pub(crate) fn client_road(&self, number: usize) -> Option<SocketAddr> {
        self.links.get(number - 1).map(|links| links.clients.addr())
    }

    /// The flags that a server of this cluster has.
    pub(crate) fn flags(&self, number: usize) -> Vec<String> {
        let Some(links) = self.links.get(number - 1) else {
            let (redis, database) = (self.redis.url(), &self.database);
            return self.flags_with(number, &redis, database, "--relay-listen=127.0.0.1:0".into());
        };
        let redis = self.redis.url_at(links.redis.addr());
        let database = through(&self.database, links.database.addr());
        let mut flags = self.flags_with(number, &redis, &database, format!("--relay-listen={}", links.relay_listen));
        flags.push(format!("--relay-advertise={}", links.relay.addr()));
        flags.push(format!("--listen={}", links.listen));
        flags
    }

    fn flags_with(&self, number: usize, redis: &str, database: &str, relay: String) -> Vec<String> {
        let mut flags = vec![
            format!("--server-id=local{number}"),
            format!("--redis={redis}"),
            format!("--database={database}"),
            format!("--cluster-secret={SECRET}"),
            format!("--lease={}", self.options.lease),
            relay,
        ];
        flags.extend(self.options.flags.iter().cloned());
        flags
    }

    /// Starts a server as one of this cluster, with `changes` in place of the flags of the same name; a test's own, which
    /// the cluster does not know.
    pub(crate) async fn start_as(&self, number: usize, changes: &[&str]) -> Result<Server, FailedStart> {
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let mut flags = self.flags(number);
        flags.retain(|flag| !changes.iter().any(|change| name(change) == name(flag)));
        flags.extend(changes.iter().map(|&change| change.to_owned()));
        Server::try_start(&borrowed(&flags)).await
    }

    /// Kills a server, if it still runs, starts it again, and waits until all are connected.
    pub(crate) async fn restart(&mut self, number: usize) {
        let server = self.servers.remove(number - 1).restart().await;
        self.servers.insert(number - 1, server);
        self.until_connected().await;
    }

    /// Puts a server that was started elsewhere in the place of one that was killed.
    pub(crate) fn replace(&mut self, number: usize, server: Server) {
        self.servers[number - 1] = server;
    }

    /// Waits until each server that runs has its stream to each other one, of the run that is there now.
    pub(crate) async fn until_connected(&self) {
        let all = async || {
            let boots: Vec<_> = (1..=self.servers.len()).map(|number| (number, self.boot(number))).collect();
            let missing = |from: &Server, to: usize, boot: &str| {
                let is_itself = std::ptr::eq(from, self.server(to));
                !is_itself && !from.has_logged(&["Connected to a peer", &format!("server=local{to} "), boot])
            };
            let runs: Vec<_> = self.servers.iter().filter(|server| server.runs()).collect();
            let lacks = |from: &Server| {
                boots.iter().any(|(to, boot)| {
                    self.server(*to).runs() && boot.as_ref().is_none_or(|boot| missing(from, *to, boot))
                })
            };
            (!runs.iter().any(|from| lacks(from))).then_some(())
        };
        eventually("the servers to be connected", all).await;
    }

    /// The run of a server that its row names.
    pub(crate) fn boot(&self, number: usize) -> Option<String> {
        let row = self.row(number);
        row.get("boot").cloned()
    }

    /// The row of a server in Redis; empty where there is none.
    pub(crate) fn row(&self, number: usize) -> std::collections::HashMap<String, String> {
        let text = self.redis.cli(&["HGETALL", &format!("ws:server:local{number}")]);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// What the registry says of a user: `local1`, or several with commas, or nothing.
    pub(crate) fn place(&self, user: &str) -> String {
        self.redis.cli(&["GET", &format!("ws:user:server:{user}")])
    }

    /// All that the registry says of users, by user.
    pub(crate) fn places(&self) -> Vec<(String, String)> {
        let keys = self.redis.cli(&["KEYS", "ws:user:server:*"]);
        let users = keys.lines().filter_map(|key| key.strip_prefix("ws:user:server:"));
        let mut places: Vec<_> = users.map(|user| (user.to_owned(), self.place(user))).collect();
        places.sort();
        places
    }

    /// Waits until the registry says that of a user.
    pub(crate) async fn until_place(&self, user: &str, place: &str) {
        let look = async || (self.place(user) == place).then_some(());
        eventually(&format!("{user} to be on {place:?}"), look).await;
    }

    async fn link(&self) -> Links {
        let fixed = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (relay_listen, listen) = (fixed(), fixed());
        Links {
            relay: Proxy::to(relay_listen).await,
            redis: Proxy::to(self.redis.addr()).await,
            database: Proxy::to(address_of(&self.database)).await,
            clients: Proxy::to(listen).await,
            relay_listen,
            listen,
        }
    }
}

/// The same database, reached through another address.
fn through(database: &str, address: SocketAddr) -> String {
    let mut url = url::Url::parse(database).expect("a URL");
    url.set_port(Some(address.port())).expect("it has a port");
    url.into()
}

fn address_of(database: &str) -> SocketAddr {
    let url = url::Url::parse(database).expect("a URL");
    ([127, 0, 0, 1], url.port().expect("a port")).into()
}

fn borrowed(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}
