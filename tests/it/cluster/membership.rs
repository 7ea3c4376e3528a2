//! Who is put out through one server gets nothing more through any, and who is taken in gets the next message.

use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::Cluster;

/// How many messages are sent in a row: enough that the first are sent before news of the change can travel.
const BURST: u64 = 20;

async fn remove(owner: &mut Client, user: &str) {
    owner.ask_for("ok", json!({"type": "remove", "room": "team", "users": [user]})).await;
}

async fn add(owner: &mut Client, user: &str) {
    owner.ask_for("ok", json!({"type": "add", "room": "team", "users": [user]})).await;
}

/// The seq of the last entry that a client has heard of the room.
fn last_seq(client: &Client) -> u64 {
    client.seqs("team").last().copied().unwrap_or(0)
}

/// The owner on local2 and Alice on local1, who has sent there already, so that local1 has a member list.
async fn team(cluster: &Cluster, others: &[&str]) -> (Client, Client) {
    let mut owner = Client::connect(cluster.server(2), "owner").await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    owner.create("team", &[&["alice"], others].concat()).await;
    alice.expect_message(|message| message["event"] == "created").await;
    alice.say("team", "warm").await;
    (owner, alice)
}

async fn burst(sender: &mut Client) -> u64 {
    let mut cids = Vec::new();
    for number in 0..BURST {
        cids.push(sender.send("team", number).await);
    }
    let mut seq = 0;
    for cid in cids {
        seq = sender.expect_sent(&cid).await["seq"].as_u64().unwrap();
    }
    seq
}

#[tokio::test]
async fn who_is_removed_through_one_server_gets_nothing_more_through_another() {
    let cluster = Cluster::of(2).await;
    let mut here = Client::connect(cluster.server(1), "bob").await;
    let mut there = Client::connect(cluster.server(2), "bob").await;
    let mut carol = Client::connect(cluster.server(1), "carol").await;
    let (mut owner, mut alice) = team(&cluster, &["bob", "carol"]).await;

    remove(&mut owner, "bob").await;
    let last = burst(&mut alice).await;

    carol.expect_message(|message| message["seq"] == last).await;
    owner.expect_message(|message| message["seq"] == last).await;
    for bob in [&mut here, &mut there] {
        let left = bob.expect_message(|message| message["event"] == "left").await;
        bob.sync().await;
        assert_eq!(last_seq(bob), left["seq"].as_u64().unwrap(), "the last that Bob hears is that he is out");
        bob.assert_in_order("team");
        let answer = bob.ask(json!({"type": "history", "room": "team"})).await;
        assert_eq!(answer["code"], "not_found");
    }
    for other in [&carol, &owner, &alice] {
        other.assert_in_order("team");
    }
}

#[tokio::test]
async fn who_is_added_through_one_server_gets_the_next_message_sent_on_another() {
    let cluster = Cluster::of(2).await;
    let mut here = Client::connect(cluster.server(1), "dave").await;
    let mut there = Client::connect(cluster.server(2), "dave").await;
    let (mut owner, mut alice) = team(&cluster, &[]).await;

    add(&mut owner, "dave").await;
    let last = burst(&mut alice).await;

    for dave in [&mut here, &mut there] {
        let joined = dave.expect_message(|message| message["event"] == "joined").await["seq"].as_u64().unwrap();
        dave.expect_message(|message| message["seq"] == last).await;
        assert_eq!(dave.seqs("team"), (joined..=last).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn who_comes_back_sees_nothing_of_the_time_between() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect_as(cluster.server(1), "bob", json!({"device": "phone"})).await;
    let (mut owner, mut alice) = team(&cluster, &["bob"]).await;
    let before = bob.expect_body("warm").await["seq"].as_u64().unwrap();
    bob.ack("team", before).await;

    remove(&mut owner, "bob").await;
    let secret = alice.say("team", "without Bob").await["seq"].as_u64().unwrap();
    add(&mut owner, "bob").await;
    let last = burst(&mut alice).await;

    bob.expect_message(|message| message["seq"] == last).await;
    let joined = secret + 1;
    let mut live: Vec<_> = (1..=secret - 1).collect();
    live.extend(joined..=last);
    assert_eq!(bob.seqs("team"), live, "live");
    let since: Vec<_> = (joined..=last).collect();
    let page = bob.history("team", 0).await;
    assert_eq!(page.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect::<Vec<_>>(), since, "history");
    bob.close().await;

    for hello in [json!({"cursors": {"team": before}}), json!({"device": "phone"}), json!({"cursors": {"team": 0}})] {
        let mut again = Client::connect_as(cluster.server(2), "bob", hello.clone()).await;
        again.expect_message(|message| message["seq"] == last).await;
        assert_eq!(again.seqs("team"), since, "resumed with {hello}");
    }
}

#[tokio::test]
async fn signals_go_by_the_new_list_as_soon_as_the_change_has_been_heard() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(1), "bob").await;
    let mut carol = Client::connect(cluster.server(2), "carol").await;
    let (mut owner, mut alice) = team(&cluster, &["bob", "carol"]).await;

    remove(&mut owner, "bob").await;
    alice.expect_message(|message| message["event"] == "left").await;
    signal(&mut alice).await;

    carol.expect("signal").await;
    assert_no_signal(&mut bob).await;
}

#[tokio::test]
async fn signals_go_by_the_new_list_where_nobody_was_there_to_hear_of_the_change() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let mut carol = Client::connect(cluster.server(2), "carol").await;
    let (mut owner, mut alice) = team(&cluster, &["bob", "carol"]).await;
    signal(&mut alice).await;
    bob.expect("signal").await;
    carol.expect("signal").await;
    alice.close().await;
    cluster.until_place("alice", "").await;

    remove(&mut owner, "bob").await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    signal(&mut alice).await;

    carol.expect("signal").await;
    assert_no_signal(&mut bob).await;
}

async fn signal(sender: &mut Client) {
    sender.ask_for("ok", json!({"type": "signal", "room": "team", "body": "hint"})).await;
}

/// That one has come to someone else on the same stream says that none is still on its way.
async fn assert_no_signal(client: &mut Client) {
    client.sync().await;
    assert!(!client.unexpected().any(|frame| frame["type"] == "signal"));
}
