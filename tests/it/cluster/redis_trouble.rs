//! Redis goes, comes back empty, or stands still: local delivery goes on, every message arrives, and in the end the
//! registry says exactly what is so.

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::wait::eventually;

/// Alice and Bob on local1, Carol on local2, in one room.
struct Scene {
    cluster: Cluster,
    alice: Client,
    bob: Client,
    carol: Client,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::of(2).await;
        let mut alice = Client::connect(cluster.server(1), "alice").await;
        let bob = Client::connect(cluster.server(1), "bob").await;
        let carol = Client::connect(cluster.server(2), "carol").await;
        alice.create("team", &["bob", "carol", "dave"]).await;
        let mut scene = Self { cluster, alice, bob, carol };
        scene.exchange("before").await;
        scene
    }

    /// A message each way: answered, delivered on the same server, and on the other.
    async fn exchange(&mut self, text: &str) {
        self.alice.say("team", format!("{text}, from alice")).await;
        self.bob.expect_body(format!("{text}, from alice")).await;
        self.carol.expect_body(format!("{text}, from alice")).await;
        self.carol.say("team", format!("{text}, from carol")).await;
        self.alice.expect_body(format!("{text}, from carol")).await;
        self.bob.expect_body(format!("{text}, from carol")).await;
    }

    /// Waits until the registry says what is so and nothing else, and checks that messages go by it again: one item to
    /// the one server that needs it, and nobody asked on the off chance.
    async fn until_well(&mut self, places: &[(&str, &str)]) {
        let expected: Vec<_> = places.iter().map(|&(user, place)| (user.to_owned(), place.to_owned())).collect();
        eventually("the registry to be right", async || (self.cluster.places() == expected).then_some(())).await;
        for server in self.cluster.servers() {
            server.until_metric("minichat_degraded", |degraded| degraded == 0).await;
        }
        // Who is absent may be unknown for a lease after a loss; others are asked until then.
        let mut number = 0;
        eventually("messages to go by the registry", async || {
            let before = self.relays().await;
            number += 1;
            self.exchange(&format!("well {number}")).await;
            let after = self.relays().await;
            (after.0 == before.0 + 2 && after.1 == before.1).then_some(())
        })
        .await;
        for client in [&self.alice, &self.bob, &self.carol] {
            client.assert_in_order("team");
        }
    }

    /// Items sent, and those of them on the off chance.
    async fn relays(&self) -> (u64, u64) {
        let (mut items, mut asked) = (0, 0);
        for server in self.cluster.servers() {
            items += server.metric("minichat_relay_items_sent_total").await;
            asked += server.metric("minichat_degraded_relays_total").await;
        }
        (items, asked)
    }
}

const AS_BEFORE: [(&str, &str); 3] = [("alice", "local1"), ("bob", "local1"), ("carol", "local2")];
const WITH_DAVE: [(&str, &str); 4] = [("alice", "local1"), ("bob", "local1"), ("carol", "local2"), ("dave", "local2")];

#[tokio::test]
async fn all_goes_on_while_redis_is_dead_and_after_it_has_come_back_empty() {
    let mut scene = Scene::new().await;
    scene.cluster.redis.kill();
    scene.exchange("redis is dead").await;
    let mut dave = Client::connect(scene.cluster.server(2), "dave").await;
    scene.exchange("dave came").await;
    dave.expect_body("dave came, from alice").await;

    scene.cluster.redis.restart_empty();
    scene.exchange("redis is back").await;
    scene.until_well(&WITH_DAVE).await;
    dave.sync().await;
    dave.assert_in_order("team");
}

#[tokio::test]
async fn a_wiped_redis_is_filled_again_and_nothing_is_missing() {
    let mut scene = Scene::new().await;
    for round in 0..2 {
        scene.cluster.redis.cli(&["FLUSHALL"]);
        scene.exchange(&format!("wiped {round}")).await;
        scene.until_well(&AS_BEFORE).await;
    }
}

#[tokio::test]
async fn all_goes_on_while_redis_stands_still_and_after_it_goes_on() {
    let mut scene = Scene::new().await;
    scene.cluster.redis.pause();
    scene.exchange("redis stands still").await;
    let mut dave = Client::connect(scene.cluster.server(2), "dave").await;
    let gone = Client::connect(scene.cluster.server(1), "erin").await;
    scene.exchange("dave came").await;
    dave.expect_body("dave came, from alice").await;
    gone.close().await;
    scene.cluster.redis.resume();
    scene.exchange("redis goes on").await;
    scene.until_well(&WITH_DAVE).await;
    dave.assert_in_order("team");
}
