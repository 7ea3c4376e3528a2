//! What must hold while users move, servers stop, and the network between them breaks.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::client::{Client, fresh_cid};
use crate::support::cluster::{Cluster, Options};
use crate::support::crowd::{self, Crowd, Plan, WANDERERS, seed};
use crate::support::server::Signal;
use crate::support::wait::eventually;

/// A room of these users, and each on the server with their number, from 1.
async fn seated(cluster: &Cluster, room: &str, users: &[&str]) -> Vec<Client> {
    let mut clients = Vec::new();
    for (index, user) in users.iter().enumerate() {
        clients.push(Client::connect(cluster.server(index + 1), user).await);
    }
    clients[0].create(room, &users[1..]).await;
    for client in &mut clients[1..] {
        client.expect_message(|frame| frame["event"] == "created").await;
    }
    clients
}

fn is_body(body: &str) -> impl Fn(&Value) -> bool {
    move |frame| frame["body"] == body
}

#[tokio::test]
async fn a_disconnect_that_is_late_does_not_take_the_users_new_place() {
    let cluster = Cluster::proxied(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let alice = Client::connect(cluster.server(1), "alice").await;
    bob.create("team", &["alice"]).await;
    cluster.until_place("alice", "local1").await;
    // The old server cannot say that she has left.
    cluster.links(1).redis.stall();
    alice.drop_hard();
    cluster.server(1).until_metric("minichat_connections", |count| count == 0).await;
    let mut alice = Client::connect(cluster.server(2), "alice").await;
    assert_eq!(cluster.place("alice"), "local1,local2");
    bob.say("team", "while it is late").await;
    alice.expect_body("while it is late").await;
    cluster.links(1).redis.heal();
    cluster.until_place("alice", "local2").await;
    let mut carol = Client::connect(cluster.server(1), "carol").await;
    carol.ask_for("room", json!({"type": "create", "room": "other", "members": ["alice"]})).await;
    carol.say("other", "live").await;
    alice.expect_body("live").await;
    alice.assert_in_order("team");
    alice.assert_in_order("other");
    assert_eq!(cluster.place("alice"), "local2");
}

#[tokio::test]
async fn a_user_whose_one_device_leaves_goes_on_receiving_on_the_other() {
    let cluster = Cluster::of(3).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob", "carol"]).await;
    let mut phone = Client::connect_as(cluster.server(1), "bob", json!({"device": "phone"})).await;
    cluster.until_place("bob", "local2,local1").await;
    clients[0].say("team", "to both").await;
    phone.expect_body("to both").await;
    clients[1].expect_body("to both").await;
    phone.drop_hard();
    cluster.until_place("bob", "local2").await;
    for text in ["one", "two", "three"] {
        clients[0].say("team", text).await;
        clients[1].expect_body(text).await;
    }
    clients[1].assert_in_order("team");
}

#[tokio::test]
async fn who_leaves_a_room_and_comes_back_on_one_connection_misses_nothing_after() {
    let cluster = Cluster::of(2).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob"]).await;
    for round in 0..3 {
        clients[0].ask_for("ok", json!({"type": "remove", "room": "team", "users": ["bob"]})).await;
        clients[0].say("team", format!("not for bob {round}")).await;
        clients[0].ask_for("ok", json!({"type": "add", "room": "team", "users": ["bob"]})).await;
        for number in 0..5 {
            let text = format!("{round} {number}");
            clients[0].say("team", text.as_str()).await;
            clients[1].expect_body(text).await;
        }
    }
    let heard = clients[1].seqs("team");
    assert!(heard.windows(2).all(|pair| pair[0] < pair[1]), "{heard:?}");
    assert!(!clients[1].heard("team").iter().any(|frame| frame["body"].to_string().contains("not for bob")));
}

#[tokio::test]
async fn two_servers_that_send_into_one_room_at_once_are_heard_in_one_order() {
    let cluster = Cluster::of(2).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob"]).await;
    let mut bob = clients.pop().unwrap();
    let mut alice = clients.pop().unwrap();
    let write = async |client: &mut Client, name: &str| {
        let mut cids = Vec::new();
        for number in 0..300 {
            cids.push(client.send("team", format!("{name} {number}")).await);
        }
        for cid in cids {
            client.expect_sent(&cid).await;
        }
    };
    tokio::join!(write(&mut alice, "alice"), write(&mut bob, "bob"));
    let last = alice.say("team", "the end").await["seq"].as_u64().unwrap();
    for client in [&mut alice, &mut bob] {
        eventually("all to be heard", async || {
            client.sync().await;
            (client.seqs("team").last() == Some(&last)).then_some(())
        })
        .await;
        client.assert_in_order("team");
        assert_eq!(client.seqs("team"), (1..=last).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_message_whose_stream_is_cut_just_then_arrives_without_another() {
    let cluster = Cluster::proxied(2).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob"]).await;
    for round in 0..5 {
        cluster.links(2).relay.black_hole();
        let text = format!("the last before the cut {round}");
        clients[0].say("team", text.as_str()).await;
        cluster.links(2).relay.reset();
        cluster.links(2).relay.heal();
        clients[1].expect_body(text).await;
    }
    clients[1].assert_in_order("team");
}

#[tokio::test]
async fn a_server_whose_relay_cannot_be_reached_for_long_holds_up_nobody_and_misses_nothing() {
    let cluster = Cluster::proxied(3).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob", "carol"]).await;
    let control = latency(&mut clients).await;
    cluster.links(3).relay.black_hole();
    let cut_off = latency(&mut clients).await;
    println!("a message took {control:?}; {cut_off:?} with a third server cut off");
    // What waits for its answer for too long is given up, and read from the store.
    cluster.server(1).until_metric("minichat_drops_total{reason=\"relay_too_old\"}", |given_up| given_up > 0).await;
    clients[0].say("team", "the last").await;
    let queued = cluster.server(1).metric("minichat_relay_queue_bytes").await;
    assert!(queued < 16 << 20, "{queued}");
    cluster.links(3).relay.heal();
    clients[2].expect_body("the last").await;
    clients[2].assert_in_order("team");
}

/// How long messages from the first to the second take, in the middle.
async fn latency(clients: &mut [Client]) -> Duration {
    let mut times = Vec::new();
    for _ in 0..30 {
        let (begin, text) = (Instant::now(), fresh_cid());
        clients[0].say("team", text.as_str()).await;
        clients[1].expect_body(text).await;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_server_that_is_stopped_past_its_lease_holds_up_nobody_and_its_users_miss_nothing() {
    let cluster = Cluster::of(3).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob", "carol"]).await;
    let control = latency(&mut clients).await;
    cluster.server(3).signal(Signal::Stop);
    let stopped = latency(&mut clients).await;
    println!("a message took {control:?}; {stopped:?} with a third server stopped");
    eventually("the lease of the third to end", async || cluster.row(3).is_empty().then_some(())).await;
    clients[0].say("team", "after its lease").await;
    cluster.server(3).signal(Signal::Cont);
    clients[2].expect_body("after its lease").await;
    clients[0].say("team", "live again").await;
    clients[2].expect_body("live again").await;
    clients[2].assert_in_order("team");
}

#[tokio::test]
async fn what_was_sent_to_a_killed_server_is_there_when_its_users_connect_elsewhere() {
    let cluster = Cluster::of(3).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob", "carol"]).await;
    cluster.server(3).signal(Signal::Stop);
    let mut cids = Vec::new();
    for number in 0..50 {
        cids.push(clients[0].send("team", number).await);
    }
    for cid in cids {
        clients[0].expect_sent(&cid).await;
    }
    cluster.server(3).kill();
    let last = clients[2].seqs("team").last().copied().unwrap();
    let mut carol = Client::connect_as(cluster.server(2), "carol", json!({"cursors": {"team": last}})).await;
    carol.expect_body(49).await;
    carol.assert_in_order("team");
    assert_eq!(carol.seqs("team")[0], last + 1);
}

#[tokio::test]
async fn a_message_from_a_server_that_dies_right_after_its_commit_arrives() {
    let cluster = Cluster::proxied(2).await;
    let mut clients = seated(&cluster, "team", &["alice", "bob"]).await;
    // It is stored and answered, and never gets to the other server.
    cluster.links(2).relay.black_hole();
    clients[0].say("team", "the last word").await;
    cluster.server(1).kill();
    cluster.links(2).relay.heal();
    clients[1].expect_message(is_body("the last word")).await;
}

#[tokio::test]
async fn a_server_that_is_new_gets_at_once_what_is_for_its_users() {
    let cluster = Cluster::of(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let new = cluster.start_as(2, &[]).await.unwrap();
    let mut bob = Client::connect(&new, "bob").await;
    // The first server may not have seen the new one yet.
    alice.say("team", "welcome").await;
    bob.expect_body("welcome").await;
    bob.assert_in_order("team");
}

#[tokio::test]
async fn a_thousand_users_that_move_between_three_servers_lose_double_and_reorder_nothing() {
    let cluster = Cluster::with(Options { servers: 3, flags: crowd::flags(), ..Options::default() }).await;
    let plan = Plan {
        users: 1_000,
        room_size: 10,
        stay_ms: 3_000..30_000,
        write_ms: 2_000..20_000,
        acknowledge_ms: 10_000,
        go_ms: 0..1,
        roles: WANDERERS,
    };
    let crowd = Crowd::gather(&cluster, plan, seed()).await;
    sleep(Duration::from_secs(30)).await;
    let faults = crowd.faults(&cluster, false).await;
    assert!(faults.is_empty(), "{} faults, such as {:#?}", faults.len(), &faults[..faults.len().min(20)]);
}
