//! From the request to the welcome, and to the end of the token.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::raw::{Raw, TEXT, frame, request};
use super::{token, with_tokens};
use crate::support::client::Client;
use crate::support::server::Server;

fn url(server: &Server, query: &str) -> String {
    format!("ws://{}/ws{query}", server.addr())
}

async fn status(server: &Server, target: &str, headers: &[(&str, &str)]) -> String {
    let mut raw = Raw::open(server.addr()).await;
    raw.write(request(server.addr(), target, headers).as_bytes()).await;
    raw.head().await.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_session_begins_with_welcome_whichever_way_it_says_who_it_is() {
    let server = with_tokens(&[]).await;
    let alice = token("alice", 60);
    let header = format!("Bearer {alice}");
    let lower = format!("bearer {alice}");
    for (query, headers, hello) in [
        ("", &[("Authorization", header.as_str())][..], json!({"type": "hello"})),
        ("", &[("Authorization", lower.as_str())], json!({"type": "hello"})),
        (&format!("?token={alice}"), &[], json!({"type": "hello", "device": "phone"})),
        ("", &[], json!({"type": "hello", "token": alice})),
    ] {
        let mut client = Client::open(&url(&server, query), headers).await.unwrap();
        client.send_frame(hello).await;
        let first = client.next_frame().await;
        assert_eq!((&first["type"], &first["user"]), (&json!("welcome"), &json!("alice")));
    }
}

#[tokio::test]
async fn a_frame_in_place_of_a_hello_is_answered_after_the_welcome() {
    let server = Server::start(&[]).await;
    for frame in [json!({"type": "ping", "cid": "1"}), json!({"type": "hello", "cid": "1", "device": 7})] {
        let mut client = Client::open(&server.ws_url("alice"), &[]).await.unwrap();
        client.send_frame(frame).await;
        assert_eq!(client.next_frame().await["type"], "welcome");
        assert_eq!(client.next_frame().await["cid"], "1");
    }
}

#[tokio::test]
async fn who_says_nothing_has_said_an_empty_hello() {
    let server = Server::start(&[]).await;
    let mut client = Client::open(&server.ws_url("alice"), &[]).await.unwrap();
    assert_eq!(client.next_frame().await["type"], "welcome");
}

#[tokio::test]
async fn who_does_not_say_who_they_are_is_not_kept() {
    let server = with_tokens(&[]).await;
    let mut silent = Client::open(&url(&server, ""), &[]).await.unwrap();
    for hello in [json!({"type": "hello"}), json!({"type": "ping"}), json!({"type": "hello", "token": "x"})] {
        let mut client = Client::open(&url(&server, ""), &[]).await.unwrap();
        client.send_frame(hello).await;
        assert_eq!(client.next_frame().await["type"], "closing");
        client.expect_close(4001).await;
    }
    assert_eq!(silent.next_frame().await, json!({"type": "closing", "reason": "unauthenticated"}));
    silent.expect_close(4001).await;
}

#[tokio::test]
async fn a_token_that_is_no_good_is_refused_where_the_client_can_see_it() {
    let server = with_tokens(&[]).await;
    let old = token("alice", -60);
    for header in [&format!("Bearer {old}"), "Bearer x", "Bearer", "Basic YTpi", ""] {
        assert_eq!(status(&server, "/ws", &[("Authorization", header)]).await, "401", "{header}");
    }
    for query in [&format!("?token={old}"), "?token=x", "?token=", "?user=alice"] {
        let mut client = Client::open(&url(&server, query), &[]).await.unwrap();
        assert_eq!(client.next_frame().await["type"], "closing", "{query}");
        client.expect_close(4001).await;
    }
}

#[tokio::test]
async fn a_hello_cannot_change_who_the_request_said_it_is() {
    let server = with_tokens(&[]).await;
    let mut client = Client::open(&url(&server, &format!("?token={}", token("alice", 60))), &[]).await.unwrap();
    client.send_frame(json!({"type": "hello", "token": token("bob", 60)})).await;
    client.expect_close(4003).await;
}

/// The server takes a token for 5 s longer, so this one ends in about 8 s.
const ALMOST_OVER: i64 = 3;

#[tokio::test]
async fn a_session_ends_with_its_token_unless_a_fresh_one_of_the_same_user_extends_it() {
    let server = with_tokens(&[]).await;
    let query = |user| format!("?token={}", token(user, ALMOST_OVER));
    let mut extended = Client::connect_with(&url(&server, &query("alice")), &[], json!({})).await;
    let mut left_alone = Client::connect_with(&url(&server, &query("bob")), &[], json!({})).await;
    for foreign in [token("bob", 60), token("alice", -60), "x".into()] {
        let answer = extended.ask(json!({"type": "hello", "token": foreign})).await;
        assert_eq!(answer["code"], "bad_token");
    }
    extended.ask_for("ok", json!({"type": "hello", "token": token("alice", 60)})).await;
    left_alone.expect("closing").await;
    left_alone.expect_close(4001).await;
    extended.ask_for("pong", json!({"type": "ping"})).await;
}

#[tokio::test]
async fn who_never_stops_talking_does_not_outlive_their_token() {
    let server = with_tokens(&[]).await;
    let hello = format!("{{\"type\":\"hello\",\"token\":\"{}\"}}", token("alice", ALMOST_OVER));
    let mut raw = Raw::open(server.addr()).await;
    raw.write(request(server.addr(), "/ws", &[]).as_bytes()).await;
    raw.head().await;
    raw.write(&frame(TEXT, hello.as_bytes())).await;
    let (mut read, mut write) = raw.into_stream().into_split();
    // Pings cost a client little, and keep a server that reads first reading.
    let flood = frame(TEXT, b"{\"type\":\"ack\"}").repeat(1000);
    let flood =
        tokio::spawn(async move { while tokio::io::AsyncWriteExt::write_all(&mut write, &flood).await.is_ok() {} });
    tokio::io::copy(&mut read, &mut tokio::io::sink()).await.ok();
    flood.await.unwrap();
    server.until_metric("minichat_closes_total{reason=\"unauthenticated\"}", |count| count == 1).await;
}

#[tokio::test]
async fn neither_tokens_nor_messages_get_into_the_log_at_any_level() {
    let server = with_tokens(&["--log=trace"]).await;
    let (good, bad) = (token("alice", 60), token("alice", -60));
    for token in [&good, &bad] {
        let header = format!("Bearer {token}");
        let _ = Client::open(&url(&server, ""), &[("Authorization", &header)]).await;
        let _ = Client::open(&url(&server, &format!("?token={token}")), &[]).await;
        let mut client = Client::open(&url(&server, ""), &[]).await.unwrap();
        client.send_frame(json!({"type": "hello", "token": token})).await;
        client.next_frame().await;
    }
    let mut alice = Client::connect_with(&url(&server, ""), &[], json!({"token": good})).await;
    alice.ask(json!({"type": "hello", "token": bad})).await;
    alice.create("team", &[]).await;
    alice.say("team", "whispered").await;
    alice.ask(json!({"type": "signal", "room": "team", "body": "whispered"})).await;
    alice.send_frame(json!({"type": "send", "cid": "c", "room": "team", "body": "whispered", "to": "x"})).await;
    alice.close().await;
    server.until_logged(&["session ended"]).await;
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    for secret in [good.rsplit('.').next().unwrap(), bad.rsplit('.').next().unwrap(), "whispered", super::SECRET] {
        for line in server.log_lines() {
            assert!(!line.contains(secret) && !line.contains(&hex(secret)), "{line}");
        }
    }
}

#[tokio::test]
async fn cursors_may_come_in_several_hellos_and_welcome_follows_the_last() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    for room in ["one", "two"] {
        alice.create(room, &["bob"]).await;
        super::fill(&mut alice, room, 3, |index| json!(index)).await;
    }
    let mut bob = Client::open(&server.ws_url("bob"), &[]).await.unwrap();
    bob.send_frame(json!({"type": "hello", "cursors": {"one": 3}, "more": true})).await;
    bob.send_frame(json!({"type": "hello", "cursors": {"none": 3}, "more": true})).await;
    bob.send_frame(json!({"type": "hello", "cursors": {"two": 2}})).await;
    assert_eq!(bob.next_frame().await["type"], "welcome");
    for _ in 0..3 {
        bob.expect("message").await;
    }
    assert_eq!((bob.seqs("one"), bob.seqs("two")), (vec![4], vec![3, 4]));
    let mut carol = Client::open(&server.ws_url("carol"), &[]).await.unwrap();
    carol.send_frame(json!({"type": "hello", "more": true})).await;
    carol.send_frame(json!({"type": "ping"})).await;
    carol.expect_close(1002).await;
}

