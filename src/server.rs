//! One server, from its configuration to its end.

mod drain;
mod parts;

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::admin::Admin;
use crate::auth::Auth;
use crate::config::Config;
use crate::gateway::{Gateway, listener};
use crate::lifecycle::Lifecycle;
use crate::relay::{self, Probe};
use parts::Assembled;

/// How many of the files that this process may have open are not for clients: the database, Redis, other servers and the
/// log need them, and without them a full server could not recover from their loss. Or half, where that is less.
const RESERVED_FILES: usize = 64;

/// The share of the others which clients may take as sockets, in percent.
const SOCKETS_SHARE: usize = 80;

/// The share for connections that are not sockets yet, or no more than [`MOST_REQUESTS`].
const REQUESTS_SHARE: usize = 10;

/// How many connections may be at their HTTP request at a time.
const MOST_REQUESTS: usize = 2_048;

/// The addresses of a server, bound before anything else is begun: a port that is taken is said at once.
struct Listeners {
    public: TcpListener,
    relay: Option<TcpListener>,
    admin: Option<TcpListener>,
}

/// Runs one server until `lifecycle` says stop, and drains it.
///
/// # Errors
/// In one line, what could not be had at the start, or what failed that a server cannot be without.
pub async fn run(config: Config, lifecycle: Lifecycle) -> anyhow::Result<()> {
    crate::tls::install_provider();
    // Told to stop before it is up, it has nobody to say goodbye to.
    let Some(up) = lifecycle.stop.run_until_cancelled(start(&config, &lifecycle)).await else { return Ok(()) };
    let (assembled, mut vital, greeting) = up?;
    // Nobody may be there to read it.
    let _ = std::io::stdout().write_all(greeting.as_bytes());
    let outcome = tokio::select! {
        () = lifecycle.stop.cancelled() => Ok(()),
        () = assembled.cluster.usurped() => Err(anyhow::anyhow!("another server has taken the id {}", config.server_id)),
        ended = vital.join_next() => Err(failure(ended)),
    };
    lifecycle.stop.cancel();
    drain::drain(&assembled, config.gateway.drain, &lifecycle).await;
    outcome
}

/// Why a server that one cannot be without has ended.
fn failure(ended: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("a listener ended"),
    }
}

type Vital = JoinSet<anyhow::Result<()>>;

async fn start(config: &Config, lifecycle: &Lifecycle) -> anyhow::Result<(Assembled, Vital, String)> {
    let listeners = Listeners::bind(config)?;
    let auth = Auth::start(&config.auth, lifecycle).await?;
    let relay_address = listeners.relay.as_ref().map(TcpListener::local_addr).transpose()?;
    let assembled = parts::assemble(config, relay_address, lifecycle).await?;
    let mut vital = Vital::new();
    // The relay answers before the cluster is told where.
    let probe = serve_relay(&mut vital, listeners.relay, config, &assembled, lifecycle)?;
    assembled.join(config, lifecycle).await?;
    assembled.sweep(config, lifecycle);
    let greeting = greeting(config, listeners.public.local_addr()?, relay_address, listeners.admin.as_ref());
    let router = assembled.router.clone();
    if let Some(admin) = listeners.admin {
        let routes = Admin { router: router.clone(), relay: probe, lifecycle: lifecycle.clone() }.routes();
        let end = lifecycle.end.clone();
        vital.spawn(async move {
            let served = axum::serve(admin, routes).with_graceful_shutdown(end.cancelled_owned()).await;
            served.context("the admin port failed")
        });
    }
    let Places { sockets, requests } = Places::new(config)?;
    let gateway = Gateway::new(config.gateway.clone(), config.auth.dev, sockets, auth, router, lifecycle.clone());
    vital.spawn(serve_public(listeners.public, gateway, requests, lifecycle.clone()));
    Ok((assembled, vital, greeting))
}

async fn serve_public(
    public: TcpListener,
    gateway: Gateway,
    requests: usize,
    lifecycle: Lifecycle,
) -> anyhow::Result<()> {
    listener::serve(public, gateway.routes(), requests, lifecycle.clone()).await;
    if lifecycle.stop.is_cancelled() {
        // It ends first, and not by a fault.
        lifecycle.end.cancelled().await;
    }
    Ok(())
}

