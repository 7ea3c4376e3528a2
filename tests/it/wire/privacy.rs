//! Who someone is comes from their token, and what they see from their rooms.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::server::Server;

#[tokio::test]
async fn nobody_speaks_for_another() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut eve = Client::connect(&server, "eve").await;
    alice.create("team", &["eve"]).await;
    let claims =
        json!({"from": "bob", "sender": "bob", "senderId": "bob", "user": "bob", "sub": "bob", "at": 1, "seq": 9});
    for frame in [
        json!({"type": "send", "room": "team", "body": 1}),
        json!({"type": "send", "to": "alice", "body": 2}),
        json!({"type": "signal", "room": "team", "body": 3}),
        json!({"type": "signal", "to": "alice", "body": 4}),
        json!({"type": "typing", "room": "team"}),
    ] {
        let mut frame = frame;
        frame.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        eve.ask(frame.clone()).await;
        let kind = if frame["type"] == "send" { &json!("message") } else { &frame["type"] };
        let got = alice
            .expect_that(&frame.to_string(), |got| {
                got["type"] == *kind && got["body"] == frame["body"] && got["event"].is_null()
            })
            .await;
        let by = if kind == "typing" { &got["user"] } else { &got["from"] };
        assert_eq!(by, "eve", "{got}");
    }
}

/// Whatever can be asked of a room.
fn questions(room: &str) -> Vec<Value> {
    vec![
        json!({"type": "send", "room": room, "body": 1}),
        json!({"type": "signal", "room": room, "body": 1}),
        json!({"type": "typing", "room": room}),
        json!({"type": "ack", "room": room, "seq": 0}),
        json!({"type": "ack", "room": room, "seq": 1}),
        json!({"type": "ack", "room": room, "seq": 1_000_000}),
        json!({"type": "read", "room": room, "seq": 0}),
        json!({"type": "read", "room": room, "seq": 1}),
        json!({"type": "read", "room": room, "seq": 1_000_000}),
        json!({"type": "history", "room": room}),
        json!({"type": "history", "room": room, "after": 0}),
        json!({"type": "history", "room": room, "after": 1_000_000}),
        json!({"type": "members", "room": room}),
        json!({"type": "join", "room": room}),
        json!({"type": "leave", "room": room}),
        json!({"type": "add", "room": room, "users": ["eve"]}),
        json!({"type": "add", "room": room, "users": []}),
        json!({"type": "remove", "room": room, "users": ["alice"]}),
        json!({"type": "remove", "room": room, "users": []}),
    ]
}

#[tokio::test]
async fn a_foreign_room_is_answered_like_a_missing_one() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    alice.create("team", &["bob"]).await;
    alice.say("team", "private").await;
    let direct = alice.ask(json!({"type": "send", "to": "bob", "body": "private"})).await;
    let direct = direct["room"].as_str().unwrap();
    let mut eve = Client::connect_as(&server, "eve", json!({"cursors": {"team": 0, direct: 0}})).await;
    for room in ["team", direct] {
        for (foreign, missing) in questions(room).into_iter().zip(questions("missing")) {
            let mut answers = Vec::new();
            for question in [&foreign, &missing] {
                let mut answer = eve.ask(question.clone()).await;
                assert_eq!(answer["code"], "not_found", "{question}: {answer}");
                answer["cid"] = Value::Null;
                answers.push(answer);
            }
            assert_eq!(answers[0], answers[1], "{foreign}");
        }
    }
    eve.sync().await;
    assert_eq!(eve.unexpected().count(), 0);
    for client in [&mut alice, &mut bob] {
        client.sync().await;
        assert!(client.unexpected().all(|frame| frame["from"] != "eve" && frame["type"] != "typing"));
    }
}

#[tokio::test]
async fn who_is_out_hears_and_says_nothing_more_and_comes_back_to_what_is_new_only() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    alice.create("team", &["bob"]).await;
    alice.say("team", "before").await;
    alice.ask_for("ok", json!({"type": "remove", "room": "team", "users": ["bob"]})).await;
    alice.say("team", "without bob").await;
    for question in questions("team").into_iter().filter(|question| question["type"] != "join") {
        assert_eq!(bob.ask(question.clone()).await["code"], "not_found", "{question}");
    }
    alice.ask_for("ok", json!({"type": "add", "room": "team", "users": ["bob"]})).await;
    alice.say("team", "with bob").await;
    bob.expect_body("with bob").await;
    assert_eq!(bob.seqs("team"), [1, 2, 3, 5, 6]);
    let seen: Vec<_> = bob.history("team", 0).await.iter().map(|entry| entry["seq"].as_u64()).collect();
    assert_eq!(seen, [Some(5), Some(6)]);
}

#[tokio::test]
async fn the_mark_of_a_message_is_shown_to_its_sender_alone() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    let mut other = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    let sent = alice.say("team", "hello").await;
    assert_eq!(other.expect_body("hello").await["cid"], sent["cid"]);
    assert!(bob.expect_body("hello").await["cid"].is_null());
    assert!(bob.history("team", 0).await.iter().all(|entry| entry["cid"].is_null()));
}
