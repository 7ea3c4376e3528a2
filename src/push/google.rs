//! Access tokens of Google for a service account: had once, shared by all calls, and renewed in good time by one of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Error;
use super::call::{Answer, call};
use super::verdict::Closed;
use crate::clock::unix_ms;
use crate::config::{Secret, ServiceAccount};

/// What is asked for: the right to send messages, and no more.
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";

/// How long the request for a token is good, in s: the most that Google allows.
const ASSERTION_LIFE: u64 = 3600;

/// How long before its end a token is renewed, unless that is more than half of its life.
const AHEAD: Duration = Duration::from_secs(300);

/// How long to leave Google alone at first when it gives no token.
const REST: Duration = Duration::from_secs(5);

/// A token and its place among all that were had.
#[derive(Debug, Clone)]
pub(super) struct Access {
    token: Secret,
    number: u64,
    renew: Instant,
    end: Instant,
}

impl Access {
    /// The value of the `Authorization` header. It is as secret as the token.
    pub(super) fn header(&self) -> Vec<u8> {
        [b"Bearer ", self.token.expose()].concat()
    }
}

/// Why there is no token.
#[derive(Debug, Clone)]
pub(super) struct NoAccess {
    pub(super) reason: String,
    pub(super) closed: Closed,
}

/// Has access tokens for one service account.
pub(super) struct Google {
    client: Client,
    account: ServiceAccount,
    key: EncodingKey,
    state: Mutex<State>,
    /// Whoever has it renews.
    turn: Semaphore,
}

#[derive(Default)]
struct State {
    access: Option<Access>,
    /// How often one was asked for.
    tries: u64,
    /// Why the last try gave none.
    trouble: Option<NoAccess>,
}

impl std::fmt::Debug for Google {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Google").field("account", &self.account.client_email).finish_non_exhaustive()
    }
}

/// What Google is told to give a token.
#[derive(Debug, Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

/// What it gives.
#[derive(Deserialize)]
struct Grant {
    access_token: String,
    expires_in: u64,
}

impl Google {
    /// Makes the key ready; it signs once, so that a bad one is found now.
    pub(super) fn new(client: Client, account: ServiceAccount) -> Result<Self, Error> {
        let key = EncodingKey::from_rsa_pem(account.private_key.expose()).map_err(|_| Error::Key)?;
        let google = Self { client, account, key, state: Mutex::default(), turn: Semaphore::new(1) };
        google.assertion(0).map_err(|_| Error::Key)?;
        Ok(google)
    }

    /// A token that is good now. Waits for one call at most where there is none, and for the one before where another
    /// task is at it.
    pub(super) async fn access(&self) -> Result<Access, NoAccess> {
        let (access, tries) = {
            let state = self.state();
            (state.access.clone(), state.tries)
        };
        let now = Instant::now();
        match access {
            Some(access) if now < access.renew => Ok(access),
            // While one task renews it, the others go on with the old one.
            Some(access) if now < access.end => match self.turn.try_acquire() {
                Ok(_turn) => self.renew_since(tries).await.or(Ok(access)),
                Err(_) => Ok(access),
            },
            _ => {
                // It is never closed.
                let _turn = self.turn.acquire().await;
                self.renew_since(tries).await
            }
        }
    }

    /// Forgets a token that was refused, unless there is a newer one already.
    pub(super) fn withdraw(&self, refused: &Access) {
        let mut state = self.state();
        state.access = state.access.take().filter(|access| access.number != refused.number);
    }

    /// Renews, unless another did so since there were that many tries: then its outcome is ours. To be called by who has
    /// the turn.
    async fn renew_since(&self, tries: u64) -> Result<Access, NoAccess> {
        if let Some(outcome) = self.state().outcome_since(tries) {
            return outcome;
        }
        let asked = self.ask().await;
        let mut state = self.state();
        state.tries += 1;
        let access = asked.map(|grant| Access::of(grant, state.tries));
        state.trouble = access.as_ref().err().cloned();
        if let Ok(access) = &access {
            state.access = Some(access.clone());
        }
        access
    }

    async fn ask(&self) -> Result<Grant, NoAccess> {
        let trouble = |reason: String, closed| NoAccess { reason: format!("no access token: {reason}"), closed };
        let unsaid = Closed::Unsaid(REST);
        let assertion = self.assertion(unix_ms() / 1000).map_err(|error| trouble(error.to_string(), unsaid))?;
        // Neither the name nor the token has a character that a form would encode otherwise.
        let form = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}");
        let request = self.client.post(self.account.token_uri.expose().clone());
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let answer = call(request).await.map_err(|reason| trouble(reason, unsaid))?;
        let closed = answer.retry_after.map_or(unsaid, Closed::For);
        if answer.status != StatusCode::OK {
            return Err(trouble(refusal(&answer), closed));
        }
        // The error of the parser could repeat the token.
        serde_json::from_slice(&answer.body).map_err(|_| trouble("the answer holds none".into(), closed))
    }

    fn assertion(&self, now: u64) -> jsonwebtoken::errors::Result<String> {
        let mut header = Header::new(Algorithm::RS256);
        header.kid = Some(self.account.private_key_id.clone());
        let aud = self.account.token_uri.expose().as_str();
        let iss = &self.account.client_email;
        encode(&header, &Claims { iss, scope: SCOPE, aud, iat: now, exp: now + ASSERTION_LIFE }, &self.key)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the last try came to, if there was one after so many.
    fn outcome_since(&self, tries: u64) -> Option<Result<Access, NoAccess>> {
        if self.tries == tries {
            return None;
        }
        match (&self.access, &self.trouble) {
            (_, Some(trouble)) => Some(Err(trouble.clone())),
            (Some(access), None) if Instant::now() < access.end => Some(Ok(access.clone())),
            // It was withdrawn at once, or was not good for long.
            _ => None,
        }
    }
}

impl Access {
    fn of(grant: Grant, number: u64) -> Self {
        let (now, life) = (Instant::now(), Duration::from_secs(grant.expires_in.min(24 * 3600)));
        let end = now + life;
        Self { token: Secret::new(grant.access_token), number, renew: end - AHEAD.min(life / 2), end }
    }
}

/// Why no token is given: the status, and the code where the answer has one.
fn refusal(answer: &Answer) -> String {
    #[derive(Deserialize)]
    struct Body {
        error: String,
    }

    let code = serde_json::from_slice(&answer.body).map(|body: Body| body.error).unwrap_or_default();
    let is_code = matches!(code.len(), 1..=64) && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let hint = match &*code {
        "invalid_grant" => " (is the key still valid, and is this server's clock right?)",
        _ => "",
    };
    if is_code { format!("{} {code}{hint}", answer.status) } else { answer.status.to_string() }
}
