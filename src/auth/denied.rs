//! Why someone was not let in.

use jsonwebtoken::errors::{Error, ErrorKind};

use super::MAX_TOKEN;
use crate::ids;

/// Why someone was not let in. As text it is for the log and never holds the token; for the client see
/// [`reason`](Self::reason).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Too long to be looked at.
    #[error("the token is longer than {MAX_TOKEN} bytes")]
    TooLong,
    /// No token at all, or signed in a way that is not known.
    #[error("it is no token, or its algorithm is not known")]
    Malformed,
    /// The token names another algorithm than the key has.
    #[error("the key is not for the token's algorithm")]
    Algorithm,
    /// None of the keys is of the name in the token.
    #[error("no key is known as {0:?}")]
    UnknownKey(String),
    /// The token names no key, and there are several.
    #[error("the token names no key, and there is not just one for its algorithm")]
    NoKeyNamed,
    /// The signature is not of the key.
    #[error("the signature is wrong")]
    Signature,
    /// It was good once.
    #[error("the token has expired")]
    Expired,
    /// It will be good.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It is for someone else.
    #[error("the audience is not this one")]
    Audience,
    /// It is by someone else.
    #[error("the issuer is not this one")]
    Issuer,
    /// A claim is missing or malformed.
    #[error("the claim {0} is missing or malformed")]
    Claim(String),
    /// The user id is not well-formed.
    #[error("the {0}")]
    User(#[from] ids::Malformed),
    /// This server has no keys.
    #[error("there are no keys to check a token with")]
    NoKeys,
    /// This server believes no names.
    #[error("a name without a token is not believed")]
    NotBelieved,
}

impl Denied {
    /// What the client is told. It can act on this, and learns nothing of the keys.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired => "token expired",
            Self::NotYetValid => "token not valid yet",
            Self::User(_) => "user id malformed",
            Self::NoKeys => "tokens are not taken here",
            Self::NotBelieved => "a token is needed",
            _ => "token invalid",
        }
    }

    /// One word for a metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooLong | Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::UnknownKey(_) | Self::NoKeyNamed => "unknown_key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Audience | Self::Issuer | Self::Claim(_) | Self::User(_) => "claims",
            Self::NoKeys | Self::NotBelieved => "not_offered",
        }
    }
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::InvalidAlgorithm => Self::Algorithm,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => Self::Claim(claim.clone()),
            // The texts of the others may hold pieces of the token.
            _ => Self::Malformed,
        }
    }
}
