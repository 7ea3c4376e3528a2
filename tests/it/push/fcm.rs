//! Firebase Cloud Messaging.

use minichat::ids::DeviceId;
use minichat::store::PushKind;
use serde_json::{Value, json};

use super::{Bench, config, decide, distinct, make_room, push_to_alice, say, to_webhook, user};
use crate::support::google::{Google, problem};
use crate::support::target::{Reply, Target};
use crate::support::wait::eventually;

const FCM: &[PushKind] = &[PushKind::Fcm];

/// A bench with alice, her phone, and a Google.
async fn with_phone() -> (Bench, Google) {
    let (bench, google) = (Bench::new().await, Google::start().await);
    make_room(&bench.store, &["alice"], None).await;
    register(&bench, "phone").await;
    (bench, google)
}

async fn register(bench: &Bench, token: &str) {
    let device: DeviceId = token.parse().unwrap();
    bench.store.register_token(&user("alice"), Some(&device), "fcm", token).await.unwrap();
}

fn texts<'a>(messages: &'a [Value], pointer: &str) -> Vec<&'a str> {
    messages.iter().map(|message| message.pointer(pointer).and_then(Value::as_str).unwrap()).collect()
}

#[tokio::test]
async fn each_device_gets_one_message_with_a_key_of_its_own_and_the_same_tag() {
    let (bench, google) = with_phone().await;
    register(&bench, "tablet").await;
    let (seq, id) = push_to_alice(&bench.store, FCM).await;
    bench.start(&config(&google.flags()));
    bench.until("fcm", "sent", 2).await;
    let messages = google.until_taken(2).await;
    assert_eq!(messages.len(), 2);
    assert_eq!(distinct(texts(&messages, "/token")), 2);
    assert_eq!(distinct(texts(&messages, "/data/key")), 2);
    assert_eq!(distinct(texts(&messages, "/android/notification/tag")), 1);
    let first = &messages[0];
    assert_eq!(first["notification"], json!({ "title": "bob", "body": "New message" }));
    let data = json!({ "key": first["data"]["key"], "message": id.to_string(), "room": "team", "seq": seq.to_string(), "sender": "bob" });
    assert_eq!(first["data"], data);
}

#[tokio::test]
async fn one_access_token_serves_many_messages() {
    let (bench, google) = with_phone().await;
    let names: Vec<String> = (0..40).map(|number| format!("user{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        bench.store.register_token(&user(name), None, "fcm", &format!("phone of {name}")).await.unwrap();
    }
    let id = super::fresh();
    let members = names.iter().map(|name| user(name)).collect();
    let add = minichat::store::Change::Add(members);
    bench.store.change(&super::room(), &user("bob"), &add, id).await.unwrap();
    let (seq, _) = say(&bench.store, "\"hi\"").await;
    decide(&bench.store, &names, seq, FCM).await;
    bench.start(&config(&google.flags()));
    bench.until("fcm", "sent", 40).await;
    assert_eq!((google.given(), google.messages().len()), (1, 40));
}

#[tokio::test]
async fn an_access_token_that_is_refused_is_replaced_once() {
    let (bench, google) = with_phone().await;
    bench.start(&config(&google.flags()));
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "sent", 1).await;
    google.revoke();
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "sent", 2).await;
    let statuses: Vec<u16> = google.messages().iter().map(|call| call.status).collect();
    assert_eq!((google.given(), statuses), (2, vec![200, 401, 200]));
    assert_eq!(bench.count("fcm", "retried"), 0);
}

