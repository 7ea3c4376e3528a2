//! The webhook.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use minichat::store::{Position, PushKind};
use serde_json::json;
use sha2::Sha256;
use tokio::sync::Notify;

use super::{BODY, Bench, SECRET, config, distinct, make_room, push_to_alice, room, to_webhook, user};
use crate::support::google::Google;
use crate::support::proxy::Proxy;
use crate::support::target::{Call, Reply, Target};
use crate::support::wait::eventually;

const WEBHOOK: &[PushKind] = &[PushKind::Webhook];

/// Checks a request as a receiver should.
fn verify(call: &Call) {
    let signed = format!("{}.{}", call.header("x-minichat-timestamp"), call.body);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let signature = call.header("x-minichat-signature").strip_prefix("v1=").unwrap();
    let signature: Vec<u8> =
        (0..signature.len()).step_by(2).map(|at| u8::from_str_radix(&signature[at..at + 2], 16).unwrap()).collect();
    mac.verify_slice(&signature).expect("a good signature");
}

#[tokio::test]
async fn a_push_is_signed_and_says_who_and_where_and_not_what() {
    let (bench, target) = (Bench::new().await, Target::answering([]).await);
    make_room(&bench.store, &["alice"], Some("The team")).await;
    let (seq, id) = push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    let call = target.until_calls(1).await.remove(0);
    verify(&call);
    assert_eq!((call.method.as_str(), &*call.path), ("POST", "/push"));
    assert_eq!(call.header("content-type"), "application/json");
    assert_eq!(call.header("user-agent"), concat!("minichat/", env!("CARGO_PKG_VERSION")));
    let (said, key) = (call.json(), format!("{id}:alice"));
    assert_eq!(call.header("idempotency-key"), key);
    let at = &said["message"]["at"];
    assert!(at.is_u64());
    let message =
        json!({ "id": id.to_string(), "room": "team", "name": "The team", "seq": seq, "from": "bob", "at": at });
    assert_eq!(said, json!({ "type": "push", "key": key, "user": "alice", "message": message }));
    bench.until("webhook", "sent", 1).await;
}

#[tokio::test]
async fn what_was_said_leaves_only_when_asked_and_to_the_letter() {
    let (bench, target) = (Bench::new().await, Target::answering([]).await);
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&[to_webhook(&target), vec!["--push-preview".into()]].concat()));
    let call = target.until_calls(1).await.remove(0);
    verify(&call);
    assert!(call.body.contains(&format!("\"body\":{BODY}")), "{}", call.body);
    assert!(!call.body.contains("\"name\""), "{}", call.body);
}

#[tokio::test]
async fn a_push_that_fails_for_now_is_made_again_under_the_same_key() {
    let failures = [500, 429, 408].map(|status| Reply::status(status).with("retry-after", "0"));
    let (bench, target) = (Bench::new().await, Target::answering(failures).await);
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    bench.until("webhook", "sent", 1).await;
    let calls = target.calls();
    calls.iter().for_each(verify);
    assert_eq!(calls.iter().map(|call| call.status).collect::<Vec<_>>(), [500, 429, 408, 200]);
    assert_eq!(distinct(calls.iter().map(|call| call.header("idempotency-key"))), 1);
    assert_eq!(bench.count("webhook", "retried"), 3);
}