#[tokio::test]
async fn pages_of_others_and_names_of_others_are_refused() {
    let server = Server::start(&[]).await;
    let own = format!("http://{}", server.addr());
    for (headers, expected) in [
        (&[("Origin", own.as_str())][..], "101"),
        (&[("Origin", "http://evil.example")], "403"),
        (&[("Origin", "null")], "403"),
        (&[("Origin", own.as_str()), ("Origin", own.as_str())], "403"),
        (&[("Host", "evil.example")], "403"),
        (&[("Host", "evil.example"), ("Origin", "http://evil.example")], "403"),
        (&[("Host", "localhost")], "101"),
    ] {
        assert_eq!(status(&server, "/ws?user=alice", headers).await, expected, "{headers:?}");
    }
    assert_eq!(server.metric("minichat_closes_total{reason=\"forbidden\"}").await, 0);
}

#[tokio::test]
async fn a_compression_that_is_offered_is_not_taken() {
    let server = Server::start(&[]).await;
    let mut raw = Raw::open(server.addr()).await;
    let offer = [("Sec-WebSocket-Extensions", "permessage-deflate"), ("Sec-WebSocket-Protocol", "bearer.x")];
    raw.write(request(server.addr(), "/ws?user=alice", &offer).as_bytes()).await;
    let head = raw.head().await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(!head.contains("sec-websocket-extensions") && !head.contains("bearer"), "{head}");
}

