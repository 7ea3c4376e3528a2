//! The contract of the registry, held by each that there is; and how the one in Redis bears trouble.

mod cluster;
mod contract;
mod outage;

use std::time::Duration;

use minichat::ids::{BootId, ServerId, UserId};
use minichat::registry::embedded::Embedded;
use minichat::registry::redis::{Options, RedisRegistry};
use minichat::registry::{Registry, ServerRow, Truth};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::redis::{Redis, RedisCluster};

/// A lease that outlasts any test.
const LONG: Duration = Duration::from_secs(600);

/// A lease whose end is waited for. Long enough that it does not end while a slow machine looks at it.
const SHORT: Duration = Duration::from_millis(1500);

/// A registry to be put to the test, as any server may see it.
enum Backend {
    Embedded(Embedded),
    Redis(String, Options),
}

impl Backend {
    async fn server(&self, own: &str, lease: Duration) -> Box<dyn Registry> {
        match self {
            Self::Embedded(shared) => Box::new(shared.for_server(id(own), lease)),
            Self::Redis(url, options) => Box::new(connect(url, own, lease, options).await),
        }
    }

    fn redis(url: String) -> Self {
        Self::Redis(url, patient())
    }
}

/// Deadlines that a busy machine keeps, for tests in which Redis always answers.
fn patient() -> Options {
    let long = Duration::from_secs(20);
    Options { connect_timeout: long, response_timeout: long, ..Options::default() }
}

/// Deadlines that a busy machine keeps, and that end while a test waits for them.
fn brisk() -> Options {
    Options { connect_timeout: Duration::from_secs(5), response_timeout: Duration::from_secs(3), ..Options::default() }
}

async fn connect(url: &str, own: &str, lease: Duration, options: &Options) -> RedisRegistry {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    RedisRegistry::connect(url, id(own), lease, options.clone(), &tasks, stop).await.expect("a Redis that answers")
}

fn id(text: &str) -> ServerId {
    text.parse().expect("a server id")
}

fn user(text: &str) -> UserId {
    text.parse().expect("a user id")
}

fn here(text: &str) -> Truth {
    Truth { user: user(text), here: true, seen: true, fresh: false }
}

fn gone(text: &str) -> Truth {
    Truth { user: user(text), here: false, seen: true, fresh: false }
}

fn row(own: &str, boot: u64) -> ServerRow {
    ServerRow {
        id: id(own),
        boot: BootId(boot),
        relay: format!("{own}:9191"),
        draining: false,
        version: "0.1.0".into(),
    }
}

/// Writes one truth and answers the other servers as text.
async fn write(registry: &dyn Registry, truth: Truth) -> Vec<String> {
    let mut answers = registry.write(&[truth]).await;
    assert_eq!(answers.len(), 1);
    texts(answers.remove(0).expect("a registry that answers"))
}

/// Where a user is, as text.
async fn find(registry: &dyn Registry, user_id: &str) -> Vec<String> {
    let mut places = registry.locate(&[user(user_id)]).await.expect("a registry that answers");
    assert_eq!(places.len(), 1);
    texts(places.remove(0))
}

fn texts(ids: Vec<ServerId>) -> Vec<String> {
    ids.iter().map(ServerId::to_string).collect()
}

#[tokio::test]
async fn the_embedded_registry_keeps_the_contract() {
    contract::all(|| Backend::Embedded(Embedded::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_the_contract() {
    let redis = Redis::start();
    contract::all(|| emptied(&redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_behind_tls_and_a_password_keeps_the_contract() {
    let redis = Redis::start_tls();
    contract::all(|| emptied(&redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster_keeps_the_contract() {
    let cluster = RedisCluster::start();
    contract::all(|| {
        for node in &cluster.nodes {
            node.cli(&["FLUSHALL"]);
        }
        Backend::redis(cluster.url())
    })
    .await;
}

fn emptied(redis: &Redis) -> Backend {
    redis.cli(&["FLUSHALL"]);
    let options = Options { ca_file: redis.ca_file(), ..patient() };
    Backend::Redis(redis.url(), options)
}
