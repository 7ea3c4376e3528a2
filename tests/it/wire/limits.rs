//! More clients than there is room for, and clients that come only to take room.

use std::process::Command;

use serde_json::json;

use super::raw::{Raw, request};
use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::wait::eventually;

async fn try_head(server: &Server) -> String {
    let mut raw = Raw::open(server.addr()).await;
    raw.write(request(server.addr(), "/ws?user=late", &[]).as_bytes()).await;
    raw.head().await
}

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

fn threads(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count()
}

#[tokio::test]
async fn past_the_most_connections_the_answer_is_503_until_one_leaves() {
    let server = Server::start(&["--max-connections=3"]).await;
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        clients.push(Client::connect(&server, name).await);
    }
    let head = try_head(&server).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: "), "{head}");
    clients.pop().unwrap().drop_hard();
    eventually("a place", async || try_head(&server).await.contains(" 101 ").then_some(())).await;
    for client in &mut clients {
        client.ask_for("pong", json!({"type": "ping"})).await;
    }
}

#[tokio::test]
async fn connections_that_never_ask_for_anything_are_ended_and_take_nobodys_place() {
    let server = Server::start(&["--max-connections=100"]).await;
    let mut idle = Vec::new();
    for index in 0..150 {
        let mut raw = Raw::open(server.addr()).await;
        if index % 2 == 0 {
            raw.write(b"GET /ws?user=slow HTTP/1.1\r\nHost: ").await;
        }
        idle.push(raw);
    }
    let mut client = Client::connect(&server, "alice").await;
    for raw in &mut idle {
        // An answer, such as 408, may come before the end.
        while raw.fill(4096).await {}
    }
    client.ask_for("pong", json!({"type": "ping"})).await;
}

#[tokio::test]
async fn a_server_that_ran_out_of_files_takes_clients_again_when_it_has_some() {
    let server = Server::start(&[]).await;
    let files = format!("--nofile={0}:{0}", open_files(&server) + 10);
    let pid = server.pid().to_string();
    let done = Command::new("prlimit").args(["--pid", &pid, &files]).status();
    assert!(done.is_ok_and(|status| status.success()), "this test needs prlimit: install util-linux");
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(Raw::open(server.addr()).await);
    }
    server.until_logged(&["cannot accept a connection yet"]).await;
    drop(waiting);
    let mut client = Client::connect(&server, "alice").await;
    client.ask_for("pong", json!({"type": "ping"})).await;
    client.create("team", &[]).await;
}

#[tokio::test]
async fn two_thousand_comings_and_goings_leave_nothing_behind() {
    // Nobody reads what comes for bob meanwhile, pings included.
    let server = Server::start(&["--log=warn", "--ping-interval=5m"]).await;
    let mut bob = Client::connect(&server, "bob").await;
    bob.create("team", &["alice"]).await;
    // What is opened on first use.
    come_and_go(&server, 2).await;
    let (files, threads_before) = (open_files(&server), threads(&server));
    come_and_go(&server, 38).await;
    server.until_metric("minichat_connections", |open| open == 1).await;
    assert_eq!(server.metric("minichat_connects_total").await, 2001);
    // A look at the metrics has a connection of its own.
    eventually("the files to be closed", async || (open_files(&server) <= files + 2).then_some(())).await;
    assert!(threads(&server) <= threads_before + 2);
    bob.say("team", "hello").await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.expect_body("hello").await;
}

/// Connects fifty clients at once, so many times; some leave politely, some do not.
async fn come_and_go(server: &Server, rounds: usize) {
    for round in 0..rounds {
        let comings = (0..50).map(|index| async move {
            let client = Client::connect_as(server, "alice", json!({"cursors": {"team": 1}})).await;
            match (index + round) % 3 {
                0 => client.close().await,
                1 => client.drop_hard(),
                _ => drop(client),
            }
        });
        futures_util::future::join_all(comings).await;
    }
    server.until_metric("minichat_connections", |open| open == 1).await;
}

#[tokio::test]
async fn a_server_that_stops_tells_everyone_and_waits_for_nobody_for_ever() {
    let server = Server::start(&["--drain=5s", "--write-timeout=60s"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    let stuck = Raw::open_small(server.addr()).await.begin(server.addr(), "carol", "{\"type\":\"hello\"}").await;
    alice.create("team", &["bob", "carol"]).await;
    super::fill(&mut alice, "team", 300, |_| json!("x".repeat(10_000))).await;
    let silent = Raw::open(server.addr()).await;
    let nobody = Raw::open(server.addr()).await.upgrade(server.addr(), "dave").await;
    server.signal(crate::support::server::Signal::Term);
    for client in [&mut alice, &mut bob] {
        let closing = client.expect("closing").await;
        assert!(closing["reconnect_after_ms"].is_u64(), "{closing}");
        client.expect_close(1001).await;
    }
    assert_eq!(server.wait_exit().await, Some(0));
    drop((stuck, silent, nobody));
}
