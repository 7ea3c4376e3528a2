//! The end of a server that was asked to end.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use minichat::auth::LEEWAY;
use minichat::clock::unix_ms;
use serde_json::json;
use tokio::time::sleep;

use crate::support::client::Client;
use crate::support::cluster::{Cluster, Options};
use crate::support::server::Signal;
use crate::support::wait::eventually;

const JWT_SECRET: &str = "a secret of at least thirty-two bytes";

/// The exit code of a process that was told twice.
const INTERRUPTED: i32 = 130;

#[tokio::test]
async fn a_server_that_is_told_to_stop_sends_everyone_away_and_leaves_nothing_behind() {
    let cluster = Cluster::of(2).await;
    let local1 = cluster.server(1);
    let mut stays = Client::connect(cluster.server(2), "stays").await;
    let mut leavers = Vec::new();
    for number in 0..20 {
        leavers.push(Client::connect(local1, &format!("user{number}")).await);
    }
    stays.create("team", &["user0"]).await;

    local1.signal(Signal::Term);
    for leaver in &mut leavers {
        assert_eq!(leaver.expect_close(1001).await, "going away");
        let closing = leaver.expect("closing").await;
        assert!(closing["reconnect_after_ms"].as_u64().is_some(), "{closing}");
    }
    assert_eq!(local1.wait_exit().await, Some(0));

    assert_eq!(cluster.places(), [("stays".into(), "local2".into())]);
    assert!(cluster.row(1).is_empty());
    assert_eq!(cluster.redis.cli(&["ZRANGE", "ws:servers", "0", "-1"]), "local2");
    let mut back = Client::connect(cluster.server(2), "user0").await;
    stays.say("team", "welcome back").await;
    back.expect_body("welcome back").await;
}

#[tokio::test]
async fn sends_that_are_on_their_way_are_answered_before_the_end() {
    let cluster = Cluster::proxied(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    alice.say("team", "before").await;

    cluster.links(1).database.stall();
    let mut cids = Vec::new();
    for number in 0..20 {
        cids.push(alice.send("team", number).await);
    }
    // The server has read all of them when it has read this.
    alice.sync().await;
    cluster.server(1).signal(Signal::Term);
    cluster.server(1).until_logged(&["draining"]).await;
    cluster.links(1).database.heal();

    for cid in cids {
        alice.expect_sent(&cid).await;
    }
    alice.expect_close(1001).await;
    assert_eq!(cluster.server(1).wait_exit().await, Some(0));
}

#[tokio::test]
async fn a_token_that_ends_while_its_server_stops_does_not_cut_off_the_last_answers() {
    let flags = vec![format!("--jwt-secret={JWT_SECRET}")];
    let cluster = Cluster::with(Options { servers: 1, proxied: true, flags, ..Options::default() }).await;
    // It is over, and taken for some seconds yet.
    let exp = get_current_timestamp() - 1;
    let until_end = |margin_ms: i64| {
        let end = Duration::from_secs(exp) + LEEWAY;
        let at = u64::try_from(end.as_millis()).unwrap().saturating_add_signed(margin_ms);
        sleep(Duration::from_millis(at.saturating_sub(unix_ms())))
    };
    let key = EncodingKey::from_secret(JWT_SECRET.as_bytes()).unwrap();
    let token = encode(&Header::default(), &json!({"sub": "alice", "exp": exp}), &key).unwrap();
    let url = format!("ws://{}/ws?token={token}", cluster.server(1).addr());
    let mut alice = Client::connect_with(&url, &[], json!({})).await;
    alice.create("team", &["bob"]).await;

    cluster.links(1).database.stall();
    let cid = alice.send("team", "on its way").await;
    alice.sync().await;
    until_end(-500).await;
    cluster.server(1).signal(Signal::Term);
    cluster.server(1).until_logged(&["draining"]).await;
    until_end(200).await;
    cluster.links(1).database.heal();

    alice.expect_sent(&cid).await;
    alice.expect_close(1001).await;
    assert_eq!(cluster.server(1).wait_exit().await, Some(0));
}

#[tokio::test]
async fn a_drain_ends_in_time_while_redis_is_stopped_and_says_meanwhile_that_it_is_not_ready() {
    let cluster = held_in_drain("10s").await;
    let local1 = cluster.server(1);
    let (status, text) = local1.admin("/readyz").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("about to stop"), "{text}");
    assert_eq!(local1.admin("/livez").await.0, 200);
    assert_eq!(local1.wait_exit().await, Some(0));
    cluster.redis.resume();
}

#[tokio::test]
async fn nobody_is_let_in_while_a_server_drains() {
    let cluster = held_in_drain("10s").await;
    let local1 = cluster.server(1);
    assert!(Client::open(&local1.ws_url("bob"), &[]).await.is_err());
    assert_eq!(local1.wait_exit().await, Some(0));
    cluster.redis.resume();
}

#[tokio::test]
async fn a_second_signal_ends_a_drain_at_once() {
    let cluster = held_in_drain("5m").await;
    let local1 = cluster.server(1);
    local1.signal(Signal::Int);
    assert_eq!(local1.wait_exit().await, Some(INTERRUPTED));
    cluster.redis.resume();
}

#[tokio::test]
async fn a_server_that_drains_says_so_in_its_row() {
    let cluster = Cluster::proxied(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &[]).await;
    assert_eq!(cluster.row(1)["state"], "up");
    cluster.links(1).database.stall();
    alice.send("team", "keeps the server from ending").await;
    alice.sync().await;
    cluster.server(1).signal(Signal::Term);
    let draining = async || (cluster.row(1).get("state")? == "draining").then_some(());
    eventually("the row to say so", draining).await;
    cluster.links(1).database.heal();
    // With the answer, where it comes before the last ones are given up.
    alice.expect_close(1001).await;
    assert_eq!(cluster.server(1).wait_exit().await, Some(0));
}

/// Two servers, of which the first drains and cannot end before `limit`: Redis, which it has to tell, is stopped. Its
/// only session has been sent away.
async fn held_in_drain(limit: &str) -> Cluster {
    let options = Options { flags: vec![format!("--drain={limit}")], ..Options::default() };
    let cluster = Cluster::with(options).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    cluster.redis.pause();
    cluster.server(1).signal(Signal::Term);
    alice.expect_close(1001).await;
    cluster
}
