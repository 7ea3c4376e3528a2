//! A Redis URL: which nodes, in which arrangement, with which credentials.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult, TlsCertificates,
};

/// How long a connection may be silent before the kernel asks whether the other end is there, and between such asks.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long sent bytes may stay unacknowledged before the kernel gives a connection up.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a Sentinel listens by habit.
const SENTINEL_PORT: u16 = 26_379;

/// Where one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// One Redis.
    Alone,
    /// Nodes of a Redis Cluster.
    Cluster,
    /// Sentinels that know the master of this name.
    Sentinel(String),
}

/// A URL that was understood.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) kind: Kind,
    /// The nodes or Sentinels it names; just one, if it is one Redis.
    pub(super) seeds: Vec<Place>,
    /// Credentials, database, TLS: the same for all nodes.
    shared: ConnectionInfo,
    certificates: TlsCertificates,
}

impl Address {
    /// Understands `redis://`, `redis+cluster://` and `redis+sentinel://` URLs, and those with `rediss` for TLS. What is
    /// wrong is said without any part of the URL that may be a password.
    pub(super) fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it is not a URL")?;
        let (scheme, arrangement) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !matches!((scheme, arrangement), ("redis" | "rediss", "" | "cluster" | "sentinel")) {
            return Err("it does not begin with redis:// or rediss://, nor with +cluster or +sentinel in them".into());
        }
        if ca_file.is_some() && scheme == "redis" {
            return Err("a CA file needs a rediss URL".into());
        }
        let (credentials, hosts, path) = split(rest);
        let (kind, path) = kind(arrangement, path)?;
        let nodes: Vec<ConnectionInfo> = hosts
            .split(',')
            .map(|host| node_info(&format!("{scheme}://{credentials}{}{path}", with_port(host, &kind))))
            .collect::<Result<_, _>>()?;
        let seeds: Vec<Place> = nodes.iter().map(|node| place_of(node.addr())).collect();
        let shared = nodes.into_iter().next().ok_or("it names no node")?;
        if kind == Kind::Alone && seeds.len() > 1 {
            return Err("only a redis+cluster or redis+sentinel URL may name several nodes".into());
        }
        if kind == Kind::Cluster && shared.redis_settings().db() != 0 {
            return Err("a Redis Cluster has database 0 only".into());
        }
        Ok(Self { kind, seeds, shared, certificates: certificates(ca_file)? })
    }

    /// A client for one node of this address.
    pub(super) fn client(&self, place: &Place) -> RedisResult<Client> {
        self.client_with(place, self.shared.clone())
    }

    /// A client for a Sentinel of this address. The credentials are those of the nodes, and the databases theirs too.
    pub(super) fn sentinel_client(&self, place: &Place) -> RedisResult<Client> {
        self.client_with(place, self.shared.clone().set_redis_settings(RedisConnectionInfo::default()))
    }

    fn client_with(&self, place: &Place, info: ConnectionInfo) -> RedisResult<Client> {
        let Place { host, port } = place.clone();
        match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                let addr = ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None };
                Client::build_with_tls(info.set_addr(addr), self.certificates.clone())
            }
            _ => Client::open(info.set_addr(ConnectionAddr::Tcp(host, port))),
        }
    }

    /// The nodes it names, as text without credentials.
    pub(super) fn places(&self) -> String {
        self.seeds.iter().map(Place::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Takes what follows the scheme apart: `user:pass@`, the hosts, and the path with all behind it. A password may hold
/// an `@`, so the last one before the path counts.
fn split(rest: &str) -> (&str, &str, &str) {
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    let path = rest[at..].find(['/', '?', '#']).map_or(rest.len(), |slash| at + slash);
    (&rest[..at], &rest[at..path], &rest[path..])
}

/// The kind of URL, and its path without the name of a master.
fn kind<'a>(arrangement: &str, path: &'a str) -> Result<(Kind, &'a str), &'static str> {
    match arrangement {
        "cluster" => Ok((Kind::Cluster, path)),
        "sentinel" => {
            let name = path.trim_start_matches('/');
            let (name, db) = name.split_at(name.find(['/', '?']).unwrap_or(name.len()));
            if name.is_empty() {
                Err("it does not name a master behind the Sentinels")
            } else {
                Ok((Kind::Sentinel(name.to_owned()), db))
            }
        }
        _ => Ok((Kind::Alone, path)),
    }
}

/// A host with the port it has by habit, where it names none.
fn with_port<'a>(host: &'a str, kind: &Kind) -> Cow<'a, str> {
    let bare = host.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'));
    if bare && matches!(kind, Kind::Sentinel(_)) { format!("{host}:{SENTINEL_PORT}").into() } else { host.into() }
}

