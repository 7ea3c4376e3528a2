//! What is sent without waiting is answered once and in order, and a flood harms nobody but itself.

use std::collections::HashMap;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::client::Client;
use crate::support::server::Server;

#[tokio::test]
async fn what_is_sent_without_waiting_is_answered_and_delivered_in_that_order() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    alice.create("team", &["bob"]).await;
    let mut cids = Vec::new();
    for index in 0..500 {
        cids.push(alice.send("team", index).await);
    }
    alice.expect_sent(cids.last().unwrap()).await;
    bob.expect_body(499).await;
    let sent: Vec<_> = alice.heard("team").iter().skip(1).map(|frame| frame["cid"].as_str().unwrap()).collect();
    assert_eq!(sent, cids);
    assert_eq!(alice.seqs("team"), (1..=501).collect::<Vec<_>>());
    assert_eq!(bob.seqs("team"), (1..=501).collect::<Vec<_>>());
    let bodies = bob.heard("team").iter().skip(1).map(|frame| frame["body"].as_u64().unwrap());
    assert!(bodies.eq(0..500));
}

#[tokio::test]
async fn small_messages_do_not_overtake_a_large_one() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    alice.create("team", &["bob"]).await;
    for round in 0..10 {
        alice.send("team", "x".repeat(16_000)).await;
        for index in 0..20 {
            alice.send("team", format!("{round} {index}")).await;
        }
    }
    bob.expect_body("9 19").await;
    bob.assert_in_order("team");
    let small = bob.heard("team").iter().filter_map(|frame| frame["body"].as_str()).filter(|body| body.len() < 100);
    let expected = (0..10).flat_map(|round| (0..20).map(move |index| format!("{round} {index}")));
    assert!(small.eq(expected));
}

#[tokio::test]
async fn a_burst_larger_than_its_queue_costs_a_client_nothing() {
    // The others read only once all is sent.
    let server = Server::start(&["--queue-bytes=65536", "--write-timeout=5m"]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let mut bob = Client::connect(&server, "bob").await;
    let mut laptop = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    let body = |index: usize| json!(format!("{index} {}", "x".repeat(12_000)));
    super::fill(&mut alice, "team", 300, body).await;
    for client in [&mut bob, &mut laptop] {
        client.expect_body(body(299)).await;
    }
    for client in [&alice, &bob, &laptop] {
        assert_eq!(client.seqs("team"), (1..=301).collect::<Vec<_>>());
    }
    assert_eq!(alice.heard("team").iter().filter(|frame| frame["type"] == "sent").count(), 300);
    assert_eq!(server.metric("minichat_closes_total{reason=\"slow\"}").await, 0);
}

#[tokio::test]
async fn a_flood_is_answered_exactly_once_each_and_all_that_was_taken_is_stored_in_order() {
    const FLOOD: usize = 10_000;
    // Bob reads only once all is answered.
    let server = Server::start(&["--write-timeout=5m"]).await;
    let mut bob = Client::connect(&server, "bob").await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &["bob"]).await;
    alice.close().await;
    let (socket, _) = connect_async(server.ws_url("alice")).await.unwrap();
    let (mut write, read) = socket.split();
    let flood = tokio::spawn(async move {
        write.feed(Message::text("{\"type\":\"hello\",\"cursors\":{\"team\":1}}")).await.unwrap();
        for index in 0..FLOOD {
            let frame = json!({"type": "send", "cid": index.to_string(), "room": "team", "body": index});
            write.feed(Message::text(frame.to_string())).await.unwrap();
        }
        write.flush().await.unwrap();
        write
    });
    let answers = answers(read, FLOOD).await;
    drop(flood.await.unwrap());
    let sent: Vec<_> = answers.iter().filter(|answer| answer["type"] == "sent").collect();
    let busy = answers.iter().filter(|answer| answer["code"] == "busy" && answer["retry_after_ms"].is_u64()).count();
    assert_eq!(sent.len() + busy, FLOOD);
    let seqs: Vec<_> = sent.iter().map(|answer| answer["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (2..sent.len() as u64 + 2).collect::<Vec<_>>());
    let last = sent.last().unwrap()["cid"].as_str().unwrap().parse::<usize>().unwrap();
    bob.expect_body(last).await;
    let stored = bob.heard("team").iter().skip(1).map(|frame| frame["body"].to_string());
    assert!(stored.eq(sent.iter().map(|answer| answer["cid"].as_str().unwrap().to_owned())));
}

/// Reads until each cid has its answer, and checks that none has two.
async fn answers(
    mut read: impl StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
    count: usize,
) -> Vec<Value> {
    let mut answers = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    while answers.len() < count {
        let Message::Text(text) = read.next().await.unwrap().unwrap() else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if let Some(cid) = frame["cid"].as_str() {
            *times.entry(cid.to_owned()).or_default() += 1;
            answers.push(frame);
        } else {
            assert_eq!(frame["type"], "welcome", "{frame}");
        }
    }
    assert_eq!(times.len(), count);
    answers
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_another_use_of_its_mark_none() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &[]).await;
    alice.send_with("one", "team", "first").await;
    let first = alice.expect_sent("one").await;
    alice.send_with("one", "team", "first").await;
    assert_eq!(alice.expect_sent("one").await, first);
    alice.send_with("one", "team", "second").await;
    alice.expect_error("cid_reused").await;
    let mut again = Client::connect(&server, "alice").await;
    again.send_with("one", "team", "first").await;
    assert_eq!(again.expect_sent("one").await, first);
    assert_eq!(again.history("team", 1).await.len(), 1);
}