/// Serves the relay where there is a cluster, and says how to ask it.
fn serve_relay(
    vital: &mut Vital,
    relay: Option<TcpListener>,
    config: &Config,
    assembled: &Assembled,
    lifecycle: &Lifecycle,
) -> anyhow::Result<Option<Probe>> {
    let (Some(relay), Some(cluster)) = (relay, &config.cluster) else { return Ok(None) };
    let secret = parts::secret_text(cluster)?;
    let probe = Probe::new(relay.local_addr()?, &secret)?;
    let identity = relay::Identity { id: config.server_id.clone(), boot: assembled.boot, secret };
    let (inbox, lifecycle) = (assembled.inbox(), lifecycle.clone());
    vital.spawn(async move { relay::serve(relay, identity, inbox, lifecycle).await.context("the relay failed") });
    Ok(Some(probe))
}

impl Listeners {
    fn bind(config: &Config) -> anyhow::Result<Self> {
        let bind = |flag: &str, address: SocketAddr| {
            listener::bind(address).with_context(|| format!("cannot listen on {address} (--{flag})"))
        };
        let relay = config.cluster.as_ref().map(|cluster| bind("relay-listen", cluster.relay_listen));
        let admin = config.admin_listen.map(|address| bind("admin-listen", address));
        let public = bind("listen", config.gateway.listen)?;
        Ok(Self { public, relay: relay.transpose()?, admin: admin.transpose()? })
    }
}

/// How many clients may be there at a time.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    sockets: usize,
    requests: usize,
}

impl Places {
    fn new(config: &Config) -> anyhow::Result<Self> {
        let files = rlimit::increase_nofile_limit(u64::MAX).context("cannot learn how many files may be open")?;
        let files = usize::try_from(files).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let places = Self::of(files, config.gateway.max_connections.map(|most| most as usize));
        if places.sockets == 0 {
            bail!("only {files} files may be open, which leaves none for clients; raise the limit (ulimit -n)");
        }
        Ok(places)
    }

    fn of(files: usize, most: Option<usize>) -> Self {
        let spare = files - RESERVED_FILES.min(files / 2);
        let sockets = most.unwrap_or(share(spare, SOCKETS_SHARE));
        let requests = share(spare, REQUESTS_SHARE).clamp(1, MOST_REQUESTS);
        Self { sockets, requests }
    }
}

fn share(files: usize, percent: usize) -> usize {
    files.saturating_mul(percent) / 100
}

/// What to open next.
fn greeting(config: &Config, public: SocketAddr, relay: Option<SocketAddr>, admin: Option<&TcpListener>) -> String {
    let mut lines = vec![format!("minichat {} is up as {}", env!("CARGO_PKG_VERSION"), config.server_id)];
    lines.push(format!("  open      http://{public}/"));
    lines.push(format!("  data      {}", config.store.database));
    match &config.cluster {
        Some(cluster) => lines.push(format!("  cluster   {}", cluster.redis)),
        None => lines.push("  cluster   none: this server is on its own".into()),
    }
    if let Some(address) = relay {
        lines.push(format!("  relay     {address}"));
    }
    if let Some(targets) = config.push.targets() {
        lines.push(format!("  push      {targets}"));
    }
    if config.auth.dev {
        lines.push("  sign in   development: anyone can be anyone (?user=NAME)".into());
    }
    if let Some(address) = admin.and_then(|admin| admin.local_addr().ok()) {
        lines.push(format!("  health    http://{address}/readyz  metrics http://{address}/metrics"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_never_get_all_files() {
        for (files, sockets, requests) in
            [(2, 0, 1), (64, 25, 3), (256, 153, 19), (1024, 768, 96), (1 << 20, 838_809, MOST_REQUESTS)]
        {
            assert_eq!(Places::of(files, None), Places { sockets, requests }, "{files}");
        }
        assert_eq!(Places::of(1024, Some(7)), Places { sockets: 7, requests: 96 });
    }
}
