//! One person on several devices, and one device on several servers.

use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::Cluster;

#[tokio::test]
async fn a_device_that_connects_to_another_server_replaces_its_older_session() {
    let cluster = Cluster::of(2).await;
    let phone = json!({"device": "phone"});
    let mut old = Client::connect_as(cluster.server(1), "alice", phone.clone()).await;
    let mut tablet = Client::connect_as(cluster.server(1), "bob", phone.clone()).await;
    cluster.until_place("alice", "local1").await;

    let mut new = Client::connect_as(cluster.server(2), "alice", phone.clone()).await;
    assert_eq!(old.expect_close(4009).await, "replaced");
    assert!(old.expect("closing").await["reconnect_after_ms"].is_null(), "it is final");
    cluster.until_place("alice", "local2").await;

    let mut newest = Client::connect_as(cluster.server(1), "alice", phone).await;
    new.expect_close(4009).await;
    cluster.until_place("alice", "local1").await;
    newest.sync().await;
    tablet.sync().await;
}

#[tokio::test]
async fn a_device_replaces_its_older_session_also_where_another_device_was_there_before_it() {
    let cluster = Cluster::of(2).await;
    let (laptop, phone) = (json!({"device": "laptop"}), json!({"device": "phone"}));
    let mut stays = Client::connect_as(cluster.server(1), "alice", laptop).await;
    let mut old = Client::connect_as(cluster.server(2), "alice", phone.clone()).await;

    let mut new = Client::connect_as(cluster.server(1), "alice", phone).await;
    old.expect_close(4009).await;
    cluster.until_place("alice", "local1").await;
    stays.sync().await;
    new.sync().await;
}

#[tokio::test]
async fn sessions_of_other_devices_and_of_none_stay_on_both_servers_and_all_hear() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(1), "bob").await;
    let mut phone = Client::connect_as(cluster.server(1), "alice", json!({"device": "phone"})).await;
    let mut laptop = Client::connect_as(cluster.server(2), "alice", json!({"device": "laptop"})).await;
    let mut nameless = Client::connect(cluster.server(2), "alice").await;
    let mut places: Vec<_> = cluster.place("alice").split(',').map(str::to_owned).collect();
    places.sort();
    assert_eq!(places, ["local1", "local2"]);
    bob.create("team", &["alice"]).await;

    bob.say("team", "to all of Alice").await;
    for device in [&mut phone, &mut laptop, &mut nameless] {
        assert!(device.expect_body("to all of Alice").await["cid"].is_null());
    }

    let cid = phone.send("team", "from the phone").await;
    let sent = phone.expect_sent(&cid).await;
    for device in [&mut laptop, &mut nameless] {
        let message = device.expect_body("from the phone").await;
        assert_eq!((&message["cid"], &message["seq"]), (&json!(cid), &sent["seq"]), "one's own is marked");
    }
    assert!(bob.expect_body("from the phone").await["cid"].is_null(), "the mark is Alice's own");
    for client in [&mut bob, &mut phone, &mut laptop, &mut nameless] {
        client.sync().await;
        client.assert_in_order("team");
        assert!(!client.heard("team").is_empty());
    }
}
