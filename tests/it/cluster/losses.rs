//! A server or a stream between servers is lost at the worst moment: what was answered arrives all the same.

use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::server::Signal;

#[tokio::test]
async fn what_a_server_answered_before_it_was_killed_reaches_the_sessions_on_the_others() {
    let cluster = Cluster::of(2).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(cluster.server(2), "C").await;
    a.create("team", &["C"]).await;
    // The stream to local2 stands still, so that nothing passes between the answers and the kill.
    cluster.server(2).signal(Signal::Stop);
    let mut last = 0;
    for number in 0..10 {
        last = a.say("team", number).await["seq"].as_u64().unwrap();
    }
    cluster.server(1).kill();
    cluster.server(2).signal(Signal::Cont);

    c.expect_message(|message| message["seq"] == last).await;
    c.assert_in_order("team");
}

#[tokio::test]
async fn what_was_on_its_way_when_streams_broke_arrives_once_and_in_order() {
    let cluster = Cluster::proxied(2).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(cluster.server(2), "C").await;
    a.create("team", &["C"]).await;
    let mut last = 0;
    for round in 0..5 {
        for number in 0..20 {
            a.send("team", format!("{round}.{number}")).await;
            c.send("team", format!("{round}.{number} from C")).await;
        }
        cluster.links(2).relay.reset();
        last = a.say("team", round).await["seq"].as_u64().unwrap();
        cluster.links(2).relay.heal();
    }
    let end = c.say("team", "the last").await["seq"].as_u64().unwrap();
    assert!(end > last);
    a.expect_message(|message| message["seq"] == end).await;
    for client in [&a, &c] {
        client.assert_in_order("team");
        assert_eq!(client.seqs("team").last(), Some(&end));
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_delays_nobody_else_and_misses_nothing() {
    let cluster = Cluster::proxied(3).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(cluster.server(2), "C").await;
    let mut d = Client::connect(cluster.server(3), "D").await;
    a.create("team", &["C", "D"]).await;
    c.expect_message(|message| message["seq"] == 1).await;

    cluster.links(2).relay.black_hole();
    for number in 0..20 {
        a.say("team", number).await;
    }
    d.expect_body(19).await;
    cluster.links(2).relay.heal();
    let last = a.say("team", "the last").await["seq"].as_u64().unwrap();
    for client in [&mut c, &mut d] {
        client.expect_message(|message| message["seq"] == last).await;
        client.assert_in_order("team");
    }
}

#[tokio::test]
async fn a_device_that_moves_while_redis_stands_still_replaces_its_older_session() {
    let cluster = Cluster::of(2).await;
    let phone = json!({"device": "phone"});
    let mut old = Client::connect_as(cluster.server(1), "alice", phone.clone()).await;
    cluster.redis.pause();
    let mut new = Client::connect_as(cluster.server(2), "alice", phone).await;
    old.expect_close(4009).await;
    cluster.redis.resume();
    cluster.until_place("alice", "local2").await;
    new.sync().await;
}
