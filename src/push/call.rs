//! One HTTP call to a target: it ends in time, follows no redirect, and reads no more than it needs.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode, Url};

use super::Error;
use crate::http::{bounded, cause};

/// How long a call may take in all.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// The longest that a target may make us wait.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The largest answer that is looked at, in bytes. Those that matter are of a few hundred.
const MAX_ANSWER: usize = 64 * 1024;

/// What a target answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// How long it asks us to wait.
    pub(super) retry_after: Option<Duration>,
    /// Empty where it was too large or broke off: the status says what matters.
    pub(super) body: Vec<u8>,
}

/// Makes a client for these URLs.
pub(super) fn client(urls: &[&Url]) -> Result<Client, Error> {
    crate::tls::install_provider();
    let agent = concat!("minichat/", env!("CARGO_PKG_VERSION"));
    let mut builder = Client::builder().timeout(DEADLINE).redirect(Policy::none()).no_proxy().user_agent(agent);
    if urls.iter().all(|url| url.scheme() == "http") {
        // A host without any CA certificate can do this much.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| Error::Client(cause(error)))
}

/// Makes a call. The error is one line that says why there is no answer.
pub(super) async fn call(request: RequestBuilder) -> Result<Answer, String> {
    let response = request.send().await.map_err(|error| {
        if error.is_timeout() { format!("no answer in {} s", DEADLINE.as_secs()) } else { cause(error) }
    })?;
    let (status, retry_after) = (response.status(), retry_after(response.headers(), SystemTime::now()));
    let body = bounded(response, MAX_ANSWER).await.ok().flatten().unwrap_or_default();
    Ok(Answer { status, retry_after, body })
}

/// How long to wait, by a number of seconds or by a date; no longer than [`LONGEST_WAIT`].
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_how_long_to_wait_in_seconds_or_by_a_date() {
        let now = httpdate::parse_http_date("Mon, 30 Nov 2026 01:00:00 GMT").unwrap();
        let wait = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("Mon, 30 Nov 2026 01:00:30 GMT"), Some(30));
        assert_eq!(wait("Mon, 30 Nov 2026 00:00:00 GMT"), Some(0));
        assert_eq!(wait("999999"), Some(3600));
        assert_eq!(wait("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
