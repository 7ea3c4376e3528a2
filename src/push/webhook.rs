//! Pushes to the application's own backend: a signed POST each.

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::Sha256;

use super::Error;
use super::call::{Answer, call, client};
use super::key::{hex, idempotency};
use super::verdict::Verdict;
use crate::clock::unix_ms;
use crate::config::{self, SecretUrl};
use crate::ids::{MessageId, RoomId, UserId};
use crate::store::Push;

/// What is posted.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "push")]
struct Posted<'a> {
    key: &'a str,
    user: &'a UserId,
    message: Message<'a>,
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    id: MessageId,
    room: &'a RoomId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    seq: u64,
    from: &'a UserId,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
}

/// The application's own backend.
pub(super) struct Webhook {
    client: Client,
    url: SecretUrl,
    signing: Hmac<Sha256>,
    preview: bool,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Makes the client for it.
    pub(super) fn new(config: &config::Webhook, preview: bool) -> Result<Self, Error> {
        let signing = Hmac::new_from_slice(config.secret.expose()).map_err(|error| Error::Client(error.to_string()))?;
        Ok(Self { client: client(&[config.url.expose()])?, url: config.url.clone(), signing, preview })
    }

    /// Tries once to make a push.
    pub(super) async fn send(&self, push: &Push) -> Verdict {
        let key = idempotency(push);
        let body = match encode(push, &key, self.preview) {
            Ok(body) => body,
            Err(error) => return Verdict::Refused { reason: format!("it cannot be written: {error}") },
        };
        // Of this try: a receiver refuses what is old.
        let timestamp = (unix_ms() / 1000).to_string();
        let request = self
            .client
            .post(self.url.expose().clone())
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", key)
            .header("X-Minichat-Signature", format!("v1={}", self.sign(&timestamp, &body)))
            .header("X-Minichat-Timestamp", timestamp)
            .body(body);
        match call(request).await {
            Ok(answer) => judge(&answer),
            Err(reason) => Verdict::Failed { reason, wait: None },
        }
    }

    fn sign(&self, timestamp: &str, body: &str) -> String {
        let signing = self.signing.clone().chain_update(timestamp).chain_update(".").chain_update(body);
        hex(&signing.finalize().into_bytes())
    }
}

fn encode(push: &Push, key: &str, preview: bool) -> serde_json::Result<String> {
    let message = Message {
        id: push.message,
        room: &push.room,
        name: push.room_name.as_deref(),
        seq: push.seq,
        from: &push.from,
        at: push.at,
        body: preview.then(|| serde_json::from_str(&push.body)).transpose()?,
    };
    serde_json::to_string(&Posted { key, user: &push.user, message })
}

/// What an answer means: what is wrong for now is tried again, what is wrong with the push itself is not.
fn judge(answer: &Answer) -> Verdict {
    let reason = format!("the webhook answers {}", answer.status);
    match answer.status {
        status if status.is_success() => Verdict::Delivered,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Verdict::Failed { reason, wait: answer.retry_after }
        }
        status if status.is_server_error() => Verdict::Failed { reason, wait: answer.retry_after },
        _ => Verdict::Refused { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::push;
    use super::*;
    use crate::config::Secret;

    #[test]
    fn a_body_leaves_only_when_asked_and_to_the_letter() {
        let shown = encode(&Push { room_name: Some("The team".into()), ..push() }, "k", true).unwrap();
        assert_eq!(
            shown,
            r#"{"type":"push","key":"k","user":"alice","message":{"id":"7163482910221234","room":"team","name":"The team","seq":7,"from":"bob","at":1767225600000,"body":{"text":"hi","n":1e400}}}"#
        );
        let hidden = encode(&push(), "k", false).unwrap();
        assert!(!hidden.contains("hi") && hidden.contains("\"from\":\"bob\""), "{hidden}");
    }

    fn webhook() -> Webhook {
        let url = SecretUrl::new("http://localhost/push".parse().unwrap());
        let secret = Secret::new("0123456789abcdef0123456789abcdef");
        Webhook::new(&config::Webhook { url, secret }, false).unwrap()
    }

    #[test]
    fn a_signature_is_the_one_that_others_compute() {
        assert_eq!(
            webhook().sign("1767225600", "{}"),
            "b7be7938951cd5456a1e6101d62f960010ae1a7b79450661c6af410ba2d5f546"
        );
    }

    #[test]
    fn the_example_in_the_document_has_the_signature_that_it_shows() {
        let page = include_str!("../../docs/push.md");
        let header = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let body = page.lines().find(|line| line.starts_with("{\"type\":\"push\"")).unwrap();
        let signature = webhook().sign(header("X-Minichat-Timestamp: "), body);
        assert_eq!(header("X-Minichat-Signature: "), format!("v1={signature}"));
        assert!(body.contains(&format!("\"key\":\"{}\"", header("Idempotency-Key: "))));
    }

    #[test]
    fn what_is_wrong_for_now_is_tried_again() {
        let verdict =
            |status: u16| judge(&Answer { status: status.try_into().unwrap(), retry_after: None, body: Vec::new() });
        for status in [200, 202, 204] {
            assert_eq!(verdict(status), Verdict::Delivered);
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(verdict(status), Verdict::Failed { .. }), "{status}");
        }
        for status in [301, 302, 307, 400, 401, 404, 410, 413] {
            assert!(matches!(verdict(status), Verdict::Refused { .. }), "{status}");
        }
    }
}
