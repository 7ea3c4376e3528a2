//! Two devices of one person move between three servers at random while others write: neither misses anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::time::sleep;

use crate::support::client::Client;
use crate::support::cluster::Cluster;

/// How often each device moves.
const MOVES: usize = 12;

/// A connect that takes so long may have been welcomed before the other servers that have its user knew of it; these do a
/// while later. Only a machine that is very busy takes so long.
const KNOWN_AT_ONCE: Duration = Duration::from_millis(400);
const KNOWN_LATER: Duration = Duration::from_secs(2);

/// How often a device comes to a server while others remember another place of its user.
const ARRIVALS: usize = 60;

#[tokio::test]
async fn devices_that_move_between_servers_at_random_hear_every_message_once_and_in_order() {
    let cluster = Cluster::of(3).await;
    let mut owner = Client::connect(cluster.server(1), "owner").await;
    let writers = ["w1", "w2", "w3"];
    owner.create("team", &[&["bob"], &writers[..]].concat()).await;
    let moving = AtomicBool::new(true);

    let writing = async {
        let write = |number: usize| write(&cluster, number, &moving);
        tokio::join!(write(1), write(2), write(3))
    };
    let devices = async {
        let heard = tokio::join!(wander(&cluster, "phone", 1), wander(&cluster, "laptop", 2));
        moving.store(false, Ordering::Relaxed);
        heard
    };
    let (_, (mut phone, mut laptop)) = tokio::join!(writing, devices);

    let last = owner.say("team", "the last").await["seq"].as_u64().unwrap();
    for device in [&mut phone, &mut laptop] {
        device.client.expect_message(|message| message["seq"] == last).await;
        device.take();
        assert_eq!(device.seqs, (1..=last).collect::<Vec<_>>());
    }
    owner.expect_that("the end of the others' messages", |frame| frame["seq"] == last - 1).await;
    owner.assert_in_order("team");
}

#[tokio::test]
async fn a_device_that_comes_is_heard_by_all_who_remember_another_place_of_its_user() {
    let cluster = Cluster::of(3).await;
    let mut random = rand::rngs::StdRng::seed_from_u64(3);
    let mut senders = Vec::new();
    for number in 1..=3 {
        senders.push(Client::connect(cluster.server(number), &format!("s{number}")).await);
    }
    let mut devices = Vec::new();
    for name in ["phone", "laptop"] {
        devices.push(Client::connect_as(cluster.server(1), "bob", json!({"device": name})).await);
    }
    for arrival in 0..ARRIVALS {
        let (which, server) = (random.random_range(0..2), random.random_range(1..=3));
        let name = ["phone", "laptop"][which];
        let hello = json!({"device": name});
        let moving = devices.swap_remove(which);
        let began = Instant::now();
        let come = Client::connect_as(cluster.server(server), "bob", hello);
        let comes = match random.random_range(0..3) {
            0 => {
                moving.close().await;
                come.await
            }
            1 => {
                moving.drop_hard();
                come.await
            }
            _ => {
                let comes = come.await;
                drop(moving);
                comes
            }
        };
        if began.elapsed() > KNOWN_AT_ONCE {
            sleep(KNOWN_LATER).await;
        }
        devices.push(comes);
        devices.swap(which, 1);
        // Volatile, so that nothing but the way of the message itself brings it there.
        for turn in 0..2 {
            for (number, sender) in senders.iter_mut().enumerate() {
                let body = format!("{arrival}.{turn} from {number}");
                sender.send_frame(json!({"type": "signal", "to": "bob", "body": body})).await;
            }
            for device in &mut devices {
                for number in 0..senders.len() {
                    let body = format!("{arrival}.{turn} from {number}");
                    device.expect_that(&body, |frame| frame["type"] == "signal" && frame["body"] == body).await;
                }
            }
        }
    }
    for device in &mut devices {
        device.sync().await;
        assert_eq!(device.unexpected().find(|frame| frame["type"] == "signal"), None, "it came twice");
    }
    let (mut signals, mut lookups) = (0, 0);
    for server in cluster.servers() {
        signals += server.metric("minichat_signals_total").await;
        lookups += server.metric("minichat_lookups_total").await;
    }
    println!("{lookups} look-ups for {signals} signals");
    assert!(lookups < signals, "nothing was remembered");
}

/// Writes one message after the other on one server, for as long as the devices move.
async fn write(cluster: &Cluster, number: usize, moving: &AtomicBool) {
    let mut writer = Client::connect(cluster.server(number), &format!("w{number}")).await;
    let mut count = 0;
    while moving.load(Ordering::Relaxed) {
        writer.say("team", count).await;
        count += 1;
    }
    writer.sync().await;
    writer.assert_in_order("team");
}

/// A device: its connection, and what it has heard on those before.
struct Device {
    client: Client,
    seqs: Vec<u64>,
}

impl Device {
    /// Keeps what the connection has heard: it goes on where the one before it had ended.
    fn take(&mut self) {
        self.client.assert_in_order("team");
        let heard = self.client.seqs("team");
        let first = self.seqs.last().map_or(1, |last| last + 1);
        assert!(heard.first().is_none_or(|seq| *seq == first), "{first} expected, {heard:?} heard");
        self.seqs.extend(heard);
    }

    fn cursor(&self) -> u64 {
        self.seqs.last().copied().unwrap_or(0)
    }
}

/// Moves between the servers, each time after some messages: politely, without a word, or before the old connection has
/// ended.
async fn wander(cluster: &Cluster, name: &str, seed: u64) -> Device {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let connect = async |server: usize, cursor: u64| {
        let hello = json!({"device": name, "cursors": {"team": cursor}});
        Client::connect_as(cluster.server(server), "bob", hello).await
    };
    let mut device = Device { client: connect(1, 0).await, seqs: Vec::new() };
    for _ in 0..MOVES {
        for _ in 0..random.random_range(1..10) {
            device.client.expect("message").await;
        }
        device.take();
        let (server, cursor) = (random.random_range(1..=3), device.cursor());
        let Device { client: old, seqs } = device;
        let client = match random.random_range(0..3) {
            0 => {
                old.close().await;
                connect(server, cursor).await
            }
            1 => {
                old.drop_hard();
                connect(server, cursor).await
            }
            _ => {
                let new = connect(server, cursor).await;
                drop(old);
                new
            }
        };
        device = Device { client, seqs };
    }
    device
}
