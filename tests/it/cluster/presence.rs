//! Who is online, as people on any server see it.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::cluster::Cluster;

/// Waits until `client` is told this of `user`.
async fn expect(client: &mut Client, user: &str, online: impl Into<Value>) -> Value {
    let online = online.into();
    let what = format!("{user} online: {online}");
    client
        .expect_that(&what, |frame| frame["type"] == "presence" && frame["user"] == user && frame["online"] == online)
        .await
}

async fn watch(client: &mut Client, users: &[&str]) {
    client.ask_for("ok", json!({"type": "presence", "users": users})).await;
}

#[tokio::test]
async fn people_see_on_any_server_who_of_their_rooms_comes_and_leaves_and_nothing_of_strangers() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let _stranger = Client::connect(cluster.server(1), "mallory").await;
    alice.create("team", &["bob", "carol"]).await;
    watch(&mut alice, &["bob", "carol", "mallory", "alice"]).await;
    let bob = expect(&mut alice, "bob", false).await;
    assert_eq!(bob.get("last_seen"), None, "he was never there");
    expect(&mut alice, "carol", false).await;
    expect(&mut alice, "mallory", Value::Null).await;
    expect(&mut alice, "alice", true).await;
    let bob = Client::connect(cluster.server(2), "bob").await;
    expect(&mut alice, "bob", true).await;
    bob.close().await;
    let left = expect(&mut alice, "bob", false).await;
    assert!(left["last_seen"].as_u64().is_some_and(|at| at <= minichat::clock::unix_ms()), "{left}");
    let mut bob = Client::connect(cluster.server(1), "bob").await;
    expect(&mut alice, "bob", true).await;
    watch(&mut bob, &["alice"]).await;
    expect(&mut bob, "alice", true).await;
}

#[tokio::test]
async fn who_moves_between_servers_is_online_throughout() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let others = ["carol", "dave", "erin"];
    alice.create("team", &["bob", "carol", "dave", "erin"]).await;
    watch(&mut alice, &["bob", "carol", "dave", "erin"]).await;
    expect(&mut alice, "bob", true).await;
    let mut connected = Vec::new();
    for (round, other) in others.into_iter().enumerate() {
        bob.drop_hard();
        // Alice hears of who has come since by a look that finds Bob nowhere.
        connected.push(Client::connect(cluster.server(1), other).await);
        expect(&mut alice, other, true).await;
        bob = Client::connect(cluster.server(1 + round % 2), "bob").await;
    }
    bob.say("team", "still here").await;
    alice.expect_body("still here").await;
    let told: Vec<_> =
        alice.unexpected().filter(|frame| frame["type"] == "presence" && frame["user"] == "bob").collect();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn whose_server_was_killed_is_offline_when_its_lease_has_ended() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let _bob = Client::connect(cluster.server(2), "bob").await;
    alice.create("team", &["bob"]).await;
    watch(&mut alice, &["bob"]).await;
    expect(&mut alice, "bob", true).await;
    cluster.server(2).kill();
    let gone = expect(&mut alice, "bob", false).await;
    assert!(gone["last_seen"].is_u64(), "{gone}");
}

#[tokio::test]
async fn while_redis_is_away_nobody_is_said_to_be_offline() {
    let cluster = Cluster::of(2).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let _bob = Client::connect(cluster.server(2), "bob").await;
    alice.create("team", &["bob", "carol"]).await;
    watch(&mut alice, &["bob", "carol"]).await;
    expect(&mut alice, "bob", true).await;
    expect(&mut alice, "carol", false).await;
    cluster.redis.pause();
    expect(&mut alice, "bob", Value::Null).await;
    cluster.redis.resume();
    expect(&mut alice, "bob", true).await;
    let told: Vec<_> = alice.unexpected().filter(|frame| frame["online"] == false && frame["user"] == "bob").collect();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_list_that_is_too_long_or_none_is_refused_and_an_empty_one_ends_it() {
    let cluster = Cluster::of(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    alice.create("team", &["bob"]).await;
    let many: Vec<_> = (0..201).map(|number| format!("u{number}")).collect();
    for frame in [json!({"type": "presence", "users": many}), json!({"type": "presence"})] {
        let refused = alice.ask(frame).await;
        assert_eq!(
            (&refused["code"], refused["message"].as_str().map(|text| &text[..6])),
            (&json!("bad_field"), Some("users:"))
        );
    }
    watch(&mut alice, &["bob"]).await;
    expect(&mut alice, "bob", false).await;
    watch(&mut alice, &[]).await;
    let _bob = Client::connect(cluster.server(1), "bob").await;
    watch(&mut alice, &["alice"]).await;
    expect(&mut alice, "alice", true).await;
    let told: Vec<_> = alice.unexpected().filter(|frame| frame["user"] == "bob" && frame["online"] == true).collect();
    assert!(told.is_empty(), "{told:?}");
}
