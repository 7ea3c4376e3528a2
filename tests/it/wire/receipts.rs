//! Who hears how far the others have come, and what it costs.

use std::time::Instant;

use serde_json::{Value, json};

use super::fill;
use super::raw::Raw;
use crate::support::client::Client;
use crate::support::server::Server;

const WRITES: &str = "minichat_position_writes_total";
const TOLD: &str = "minichat_receipts_total";
const SHOWN: &str = "minichat_receipt_deliveries_total";

fn is_receipt(frame: &Value) -> bool {
    frame["type"] == "receipt"
}

/// The receipts that have come and were not expected.
async fn rest(client: &mut Client) -> Vec<Value> {
    client.sync().await;
    client.unexpected().filter(|frame| is_receipt(frame)).cloned().collect()
}

/// Acknowledges, and waits until that is written.
async fn ack_written(server: &Server, client: &mut Client, room: &str, seq: u64) {
    let writes = server.metric(WRITES).await;
    client.ack(room, seq).await;
    server.until_metric(WRITES, |count| count > writes).await;
}

/// A room of these, in which the first has said something: its head is 2.
async fn team(server: &Server, users: &[&str]) -> Vec<Client> {
    let mut clients = Vec::new();
    for user in users {
        clients.push(Client::connect(server, user).await);
    }
    clients[0].create("team", &users[1..]).await;
    clients[0].say("team", "hello").await;
    for client in &mut clients[1..] {
        client.expect_body("hello").await;
    }
    clients
}

#[tokio::test]
async fn what_one_session_has_acknowledged_is_told_to_the_others_in_the_room_and_not_to_itself() {
    let server = Server::start(&[]).await;
    let mut laptop = Client::connect_as(&server, "bob", json!({"device": "laptop"})).await;
    let [mut alice, mut phone] = team(&server, &["alice", "bob"]).await.try_into().unwrap();
    laptop.expect_body("hello").await;
    phone.ack("team", 2).await;
    let receipt = json!({"type": "receipt", "room": "team", "user": "bob", "delivered": 2});
    assert_eq!(alice.expect("receipt").await, receipt);
    assert_eq!(laptop.expect("receipt").await, receipt);
    laptop.ask_for("ok", json!({"type": "read", "room": "team", "seq": 2})).await;
    let receipt = json!({"type": "receipt", "room": "team", "user": "bob", "read": 2});
    assert_eq!(alice.expect("receipt").await, receipt);
    assert_eq!(phone.expect("receipt").await, receipt);
    for client in [&mut alice, &mut laptop, &mut phone] {
        assert_eq!(rest(client).await, [] as [Value; 0]);
    }
    assert_eq!((server.metric(TOLD).await, server.metric(SHOWN).await), (2, 4));
}

#[tokio::test]
async fn what_has_not_grown_is_not_told() {
    let server = Server::start(&[]).await;
    let [mut alice, mut bob] = team(&server, &["alice", "bob"]).await.try_into().unwrap();
    bob.ack("team", 2).await;
    alice.expect("receipt").await;
    for seq in [2, 1, 2] {
        ack_written(&server, &mut bob, "team", seq).await;
    }
    let answer = bob.ask(json!({"type": "ack", "room": "team", "seq": 3})).await;
    assert_eq!(answer["code"], "past_head");
    alice.say("team", "more").await;
    bob.ack("team", 3).await;
    assert_eq!(alice.expect("receipt").await["delivered"], 3);
    assert_eq!(rest(&mut alice).await, [] as [Value; 0]);
    assert_eq!(server.metric(TOLD).await, 2);
}

#[tokio::test]
async fn a_thousand_acknowledgements_are_a_few_writes_and_a_few_receipts() {
    let server = Server::start(&[]).await;
    let [mut alice, mut bob] = team(&server, &["alice", "bob"]).await.try_into().unwrap();
    fill(&mut alice, "team", 1_000, |index| json!(index)).await;
    let (writes, began) = (server.metric(WRITES).await, Instant::now());
    for seq in 3..=1_002 {
        bob.send_frame(json!({"type": "ack", "room": "team", "seq": seq})).await;
    }
    alice.expect_that("the last receipt", |frame| is_receipt(frame) && frame["delivered"] == 1_002).await;
    let rounds = began.elapsed().as_secs() + 2;
    let writes = server.metric(WRITES).await - writes;
    assert!(writes <= rounds, "{writes} writes in {rounds} rounds");
    assert!(rest(&mut alice).await.len() < writes as usize);
}

