//! Whether and where someone is pushed, as they say it.

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::support::client::Client;
use crate::support::postgres::Postgres;
use crate::support::server::Server;

async fn muted(client: &mut Client, room: &str) -> Value {
    let answer = client.ask_for("rooms", json!({"type": "rooms"})).await;
    let rooms = answer["rooms"].as_array().unwrap();
    rooms.iter().find(|shown| shown["room"] == room).expect("the room")["muted"].clone()
}

#[tokio::test]
async fn a_muted_room_is_shown_as_muted_to_who_has_muted_it_until_they_say_otherwise() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    alice.create("team", &["bob"]).await;
    alice.create("other", &["bob"]).await;
    bob.ask_for("ok", json!({"type": "settings", "room": "team", "muted": true})).await;
    assert_eq!(muted(&mut bob, "team").await, true);
    assert_eq!(muted(&mut bob, "other").await, Value::Null);
    assert_eq!(muted(&mut alice, "team").await, Value::Null);
    let again = alice.ask_for("room", json!({"type": "create", "room": "team"})).await;
    assert_eq!(again["muted"], Value::Null);
    bob.ask_for("ok", json!({"type": "settings", "muted": true})).await;
    assert_eq!(muted(&mut bob, "other").await, Value::Null, "of the room itself nothing was said");
    bob.ask_for("ok", json!({"type": "settings", "room": "team", "muted": false})).await;
    assert_eq!(muted(&mut bob, "team").await, Value::Null);
}

#[tokio::test]
async fn settings_that_say_nothing_or_are_of_a_strangers_room_are_refused() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut eve = Client::connect(&server, "eve").await;
    alice.create("team", &[]).await;
    for room in ["team", "missing"] {
        let answer = eve.ask(json!({"type": "settings", "room": room, "muted": true})).await;
        assert_eq!(answer["code"], "not_found", "{answer}");
    }
    for frame in [json!({"type": "settings", "room": "team"}), json!({"type": "settings"})] {
        let answer = alice.ask(frame).await;
        assert_eq!(answer["code"], "bad_field", "{answer}");
        assert!(answer["message"].as_str().unwrap().starts_with("muted: is missing"), "{answer}");
    }
}

/// The tokens that a database has: whose, of which device.
async fn kept(database: &str) -> Vec<(String, Option<String>, String)> {
    let mut connection = PgConnection::connect(database).await.unwrap();
    let tokens = "SELECT user_id, device, token FROM device_tokens ORDER BY user_id";
    sqlx::query_as(tokens).fetch_all(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_token_is_kept_for_the_sessions_device_until_its_user_takes_it_back_and_never_logged() {
    let database = Postgres::shared().fresh_database().await;
    let server = Server::start(&[&format!("--database={database}"), "--log=trace"]).await;
    let mut phone = Client::connect_as(&server, "alice", json!({"device": "phone"})).await;
    let mut nameless = Client::connect(&server, "bob").await;
    let token = |token: &str, remove: bool| json!({"type": "device_token", "provider": "fcm", "token": token, "remove": remove});
    for _ in 0..2 {
        phone.ask_for("ok", token("private-of-alice", false)).await;
        nameless.ask_for("ok", token("private-of-bob", false)).await;
        nameless.ask_for("ok", token("private-of-alice", true)).await;
    }
    let row =
        |user: &str, device: Option<&str>| (user.to_owned(), device.map(str::to_owned), format!("private-of-{user}"));
    assert_eq!(kept(&database).await, [row("alice", Some("phone")), row("bob", None)]);
    let mut laptop = Client::connect_as(&server, "alice", json!({"device": "laptop"})).await;
    for _ in 0..2 {
        laptop.ask_for("ok", token("private-of-alice", true)).await;
        assert_eq!(kept(&database).await, [row("bob", None)]);
    }
    assert!(!server.has_logged(&["private-of"]));
}

#[tokio::test]
async fn who_wants_no_pushes_at_all_is_kept_until_they_say_otherwise() {
    let database = Postgres::shared().fresh_database().await;
    let server = Server::start(&[&format!("--database={database}")]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut connection = PgConnection::connect(&database).await.unwrap();
    for (muted, kept) in [(true, 1), (true, 1), (false, 0)] {
        alice.ask_for("ok", json!({"type": "settings", "muted": muted})).await;
        let who = "SELECT count(*) FROM users WHERE user_id = 'alice' AND muted";
        let (count,): (i64,) = sqlx::query_as(who).fetch_one(&mut connection).await.unwrap();
        assert_eq!(count, kept, "{muted}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_is_refused() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    for (provider, token, part) in [
        (json!("apns"), json!("t"), "provider: must be \"fcm\""),
        (Value::Null, json!("t"), "provider: must be \"fcm\""),
        (json!(7), json!("t"), "provider: "),
        (json!("fcm"), Value::Null, "token: is missing"),
        (json!("fcm"), json!(""), "token: must be 1 to 2048 bytes"),
        (json!("fcm"), json!("x".repeat(2049)), "token: must be 1 to 2048 bytes"),
        (json!("fcm"), json!("a\u{0}b"), "control characters"),
        (json!("fcm"), json!(["t"]), "token: "),
    ] {
        let answer = alice.ask(json!({"type": "device_token", "provider": provider, "token": token})).await;
        assert_eq!(answer["code"], "bad_field", "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{answer}");
    }
}
