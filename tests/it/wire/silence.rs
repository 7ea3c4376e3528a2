//! Peers that are not there any more, and those that only have nothing to say.

use serde_json::json;

use super::raw::{PING, PONG, Raw, TEXT, frame};
use crate::support::client::Client;
use crate::support::server::Server;

const FLAGS: [&str; 1] = ["--ping-interval=1s"];

#[tokio::test]
async fn who_does_not_answer_pings_is_closed_as_silent_and_leaves_no_session() {
    let server = Server::start(&FLAGS).await;
    let mut raw = Raw::session(server.addr(), "alice").await;
    assert_eq!(raw.ended().await.0, Some((4007, "silent".into())));
    server.until_metric("minichat_connections", |open| open == 0).await;
}

#[tokio::test]
async fn who_answers_pings_or_says_anything_lives() {
    let server = Server::start(&["--ping-interval=3s"]).await;
    let mut answering = Raw::session(server.addr(), "alice").await;
    let mut talking = Raw::session(server.addr(), "bob").await;
    for _ in 0..4 {
        assert_eq!(answering.read().await.unwrap().0, PING);
        answering.write(&frame(PONG, b"")).await;
        let (first, _) = talking.read().await.unwrap();
        assert_eq!(first, PING);
        // Not a pong, but a sign of life.
        talking.write(&frame(TEXT, b"{\"type\":\"typing\",\"room\":\"none\"}")).await;
        talking.text_with("not_found").await;
    }
    assert_eq!(server.metric("minichat_connections").await, 2);
}

#[tokio::test]
async fn the_ping_of_a_page_is_answered_and_delivered_to_nobody() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut other = Client::connect(&server, "alice").await;
    assert_eq!(alice.ask_for("pong", json!({"type": "ping"})).await["type"], "pong");
    alice.send_frame(json!({"type": "ping"})).await;
    assert_eq!(alice.next_frame().await, json!({"type": "pong"}));
    other.sync().await;
    assert_eq!(other.unexpected().count(), 0);
}

#[tokio::test]
async fn who_has_said_goodbye_is_gone_at_once_even_if_the_connection_stays_open() {
    let server = Server::start(&[]).await;
    let mut raws = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::session(server.addr(), "alice").await;
        raw.write(&frame(super::raw::CLOSE, &1000_u16.to_be_bytes())).await;
        raws.push(raw);
    }
    server.until_metric("minichat_connections", |open| open == 0).await;
}