#[tokio::test]
async fn a_large_room_has_no_receipts() {
    let server = Server::start(&[]).await;
    let names: Vec<_> = (0..31).map(|number| format!("user-{number}")).collect();
    let others: Vec<_> = names.iter().map(String::as_str).collect();
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "user-0").await;
    alice.create("hall-32", &others).await;
    alice.create("hall-33", &[&others[..], &["one-more"]].concat()).await;
    ack_written(&server, &mut bob, "hall-33", 1).await;
    bob.ack("hall-32", 1).await;
    assert_eq!(alice.expect("receipt").await["room"], "hall-32");
    assert_eq!(rest(&mut alice).await, [] as [Value; 0]);
    let members = alice.ask_for("members", json!({"type": "members", "room": "hall-33"})).await;
    assert_eq!((members["users"].as_array().unwrap().len(), &members["receipts"]), (33, &Value::Null));
    let members = alice.ask_for("members", json!({"type": "members", "room": "hall-32", "limit": 2})).await;
    let receipts = json!([{"user": "alice", "delivered": 0, "read": 0}, {"user": "user-0", "delivered": 1, "read": 0}]);
    assert_eq!(members["receipts"], receipts);
}

#[tokio::test]
async fn a_server_that_was_told_so_has_no_receipts_at_all() {
    let server = Server::start(&["--receipt-members=0"]).await;
    let [mut alice, mut bob] = team(&server, &["alice", "bob"]).await.try_into().unwrap();
    for seq in [1, 2] {
        ack_written(&server, &mut bob, "team", seq).await;
    }
    let members = alice.ask_for("members", json!({"type": "members", "room": "team"})).await;
    assert_eq!(members["receipts"], Value::Null);
    assert_eq!(rest(&mut alice).await, [] as [Value; 0]);
    assert_eq!(server.metric(TOLD).await, 0);
}

#[tokio::test]
async fn who_has_left_sees_no_receipt_any_more() {
    let server = Server::start(&[]).await;
    let [mut alice, mut bob, mut carol] = team(&server, &["alice", "bob", "carol"]).await.try_into().unwrap();
    bob.ack("team", 1).await;
    carol.expect("receipt").await;
    alice.expect("receipt").await;
    carol.ask_for("ok", json!({"type": "leave", "room": "team"})).await;
    bob.expect_message(|message| message["event"] == "left").await;
    bob.ack("team", 3).await;
    alice.expect_that("bob's receipt", |frame| is_receipt(frame) && frame["delivered"] == 3).await;
    assert_eq!(rest(&mut carol).await, [] as [Value; 0]);
    alice.ask_for("ok", json!({"type": "add", "room": "team", "users": ["carol"]})).await;
    carol.expect_message(|message| message["event"] == "joined").await;
    bob.ack("team", 4).await;
    assert_eq!(carol.expect("receipt").await["delivered"], 4);
}

#[tokio::test]
async fn a_cursor_makes_a_receipt_and_who_comes_back_asks_where_the_others_are() {
    let server = Server::start(&[]).await;
    let [mut alice, bob] = team(&server, &["alice", "bob"]).await.try_into().unwrap();
    bob.close().await;
    let _bob = Client::connect_as(&server, "bob", json!({"cursors": {"team": 2}})).await;
    let receipt = json!({"type": "receipt", "room": "team", "user": "bob", "delivered": 2});
    assert_eq!(alice.expect("receipt").await, receipt);
    alice.close().await;
    let mut alice = Client::connect(&server, "alice").await;
    let members = alice.ask_for("members", json!({"type": "members", "room": "team"})).await;
    let receipts = json!([{"user": "alice", "delivered": 0, "read": 0}, {"user": "bob", "delivered": 2, "read": 0}]);
    assert_eq!(members["receipts"], receipts);
}

#[tokio::test]
async fn who_does_not_read_loses_receipts_but_not_the_connection_and_holds_up_nobody() {
    let server = Server::start(&["--queue-bytes=65536", "--write-timeout=5m"]).await;
    let [mut alice, mut bob, carol] = team(&server, &["alice", "bob", "carol"]).await.try_into().unwrap();
    carol.close().await;
    let mut slow = Raw::open_small(server.addr()).await.begin(server.addr(), "carol", r#"{"type":"hello"}"#).await;
    let dropped = "minichat_drops_total{reason=\"signal_to_slow_client\"}";
    while server.metric(dropped).await < 20 {
        alice.ask_for("ok", json!({"type": "signal", "to": "carol", "body": "x".repeat(16_000)})).await;
    }
    // What is left of her half of the queue has no room for a receipt either, when these have tried.
    for _ in 0..1_000 {
        alice.send_frame(json!({"type": "signal", "to": "carol", "body": 1})).await;
    }
    alice.sync().await;
    let before = server.metric(dropped).await;
    bob.ack("team", 2).await;
    assert_eq!(alice.expect("receipt").await["delivered"], 2);
    server.until_metric(dropped, |count| count == before + 1).await;
    alice.say("team", "still there?").await;
    slow.text_with("still there?").await;
    assert_eq!(server.metric("minichat_closes_total{reason=\"slow\"}").await, 0);
}
