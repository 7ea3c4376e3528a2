//! One fetch of a set of keys: bounded in time and size, and never led to another host.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use reqwest::Client;
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;

use super::super::key::Key;
use crate::config::SecretUrl;
use crate::http::{bounded, cause};

/// How long a fetch may take in all.
const DEADLINE: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes. Sets are of some kilobytes.
const MAX_ANSWER: usize = 1024 * 1024;
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 3;
/// The most keys of one set that are kept.
const MAX_KEYS: usize = 100;

/// Why a set of keys could not be had. One line, without a password.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The client for it could not be made.
    #[error("no HTTP client: {0}")]
    Client(String),
    /// It did not answer, or not in time.
    #[error("{url} does not answer: {cause}")]
    Away {
        /// From where.
        url: SecretUrl,
        /// Why.
        cause: String,
    },
    /// It answered something else.
    #[error("{url} answers {what}")]
    Answer {
        /// From where.
        url: SecretUrl,
        /// What.
        what: String,
    },
}

/// A key and the name it goes by.
#[derive(Debug)]
pub(super) struct NamedKey {
    pub(super) name: Option<String>,
    pub(super) key: Arc<Key>,
}

/// Fetches one set of keys, any number of times.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    url: SecretUrl,
}

impl Fetcher {
    /// Makes the client for it.
    pub(super) fn new(url: &SecretUrl) -> Result<Self, Failure> {
        crate::tls::install_provider();
        let mut builder = Client::builder().timeout(DEADLINE).redirect(same_origin()).no_proxy();
        if url.expose().scheme() == "http" {
            // A host without any CA certificate can fetch over http; redirects to https are not followed anyway.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| Failure::Client(cause(error)))?;
        Ok(Self { client, url: url.clone() })
    }

    /// Fetches the set. Keys that are of no use here are left out; a set of none is a failure.
    pub(super) async fn fetch(&self) -> Result<Vec<NamedKey>, Failure> {
        let away = |error: reqwest::Error| Failure::Away { url: self.url.clone(), cause: cause(error) };
        let answer = |what: String| Failure::Answer { url: self.url.clone(), what };
        let response = self.client.get(self.url.expose().clone()).send().await.map_err(away)?;
        if !response.status().is_success() {
            return Err(answer(response.status().to_string()));
        }
        let body = bounded(response, MAX_ANSWER).await.map_err(away)?;
        let body = body.ok_or_else(|| answer(format!("more than {MAX_ANSWER} bytes")))?;
        let keys = parse(&body).map_err(|error| answer(format!("no set of keys: {error}")))?;
        if keys.is_empty() { Err(answer("no key for RS256, ES256 or EdDSA".into())) } else { Ok(keys) }
    }
}

/// Follows a redirect within one scheme, host and port only: the keys are worth what the host is that names them.
fn same_origin() -> Policy {
    Policy::custom(|attempt| {
        let first = &attempt.previous()[0];
        if attempt.url().origin() != first.origin() {
            attempt.error("it redirects to another host")
        } else if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("it redirects too often")
        } else {
            attempt.follow()
        }
    })
}

/// Takes the keys apart one by one, so that one of a new kind does not cost the others.
fn parse(body: &[u8]) -> Result<Vec<NamedKey>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }

    let set: Set = serde_json::from_slice(body)?;
    Ok(set.keys.into_iter().filter_map(usable).take(MAX_KEYS).collect())
}

fn usable(value: Value) -> Option<NamedKey> {
    let jwk: Jwk = serde_json::from_value(value).inspect_err(|error| tracing::debug!(%error, "left out a key")).ok()?;
    let name = jwk.common.key_id.clone();
    match Key::from_jwk(&jwk) {
        Ok(key) => Some(NamedKey { name, key: Arc::new(key) }),
        Err(unusable) => {
            tracing::debug!(?name, "left out a key that {unusable}");
            None
        }
    }
}
