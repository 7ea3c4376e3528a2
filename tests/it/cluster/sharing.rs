//! Servers that have the same user know of each other, whatever became of what told them so.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::support::client::Client;
use crate::support::cluster::Cluster;

/// Longer than servers that may have lost users ask all others, which would hide what they know: two leases of the tests.
const PAST_SUSPICION: Duration = Duration::from_secs(5);

/// Longer than it takes a server whose streams are up to introduce itself.
const INTRODUCED: Duration = Duration::from_secs(1);

/// Bob's two devices, each on its server, and somebody else on each.
struct Scene {
    devices: [Client; 2],
    senders: [Client; 2],
}

impl Scene {
    /// All are connected, Bob's device on `local2` last.
    async fn of(cluster: &Cluster) -> Self {
        let senders =
            [Client::connect(cluster.server(1), "alice").await, Client::connect(cluster.server(2), "carol").await];
        Self { devices: [bob(cluster, 1).await, bob(cluster, 2).await], senders }
    }

    /// Each sender says something volatile, which comes to both devices once.
    async fn assert_all_hear(&mut self, what: &str) {
        for turn in 0..3 {
            for (number, sender) in self.senders.iter_mut().enumerate() {
                let body = format!("{what} {turn} from {number}");
                sender.send_frame(json!({"type": "signal", "to": "bob", "body": body})).await;
                for device in &mut self.devices {
                    device.expect_that(&body, |frame| frame["type"] == "signal" && frame["body"] == body).await;
                }
            }
        }
        for device in &mut self.devices {
            device.sync().await;
            assert_eq!(device.unexpected().find(|frame| frame["type"] == "signal"), None, "it came twice");
        }
    }
}

async fn bob(cluster: &Cluster, server: usize) -> Client {
    Client::connect_as(cluster.server(server), "bob", json!({"device": format!("of server {server}")})).await
}

#[tokio::test]
async fn after_redis_was_wiped_each_server_learns_again_who_else_has_its_users() {
    let cluster = Cluster::of(2).await;
    let mut scene = Scene::of(&cluster).await;
    scene.assert_all_hear("before").await;

    cluster.redis.cli(&["FLUSHALL"]);
    sleep(PAST_SUSPICION).await;
    scene.assert_all_hear("after").await;
}

#[tokio::test]
async fn a_server_that_was_too_new_to_be_told_who_else_has_its_user_is_told_later() {
    let mut cluster = Cluster::of(2).await;
    let alice = Client::connect(cluster.server(1), "alice").await;
    cluster.server(2).kill();
    let again = cluster.start_as(2, &[]).await.expect("it starts");
    cluster.replace(2, again);
    // The one on the new run first: its claim names nobody.
    let new = bob(&cluster, 2).await;
    let old = bob(&cluster, 1).await;
    cluster.until_connected().await;
    sleep(INTRODUCED).await;

    let carol = Client::connect(cluster.server(2), "carol").await;
    let mut scene = Scene { devices: [old, new], senders: [alice, carol] };
    scene.assert_all_hear("later").await;
}

#[tokio::test]
async fn a_server_that_another_cannot_reach_takes_none_of_its_users_for_its_own_alone() {
    let cluster = Cluster::proxied(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut phone = bob(&cluster, 1).await;
    alice.send_frame(json!({"type": "signal", "to": "bob", "body": "before"})).await;
    phone.expect("signal").await;

    // The way from `local2` to `local1`; the other way is open.
    cluster.links(1).relay.reset();
    cluster.server(1).until_logged(&["a server's stream", "local2"]).await;
    let mut laptop = bob(&cluster, 2).await;
    alice.send_frame(json!({"type": "signal", "to": "bob", "body": "meanwhile"})).await;
    for device in [&mut phone, &mut laptop] {
        device.expect_that("it", |frame| frame["body"] == "meanwhile").await;
    }
}
