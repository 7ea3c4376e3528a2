//! From flags to a configuration: what goes together, what does not, and what is left out.

use std::net::SocketAddr;
use std::path::Path;

use url::Url;

use super::args::{Args, AuthArgs, ClusterArgs, GatewayArgs, StoreArgs};
use super::origin::AllowedOrigin;
use super::{
    Auth, Cluster, Config, Database, Gateway, Keys, Logs, Origins, RedisUrl, Secret, SecretUrl, Store, environment,
    push,
};
use crate::ids::ServerId;

/// RFC 7518 asks for a key as long as the hash.
const MIN_JWT_SECRET: usize = 32;
/// A key file is far smaller; this keeps a wrong path from filling the memory.
const MAX_KEY_FILE: u64 = 64 * 1024;

const GIVE_KEY: &str = "give --jwt-key-file, --jwt-secret or --jwt-jwks-url";

/// Checks the flags against each other. The error is one line and holds no secret.
pub(super) fn apply(args: Args) -> Result<Config, String> {
    let loopback = is_loopback(args.gateway.listen);
    let auth = auth(args.auth, args.gateway.dev_auth, loopback)?;
    let store = store(args.store)?;
    let server_id = args.cluster.server_id.clone();
    let cluster = cluster(args.cluster, &store)?;
    Ok(Config {
        server_id: server_id.unwrap_or_else(|| default_server_id(cluster.is_some())),
        gateway: gateway(args.gateway, &auth),
        auth,
        store,
        cluster,
        push: push::push(args.push)?,
        admin_listen: args.admin.admin_listen.0,
        logs: Logs { filter: args.logs.log, format: args.logs.log_format },
        check: args.check,
        probe: args
            .probe
            .map(|url| parse_url("--probe", &url, &["http"], "http://127.0.0.1:9600/readyz"))
            .transpose()?,
    })
}

fn gateway(args: GatewayArgs, auth: &Auth) -> Gateway {
    Gateway {
        listen: args.listen,
        origins: origins(args.allow_origin),
        hosts: args.allow_host,
        max_connections: args.max_connections,
        ping_interval: args.ping_interval,
        write_timeout: args.write_timeout,
        queue_bytes: args.queue_bytes as usize,
        trace_frames: args.trace_frames.unwrap_or(auth.dev),
        receipt_members: args.receipt_members as usize,
        drain: args.drain,
    }
}

fn origins(allowed: Vec<AllowedOrigin>) -> Origins {
    if allowed.is_empty() {
        return Origins::Same;
    }
    let listed = allowed.into_iter().map(|one| match one {
        AllowedOrigin::Any => None,
        AllowedOrigin::Exactly(origin) => Some(origin),
    });
    listed.collect::<Option<Vec<_>>>().map_or(Origins::Any, Origins::Only)
}

fn auth(args: AuthArgs, dev_auth: Option<bool>, loopback: bool) -> Result<Auth, String> {
    let (audience, issuer) = (args.jwt_audience.clone(), args.jwt_issuer.clone());
    let keys = keys(args)?;
    if keys.is_none() && (audience.is_some() || issuer.is_some()) {
        return Err(format!("--jwt-audience and --jwt-issuer need a key; {GIVE_KEY}"));
    }
    let dev = dev_auth.unwrap_or(keys.is_none() && loopback);
    match (dev, &keys) {
        (false, None) if dev_auth.is_some() => Err(format!("--dev-auth is off and there is no key; {GIVE_KEY}")),
        (false, None) => Err(format!(
            "--listen is not loopback and there is no key; {GIVE_KEY}, or let anyone be anyone with --dev-auth"
        )),
        _ => Ok(Auth { dev, keys, audience, issuer }),
    }
}

fn keys(args: AuthArgs) -> Result<Option<Keys>, String> {
    match (args.jwt_key_file, args.jwt_secret, args.jwt_jwks_url) {
        (None, None, None) => Ok(None),
        (Some(path), None, None) => key_file(&path).map(Some),
        (None, Some(secret), None) => hmac("--jwt-secret", secret.into_bytes()).map(Some),
        (None, None, Some(url)) => {
            let url =
                parse_url("--jwt-jwks-url", &url, &["http", "https"], "https://id.example/.well-known/jwks.json")?;
            Ok(Some(Keys::Jwks(url)))
        }
        _ => Err("give only one of --jwt-key-file, --jwt-secret and --jwt-jwks-url".into()),
    }
}

