//! Who someone is: tokens are checked here, and what is wrong with one is told apart for the client and for the log.
//!
//! The algorithm comes from the key, never from the token: an RSA key checks RS256 and nothing else, a P-256 key ES256,
//! an Ed25519 key EdDSA, a secret HS256.

mod denied;
mod jwks;
mod key;
mod token;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::{self, Keys};
use crate::ids::UserId;
use crate::lifecycle::Lifecycle;

pub use denied::Denied;
pub use jwks::Failure;
pub use key::Unusable;

use jwks::KeySet;
use key::Key;
use token::Rules;

/// The longest token that is looked at, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// How far the clocks of the issuer and of this server may differ: a token is taken this long before its `nbf` and after
/// its `exp`.
pub const LEEWAY: Duration = Duration::from_secs(5);

/// Who someone proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user: the token's `sub`.
    pub user: UserId,
    /// When the proof ends, with the leeway; absent for a name that was simply believed.
    pub expires: Option<Instant>,
}

/// Why there is no [`Auth`]. One line each, which says all: the causes are in the text and not sources of their own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key in the file or the secret is no good.
    #[error("the key for tokens {0}")]
    Key(Unusable),
    /// The set of keys could not be had.
    #[error("the keys for tokens cannot be had: {0}")]
    Jwks(Failure),
}

/// Checks who someone is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Auth {
    dev: bool,
    source: Source,
    rules: Arc<Rules>,
}

#[derive(Debug, Clone)]
enum Source {
    None,
    Fixed(Arc<Key>),
    Fetched(KeySet),
}

impl Auth {
    /// Makes the keys ready; a set of keys is fetched now and kept fresh until `lifecycle` stops.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A set that cannot be fetched at the start is an error, since nobody could log in.
    pub async fn start(config: &config::Auth, lifecycle: &Lifecycle) -> Result<Self, Error> {
        let source = match &config.keys {
            None => Source::None,
            Some(Keys::Jwks(url)) => Source::Fetched(KeySet::start(url, lifecycle).await.map_err(Error::Jwks)?),
            Some(Keys::Secret(secret)) => Source::Fixed(Arc::new(Key::from_secret(secret).map_err(Error::Key)?)),
            Some(Keys::Pem(pem)) => Source::Fixed(Arc::new(Key::from_pem(pem).map_err(Error::Key)?)),
        };
        let rules = Rules::new(config.audience.as_deref(), config.issuer.as_deref());
        Ok(Self { dev: config.dev, source, rules: Arc::new(rules) })
    }

    /// Checks the keys as far as that goes without a network.
    ///
    /// # Errors
    ///
    /// [`Error::Key`].
    pub fn check(config: &config::Auth) -> Result<(), Error> {
        let checked = match &config.keys {
            Some(Keys::Secret(secret)) => Key::from_secret(secret).map(drop),
            Some(Keys::Pem(pem)) => Key::from_pem(pem).map(drop),
            Some(Keys::Jwks(_)) | None => Ok(()),
        };
        checked.map_err(Error::Key)
    }

    /// Checks a token. With a fetched set of keys this may wait for a fresh one, up to 5 s; dropping the future is safe.
    ///
    /// # Errors
    ///
    /// [`Denied`], which never holds the token.
    pub async fn verify(&self, token: &str) -> Result<Identity, Denied> {
        if token.len() > MAX_TOKEN {
            return Err(Denied::TooLong);
        }
        match &self.source {
            Source::None => Err(Denied::NoKeys),
            Source::Fixed(key) => self.rules.verify(token, key),
            Source::Fetched(set) => {
                let header = token::header(token)?;
                let key = set.find(header.kid.as_deref(), header.alg).await?;
                self.rules.verify(token, &key)
            }
        }
    }

    /// Believes a name, where the operator wants that.
    ///
    /// # Errors
    ///
    /// [`Denied::NotBelieved`] or [`Denied::User`].
    pub fn believe(&self, user: &str) -> Result<Identity, Denied> {
        if !self.dev {
            return Err(Denied::NotBelieved);
        }
        Ok(Identity { user: user.parse()?, expires: None })
    }
}

#[cfg(test)]
mod tests;