fn node_info(url: &str) -> Result<ConnectionInfo, String> {
    match url.into_connection_info() {
        Ok(info) => Ok(info.set_tcp_settings(tcp_settings())),
        Err(_) => Err("it is not of the form redis://[user:password@]host[:port][/db]; \
                       special characters of a password must be percent-encoded"
            .into()),
    }
}

/// Small commands must not wait for each other, and a dead peer must not go unnoticed: the crate sets none of these.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

fn place_of(addr: &ConnectionAddr) -> Place {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Place { host: host.clone(), port: *port }
        }
        other => Place { host: other.to_string(), port: 0 },
    }
}

/// The roots to trust: those of the file, or else the public ones that are compiled in.
fn certificates(ca_file: Option<&Path>) -> Result<TlsCertificates, String> {
    let root_cert = ca_file.map(read_certificates).transpose()?;
    Ok(TlsCertificates { client_tls: None, root_cert })
}

fn read_certificates(path: &Path) -> Result<Vec<u8>, String> {
    match std::fs::read_to_string(path) {
        Ok(pem) if pem.contains("BEGIN CERTIFICATE") => Ok(pem.into_bytes()),
        Ok(_) => Err(format!("the CA file {} holds no certificate", path.display())),
        Err(error) => Err(format!("cannot read the CA file {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, None)
    }

    #[test]
    fn a_url_names_one_node_or_the_nodes_of_a_cluster() {
        let single = parse("redis://:secret@redis.example/2").unwrap();
        assert_eq!(single.kind, Kind::Alone);
        assert_eq!(single.places(), "redis.example:6379");
        assert_eq!(single.shared.redis_settings().db(), 2);

        let cluster = parse("rediss+cluster://me:secret@a:1,[::1]:2").unwrap();
        assert_eq!(cluster.kind, Kind::Cluster);
        assert_eq!(cluster.seeds[1], Place { host: "::1".into(), port: 2 });
        assert_eq!(cluster.shared.redis_settings().username(), Some("me"));
        assert!(matches!(cluster.shared.addr(), ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn a_url_names_sentinels_and_their_master() {
        let address = parse("redis+sentinel://:secret@a,[::1],c:1/the-master/3").unwrap();
        assert_eq!(address.kind, Kind::Sentinel("the-master".into()));
        assert_eq!(address.places(), "a:26379,::1:26379,c:1");
        assert_eq!(address.shared.redis_settings().db(), 3);
        let sentinel = address.sentinel_client(&address.seeds[0]).unwrap();
        assert_eq!(sentinel.get_connection_info().redis_settings().password(), None);
    }

    #[test]
    fn a_password_is_percent_decoded() {
        let address = parse("redis://:p%40ss%2Fword@localhost").unwrap();
        assert_eq!(address.shared.redis_settings().password(), Some("p@ss/word"));
    }

    #[test]
    fn a_url_that_is_wrong_is_refused_without_its_password() {
        for url in [
            "secret",
            "http://:secret@host",
            "redis://:secret@host:port",
            "redis://:secret@host/db",
            "redis://:secret@a,b",
            "redis+cluster://:secret@a,b/1",
            "redis+sentinel://:secret@a,b",
            "redis+other://:secret@a",
            "redis://:secret@",
        ] {
            let problem = parse(url).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn a_ca_file_that_cannot_be_read_is_named() {
        let problem = Address::parse("rediss://host", Some(Path::new("/no/such/file.pem"))).unwrap_err();
        assert!(problem.contains("/no/such/file.pem"), "{problem}");
    }
}
