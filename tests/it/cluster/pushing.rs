//! People who are not there, or do not acknowledge, are pushed each message once, whichever server is lost.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::support::client::Client;
use crate::support::cluster::{Cluster, Options};
use crate::support::target::Target;
use crate::support::wait::eventually;

/// Two servers whose pushes go to a target of the test's own.
struct Scene {
    cluster: Cluster,
    target: Target,
}

impl Scene {
    async fn new(push_after: &str) -> Self {
        let target = Target::answering([]).await;
        let flags = vec![
            format!("--push-webhook={}", target.url("/push")),
            "--push-webhook-secret=a secret that is of thirty-two bytes".into(),
            format!("--push-after={push_after}"),
        ];
        Self { cluster: Cluster::with(Options { flags, ..Options::default() }).await, target }
    }

    /// Waits until all is decided and nothing is on its way.
    async fn until_quiet(&self) {
        let mut connection = PgConnection::connect(&self.cluster.database).await.unwrap();
        eventually("all to be decided and pushed", async || {
            let (open,): (i64,) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM rooms WHERE due IS NOT NULL) + (SELECT count(*) FROM pushes)",
            )
            .fetch_one(&mut connection)
            .await
            .unwrap();
            (open == 0).then_some(())
        })
        .await;
    }

    /// Who was pushed which seq of a room, as often as it was.
    fn pushed(&self) -> Vec<(String, u64)> {
        let pushed =
            |said: Value| (said["user"].as_str().unwrap().to_owned(), said["message"]["seq"].as_u64().unwrap());
        let mut all: Vec<_> = self.target.calls().iter().map(|call| pushed(call.json())).collect();
        all.sort();
        all
    }

    async fn until_pushed(&self, expected: &[(&str, u64)]) {
        let expected: BTreeSet<_> = expected.iter().map(|(user, seq)| ((*user).to_owned(), *seq)).collect();
        eventually("the pushes", async || expected.is_subset(&self.pushed().into_iter().collect()).then_some(())).await;
    }
}

fn seq(frame: &Value) -> u64 {
    frame["seq"].as_u64().unwrap()
}

#[tokio::test]
async fn who_is_nowhere_is_pushed_each_message_once_and_nobody_else_is() {
    let scene = Scene::new("1h").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    let mut bob = Client::connect(scene.cluster.server(2), "bob").await;
    alice.create("team", &["bob", "carol", "dave"]).await;
    // Dave wants none.
    let mut dave = Client::connect(scene.cluster.server(1), "dave").await;
    dave.ask_for("ok", json!({"type": "settings", "room": "team", "muted": true})).await;
    dave.close().await;
    let one = seq(&alice.say("team", "one").await);
    let two = seq(&bob.say("team", "two").await);
    bob.expect_body("one").await;
    alice.expect_body("two").await;
    alice.ack("team", two).await;
    bob.ack("team", two).await;
    scene.until_quiet().await;
    assert_eq!(scene.pushed(), [("carol".to_owned(), one), ("carol".to_owned(), two)]);
}

#[tokio::test]
async fn who_is_connected_and_does_not_acknowledge_is_pushed_after_a_while_and_who_does_is_not() {
    let scene = Scene::new("6s").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    let mut bob = Client::connect(scene.cluster.server(2), "bob").await;
    let mut carol = Client::connect(scene.cluster.server(1), "carol").await;
    alice.create("team", &["bob", "carol"]).await;
    let one = seq(&alice.say("team", "one").await);
    bob.expect_body("one").await;
    carol.expect_body("one").await;
    // From another device than the one it came to.
    Client::connect_as(scene.cluster.server(1), "bob", json!({"device": "laptop"})).await.ack("team", one).await;
    scene.until_quiet().await;
    assert_eq!(scene.pushed(), [("carol".to_owned(), one)]);
}

#[tokio::test]
async fn what_a_server_took_right_before_it_was_killed_is_pushed_by_another_once() {
    let scene = Scene::new("1h").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let last = seq(&alice.say("team", "the last word").await);
    scene.cluster.server(1).kill();
    scene.until_pushed(&[("bob", last)]).await;
    scene.until_quiet().await;
    assert_eq!(scene.pushed(), [("bob".to_owned(), last)]);
}

#[tokio::test]
async fn whose_server_was_killed_is_pushed_though_the_registry_still_names_it() {
    let scene = Scene::new("1h").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    let bob = Client::connect(scene.cluster.server(2), "bob").await;
    alice.create("team", &["bob"]).await;
    scene.cluster.server(2).kill();
    drop(bob);
    let last = seq(&alice.say("team", "are you there?").await);
    scene.until_pushed(&[("bob", last)]).await;
    assert_eq!(scene.cluster.place("bob"), "local2", "no entry had to be cleaned for that");
}

#[tokio::test]
async fn what_is_due_when_all_servers_stop_is_pushed_when_one_is_back() {
    let mut scene = Scene::new("1h").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let last = seq(&alice.say("team", "good night").await);
    scene.cluster.server(1).kill();
    scene.cluster.server(2).kill();
    let before = scene.pushed().len();
    assert_eq!(before, 0, "nobody was long enough away to be pushed");
    scene.cluster.restart(1).await;
    scene.until_pushed(&[("bob", last)]).await;
}

#[tokio::test]
async fn while_the_registry_cannot_tell_nobody_counts_as_away() {
    let scene = Scene::new("4s").await;
    let mut alice = Client::connect(scene.cluster.server(1), "alice").await;
    let mut bob = Client::connect(scene.cluster.server(2), "bob").await;
    alice.create("team", &["bob"]).await;
    bob.expect_message(|frame| frame["event"] == "created").await;
    scene.cluster.redis.pause();
    let one = seq(&alice.say("team", "one").await);
    bob.expect_body("one").await;
    bob.ack("team", one).await;
    scene.until_quiet().await;
    assert_eq!(scene.pushed(), []);
    // Yet what is not acknowledged is pushed in time.
    let two = seq(&alice.say("team", "two").await);
    bob.expect_body("two").await;
    scene.until_pushed(&[("bob", two)]).await;
    scene.cluster.redis.resume();
}