#[tokio::test]
async fn a_fresh_access_token_that_is_refused_too_is_no_reason_to_ask_for_more() {
    let (bench, google) = with_phone().await;
    google.refuse_all(true);
    push_to_alice(&bench.store, FCM).await;
    bench.start(&config(&google.flags()));
    bench.until("fcm", "retried", 1).await;
    assert_eq!((google.given(), google.messages().len()), (2, 2));
    assert!(bench.store.dead_pushes(0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_device_that_is_gone_is_forgotten_and_the_others_are_not() {
    let (bench, google) = with_phone().await;
    register(&bench, "tablet").await;
    google.unregister("phone");
    bench.start(&config(&google.flags()));
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "unregistered", 1).await;
    bench.until("fcm", "sent", 1).await;
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "sent", 2).await;
    let mut tokens: Vec<String> =
        google.messages().iter().map(|call| call.json()["message"]["token"].to_string()).collect();
    tokens.sort();
    assert_eq!(tokens, ["\"phone\"", "\"tablet\"", "\"tablet\""]);
}

#[tokio::test]
async fn a_quota_that_is_used_up_stops_all_messages_for_a_while_and_costs_no_try() {
    let (bench, google) = with_phone().await;
    let target = Target::answering([]).await;
    google.reply("phone", [problem(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")]);
    bench.start(&config(&[google.flags().to_vec(), to_webhook(&target)].concat()));
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "retried", 1).await;
    // The webhook goes on: by the time it has these, the phone would have had them too.
    for count in 1..=3 {
        push_to_alice(&bench.store, &[PushKind::Fcm, PushKind::Webhook]).await;
        bench.until("webhook", "sent", count).await;
    }
    assert_eq!(google.messages().len(), 1);
}

#[tokio::test]
async fn messages_go_on_after_the_time_that_the_quota_asks_for() {
    let (bench, google) = with_phone().await;
    google.reply("phone", [problem(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED").with("retry-after", "1")]);
    push_to_alice(&bench.store, FCM).await;
    bench.start(&config(&google.flags()));
    bench.until("fcm", "sent", 1).await;
    assert_eq!((bench.count("fcm", "retried"), google.messages().len()), (1, 2));
}

#[tokio::test]
async fn a_repeat_has_the_key_and_the_tag_of_the_first() {
    let (bench, google) = with_phone().await;
    let away = || problem(503, "UNAVAILABLE", "UNAVAILABLE").with("retry-after", "0");
    google.reply("phone", [away(), problem(500, "INTERNAL", "INTERNAL")]);
    push_to_alice(&bench.store, FCM).await;
    bench.start(&config(&google.flags()));
    bench.until("fcm", "sent", 1).await;
    let messages: Vec<Value> = google.messages().iter().map(|call| call.json()["message"].clone()).collect();
    assert_eq!(messages.len(), 3);
    for pointer in ["/data/key", "/android/collapse_key", "/apns/headers/apns-collapse-id", "/webpush/notification/tag"]
    {
        assert_eq!(distinct(texts(&messages, pointer)), 1, "{pointer}");
    }
}

#[tokio::test]
async fn what_will_never_be_taken_is_a_dead_letter_that_says_what_to_do() {
    let (bench, google) = with_phone().await;
    let cases = [
        (problem(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), "FCM answers 400 INVALID_ARGUMENT"),
        (problem(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), "another Firebase project"),
        (problem(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"), "APNs key"),
        (Reply::status(404), "FCM answers 404 Not Found"),
    ];
    google.reply("phone", cases.iter().map(|(reply, _)| reply.clone()));
    bench.start(&config(&google.flags()));
    let mut last = 0;
    for (_, reason) in cases {
        push_to_alice(&bench.store, FCM).await;
        let dead = eventually("a dead letter", async || bench.store.dead_pushes(last, 10).await.unwrap().pop()).await;
        assert!(dead.reason.contains(reason), "{}", dead.reason);
        last = dead.id;
    }
    // The device is still known.
    push_to_alice(&bench.store, FCM).await;
    bench.until("fcm", "sent", 1).await;
    assert_eq!(google.given(), 1);
}

#[tokio::test]
async fn a_text_is_shown_only_when_asked() {
    let (bench, google) = with_phone().await;
    push_to_alice(&bench.store, FCM).await;
    bench.start(&config(&[google.flags().to_vec(), vec!["--push-preview".into()]].concat()));
    let messages = google.until_taken(1).await;
    assert_eq!(messages[0]["notification"]["body"], "the cat sat");
}