#[tokio::test]
async fn what_comes_in_one_piece_with_the_request_is_not_lost() {
    let server = Server::start(&[]).await;
    let mut raw = Raw::open(server.addr()).await;
    let mut bytes = request(server.addr(), "/ws?user=alice", &[]).into_bytes();
    bytes.extend(frame(TEXT, b"{\"type\":\"hello\"}"));
    bytes.extend(frame(TEXT, b"{\"type\":\"ping\",\"cid\":\"7\"}"));
    raw.write(&bytes).await;
    raw.head().await;
    raw.text_with("welcome").await;
    raw.text_with("\"cid\":\"7\"").await;
}

#[tokio::test]
async fn what_comes_with_the_request_is_taken_in_order_even_if_it_is_much() {
    const PINGS: usize = 1_000;
    let server = Server::start(&[]).await;
    let mut raw = Raw::open(server.addr()).await;
    let mut bytes = request(server.addr(), "/ws?user=alice", &[]).into_bytes();
    bytes.extend(frame(TEXT, b"{\"type\":\"hello\"}"));
    for cid in 0..PINGS {
        bytes.extend(frame(TEXT, format!("{{\"type\":\"ping\",\"cid\":\"{cid}\"}}").as_bytes()));
    }
    raw.write(&bytes).await;
    raw.head().await;
    raw.text_with("welcome").await;
    for cid in 0..PINGS {
        let pong = raw.text_with("pong").await;
        assert!(pong.contains(&format!("\"cid\":\"{cid}\"")), "{pong} in place of {cid}");
    }
}

#[tokio::test]
async fn a_user_name_in_the_url_may_have_any_letter() {
    let server = Server::start(&[]).await;
    for name in ["a&b=c", "{x}", "Zoë 😀", "a*?[b", "日本"] {
        let client = Client::connect(&server, name).await;
        assert_eq!(client.welcome["user"], name);
    }
    for name in ["", "a\u{7}b", &"x".repeat(129)] {
        let query = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let mut client = Client::open(&url(&server, &format!("?user={query}")), &[]).await.unwrap();
        client.expect_close(4001).await;
    }
}
