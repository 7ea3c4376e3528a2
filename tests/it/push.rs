//! Pushes leave: by a webhook and by Firebase Cloud Messaging, to real local servers that answer as those do.

mod admin;
mod fcm;
mod webhook;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minichat::config::{self, Config};
use minichat::ids::{MessageId, RoomId, ServerId, UserId};
use minichat::lifecycle::Lifecycle;
use minichat::metrics::Metrics;
use minichat::push;
use minichat::store::{Append, Appended, NewRoom, Options, PushKind, Settled, Store};
use tempfile::TempDir;

use crate::support::target::Target;
use crate::support::wait::eventually;

const SECRET: &str = "a secret that is of thirty-two bytes";

/// What people say here, which no log and no push is to hold unasked.
const BODY: &str = r#"{"text":"the cat sat","n":1e400}"#;

/// A database, and pushes that leave it.
struct Bench {
    store: Store,
    metrics: Metrics,
    lifecycle: Lifecycle,
    _home: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite:{}/chat.db", home.path().display())).await;
        Self { store, metrics: Metrics::default(), lifecycle: Lifecycle::new(), _home: home }
    }

    /// Lets pushes leave.
    fn start(&self, config: &config::Push) {
        push::start(config, &self.store, &self.metrics, &self.lifecycle).unwrap();
    }

    /// What `/metrics` has about pushes.
    fn count(&self, kind: &str, outcome: &str) -> u64 {
        let name = format!("minichat_pushes_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} ");
        let text = self.metrics.text();
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
    }

    /// Waits until so many pushes came to that.
    async fn until(&self, kind: &str, outcome: &str, count: u64) {
        let what = format!("{count} {kind} pushes {outcome}");
        eventually(&what, async || (self.count(kind, outcome) >= count).then_some(())).await;
    }

    /// Stops, and waits until all has ended.
    async fn stop(&self) {
        self.lifecycle.stop.cancel();
        self.lifecycle.tasks.close();
        self.lifecycle.tasks.wait().await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.lifecycle.stop.cancel();
    }
}

async fn open(url: &str) -> Store {
    Store::open(url, &Options::default()).await.unwrap()
}

fn config(flags: &[String]) -> config::Push {
    let flags = ["minichat".to_owned()].into_iter().chain(flags.iter().cloned());
    Config::parse_from(flags).unwrap().push
}

/// The flags that send pushes to a webhook.
fn to_webhook(target: &Target) -> Vec<String> {
    vec![format!("--push-webhook={}", target.url("/push")), format!("--push-webhook-secret={SECRET}")]
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn room() -> RoomId {
    "team".parse().unwrap()
}

fn fresh() -> MessageId {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 59);
    MessageId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Makes the room, with bob and these members.
async fn make_room(store: &Store, members: &[&str], name: Option<&str>) {
    let members = members.iter().map(|name| user(name)).collect();
    let name = name.map(str::to_owned);
    let room = NewRoom { room: room(), creator: user("bob"), members, name, open: false, id: fresh() };
    store.create(&room).await.unwrap();
}

/// Bob says something. Answers seq and id.
async fn say(store: &Store, body: &str) -> (u64, MessageId) {
    let id = fresh();
    let cid = id.to_string().parse().unwrap();
    let append = Append { room: room(), sender: user("bob"), cid, id, body: body.into() };
    match store.append(&[append]).await.unwrap().remove(0) {
        Appended::Stored { seq, id, .. } => (seq, id),
        other => panic!("{other:?}"),
    }
}

/// Decides that these users are pushed what bob said.
async fn decide(store: &Store, users: &[&str], seq: u64, kinds: &[PushKind]) {
    let looker: ServerId = "local1".parse().unwrap();
    let due = eventually("the room to be due", async || {
        store.take_due_rooms(&looker, 10, Duration::from_secs(10)).await.unwrap().pop()
    });
    let due = due.await;
    assert_eq!(due.upto, seq);
    let pushes = users.iter().map(|name| (user(name), seq)).collect();
    let settled = Settled { due, swept: seq, again_ms: 0, decided: Vec::new(), pushes };
    store.settle_rooms(&looker, &[settled], kinds).await.unwrap();
}

/// Bob says something that alice is to be pushed.
async fn push_to_alice(store: &Store, kinds: &[PushKind]) -> (u64, MessageId) {
    let (seq, id) = say(store, BODY).await;
    decide(store, &["alice"], seq, kinds).await;
    (seq, id)
}

fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> usize {
    items.into_iter().collect::<BTreeSet<_>>().len()
}
