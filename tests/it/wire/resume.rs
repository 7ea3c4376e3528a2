//! Coming back: all that was missed, once, in order, from where the client, the device or the user stood.

use serde_json::json;

use super::fill;
use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::wait::eventually;

#[tokio::test]
async fn a_cursor_that_cannot_be_neither_harms_nor_helps() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    alice.create("secret", &[]).await;
    fill(&mut alice, "team", 5, |index| json!(index)).await;
    for cursors in [
        json!({"team": 7}),
        json!({"team": 18_446_744_073_709_551_615_u64}),
        json!({"team": -1}),
        json!({"team": "3"}),
        json!({"team": 2.5}),
        json!({"team": null}),
        json!({"secret": 0, "missing": 3, "no room": 1, "": 9}),
    ] {
        let mut bob = Client::connect_as(&server, "bob", json!({"device": "phone", "cursors": cursors})).await;
        bob.expect_body(4).await;
        bob.sync().await;
        assert_eq!(bob.seqs("team"), [1, 2, 3, 4, 5, 6], "{cursors}");
        assert!(bob.heard("secret").is_empty());
    }
    let cursors = json!({"no room": -1, "secret": "x", "team": 4});
    let mut bob = Client::connect_as(&server, "bob", json!({"cursors": cursors})).await;
    bob.expect_body(4).await;
    assert_eq!(bob.seqs("team"), [5, 6], "the others take nothing from one that is good");
}

#[tokio::test]
async fn five_thousand_missed_messages_come_in_order_while_others_are_sent() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    fill(&mut alice, "team", 5000, |index| json!(index)).await;
    let hello = json!({"cursors": {"team": 0}});
    let mut bob = Client::connect_as(&server, "bob", hello).await;
    let sending = tokio::spawn(async move {
        for index in 5000..5500 {
            alice.say("team", index).await;
        }
        alice
    });
    bob.expect_body(5499).await;
    sending.await.unwrap();
    bob.sync().await;
    assert_eq!(bob.seqs("team"), (1..=5501).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_is_still_reading_what_they_missed_may_say_something() {
    // One connection that reads: who holds it and waits for another would wait for themselves.
    let server = Server::start(&["--database-connections=1"]).await;
    let users: Vec<_> = (0..30).map(|index| format!("user-{index}")).collect();
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &users.iter().map(String::as_str).collect::<Vec<_>>()).await;
    fill(&mut alice, "team", 400, |index| json!(format!("{index:200}"))).await;
    // So that the server has to read who is in the room, too.
    let server = server.restart().await;
    let comers = users.iter().map(async |user| {
        let mut client = Client::connect_as(&server, user, json!({"cursors": {"team": 0}})).await;
        client.send_frame(json!({"type": "signal", "room": "team", "body": 1})).await;
        client.expect_message(|frame| frame["seq"] == 401).await;
        client.sync().await;
        let refused: Vec<_> = client.unexpected().filter(|frame| frame["type"] == "error").cloned().collect();
        assert_eq!(refused, Vec::<serde_json::Value>::new(), "of {user}");
    });
    futures_util::future::join_all(comers).await;
}

#[tokio::test]
async fn a_resume_that_breaks_off_goes_on_from_the_cursor() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    fill(&mut alice, "team", 1000, |index| json!(format!("{index} {}", "x".repeat(500)))).await;
    let (mut have, mut connects) = (0, 0);
    while have < 1001 {
        let mut bob = Client::connect_as(&server, "bob", json!({"cursors": {"team": have}})).await;
        for _ in 0..(1001 - have).min(130) {
            bob.expect("message").await;
        }
        assert_eq!(bob.seqs("team").first(), Some(&(have + 1)));
        bob.assert_in_order("team");
        have = *bob.seqs("team").last().unwrap();
        connects += 1;
        bob.drop_hard();
    }
    assert!(connects > 1);
}

