//! Servers that have the same user know of each other, whatever became of what told them so.

use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::wait::eventually;

/// Who is on both servers. A server asserts each of its users once in five minutes, in a second that follows from the name;
/// this one so late that nothing but what is tried here brings it about.
const SHARED: &str = "frank";

const RECALLED: &str = "minichat_recalled_users_total";

/// Frank's two devices, each on its server, and somebody else on each.
struct Scene {
    devices: [Client; 2],
    senders: [Client; 2],
}

impl Scene {
    /// All are connected, Frank's device on `local2` last.
    async fn of(cluster: &Cluster) -> Self {
        let senders =
            [Client::connect(cluster.server(1), "alice").await, Client::connect(cluster.server(2), "carol").await];
        Self { devices: [frank(cluster, 1).await, frank(cluster, 2).await], senders }
    }

    /// Waits until both servers send by what they remember: the senders are each other's.
    async fn until_remembering(&mut self, cluster: &Cluster) {
        for (number, other) in [(0, "carol"), (1, "alice")] {
            let (server, sender) = (cluster.server(number + 1), &mut self.senders[number]);
            let before = server.metric(RECALLED).await;
            let recalls = async || {
                sender.ask_for("ok", json!({"type": "signal", "to": other, "body": "a nudge"})).await;
                (server.metric(RECALLED).await > before).then_some(())
            };
            eventually("the server to remember", recalls).await;
        }
    }

    /// Waits until each sender has been heard by both devices.
    async fn until_all_hear(&mut self) {
        let Self { devices, senders } = self;
        let nudge = |number: usize| format!("a nudge from {number}");
        let all_hear = async || {
            for (number, sender) in senders.iter_mut().enumerate() {
                sender.ask_for("ok", json!({"type": "signal", "to": SHARED, "body": nudge(number)})).await;
            }
            let mut all = true;
            for device in &mut *devices {
                device.sync().await;
                all &= [0, 1].map(nudge).iter().all(|nudge| device.unexpected().any(|frame| frame["body"] == **nudge));
            }
            all.then_some(())
        };
        eventually("all to hear", all_hear).await;
    }

    /// Each sender says something volatile, which comes to both devices once.
    async fn assert_all_hear(&mut self, what: &str) {
        for turn in 0..3 {
            for (number, sender) in self.senders.iter_mut().enumerate() {
                let body = format!("{what} {turn} from {number}");
                sender.send_frame(json!({"type": "signal", "to": SHARED, "body": body})).await;
                for device in &mut self.devices {
                    device.expect_that(&body, |frame| frame["type"] == "signal" && frame["body"] == body).await;
                }
            }
        }
        for device in &mut self.devices {
            device.sync().await;
            let twice = |frame: &&serde_json::Value| frame["body"].as_str().is_some_and(|body| body.starts_with(what));
            assert_eq!(device.unexpected().find(twice), None, "it came twice");
        }
    }
}

async fn frank(cluster: &Cluster, server: usize) -> Client {
    Client::connect_as(cluster.server(server), SHARED, json!({"device": format!("of server {server}")})).await
}

#[tokio::test]
async fn after_redis_was_wiped_each_server_learns_again_who_else_has_its_users() {
    let cluster = Cluster::of(2).await;
    let mut scene = Scene::of(&cluster).await;
    scene.until_all_hear().await;
    scene.assert_all_hear("before").await;

    cluster.redis.cli(&["FLUSHALL"]);
    // Servers that may have lost users ask all others at first, which would hide what they know.
    scene.until_remembering(&cluster).await;
    scene.assert_all_hear("after").await;
}

#[tokio::test]
async fn a_new_run_that_could_not_be_told_who_else_has_its_user_is_told_later() {
    let mut cluster = Cluster::proxied(2).await;
    let alice = Client::connect(cluster.server(1), "alice").await;
    cluster.server(2).kill();
    // The way from `local1` to `local2`.
    cluster.links(2).relay.reset();
    let again = cluster.start_as(2, &[]).await.expect("it starts");
    cluster.replace(2, again);
    // The one on the new run first: its claim names nobody.
    let new = frank(&cluster, 2).await;
    let old = frank(&cluster, 1).await;
    cluster.links(2).relay.heal();
    cluster.until_connected().await;

    let carol = Client::connect(cluster.server(2), "carol").await;
    let mut scene = Scene { devices: [old, new], senders: [alice, carol] };
    scene.until_all_hear().await;
    scene.until_remembering(&cluster).await;
    scene.assert_all_hear("later").await;
}

#[tokio::test]
async fn a_server_that_another_cannot_reach_takes_none_of_its_users_for_its_own_alone() {
    let cluster = Cluster::proxied(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut phone = frank(&cluster, 1).await;
    alice.send_frame(json!({"type": "signal", "to": SHARED, "body": "before"})).await;
    phone.expect("signal").await;

    // The way from `local2` to `local1`; the other way is open.
    cluster.links(1).relay.reset();
    cluster.server(1).until_logged(&["a server's stream", "local2"]).await;
    let mut laptop = frank(&cluster, 2).await;
    alice.send_frame(json!({"type": "signal", "to": SHARED, "body": "meanwhile"})).await;
    for device in [&mut phone, &mut laptop] {
        device.expect_that("it", |frame| frame["body"] == "meanwhile").await;
    }
}
