//! Clients that read slowly or not at all: they cost little, hold up nobody, and lose nothing.

use std::time::Duration;

use serde_json::json;

use super::raw::{PING, PONG, Raw, TEXT, frame};
use super::{fill, resident_kib};
use crate::support::client::Client;
use crate::support::server::Server;

#[tokio::test]
async fn who_stops_reading_is_closed_as_slow_costs_little_and_resumes_without_a_gap() {
    const COUNT: usize = 1000;
    let server = Server::start(&["--write-timeout=2s"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob", "carol"]).await;
    let carol = Client::connect(&server, "carol").await;
    // Twenty megabytes, to see what the process needs to carry that at all, the database's pages in memory included.
    let carol = fill_while_reading(&mut alice, carol, 2 * COUNT).await;
    let base = resident_kib(&server);
    let stuck = Raw::open_small(server.addr()).await.begin(server.addr(), "bob", "{\"type\":\"hello\"}").await;
    let carol = fill_while_reading(&mut alice, carol, COUNT).await;
    carol.assert_in_order("team");
    server.until_metric("minichat_closes_total{reason=\"slow\"}", |count| count == 1).await;
    assert!(resident_kib(&server) < base + 8 * 1024, "{base} {}", resident_kib(&server));
    drop(stuck);
    let mut bob = Client::connect_as(&server, "bob", json!({"cursors": {"team": 0}})).await;
    bob.expect_message(|frame| frame["seq"] == 3 * COUNT as u64 + 1).await;
    assert_eq!(bob.seqs("team"), (1..=3 * COUNT as u64 + 1).collect::<Vec<_>>());
}

/// Sends so many messages while another client reads them.
async fn fill_while_reading(client: &mut Client, mut other: Client, count: usize) -> Client {
    let reading = tokio::spawn(async move {
        other.expect_message(|frame| frame["body"].as_str().is_some_and(|body| body.starts_with("last"))).await;
        other
    });
    let body = |name: &str| json!(format!("{name} {}", "x".repeat(10_000)));
    fill(client, "team", count - 1, |index| body(&index.to_string())).await;
    client.say("team", body("last")).await;
    reading.await.unwrap()
}

#[tokio::test]
async fn who_reads_nothing_but_asks_on_is_not_answered_into_memory() {
    let server = Server::start(&["--write-timeout=2s"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &[]).await;
    fill(&mut alice, "team", 50, |_| json!("x".repeat(1000))).await;
    let base = resident_kib(&server);
    let greedy = Raw::open_small(server.addr()).await.begin(server.addr(), "alice", "{\"type\":\"hello\"}").await;
    let ask = frame(TEXT, br#"{"type":"history","room":"team","limit":50}"#).repeat(100);
    let mut stream = greedy.into_stream();
    while tokio::io::AsyncWriteExt::write_all(&mut stream, &ask).await.is_ok() {}
    server.until_metric("minichat_closes_total{reason=\"slow\"}", |count| count == 1).await;
    assert!(resident_kib(&server) < base + 16 * 1024, "{base} {}", resident_kib(&server));
    alice.ask_for("pong", json!({"type": "ping"})).await;
}

#[tokio::test]
async fn who_pings_but_does_not_read_many_small_frames_is_closed_as_slow() {
    let server = Server::start(&["--write-timeout=2s"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    let stuck = Raw::open_small(server.addr()).await.begin(server.addr(), "bob", "{\"type\":\"hello\"}").await;
    fill(&mut alice, "team", 3_000, |_| json!("x".repeat(80))).await;
    let mut stream = stuck.into_stream();
    let pings = async {
        while tokio::io::AsyncWriteExt::write_all(&mut stream, &frame(PING, b"")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = pings => {}
        () = server.until_metric("minichat_closes_total{reason=\"slow\"}", |count| count == 1) => {}
    }
}

/// How much is read at a time, and how long is waited before: far below what is written in one go.
const SLOW: (usize, Duration) = (2048, Duration::from_millis(80));

/// Reads slowly until a text has `part`, and gives how many bytes came meanwhile.
async fn read_slowly(raw: &mut Raw, part: &str) -> usize {
    let start = raw.bytes;
    loop {
        while let Some((first, payload)) = raw.take() {
            match first {
                PING => raw.write(&frame(PONG, &payload)).await,
                TEXT if String::from_utf8_lossy(&payload).contains(part) => return raw.bytes - start,
                _ => {}
            }
        }
        tokio::time::sleep(SLOW.1).await;
        assert!(raw.fill(SLOW.0).await, "ended before {part}");
    }
}

#[tokio::test]
async fn a_slow_link_gets_everything_and_its_pings_are_answered_meanwhile() {
    let server = Server::start(&["--write-timeout=2s", "--ping-interval=4s"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    fill(&mut alice, "team", 60, |index| json!(format!("{index} {}", "x".repeat(5000)))).await;
    let hello = r#"{"type":"hello","cursors":{"team":0}}"#;
    let mut bob = Raw::open_small(server.addr()).await.begin(server.addr(), "bob", hello).await;
    read_slowly(&mut bob, "\"body\":\"3 ").await;
    bob.write(&frame(TEXT, br#"{"type":"ping","cid":"now"}"#)).await;
    let waited = read_slowly(&mut bob, "\"cid\":\"now\"").await;
    assert!(waited < 96 * 1024, "the answer came after {waited} bytes");
    read_slowly(&mut bob, "\"body\":\"59 ").await;
    // One frame that takes longer than a write may wait without progress.
    bob.write(&frame(TEXT, br#"{"type":"history","cid":"all","room":"team","limit":200}"#)).await;
    let bytes = read_slowly(&mut bob, "\"cid\":\"all\"").await;
    assert!(bytes > 50_000);
    assert_eq!(server.metric("minichat_closes_total{reason=\"slow\"}").await, 0);
}
