//! A key and the one algorithm it is for.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, crypto};

use crate::config::Secret;

/// The bits of an RSA key. Shorter ones are refused by RFC 7518, longer ones are not worth their time.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Why a key is no good. Reads on from "the key".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A private key has no place on this server.
    #[error("is a private key; give the public one, which `openssl pkey -pubout` makes")]
    Private,
    /// A certificate is not a key.
    #[error("is in a certificate; take it out with `openssl x509 -pubkey -noout`")]
    Certificate,
    /// It cannot be read, or is of another kind.
    #[error("is none of these: RSA, EC P-256, Ed25519, as `-----BEGIN PUBLIC KEY-----`")]
    Kind,
    /// The RSA key is too short or too long.
    #[error("is RSA and must have 2048 to 8192 bits")]
    RsaSize,
    /// The set of keys says that it is for something else.
    #[error("is for another use or algorithm than RS256, ES256, EdDSA")]
    Purpose,
}

/// A key and the one algorithm it is for.
#[derive(Debug, Clone)]
pub(super) struct Key {
    algorithm: Algorithm,
    decoding: DecodingKey,
}

impl Key {
    /// The algorithm.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key.
    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    /// Takes a shared secret, whose length was checked before.
    pub(super) fn from_secret(secret: &Secret) -> Result<Self, Unusable> {
        let decoding = DecodingKey::from_secret(secret.expose()).map_err(|_| Unusable::Kind)?;
        Ok(Self { algorithm: Algorithm::HS256, decoding })
    }

    /// Reads a public key.
    pub(super) fn from_pem(pem: &str) -> Result<Self, Unusable> {
        if pem.contains("PRIVATE KEY-----") {
            return Err(Unusable::Private);
        }
        if pem.contains("-----BEGIN CERTIFICATE") {
            return Err(Unusable::Certificate);
        }
        let readers = [DecodingKey::from_rsa_pem, DecodingKey::from_ec_pem, DecodingKey::from_ed_pem];
        let decoding = readers.iter().find_map(|read| read(pem.as_bytes()).ok());
        Self::checked(decoding.ok_or(Unusable::Kind)?)
    }

    /// Takes a key of a fetched set. Shared secrets are refused: a set is public.
    pub(super) fn from_jwk(jwk: &Jwk) -> Result<Self, Unusable> {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => KeyAlgorithm::RS256,
            AlgorithmParameters::EllipticCurve(point) if point.curve == EllipticCurve::P256 => KeyAlgorithm::ES256,
            AlgorithmParameters::OctetKeyPair(point) if point.curve == EllipticCurve::Ed25519 => KeyAlgorithm::EdDSA,
            _ => return Err(Unusable::Kind),
        };
        if !is_for(jwk, algorithm) {
            return Err(Unusable::Purpose);
        }
        Self::checked(DecodingKey::from_jwk(jwk).map_err(|_| Unusable::Kind)?)
    }

    /// Finds out now what would otherwise fail every token later.
    fn checked(decoding: DecodingKey) -> Result<Self, Unusable> {
        let algorithm = match decoding.family() {
            AlgorithmFamily::Rsa => Algorithm::RS256,
            AlgorithmFamily::Ec => Algorithm::ES256,
            AlgorithmFamily::Ed => Algorithm::EdDSA,
            AlgorithmFamily::Hmac => return Err(Unusable::Kind),
        };
        match algorithm {
            Algorithm::RS256 if !RSA_BITS.contains(&rsa_bits(&decoding)?) => return Err(Unusable::RsaSize),
            // The library cuts out 32 bytes without looking.
            Algorithm::EdDSA if decoding.try_get_as_bytes().map_or(0, <[u8]>::len) != 32 => return Err(Unusable::Kind),
            _ => {}
        }
        // A wrong signature is no error to this function, a wrong key is.
        let tried = crypto::verify("", b"", &decoding, algorithm);
        tried.map(|_| Self { algorithm, decoding }).map_err(|_| Unusable::Kind)
    }
}

/// Whether the set has this key for signatures of that algorithm.
fn is_for(jwk: &Jwk, algorithm: KeyAlgorithm) -> bool {
    let common = &jwk.common;
    common.key_algorithm.is_none_or(|stated| stated == algorithm)
        && common.public_key_use.as_ref().is_none_or(|stated| *stated == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|stated| stated.contains(&KeyOperations::Verify))
}

fn rsa_bits(key: &DecodingKey) -> Result<usize, Unusable> {
    let jwk = Jwk::from_decoding_key(key, None).map_err(|_| Unusable::Kind)?;
    match jwk.algorithm {
        // Base64 carries 6 bits in a letter; a whole number of bytes is a whole number of 8 bits.
        AlgorithmParameters::RSA(rsa) => Ok(rsa.n.trim_start_matches('A').len() * 6 / 8 * 8),
        _ => Err(Unusable::Kind),
    }
}
