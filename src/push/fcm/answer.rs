//! What Firebase Cloud Messaging answers, and what it means. No I/O.
//!
//! The code that counts is in the details of the error; the status beside it is coarser. Both may be missing: what stands
//! before the service answers in HTML.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;

use super::super::call::Answer;
use super::super::verdict::{Closed, Verdict};

/// How long to leave the service alone at first after a quota was used up.
const QUOTA_REST: Duration = Duration::from_secs(60);

/// How long after it refused a fresh access token.
const ACCESS_REST: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Problem,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    status: String,
    message: String,
    details: Vec<Detail>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Detail {
    error_code: String,
    field_violations: Vec<Violation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Violation {
    field: String,
}

impl Problem {
    fn of(answer: &Answer) -> Self {
        serde_json::from_slice(&answer.body).map(|body: Body| body.error).unwrap_or_default()
    }

    /// The code in the details, or the status.
    fn code(&self) -> &str {
        self.details.iter().map(|detail| &*detail.error_code).find(|code| !code.is_empty()).unwrap_or(&self.status)
    }

    /// Whether the device's token is what is wrong.
    fn names_token(&self) -> bool {
        let fields = self.details.iter().flat_map(|detail| &detail.field_violations);
        fields.into_iter().any(|violation| violation.field == "message.token")
            || self.message.contains("not a valid FCM registration token")
    }
}

/// Whether the access token is what is wrong. A missing right at Apple's or a browser's service has the same status.
pub(super) fn is_stale(answer: &Answer) -> bool {
    answer.status == StatusCode::UNAUTHORIZED && Problem::of(answer).code() != "THIRD_PARTY_AUTH_ERROR"
}

/// What an answer means.
pub(super) fn judge(answer: &Answer) -> Verdict {
    if answer.status.is_success() {
        return Verdict::Delivered;
    }
    let problem = Problem::of(answer);
    let (status, wait) = (answer.status, answer.retry_after);
    let reason = reason(status, problem.code());
    match (problem.code(), status.as_u16()) {
        ("UNREGISTERED", _) => Verdict::Unregistered,
        ("INVALID_ARGUMENT", _) if problem.names_token() => Verdict::Unregistered,
        ("THIRD_PARTY_AUTH_ERROR" | "SENDER_ID_MISMATCH", _) => Verdict::Refused { reason },
        ("QUOTA_EXCEEDED" | "RESOURCE_EXHAUSTED", _) | (_, 429) => {
            Verdict::Closed { reason, closed: wait.map_or(Closed::Unsaid(QUOTA_REST), Closed::For) }
        }
        (_, 401) => Verdict::Closed { reason, closed: Closed::Unsaid(ACCESS_REST) },
        (_, 408 | 500..=599) => Verdict::Failed { reason, wait },
        _ => Verdict::Refused { reason },
    }
}

/// One line for people. The message of the answer is left out: it may repeat what was sent.
fn reason(status: StatusCode, code: &str) -> String {
    let is_code = matches!(code.len(), 1..=64) && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let answer =
        if is_code { format!("FCM answers {} {code}", status.as_u16()) } else { format!("FCM answers {status}") };
    let hint = match code {
        "THIRD_PARTY_AUTH_ERROR" => {
            "the APNs key or the web push key in the Firebase console is missing or has ended; put it right, then replay"
        }
        "SENDER_ID_MISMATCH" => "the device is registered with another Firebase project than the one of --fcm-key-file",
        "PERMISSION_DENIED" => {
            "the service account may not send: is the FCM API enabled for the project, and does the account have the role?"
        }
        "UNAUTHENTICATED" => "a fresh access token was refused",
        _ => return answer,
    };
    format!("{answer}: {hint}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(status: u16, body: &Value) -> Answer {
        Answer { status: status.try_into().unwrap(), retry_after: None, body: body.to_string().into_bytes() }
    }

    /// An error as the service writes it.
    fn error(status: u16, canonical: &str, code: &str) -> Answer {
        let detail = json!({ "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code });
        answer(
            status,
            &json!({ "error": { "code": status, "message": "m", "status": canonical, "details": [detail] } }),
        )
    }

    #[test]
    fn a_device_that_is_gone_is_told_from_a_project_that_is() {
        assert_eq!(judge(&error(404, "NOT_FOUND", "UNREGISTERED")), Verdict::Unregistered);
        let no_project = answer(404, &json!({ "error": { "code": 404, "status": "NOT_FOUND" } }));
        assert!(matches!(judge(&no_project), Verdict::Refused { .. }));
    }

    #[test]
    fn only_a_bad_token_costs_the_device_its_registration() {
        assert!(matches!(judge(&error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")), Verdict::Refused { .. }));
        let with = |message: &str, field: &str| {
            let violation = json!({ "fieldViolations": [{ "field": field, "description": "d" }] });
            let error =
                json!({ "code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": [violation] });
            judge(&answer(400, &json!({ "error": error })))
        };
        assert_eq!(with("m", "message.token"), Verdict::Unregistered);
        assert_eq!(with("The registration token is not a valid FCM registration token", "x"), Verdict::Unregistered);
        assert!(matches!(with("m", "message.data[0].value"), Verdict::Refused { .. }));
    }

    #[test]
    fn a_quota_closes_the_service_for_a_minute_or_as_long_as_it_says() {
        let mut quota = error(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED");
        let closed = |answer: &Answer| match judge(answer) {
            Verdict::Closed { closed, .. } => closed,
            other => panic!("{other:?}"),
        };
        assert_eq!(closed(&quota), Closed::Unsaid(QUOTA_REST));
        quota.retry_after = Some(Duration::from_secs(7));
        assert_eq!(closed(&quota), Closed::For(Duration::from_secs(7)));
    }

    #[test]
    fn what_is_wrong_for_now_is_tried_again() {
        let wait = Some(Duration::from_secs(3));
        let away = Answer { retry_after: wait, ..error(503, "UNAVAILABLE", "UNAVAILABLE") };
        assert!(matches!(judge(&away), Verdict::Failed { wait: told, .. } if told == wait));
        assert!(matches!(judge(&error(500, "INTERNAL", "INTERNAL")), Verdict::Failed { wait: None, .. }));
        let html = Answer { body: b"<!DOCTYPE html>".to_vec(), ..error(502, "", "") };
        assert_eq!(judge(&html), Verdict::Failed { reason: "FCM answers 502 Bad Gateway".into(), wait: None });
    }

    #[test]
    fn a_missing_right_elsewhere_is_no_stale_access_token() {
        let third_party = error(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR");
        assert!(!is_stale(&third_party));
        let Verdict::Refused { reason } = judge(&third_party) else { panic!() };
        assert!(reason.contains("APNs key"), "{reason}");
        let stale = answer(401, &json!({ "error": { "code": 401, "status": "UNAUTHENTICATED" } }));
        assert!(is_stale(&stale) && matches!(judge(&stale), Verdict::Closed { .. }));
        assert!(matches!(judge(&error(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH")), Verdict::Refused { .. }));
    }
}