#[tokio::test]
async fn a_device_goes_on_where_it_stood_and_a_new_one_where_the_user_does() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    fill(&mut alice, "team", 9, |index| json!(index)).await;
    let device = |name| json!({"device": name});
    for (name, seq) in [("phone", 3), ("laptop", 6)] {
        let mut bob = Client::connect_as(&server, "bob", device(name)).await;
        bob.ack("team", seq).await;
        bob.close().await;
    }
    // Positions are written about once a second.
    for (hello, first) in [
        (device("phone"), 4),
        (device("laptop"), 7),
        (device("tablet"), 7),
        (json!({}), 7),
        (json!({"device": "phone", "cursors": {"team": 8}}), 9),
    ] {
        eventually(&format!("{hello} to begin at {first}"), async || {
            let mut bob = Client::connect_as(&server, "bob", hello.clone()).await;
            bob.expect_body(8).await;
            (bob.seqs("team").first() == Some(&first)).then(|| bob.assert_in_order("team"))
        })
        .await;
    }
}

#[tokio::test]
async fn positions_only_grow_and_one_past_the_head_is_an_error() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &[]).await;
    fill(&mut alice, "team", 4, |index| json!(index)).await;
    for kind in ["ack", "read"] {
        for seq in [5, 2, 0] {
            alice.ask_for("ok", json!({"type": kind, "room": "team", "seq": seq})).await;
        }
        let answer = alice.ask(json!({"type": kind, "room": "team", "seq": 6})).await;
        assert_eq!(answer["code"], "past_head");
    }
    eventually("the positions to be written", async || {
        let rooms = alice.ask_for("rooms", json!({"type": "rooms"})).await;
        let room = &rooms["rooms"][0];
        (room["delivered"] == 5 && room["read"] == 5).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_newer_session_of_a_device_replaces_the_older_and_misses_nothing() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    let mut old = Client::connect_as(&server, "bob", json!({"device": "phone"})).await;
    let mut new = Client::connect_as(&server, "bob", json!({"device": "phone"})).await;
    old.expect("closing").await;
    old.expect_close(4009).await;
    alice.say("team", "hello").await;
    new.expect_body("hello").await;
    new.assert_in_order("team");
}

fn is_own_leave(message: &serde_json::Value, user: &str) -> bool {
    message["event"] == "left" && message["users"][0] == user
}

#[tokio::test]
async fn who_leaves_before_having_read_what_is_there_is_told_that_they_have_left() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    for round in 0..20 {
        let room = format!("room-{round}");
        alice.ask_for("room", json!({"type": "create", "room": room, "open": true})).await;
        bob.send_frame(json!({"type": "join", "room": room})).await;
        bob.send_frame(json!({"type": "leave", "room": room})).await;
        bob.expect_message(|message| message["room"] == room && is_own_leave(message, "bob")).await;
        bob.sync().await;
        assert_eq!(bob.seqs(&room).last(), Some(&3), "and of nothing after it");
    }
}

#[tokio::test]
async fn who_is_removed_while_they_catch_up_is_told_so_last_of_all() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    fill(&mut alice, "team", 3_000, |_| json!("x".repeat(4_096))).await;
    // Does not read on yet: 12 MB are more than the system takes for it.
    let mut bob = Client::connect_as(&server, "bob", json!({"cursors": {"team": 0}})).await;
    alice.ask_for("ok", json!({"type": "remove", "room": "team", "users": ["bob"]})).await;
    alice.say("team", "not for bob").await;
    bob.expect_message(|message| is_own_leave(message, "bob")).await;
    bob.sync().await;
    let seqs = bob.seqs("team");
    assert_eq!(seqs.last(), Some(&3_002));
    let before = &seqs[..seqs.len() - 1];
    assert!(before.len() < 3_001, "it was removed while it caught up");
    assert_eq!(before, (1..=before.len() as u64).collect::<Vec<_>>());
}