fn key_file(path: &Path) -> Result<Keys, String> {
    let bytes = read("--jwt-key-file", path)?;
    match String::from_utf8(bytes) {
        Ok(text) if text.contains("-----BEGIN") => Ok(Keys::Pem(text)),
        Ok(text) => hmac("--jwt-key-file", text.into_bytes()),
        Err(error) => hmac("--jwt-key-file", error.into_bytes()),
    }
}

/// Takes a shared secret. A public key must never become one: everybody knows it, so everybody could sign.
fn hmac(flag: &str, mut secret: Vec<u8>) -> Result<Keys, String> {
    if is_public_key(&secret) {
        return Err(format!("{flag} holds a key, not a secret; put a public key into --jwt-key-file in PEM form"));
    }
    trim_newline(&mut secret);
    if secret.len() < MIN_JWT_SECRET {
        return Err(format!("{flag} is {} bytes long; HS256 needs at least {MIN_JWT_SECRET}", secret.len()));
    }
    Ok(Keys::Secret(Secret::new(secret)))
}

/// Whether this looks like a key in any usual form: PEM, JSON, SSH, or DER (one ASN.1 sequence).
fn is_public_key(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii();
    text.windows(10).any(|window| window == b"-----BEGIN")
        || [&b"{"[..], b"ssh-", b"ecdsa-"].iter().any(|start| text.starts_with(start))
        || is_der_sequence(bytes)
}

fn is_der_sequence(bytes: &[u8]) -> bool {
    match bytes {
        [0x30, 0x82, high, low, rest @ ..] => usize::from(u16::from_be_bytes([*high, *low])) == rest.len(),
        [0x30, 0x81, length, rest @ ..] | [0x30, length, rest @ ..] => usize::from(*length) == rest.len(),
        _ => false,
    }
}

fn store(args: StoreArgs) -> Result<Store, String> {
    let database = match args.database.strip_prefix("sqlite:") {
        Some(path) => Database::Sqlite(sqlite_path(path)?.into()),
        None => Database::Postgres(parse_url(
            "--database",
            &args.database,
            &["postgres", "postgresql"],
            "postgres://user:password@localhost/minichat, or sqlite:data/minichat.db",
        )?),
    };
    Ok(Store { database, connections: args.database_connections })
}

fn sqlite_path(text: &str) -> Result<&str, String> {
    let path = text.strip_prefix("//").unwrap_or(text);
    let is_file = !path.is_empty() && !path.starts_with(':') && !path.contains('?');
    if is_file { Ok(path) } else { Err("--database must name a file, as in sqlite:data/minichat.db".into()) }
}

fn cluster(args: ClusterArgs, store: &Store) -> Result<Option<Cluster>, String> {
    let Some(redis) = &args.redis else {
        return no_cluster(&args).map(|()| None);
    };
    let redis = RedisUrl::read(redis).ok_or("--redis must be like redis://127.0.0.1:6379; redis, redis+cluster or redis+sentinel, or rediss in place of redis for TLS")?;
    if let Some(path) = &args.redis_ca_file {
        read("--redis-ca-file", path)?;
    }
    let Some(secret) = cluster_secret(&args)? else {
        return Err("--redis needs --cluster-secret or --cluster-secret-file, the same on all servers".into());
    };
    if matches!(store.database, Database::Sqlite(_)) {
        return Err("--redis needs a database that servers can share: --database postgres://...".into());
    }
    let relay_listen = args.relay_listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9090)));
    if relay_listen.ip().is_unspecified() && args.relay_advertise.is_none() {
        return Err(format!(
            "--relay-listen {relay_listen} is no address to connect to; add --relay-advertise HOST:PORT"
        ));
    }
    Ok(Some(Cluster {
        redis,
        redis_ca_file: args.redis_ca_file,
        relay_listen,
        relay_advertise: args.relay_advertise,
        secret,
        lease: args.lease,
    }))
}

