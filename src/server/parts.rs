//! Makes the parts of a server and puts them together, from the bottom up.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_util::sync::CancellationToken;

use crate::claims::Claims;
use crate::cluster::{Cluster, view_age};
use crate::config::{self, Config, Database};
use crate::feed::Feed;
use crate::ids::BootId;
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::peers::{self, Peers};
use crate::push;
use crate::registry::embedded::Embedded;
use crate::registry::redis::{self, RedisRegistry};
use crate::registry::{DEFAULT_LEASE, Registry, ServerRow};
use crate::relay::Inbox;
use crate::rooms::Rooms;
use crate::router::{Parts, Router};
use crate::sessions::Sessions;
use crate::store::{self, Store};
use crate::sweeper::Sweeper;
use crate::worker;

/// A server's parts, at work.
pub(super) struct Assembled {
    pub(super) router: Router,
    pub(super) cluster: Cluster,
    pub(super) claims: Claims,
    pub(super) sessions: Sessions,
    pub(super) boot: BootId,
    /// Ends the registry's own tasks, after the last write.
    pub(super) registry_end: CancellationToken,
}

/// Makes all parts; what they need from outside is tried here, and what cannot be had is said in one line.
pub(super) async fn assemble(
    config: &Config,
    relay: Option<SocketAddr>,
    lifecycle: &Lifecycle,
) -> anyhow::Result<Assembled> {
    let (own, boot) = (config.server_id.clone(), BootId::random());
    let store = open_store(config).await?;
    let registry_end = CancellationToken::new();
    let registry = open_registry(config, &store, lifecycle, &registry_end).await?;
    let ids = worker::start(store.clone(), boot, lifecycle).await?;
    let metrics = Arc::new(Metrics::default());
    push::start(&config.push, &store, &metrics, lifecycle)?;
    let sessions = Sessions::default();
    let (peers, heard) = start_peers(config, boot, lifecycle)?;
    let claims = Claims::start(Arc::clone(&registry), sessions.clone(), peers.clone(), Arc::clone(&metrics), lifecycle);
    let row = row(config, boot, relay);
    let lease = config.cluster.as_ref().map_or(DEFAULT_LEASE, |cluster| cluster.lease);
    let cluster = Cluster::new(
        Arc::clone(&registry),
        store.database_id(),
        row,
        lease,
        peers.clone(),
        claims.clone(),
        Arc::clone(&metrics),
    );
    let rooms = Rooms::new(store.clone());
    let feed =
        Feed::new(own.clone(), sessions.clone(), rooms.clone(), store.clone(), lifecycle.clone(), Arc::clone(&metrics));
    let parts = Parts {
        own,
        sessions: sessions.clone(),
        claims: claims.clone(),
        registry,
        alone: config.cluster.is_none(),
        store,
        rooms,
        feed,
        peers,
        cluster: cluster.clone(),
        ids,
        metrics,
        receipt_members: config.gateway.receipt_members,
    };
    let router = Router::start(parts, heard, lifecycle);
    Ok(Assembled { router, cluster, claims, sessions, boot, registry_end })
}

impl Assembled {
    /// Where items of other servers end.
    pub(super) fn inbox(&self) -> Inbox {
        let parts = self.router.parts();
        Inbox {
            sessions: parts.sessions.clone(),
            feed: parts.feed.clone(),
            claims: parts.claims.clone(),
            cluster: parts.cluster.clone(),
            metrics: Arc::clone(&parts.metrics),
        }
    }

    /// Joins the cluster, where there is one, and from then on answers every doubt by a look into the store.
    pub(super) async fn join(&self, config: &Config, lifecycle: &Lifecycle) -> anyhow::Result<()> {
        if config.cluster.is_some() {
            self.cluster.join(lifecycle).await?;
        }
        let (cluster, feed, stop) = (self.cluster.clone(), self.router.parts().feed.clone(), lifecycle.stop.clone());
        lifecycle.spawn("compare", async move {
            while stop.run_until_cancelled(cluster.doubted()).await.is_some() {
                stop.run_until_cancelled(feed.compare_with_store()).await;
            }
        });
        Ok(())
    }
}

impl Assembled {
    /// Starts to see to what people have not acknowledged.
    pub(super) fn sweep(&self, config: &Config, lifecycle: &Lifecycle) {
        let lease = config.cluster.as_ref().map_or(DEFAULT_LEASE, |cluster| cluster.lease);
        let kinds = push::kinds(&config.push);
        Sweeper::new(self.router.clone(), config.push.after, view_age(lease), kinds).start(lifecycle);
    }
}

async fn open_store(config: &Config) -> anyhow::Result<Store> {
    let url = match &config.store.database {
        Database::Sqlite(path) => format!("sqlite:{}", path.display()),
        Database::Postgres(url) => url.expose().to_string(),
    };
    let options = store::Options { connections: config.store.connections, ..store::Options::default() };
    Ok(Store::open(&url, &options).await?)
}

async fn open_registry(
    config: &Config,
    store: &Store,
    lifecycle: &Lifecycle,
    end: &CancellationToken,
) -> anyhow::Result<Arc<dyn Registry>> {
    let own = config.server_id.clone();
    let Some(cluster) = &config.cluster else {
        return Ok(Arc::new(Embedded::new().for_server(own, DEFAULT_LEASE)));
    };
    let options = redis::Options { ca_file: cluster.redis_ca_file.clone(), ..redis::Options::default() };
    let url = cluster.redis.expose();
    let registry = RedisRegistry::connect(url, own, cluster.lease, options, &lifecycle.tasks, end.clone()).await?;
    let kept = registry.bind_database(store.database_id()).await.context("cannot use Redis")?;
    if kept != store.database_id() {
        bail!(
            "{} belongs to a cluster with another database (it has {kept}, --database has {}); give one of the two \
             another address, or delete the key ws:cluster if the database was replaced",
            cluster.redis,
            store.database_id()
        );
    }
    Ok(Arc::new(registry))
}

fn start_peers(
    config: &Config,
    boot: BootId,
    lifecycle: &Lifecycle,
) -> anyhow::Result<(Peers, tokio::sync::mpsc::Receiver<peers::Heard>)> {
    let secret = config.cluster.as_ref().map(secret_text).transpose()?.unwrap_or_default();
    let options = peers::Options::new(config.server_id.clone(), boot, env!("CARGO_PKG_VERSION"), secret);
    Ok(Peers::start(options, &lifecycle.tasks, lifecycle.end.clone()))
}

/// The cluster secret as it is shown in a header.
pub(super) fn secret_text(cluster: &config::Cluster) -> anyhow::Result<Arc<str>> {
    Ok(std::str::from_utf8(cluster.secret.expose()).context("the cluster secret is not text")?.into())
}

fn row(config: &Config, boot: BootId, relay: Option<SocketAddr>) -> ServerRow {
    let advertised = config.cluster.as_ref().and_then(|cluster| cluster.relay_advertise.clone());
    let relay = advertised.or_else(|| relay.map(|address| address.to_string())).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    ServerRow { id: config.server_id.clone(), boot, relay, draining: false, version }
}
