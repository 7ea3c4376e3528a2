//! What a phone is sent.

use serde::Deserialize;
use serde_json::json;

use super::super::key::{idempotency, tag};
use crate::store::Push;

/// What stands for a message whose text is not shown, or that has none.
const NO_TEXT: &str = "New message";

/// The most letters of a title or a text: a phone shows fewer, and a message must stay below 4096 bytes with the rest.
const MOST_LETTERS: usize = 200;

/// The message for a device. A repeat has the same tag, so that the phone shows it in place of the first.
///
/// The keys of `data` are ours to choose, except for a few: `from` is one that Firebase keeps for itself.
pub(super) fn encode(push: &Push, preview: bool) -> String {
    let tag = tag(push);
    let title = shortened(push.room_name.as_deref().unwrap_or(push.from.as_str()));
    let body = if preview { text(&push.body) } else { None };
    let message = json!({
        "token": push.token,
        "notification": { "title": title, "body": body.unwrap_or_else(|| NO_TEXT.into()) },
        "data": {
            "key": idempotency(push),
            "message": push.message,
            "room": push.room,
            "seq": push.seq.to_string(),
            "sender": push.from,
        },
        "android": { "priority": "HIGH", "collapse_key": tag, "notification": { "tag": tag } },
        "apns": { "headers": { "apns-collapse-id": tag } },
        "webpush": { "notification": { "tag": tag } },
    });
    json!({ "message": message }).to_string()
}

/// The text of a body: it is a string, or has one under `text`, as the demo page writes it.
fn text(body: &str) -> Option<String> {
    // The rest is passed over and not read: a body may hold numbers that no type here can.
    #[derive(Deserialize)]
    struct Object {
        text: String,
    }

    let text = serde_json::from_str(body).or_else(|_| serde_json::from_str(body).map(|Object { text }| text)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| shortened(text))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::super::verdict::tests::push;
    use super::*;
    use crate::store::PushKind;

    fn fcm() -> Push {
        Push { kind: PushKind::Fcm, token: "t".into(), body: "{\"n\":1e400,\"text\":\" See you \"}".into(), ..push() }
    }

    fn message(push: &Push, preview: bool) -> Value {
        let shown: Value = serde_json::from_str(&encode(push, preview)).unwrap();
        shown["message"].clone()
    }

    #[test]
    fn a_text_is_shown_only_when_asked() {
        assert_eq!(message(&fcm(), true)["notification"], json!({ "title": "bob", "body": "See you" }));
        let named = Push { room_name: Some("The team".into()), ..fcm() };
        assert_eq!(message(&named, false)["notification"], json!({ "title": "The team", "body": "New message" }));
        assert!(!encode(&named, false).contains("See you"));
    }

    #[test]
    fn a_text_is_found_in_a_string_or_under_text_and_is_not_long() {
        assert_eq!(text("\"hi\"").as_deref(), Some("hi"));
        assert_eq!(text("{\"text\":7}"), None);
        assert_eq!(text("[1]"), None);
        assert_eq!(text("\"  \""), None);
        let long = text(&json!("ü".repeat(300)).to_string()).unwrap();
        assert_eq!(long.chars().count(), MOST_LETTERS + 1);
    }

    #[test]
    fn all_tags_are_one_and_all_data_are_strings_under_keys_that_are_free() {
        let message = message(&fcm(), false);
        let tag = &message["android"]["collapse_key"];
        assert_eq!(&message["android"]["notification"]["tag"], tag);
        assert_eq!(&message["apns"]["headers"]["apns-collapse-id"], tag);
        assert_eq!(&message["webpush"]["notification"]["tag"], tag);
        let data = message["data"].as_object().unwrap();
        assert!(data.values().all(Value::is_string));
        let reserved = |key: &str| key == "from" || key == "message_type" || key.starts_with("g");
        assert!(!data.keys().any(|key| reserved(key)));
    }

    #[test]
    fn the_largest_message_is_within_the_limit() {
        let long = "\u{1F600}".repeat(300);
        let names = "ü".repeat(64);
        let push = Push {
            user: names.parse().unwrap(),
            from: names.parse().unwrap(),
            room: "r".repeat(64).parse().unwrap(),
            room_name: Some(long.clone()),
            body: json!(long).to_string().into(),
            ..fcm()
        };
        assert!(encode(&push, true).len() < 4096);
    }
}