/// Without Redis the other flags of the cluster would do nothing, which is hardly what was meant.
fn no_cluster(args: &ClusterArgs) -> Result<(), String> {
    let given = [
        (args.redis_ca_file.is_some(), "--redis-ca-file"),
        (args.relay_listen.is_some(), "--relay-listen"),
        (args.relay_advertise.is_some(), "--relay-advertise"),
        (args.cluster_secret.is_some(), "--cluster-secret"),
        (args.cluster_secret_file.is_some(), "--cluster-secret-file"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, flag)) => Err(format!("{flag} is of use in a cluster only; add --redis URL, or leave it out")),
        None => Ok(()),
    }
}

fn cluster_secret(args: &ClusterArgs) -> Result<Option<Secret>, String> {
    let (flag, secret) = match (&args.cluster_secret, &args.cluster_secret_file) {
        (None, None) => return Ok(None),
        (Some(secret), None) => ("--cluster-secret", secret.clone().into_bytes()),
        (None, Some(path)) => {
            let mut secret = read("--cluster-secret-file", path)?;
            trim_newline(&mut secret);
            ("--cluster-secret-file", secret)
        }
        (Some(_), Some(_)) => return Err("give only one of --cluster-secret and --cluster-secret-file".into()),
    };
    // It travels in a header.
    let fits = matches!(secret.len(), 16..=256) && secret.iter().all(u8::is_ascii_graphic);
    if fits {
        Ok(Some(Secret::new(secret)))
    } else {
        Err(format!("{flag} must be 16 to 256 visible ASCII characters; openssl rand -hex 32 makes a good one"))
    }
}

/// A server on its own needs no name of note; one of several is best known by its host.
fn default_server_id(in_cluster: bool) -> ServerId {
    let host = if in_cluster { environment::host_name() } else { None };
    host.unwrap_or_else(|| ServerId::trusted("local1"))
}

/// Reads a URL. The error does not repeat it, since it may hold a password.
pub(super) fn parse_url(flag: &str, text: &str, schemes: &[&str], example: &str) -> Result<SecretUrl, String> {
    match Url::parse(text) {
        Ok(url) if schemes.contains(&url.scheme()) => Ok(SecretUrl::new(url)),
        Ok(url) => Err(format!("{flag} cannot be a {}: URL; write it like {example}", url.scheme())),
        Err(error) => Err(format!("{flag} is no URL ({error}); write it like {example}")),
    }
}

pub(super) fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;

    let cannot = |error| format!("{flag} {} cannot be read: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_KEY_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_KEY_FILE {
        return Err(format!("{flag} {} is larger than {MAX_KEY_FILE} bytes", path.display()));
    }
    Ok(bytes)
}

/// Editors and `echo` end a file with a newline that is no part of the secret.
pub(super) fn trim_newline(bytes: &mut Vec<u8>) {
    for end in [b'\n', b'\r'] {
        if bytes.last() == Some(&end) {
            bytes.pop();
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether what is said to this URL can be read and changed on the way.
pub(super) fn is_open(url: &SecretUrl) -> bool {
    let url = url.expose();
    url.scheme() == "http" && !matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// What is allowed but deserves a word.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.auth.dev && !is_loopback(config.gateway.listen) {
        let listen = config.gateway.listen;
        warnings.push(format!("--dev-auth on {listen}: whoever reaches this address can be any user"));
    }
    if config.auth.dev && config.gateway.origins == Origins::Any {
        warnings.push("--dev-auth with --allow-origin *: any web page a user opens here can be any user".into());
    }
    if let Some(Keys::Jwks(url)) = &config.auth.keys
        && is_open(url)
    {
        warnings.push(format!("--jwt-jwks-url {url} is not https: whoever is on the way can put in a key"));
    }
    if let Some(cluster) = &config.cluster
        && cluster.relay_advertise.is_none()
        && is_loopback(cluster.relay_listen)
    {
        let listen = cluster.relay_listen;
        warnings.push(format!("the relay listens on {listen}: servers on other hosts cannot reach this one"));
    }
    warnings.extend(config.push.warnings());
    warnings
}
