//! What people have seen go wrong elsewhere, each on its own.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

use crate::support::client::{Client, fresh_cid};
use crate::support::cluster::Cluster;

/// How long after something a server is killed, in ms.
const MOMENTS_MS: [u64; 4] = [0, 5, 20, 50];

fn seq(frame: &Value) -> u64 {
    frame["seq"].as_u64().expect("a number")
}

/// Connects as one that has a room up to `last`.
async fn with_cursor(cluster: &Cluster, server: usize, user: &str, last: u64) -> Client {
    Client::connect_as(cluster.server(server), user, json!({"cursors": {"team": last}})).await
}

#[tokio::test]
async fn sends_without_an_answer_that_are_replayed_through_another_server_are_stored_once_in_their_first_order() {
    let mut cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    bob.create("team", &["alice"]).await;
    let mut last = 1;
    for moment in MOMENTS_MS {
        let mut alice = with_cursor(&cluster, 1, "alice", last).await;
        let cids: Vec<_> = (0..30).map(|_| fresh_cid()).collect();
        for (number, cid) in cids.iter().enumerate() {
            alice.send_with(cid, "team", number).await;
        }
        sleep(Duration::from_millis(moment)).await;
        cluster.server(1).kill();
        let mut alice = with_cursor(&cluster, 2, "alice", last).await;
        for (number, cid) in cids.iter().enumerate() {
            alice.send_with(cid, "team", number).await;
        }
        let mut seqs = Vec::new();
        for cid in &cids {
            seqs.push(seq(&alice.expect_sent(cid).await));
        }
        assert_eq!(seqs, (last + 1..=last + 30).collect::<Vec<_>>(), "killed after {moment} ms");
        last += 30;
        bob.expect_message(|message| seq(message) == last).await;
        bob.assert_in_order("team");
        cluster.restart(1).await;
    }
    bob.sync().await;
    assert_eq!(bob.seqs("team").last(), Some(&last), "nothing was stored twice");
}

#[tokio::test]
async fn what_was_answered_is_there_whenever_the_server_is_killed_after_it() {
    let mut cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    bob.create("team", &["alice"]).await;
    for (round, moment) in MOMENTS_MS.into_iter().chain(MOMENTS_MS).enumerate() {
        let mut alice = Client::connect(cluster.server(1), "alice").await;
        let sent = alice.say("team", round).await;
        sleep(Duration::from_millis(moment)).await;
        cluster.server(1).kill();
        let heard = bob.expect_body(round).await;
        assert_eq!((&heard["seq"], &heard["id"]), (&sent["seq"], &sent["id"]));
        cluster.restart(1).await;
    }
    bob.assert_in_order("team");
}

#[tokio::test]
async fn who_is_taken_over_by_a_new_connection_again_and_again_misses_nothing_of_a_stream_of_messages() {
    const MESSAGES: u64 = 600;
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let writing = async {
        let mut ticks = interval(Duration::from_millis(5));
        for number in 0..MESSAGES {
            ticks.tick().await;
            alice.send("team", number).await;
        }
        alice.sync().await;
    };
    let moving = async {
        let mut heard = vec![1];
        let hello = |last| json!({"device": "phone", "cursors": {"team": last}});
        let mut bob = Client::connect_as(cluster.server(1), "bob", hello(1)).await;
        for server in [2, 1].into_iter().cycle() {
            let until = Instant::now() + Duration::from_millis(400);
            while heard.last() != Some(&(MESSAGES + 1)) && Instant::now() < until {
                heard.push(seq(&bob.expect("message").await));
            }
            let last = *heard.last().expect("something");
            if last == MESSAGES + 1 {
                return heard;
            }
            // The old connection is not closed first.
            let new = Client::connect_as(cluster.server(server), "bob", hello(last)).await;
            bob.expect_close(4009).await;
            bob = new;
        }
        unreachable!("it goes on until all is heard")
    };
    let ((), heard) = tokio::join!(writing, moving);
    assert_eq!(heard, (1..=MESSAGES + 1).collect::<Vec<_>>());
}

#[tokio::test]
async fn nothing_that_was_answered_while_redis_was_away_is_lost_to_those_near_far_or_absent() {
    let mut cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut near = Client::connect(cluster.server(1), "near").await;
    let mut far = Client::connect(cluster.server(2), "far").await;
    alice.create("team", &["near", "far", "absent"]).await;
    cluster.redis.kill();
    for number in 0..20 {
        alice.say("team", number).await;
        // Who is on the same server goes on as if nothing were.
        near.expect_body(number).await;
    }
    cluster.redis.restart_empty();
    far.expect_body(19).await;
    let mut absent = Client::connect(cluster.server(2), "absent").await;
    absent.expect_body(19).await;
    for client in [&near, &far, &absent] {
        client.assert_in_order("team");
    }
}
