//! One token against one key.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::{Denied, Identity, LEEWAY, key::Key};

/// A timer need not look further ahead, and a far `exp` must not overflow one: a year.
const HORIZON: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a token must say besides being signed.
#[derive(Debug)]
pub(super) struct Rules {
    /// One for each algorithm that a key may be for.
    validations: [Validation; ALGORITHMS.len()],
}

/// The algorithms that keys are for.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// Values, so that a claim of the wrong type is found by the check of claims and named there.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: Value,
    #[serde(default)]
    exp: Value,
}

/// Reads what a token says of its key. Nothing of it is to be trusted.
pub(super) fn header(token: &str) -> Result<Header, Denied> {
    Ok(decode_header(token)?)
}

impl Rules {
    /// Asks for this audience and this issuer, where they are given.
    pub(super) fn new(audience: Option<&str>, issuer: Option<&str>) -> Self {
        Self { validations: ALGORITHMS.map(|algorithm| validation(algorithm, audience, issuer)) }
    }

    /// Checks a token.
    pub(super) fn verify(&self, token: &str, key: &Key) -> Result<Identity, Denied> {
        let claims = decode::<Claims>(token, key.decoding(), self.validation(key)?)?.claims;
        let user = claims.sub.as_str().ok_or_else(|| Denied::Claim("sub".into()))?.parse()?;
        let expires = seconds(&claims.exp).ok_or_else(|| Denied::Claim("exp".into()))?;
        Ok(Identity { user, expires: Some(instant(expires)) })
    }

    fn validation(&self, key: &Key) -> Result<&Validation, Denied> {
        let place = ALGORITHMS.iter().position(|algorithm| *algorithm == key.algorithm());
        place.map(|place| &self.validations[place]).ok_or(Denied::Algorithm)
    }
}

fn validation(algorithm: Algorithm, audience: Option<&str>, issuer: Option<&str>) -> Validation {
    let mut validation = Validation::new(algorithm);
    let mut required = vec!["exp", "sub"];
    validation.leeway = LEEWAY.as_secs();
    validation.validate_nbf = true;
    validation.validate_aud = audience.is_some();
    if let Some(audience) = audience {
        validation.set_audience(&[audience]);
        required.push("aud");
    }
    if let Some(issuer) = issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// A time as tokens have it, in seconds since 1970; some issuers write fractions.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().map(|seconds| seconds as u64))
}

fn instant(expires: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(expires).saturating_add(LEEWAY).saturating_sub(now);
    Instant::now() + left.min(HORIZON)
}
