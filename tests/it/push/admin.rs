//! Dead letters, as an operator meets them: a real server, on its admin port.

use minichat::store::PushKind;
use serde_json::{Value, json};

use super::{BODY, SECRET, make_room, open, push_to_alice, to_webhook, user};
use crate::support::google::{Google, PROJECT, problem};
use crate::support::postgres::Postgres;
use crate::support::server::{Server, Signal};
use crate::support::target::{Reply, Target};
use crate::support::wait::eventually;

/// A server with a dead letter, and the webhook that refused it.
async fn with_dead_letter() -> (Server, Target, Value) {
    let database = Postgres::shared().fresh_database().await;
    let store = open(&database).await;
    make_room(&store, &["alice"], None).await;
    push_to_alice(&store, &[PushKind::Webhook]).await;
    let target = Target::start(|_| Reply::status(400)).await;
    let flags = [to_webhook(&target), vec![format!("--database={database}")]].concat();
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let dead = eventually("a dead letter", async || dead(&server, "").await.pop()).await;
    (server, target, dead)
}

async fn dead(server: &Server, query: &str) -> Vec<Value> {
    let (status, text) = server.admin(&format!("/pushes/dead{query}")).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn replay(server: &Server, body: &str) -> (u16, String) {
    server.ask_admin(|client, base| client.post(base + "/pushes/dead/replay").body(body.to_owned())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_and_replayed_under_the_same_key() {
    let (server, target, letter) = with_dead_letter().await;
    assert_eq!(letter["reason"], "the webhook answers 400 Bad Request");
    assert_eq!(
        (&letter["kind"], &letter["user"], &letter["room"]),
        (&json!("webhook"), &json!("alice"), &json!("team"))
    );
    assert!(letter["message"].is_string() && letter["seq"] == 2 && letter["tries"] == 1, "{letter}");
    assert!(dead(&server, &format!("?after={}&limit=5", letter["id"])).await.is_empty());
    target.answer(|_| Reply::status(200));
    let (status, text) = replay(&server, &format!("{{\"ids\":[{}]}}", letter["id"])).await;
    assert_eq!((status, &*text), (200, "{\"replayed\":1}"));
    let calls = target.until_calls(2).await;
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    server.until_metric("minichat_pushes_total{kind=\"webhook\",outcome=\"sent\"}", |count| count == 1).await;
    assert!(dead(&server, "").await.is_empty());
    assert_eq!(replay(&server, "{\"all\":true}").await, (200, "{\"replayed\":0}".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_can_neither_read_nor_replay() {
    let (server, target, _) = with_dead_letter().await;
    for (header, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-origin"),
        // A name of a stranger that was bound to our address.
        ("host", "evil.example:9600"),
    ] {
        let read = |client: &reqwest::Client, base: String| client.get(base + "/pushes/dead").header(header, value);
        assert_eq!(server.ask_admin(read).await.0, 403, "{header}: {value}");
        let replay = |client: &reqwest::Client, base: String| {
            client.post(base + "/pushes/dead/replay").header(header, value).body("{\"all\":true}")
        };
        assert_eq!(server.ask_admin(replay).await.0, 403, "{header}: {value}");
    }
    let by_hand =
        |client: &reqwest::Client, base: String| client.get(base + "/pushes/dead").header("sec-fetch-site", "none");
    assert_eq!(server.ask_admin(by_hand).await.0, 200);
    assert_eq!((target.calls().len(), dead(&server, "").await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_with_a_word() {
    let (server, _target, _) = with_dead_letter().await;
    for query in ["?limit=0", "?limit=1001", "?limit=x", "?after=x", "?afer=1"] {
        let (status, text) = server.admin(&format!("/pushes/dead{query}")).await;
        assert!(status == 400 && text.lines().count() == 1, "{query}: {status} {text}");
    }
    for body in
        ["", "{}", "[]", "{\"all\":false}", "{\"ids\":[1],\"all\":true}", "{\"ids\":[\"x\"]}", "{\"every\":true}"]
    {
        let (status, text) = replay(&server, body).await;
        assert!(status == 400 && text.contains("{\"all\":true}"), "{body}: {status} {text}");
    }
    assert_eq!(dead(&server, "").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_where_it_pushes_and_logs_no_secret() {
    let (google, target) = (Google::start().await, Target::answering([Reply::status(503)]).await);
    google.reply("token-of-phone", [problem(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")]);
    let database = Postgres::shared().fresh_database().await;
    let store = open(&database).await;
    make_room(&store, &["alice"], None).await;
    store.register_token(&user("alice"), None, "fcm", "token-of-phone").await.unwrap();
    push_to_alice(&store, &[PushKind::Webhook, PushKind::Fcm]).await;
    let log = "--log=trace,hyper=trace,reqwest=trace,sqlx=warn".to_owned();
    let flags = [to_webhook(&target), google.flags().to_vec(), vec![log, format!("--database={database}")]].concat();
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(server.greeting().contains(&format!("  push      webhook {}, fcm project {PROJECT}", target.url("/push"))));
    server.until_metric("minichat_pushes_total{kind=\"webhook\",outcome=\"sent\"}", |count| count == 1).await;
    server.until_metric("minichat_pushes_total{kind=\"fcm\",outcome=\"dead\"}", |count| count == 1).await;
    let account = google.account();
    let key = account["private_key"].as_str().unwrap().lines().nth(1).unwrap().to_owned();
    let log = server.log_lines().join("\n");
    assert!(log.contains("the push is given up"));
    for secret in [SECRET, "ya29.", "token-of-phone", "the cat sat", BODY, &key] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_survives_the_server_that_failed_to_make_it() {
    let database = Postgres::shared().fresh_database().await;
    let store = open(&database).await;
    make_room(&store, &["alice"], None).await;
    push_to_alice(&store, &[PushKind::Webhook]).await;
    let target = Target::start(|_| Reply::status(503).with("retry-after", "0")).await;
    let flags = [to_webhook(&target), vec![format!("--database={database}")]].concat();
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    server.until_metric("minichat_pushes_total{kind=\"webhook\",outcome=\"retried\"}", |count| count > 0).await;
    server.signal(Signal::Term);
    assert_eq!(server.wait_exit().await, Some(0));
    target.answer(|_| Reply::status(200));
    let before = target.calls().len();
    let _server = server.restart().await;
    let calls = target.until_calls(before + 1).await;
    assert_eq!(calls[before].status, 200);
    assert_eq!(super::distinct(calls.iter().map(|call| call.header("idempotency-key"))), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_wait_for_a_database_that_is_away() {
    let postgres = Postgres::start();
    let database = postgres.fresh_database().await;
    let store = open(&database).await;
    make_room(&store, &["alice"], None).await;
    push_to_alice(&store, &[PushKind::Webhook]).await;
    let target = Target::start(|_| Reply::status(503)).await;
    let flags = [to_webhook(&target), vec![format!("--database={database}")]].concat();
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    target.until_calls(1).await;
    postgres.kill();
    let away = ["no pushes can be made for now"];
    server.until_logged(&away).await;
    target.answer(|_| Reply::status(200));
    postgres.restart();
    server.until_metric("minichat_pushes_total{kind=\"webhook\",outcome=\"sent\"}", |count| count == 1).await;
    assert_eq!((server.count_logged(&away), server.count_logged(&["pushes are made again"])), (1, 1));
}
