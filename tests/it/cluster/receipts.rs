//! How far people have come, told between servers: each receipt once, none that goes back, and few look-ups.

use std::collections::HashMap;
use std::time::Duration;

use minichat::clock::unix_ms;
use minichat::wire::{Item, Receipt};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::relay;

const WRITES: &str = "minichat_position_writes_total";
const LOOKUPS: &str = "minichat_lookups_total";
const ITEMS: &str = "minichat_relay_items_sent_total";

fn is_receipt(frame: &Value) -> bool {
    frame["type"] == "receipt"
}

async fn rest(client: &mut Client) -> Vec<Value> {
    client.sync().await;
    client.unexpected().filter(|frame| is_receipt(frame)).cloned().collect()
}

async fn device(cluster: &Cluster, server: usize, user: &str, device: &str) -> Client {
    Client::connect_as(cluster.server(server), user, json!({"device": device})).await
}

#[tokio::test]
async fn an_ack_on_one_server_is_told_on_the_other_to_members_and_to_own_devices_and_to_nobody_else() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(2), "alice").await;
    let mut eve = Client::connect(cluster.server(2), "eve").await;
    let mut phone = device(&cluster, 1, "bob", "phone").await;
    let mut laptop = device(&cluster, 2, "bob", "laptop").await;
    alice.create("team", &["bob", "eve"]).await;
    eve.ask_for("ok", json!({"type": "leave", "room": "team"})).await;
    for client in [&mut phone, &mut laptop, &mut alice] {
        client.expect_message(|message| message["event"] == "left").await;
    }
    let items = cluster.server(1).metric(ITEMS).await;
    phone.ack("team", 2).await;
    let receipt = json!({"type": "receipt", "room": "team", "user": "bob", "delivered": 2});
    for client in [&mut alice, &mut laptop] {
        assert_eq!(client.expect("receipt").await, receipt);
    }
    assert_eq!(cluster.server(1).metric(ITEMS).await, items + 1, "one item for all who are there");
    alice.ask_for("ok", json!({"type": "read", "room": "team", "seq": 1})).await;
    let receipt = json!({"type": "receipt", "room": "team", "user": "alice", "read": 1});
    for client in [&mut phone, &mut laptop] {
        assert_eq!(client.expect("receipt").await, receipt);
    }
    for client in [&mut alice, &mut phone, &mut laptop, &mut eve] {
        assert_eq!(rest(client).await, [] as [Value; 0]);
    }
    for server in cluster.servers() {
        assert_eq!(server.metric("minichat_wasted_relays_total").await, 0);
    }
}

#[tokio::test]
async fn the_receipts_of_one_round_share_a_look_up() {
    const ROOMS: usize = 50;
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let rooms: Vec<_> = (0..ROOMS).map(|number| format!("room-{number}")).collect();
    for room in &rooms {
        alice.create(room, &["bob"]).await;
        bob.expect_message(|message| message["room"] == room.as_str()).await;
    }
    let local2 = cluster.server(2);
    let (lookups, writes) = (local2.metric(LOOKUPS).await, local2.metric(WRITES).await);
    for room in &rooms {
        bob.send_frame(json!({"type": "ack", "room": room, "seq": 1})).await;
    }
    for _ in &rooms {
        assert_eq!(alice.expect("receipt").await["delivered"], 1);
    }
    let (lookups, writes) = (local2.metric(LOOKUPS).await - lookups, local2.metric(WRITES).await - writes);
    assert!(lookups <= writes, "{lookups} look-ups for {writes} writes");
}

/// Bob's receipt for alice, as another server relays it.
fn relayed(id: u64, delivered: u64, read: u64) -> Item {
    let frame = json!({"type": "receipt", "room": "team", "user": "bob", "delivered": delivered, "read": read});
    Item {
        id,
        room: "team".to_owned(),
        sender: "bob".to_owned(),
        frame: frame.to_string().into_bytes().into(),
        recipients: vec!["alice".to_owned()],
        sent_at_ms: unix_ms(),
        receipt: Some(Receipt { delivered, read }),
        ..Item::default()
    }
}

