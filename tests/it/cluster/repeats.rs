//! What was answered `sent` is known everywhere, whichever server is asked again.

use serde_json::{Value, json};

use crate::support::client::{Client, fresh_cid};
use crate::support::cluster::Cluster;

fn place(sent: &Value) -> [&Value; 4] {
    ["id", "seq", "at", "room"].map(|field| &sent[field])
}

#[tokio::test]
async fn a_repeat_through_another_server_gets_the_first_answer_also_after_the_first_was_killed() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let cid = alice.send("team", "once").await;
    let sent = alice.expect_sent(&cid).await;

    let mut elsewhere = Client::connect(cluster.server(2), "alice").await;
    elsewhere.send_with(&cid, "team", "once").await;
    assert_eq!(place(&elsewhere.expect_sent(&cid).await), place(&sent));

    let cid = alice.send("team", "twice").await;
    let sent = alice.expect_sent(&cid).await;
    cluster.server(1).kill();
    elsewhere.send_with(&cid, "team", "twice").await;
    assert_eq!(place(&elsewhere.expect_sent(&cid).await), place(&sent));

    let last = elsewhere.say("team", "last").await;
    bob.expect_body("last").await;
    bob.assert_in_order("team");
    assert_eq!(bob.seqs("team").last(), last["seq"].as_u64().as_ref());
    elsewhere.sync().await;
}

#[tokio::test]
async fn a_cid_that_was_used_for_anything_else_is_refused_by_every_server_and_stores_nothing() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    alice.create("other", &["bob"]).await;
    let cid = fresh_cid();
    alice.send_with(&cid, "team", json!({"n": 1})).await;
    let sent = alice.expect_sent(&cid).await;

    let mut elsewhere = Client::connect(cluster.server(2), "alice").await;
    for (room, body) in [("team", json!({"n": 2})), ("other", json!({"n": 1})), ("team", json!({"n": 1.0}))] {
        for client in [&mut alice, &mut elsewhere] {
            client.send_with(&cid, room, body.clone()).await;
            assert_eq!(client.expect_error("cid_reused").await["cid"], cid.as_str());
        }
    }
    assert_eq!(alice.history("team", 0).await.last().unwrap()["seq"], sent["seq"]);
    assert_eq!(alice.history("other", 0).await.len(), 1, "nothing but its making");

    let mut bob = Client::connect(cluster.server(2), "bob").await;
    bob.create("bobs", &[]).await;
    bob.send_with(&cid, "bobs", "mine").await;
    bob.expect_sent(&cid).await;
}

#[tokio::test]
async fn of_two_messages_that_are_sent_at_once_under_one_cid_one_is_refused_and_not_stored() {
    let cluster = Cluster::of(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &[]).await;
    for _ in 0..10 {
        let cid = fresh_cid();
        alice.send_with(&cid, "team", 1).await;
        alice.send_with(&cid, "team", 2).await;
        assert_eq!(alice.expect_error("cid_reused").await["cid"], cid.as_str());
    }
    alice.say("team", "the last").await;
    assert_eq!(alice.history("team", 0).await.len(), 1 + 10 + 1);
}