#[tokio::test]
async fn a_webhook_that_is_away_gets_the_push_when_it_is_back() {
    let (bench, target) = (Bench::new().await, Target::answering([]).await);
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    let proxy = Proxy::to(target.address()).await;
    proxy.reset();
    let url = format!("--push-webhook=http://{}/push", proxy.addr());
    bench.start(&config(&[url, format!("--push-webhook-secret={SECRET}")]));
    bench.until("webhook", "retried", 1).await;
    proxy.heal();
    bench.until("webhook", "sent", 1).await;
    target.calls().iter().for_each(verify);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_no_reason_to_give_up() {
    let bench = Bench::new().await;
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    let url = "--push-webhook=http://127.0.0.1:1/push".to_owned();
    bench.start(&config(&[url, format!("--push-webhook-secret={SECRET}")]));
    bench.until("webhook", "retried", 2).await;
    assert!(bench.store.dead_pushes(0, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_webhook_that_asks_for_time_is_given_it() {
    let replies = [Reply::status(503).with("retry-after", "3600")];
    let (bench, target) = (Bench::new().await, Target::answering(replies).await);
    make_room(&bench.store, &["alice"], None).await;
    let (_, first) = push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    bench.until("webhook", "retried", 1).await;
    // Another push is not held up. By the time that three have gone, the first would have come again.
    for count in 1..=3 {
        push_to_alice(&bench.store, WEBHOOK).await;
        bench.until("webhook", "sent", count).await;
    }
    let key = format!("{first}:alice");
    assert_eq!(target.calls().iter().filter(|call| call.header("idempotency-key") == key).count(), 1);
}

#[tokio::test]
async fn what_the_webhook_refuses_is_a_dead_letter_and_can_be_replayed() {
    let (bench, target) = (Bench::new().await, Target::answering([Reply::status(410)]).await);
    make_room(&bench.store, &["alice"], None).await;
    let (seq, message) = push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    let dead = eventually("a dead letter", async || bench.store.dead_pushes(0, 10).await.unwrap().pop()).await;
    assert_eq!((&dead.user, dead.seq, dead.message, dead.tries), (&user("alice"), seq, message, 1));
    assert_eq!(dead.reason, "the webhook answers 410 Gone");
    assert_eq!(bench.store.replay_pushes(Some(&[dead.id])).await.unwrap(), 1);
    bench.until("webhook", "sent", 1).await;
    assert_eq!(distinct(target.calls().iter().map(|call| call.header("idempotency-key"))), 1);
    assert!(bench.store.dead_pushes(0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Target::start(|_| Reply::status(307).with("location", "/elsewhere")).await;
    let bench = Bench::new().await;
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    bench.until("webhook", "dead", 1).await;
    assert!(target.calls().iter().all(|call| call.path == "/push"));
}

#[tokio::test]
async fn what_is_acknowledged_before_it_leaves_does_not_leave() {
    let (bench, target) = (Bench::new().await, Target::answering([]).await);
    make_room(&bench.store, &["alice"], None).await;
    let (seq, _) = push_to_alice(&bench.store, WEBHOOK).await;
    let position = Position { user: user("alice"), room: room(), device: None, delivered: seq, read: 0 };
    bench.store.advance(&[position]).await.unwrap();
    bench.start(&config(&to_webhook(&target)));
    bench.until("webhook", "cancelled", 1).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    bench.until("webhook", "sent", 1).await;
    assert_eq!(target.calls().len(), 1);
}

#[tokio::test]
async fn many_pushes_leave_each_once() {
    let (bench, target) = (Bench::new().await, Target::answering([]).await);
    let names: Vec<String> = (0..100).map(|number| format!("user {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    make_room(&bench.store, &names, None).await;
    let (seq, _) = super::say(&bench.store, BODY).await;
    super::decide(&bench.store, &names, seq, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    bench.until("webhook", "sent", 100).await;
    let calls = target.calls();
    assert_eq!((calls.len(), distinct(calls.iter().map(|call| call.header("idempotency-key")))), (100, 100));
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_does_not_hold_up_the_phones() {
    let (bench, google) = (Bench::new().await, Google::start().await);
    let target = Target::start(|_| Reply::never()).await;
    make_room(&bench.store, &["alice"], None).await;
    bench.store.register_token(&user("alice"), None, "fcm", "phone").await.unwrap();
    bench.start(&config(&[to_webhook(&target), google.flags().to_vec()].concat()));
    for count in 1..=3 {
        push_to_alice(&bench.store, &[PushKind::Webhook, PushKind::Fcm]).await;
        google.until_taken(count).await;
    }
    assert_eq!(bench.count("webhook", "sent"), 0);
}

#[tokio::test]
async fn what_is_on_its_way_at_the_end_is_finished() {
    let (bench, gate) = (Bench::new().await, Arc::new(Notify::new()));
    let target = Target::answering([Reply::status(200).after(&gate)]).await;
    make_room(&bench.store, &["alice"], None).await;
    push_to_alice(&bench.store, WEBHOOK).await;
    bench.start(&config(&to_webhook(&target)));
    target.until_calls(1).await;
    bench.lifecycle.stop.cancel();
    gate.notify_one();
    bench.stop().await;
    assert_eq!(bench.count("webhook", "sent"), 1);
    assert_eq!(target.calls().len(), 1);
}