#[tokio::test]
async fn of_a_receipt_that_is_late_only_what_is_further_is_shown() {
    let cluster = Cluster::of(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    alice.expect_message(|message| message["event"] == "created").await;
    let from_a_server_that_knows_no_receipts = Item { receipt: None, ..relayed(6, 1, 1) };
    let broken = Item { sender: String::new(), ..relayed(5, 90, 90) };
    let items = [(50, 9), (40, 9), (45, 8), (49, 10)];
    let items = items.iter().zip(1..).map(|(at, id)| relayed(id, at.0, at.1));
    relay::say(&cluster, items.chain([broken, from_a_server_that_knows_no_receipts]).collect(), false).await;
    let shown: Vec<_> =
        rest(&mut alice).await.iter().map(|frame| [&frame["delivered"], &frame["read"]].map(Value::as_u64)).collect();
    assert_eq!(shown, [[Some(50), Some(9)], [None, Some(10)], [Some(1), Some(1)]]);
}

/// Rooms in which two devices of one person race.
const ROOMS: u64 = 10;

/// How often they do.
const ROUNDS: u64 = 1_000;

/// How far ahead the phone is of the laptop.
const AHEAD: u64 = 10;

/// Up to where the devices come in each room.
const LAST: u64 = ROUNDS / ROOMS + AHEAD;

fn room(number: u64) -> String {
    format!("room-{number}")
}

/// Waits until all messages of all rooms have come.
async fn until_last(client: &mut Client) {
    for number in 0..ROOMS {
        let is_last = |frame: &Value| frame["room"] == room(number).as_str() && frame["seq"] == LAST + 1;
        client.expect_that("the last message", is_last).await;
    }
}

async fn read(client: &mut Client, room: &str, seq: u64) {
    client.send_frame(json!({"type": "read", "room": room, "seq": seq})).await;
}

/// One device's rounds: in each it says how far it is, at about the time at which the other does, and says it again.
async fn rounds(device: &mut Client, ahead: u64, seed: u64) {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    for round in 0..ROUNDS {
        let (room, seq) = (room(round % ROOMS), round / ROOMS + 1 + ahead);
        read(device, &room, seq).await;
        sleep(Duration::from_millis(random.random_range(0..10))).await;
        read(device, &room, seq).await;
    }
}

/// Hears all receipts until each room has one with this, and checks that they only grow.
async fn watch(client: &mut Client, shown: &mut HashMap<String, u64>, until: u64) {
    while shown.len() < ROOMS as usize || shown.values().any(|read| *read < until) {
        let frame = client.next_frame().await;
        if is_receipt(&frame) {
            assert!(frame["delivered"].is_null(), "{frame}");
            let read = frame["read"].as_u64().unwrap();
            let before = shown.insert(frame["room"].as_str().unwrap().to_owned(), read);
            assert!(before.is_none_or(|before| before < read), "{before:?} before {frame}");
        }
    }
}

#[tokio::test]
async fn receipts_of_two_devices_that_race_on_two_servers_never_go_back_for_anyone() {
    let cluster = Cluster::of(2).await;
    let mut near = Client::connect(cluster.server(1), "alice").await;
    let mut far = Client::connect(cluster.server(2), "carol").await;
    let (mut phone, mut laptop) =
        (device(&cluster, 1, "bob", "phone").await, device(&cluster, 2, "bob", "laptop").await);
    for number in 0..ROOMS {
        near.create(&room(number), &["bob", "carol"]).await;
        for _ in 1..=LAST {
            near.send(&room(number), "x").await;
        }
    }
    for client in [&mut near, &mut far, &mut phone, &mut laptop] {
        until_last(client).await;
    }
    let (mut near_shown, mut far_shown) = (HashMap::new(), HashMap::new());

    tokio::join!(
        rounds(&mut phone, AHEAD, 1),
        rounds(&mut laptop, 0, 2),
        watch(&mut near, &mut near_shown, LAST),
        watch(&mut far, &mut far_shown, LAST),
    );
    phone.drop_hard();
    let mut phone = device(&cluster, 2, "bob", "phone").await;
    until_last(&mut phone).await;
    tokio::join!(rounds(&mut phone, 0, 3), rounds(&mut laptop, 0, 4));
    for number in 0..ROOMS {
        read(&mut phone, &room(number), LAST + 1).await;
    }
    tokio::join!(watch(&mut near, &mut near_shown, LAST + 1), watch(&mut far, &mut far_shown, LAST + 1));

    for number in 0..ROOMS {
        let members = far.ask_for("members", json!({"type": "members", "room": room(number)})).await;
        assert_eq!(members["receipts"][1], json!({"user": "bob", "delivered": 0, "read": LAST + 1}));
    }
}
