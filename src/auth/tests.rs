use std::process::Command;
use std::sync::LazyLock;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

use super::*;
use crate::config::Secret;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A key pair in PEM form.
struct Pair {
    private: String,
    public: String,
}

static RSA: LazyLock<Pair> = LazyLock::new(|| pair(&["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]));
static EC: LazyLock<Pair> = LazyLock::new(|| pair(&["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]));
static ED: LazyLock<Pair> = LazyLock::new(|| pair(&["ED25519"]));

fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output();
    let output = output.expect("these tests make keys with openssl; install the package openssl");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn pair(kind: &[&str]) -> Pair {
    let private = openssl(&[&["genpkey", "-algorithm"], kind].concat());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &private).unwrap();
    let public = openssl(&["pkey", "-pubout", "-in", file.path().to_str().unwrap()]);
    Pair { private, public }
}

/// Every algorithm with the key to sign and the keys to check.
fn algorithms() -> [(Algorithm, EncodingKey, Keys); 4] {
    let pem = |pair: &Pair| Keys::Pem(pair.public.clone());
    [
        (Algorithm::HS256, EncodingKey::from_secret(SECRET).unwrap(), Keys::Secret(Secret::new(SECRET))),
        (Algorithm::RS256, EncodingKey::from_rsa_pem(RSA.private.as_bytes()).unwrap(), pem(&RSA)),
        (Algorithm::ES256, EncodingKey::from_ec_pem(EC.private.as_bytes()).unwrap(), pem(&EC)),
        (Algorithm::EdDSA, EncodingKey::from_ed_pem(ED.private.as_bytes()).unwrap(), pem(&ED)),
    ]
}

async fn auth(keys: Keys) -> Auth {
    let config = config::Auth { dev: false, keys: Some(keys), audience: None, issuer: None };
    Auth::start(&config, &Lifecycle::new()).await.unwrap()
}

async fn auth_for(audience: Option<&str>, issuer: Option<&str>) -> Auth {
    let config = config::Auth {
        dev: false,
        keys: Some(Keys::Secret(Secret::new(SECRET))),
        audience: audience.map(str::to_owned),
        issuer: issuer.map(str::to_owned),
    };
    Auth::start(&config, &Lifecycle::new()).await.unwrap()
}

fn sign(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, key).unwrap()
}

fn hs256(claims: &Value) -> String {
    sign(Algorithm::HS256, &EncodingKey::from_secret(SECRET).unwrap(), claims)
}

fn claims() -> Value {
    json!({ "sub": "alice", "exp": get_current_timestamp() + 60 })
}

fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn claims_without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

async fn denied(claims: &Value) -> Denied {
    auth_for(None, None).await.verify(&hs256(claims)).await.unwrap_err()
}

/// Base64 as tokens have it.
fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        text.extend((0..=chunk.len()).map(|i| char::from(LETTERS[(bits >> (18 - 6 * i)) as usize & 63])));
    }
    text
}

#[tokio::test]
async fn each_algorithm_lets_its_own_tokens_in() {
    for (algorithm, key, keys) in algorithms() {
        let identity = auth(keys).await.verify(&sign(algorithm, &key, &claims())).await.unwrap();
        assert_eq!(identity.user.as_str(), "alice", "{algorithm:?}");
        assert!(identity.expires.unwrap() > Instant::now());
    }
}

#[tokio::test]
async fn no_algorithm_lets_the_tokens_of_another_in() {
    for (own, _, keys) in algorithms() {
        let auth = auth(keys).await;
        for (other, key, _) in algorithms().into_iter().filter(|(other, ..)| *other != own) {
            assert_eq!(auth.verify(&sign(other, &key, &claims())).await, Err(Denied::Algorithm), "{own:?} {other:?}");
        }
    }
}

#[tokio::test]
async fn a_public_key_used_as_a_shared_secret_signs_nothing() {
    for pair in [&RSA, &EC, &ED] {
        let forged = EncodingKey::from_secret(pair.public.as_bytes()).unwrap();
        let token = sign(Algorithm::HS256, &forged, &claims());
        assert_eq!(auth(Keys::Pem(pair.public.clone())).await.verify(&token).await, Err(Denied::Algorithm));
    }
}

#[tokio::test]
async fn other_algorithms_of_the_same_key_are_refused() {
    let rsa = EncodingKey::from_rsa_pem(RSA.private.as_bytes()).unwrap();
    let auth_rsa = auth(Keys::Pem(RSA.public.clone())).await;
    for algorithm in [Algorithm::RS512, Algorithm::PS256] {
        assert_eq!(auth_rsa.verify(&sign(algorithm, &rsa, &claims())).await, Err(Denied::Algorithm));
    }
    let secret = EncodingKey::from_secret(SECRET).unwrap();
    let token = sign(Algorithm::HS512, &secret, &claims());
    assert_eq!(auth_for(None, None).await.verify(&token).await, Err(Denied::Algorithm));
}

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let payload = base64url(claims().to_string().as_bytes());
    for alg in ["none", "None", "NONE", ""] {
        let header = base64url(json!({ "alg": alg, "typ": "JWT" }).to_string().as_bytes());
        for token in [format!("{header}.{payload}."), format!("{header}.{payload}")] {
            assert_eq!(auth_for(None, None).await.verify(&token).await, Err(Denied::Malformed), "{alg:?}");
        }
    }
    let token = hs256(&claims());
    let unsigned = &token[..=token.rfind('.').unwrap()];
    assert_eq!(auth_for(None, None).await.verify(unsigned).await, Err(Denied::Signature));
}

#[tokio::test]
async fn a_payload_that_was_changed_is_refused() {
    let token = hs256(&claims());
    let mut parts = token.split('.');
    let (header, _, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let forged = base64url(claims_with("sub", json!("root")).to_string().as_bytes());
    let token = format!("{header}.{forged}.{signature}");
    assert_eq!(auth_for(None, None).await.verify(&token).await, Err(Denied::Signature));
}

#[tokio::test]
async fn a_token_of_another_key_is_refused() {
    let other = EncodingKey::from_secret(&[7; 32]).unwrap();
    let token = sign(Algorithm::HS256, &other, &claims());
    assert_eq!(auth_for(None, None).await.verify(&token).await, Err(Denied::Signature));
}

#[tokio::test]
async fn garbage_is_no_token() {
    for garbage in ["", ".", "..", "...", "a.b.c", "ü.ü.ü", "\0", &"A".repeat(8192), "a.b.c.d.e"] {
        assert_eq!(auth_for(None, None).await.verify(garbage).await, Err(Denied::Malformed), "{garbage:?}");
    }
}

#[tokio::test]
async fn a_huge_token_is_not_looked_at() {
    let token = hs256(&claims_with("padding", json!("x".repeat(9 * 1024))));
    assert_eq!(auth_for(None, None).await.verify(&token).await, Err(Denied::TooLong));
}

#[tokio::test]
async fn a_token_is_good_within_its_time() {
    let now = get_current_timestamp();
    assert_eq!(denied(&claims_with("exp", json!(now - 60))).await, Denied::Expired);
    assert_eq!(denied(&claims_with("nbf", json!(now + 60))).await, Denied::NotYetValid);
    let near = json!({ "sub": "alice", "exp": now + 60, "nbf": now + 1 });
    assert!(auth_for(None, None).await.verify(&hs256(&near)).await.is_ok());
}

#[tokio::test]
async fn a_token_must_end_and_name_its_user() {
    assert_eq!(denied(&claims_without("exp")).await, Denied::Claim("exp".into()));
    assert_eq!(denied(&claims_without("sub")).await, Denied::Claim("sub".into()));
    assert_eq!(denied(&claims_with("sub", json!(42))).await, Denied::Claim("sub".into()));
    for exp in [json!("soon"), json!(-1), Value::Null] {
        assert_eq!(denied(&claims_with("exp", exp)).await, Denied::Claim("exp".into()));
    }
    assert_eq!(denied(&claims_with("nbf", json!("soon"))).await, Denied::Claim("nbf".into()));
}

#[tokio::test]
async fn a_far_or_fractional_end_is_taken() {
    for exp in [json!(u64::MAX), json!(1e18), json!(get_current_timestamp() as f64 + 60.5)] {
        assert!(auth_for(None, None).await.verify(&hs256(&claims_with("exp", exp))).await.is_ok());
    }
}

#[tokio::test]
async fn a_user_id_must_be_well_formed() {
    for sub in ["", "a\u{0}b", "a\r\nb", &"x".repeat(129)] {
        let denied = denied(&claims_with("sub", json!(sub))).await;
        assert!(matches!(denied, Denied::User(_)), "{sub:?}");
        assert_eq!(denied.reason(), "user id malformed");
    }
    let longest = claims_with("sub", json!("x".repeat(128)));
    assert!(auth_for(None, None).await.verify(&hs256(&longest)).await.is_ok());
}

#[tokio::test]
async fn audience_and_issuer_are_checked_when_asked_for() {
    let auth = auth_for(Some("chat"), Some("https://id.example")).await;
    let token = |aud: Value, iss: Value| {
        let mut claims = claims();
        (claims["aud"], claims["iss"]) = (aud, iss);
        hs256(&claims)
    };
    let (aud, iss) = (json!("chat"), json!("https://id.example"));
    assert!(auth.verify(&token(aud.clone(), iss.clone())).await.is_ok());
    assert!(auth.verify(&token(json!(["other", "chat"]), iss.clone())).await.is_ok());
    assert_eq!(auth.verify(&token(json!("other"), iss.clone())).await, Err(Denied::Audience));
    assert_eq!(auth.verify(&token(Value::Null, iss)).await, Err(Denied::Claim("aud".into())));
    assert_eq!(auth.verify(&token(aud.clone(), json!("https://evil.example"))).await, Err(Denied::Issuer));
    assert_eq!(auth.verify(&token(aud, Value::Null)).await, Err(Denied::Claim("iss".into())));
}

#[tokio::test]
async fn an_audience_nobody_asked_for_does_no_harm() {
    assert!(auth_for(None, None).await.verify(&hs256(&claims_with("aud", json!("other")))).await.is_ok());
}

#[tokio::test]
async fn names_are_believed_only_where_that_is_wanted() {
    let config = config::Auth { dev: true, keys: None, audience: None, issuer: None };
    let auth = Auth::start(&config, &Lifecycle::new()).await.unwrap();
    assert_eq!(auth.believe("alice").unwrap().expires, None);
    assert!(matches!(auth.believe("a\nb"), Err(Denied::User(_))));
    assert_eq!(auth.verify(&hs256(&claims())).await, Err(Denied::NoKeys));
    assert_eq!(auth_for(None, None).await.believe("alice"), Err(Denied::NotBelieved));
}

#[test]
fn a_key_that_cannot_check_tokens_is_refused_at_the_start() {
    let refusal = |pem: &str| Key::from_pem(pem).unwrap_err();
    assert_eq!(refusal(&RSA.private), Unusable::Private);
    assert_eq!(refusal(&EC.private), Unusable::Private);
    assert_eq!(refusal("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"), Unusable::Certificate);
    assert_eq!(refusal("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----"), Unusable::Kind);
    assert_eq!(refusal(&pair(&["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]).public), Unusable::Kind);
    assert_eq!(refusal(&pair(&["ED448"]).public), Unusable::Kind);
    assert_eq!(refusal(&pair(&["RSA", "-pkeyopt", "rsa_keygen_bits:1024"]).public), Unusable::RsaSize);
}

#[test]
fn the_older_form_of_an_rsa_key_is_read_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &RSA.public).unwrap();
    let older = openssl(&["rsa", "-pubin", "-RSAPublicKey_out", "-in", file.path().to_str().unwrap()]);
    assert!(older.starts_with("-----BEGIN RSA PUBLIC KEY-----"));
    assert_eq!(Key::from_pem(&older).unwrap().algorithm(), Algorithm::RS256);
}

#[tokio::test]
async fn no_denial_repeats_the_token() {
    let auth = auth_for(None, None).await;
    let header = base64url(br#"{"alg":"HS256","kid":"k","typ":{"marker":1}}"#);
    for token in [format!("{header}.marker.x"), hs256(&claims_with("exp", json!("marker")))] {
        let denied = auth.verify(&token).await.unwrap_err();
        assert!(!denied.to_string().contains("marker"), "{denied}");
    }
}

mod set_of_keys {
    use jsonwebtoken::jwk::Jwk;

    use super::*;

    fn jwk(algorithm: Algorithm, key: &EncodingKey) -> Value {
        serde_json::to_value(Jwk::from_encoding_key(key, algorithm).unwrap()).unwrap()
    }

    fn key(jwk: Value) -> Result<Key, Unusable> {
        Key::from_jwk(&serde_json::from_value(jwk).unwrap())
    }

    #[test]
    fn the_public_kinds_are_taken_and_check_tokens() {
        for (algorithm, encoding, _) in algorithms().into_iter().skip(1) {
            let key = key(jwk(algorithm, &encoding)).unwrap();
            assert_eq!(key.algorithm(), algorithm);
            assert!(Rules::new(None, None).verify(&sign(algorithm, &encoding, &claims()), &key).is_ok());
        }
    }

    #[test]
    fn a_shared_secret_in_a_public_set_is_refused() {
        let [(algorithm, encoding, _), ..] = algorithms();
        assert_eq!(key(jwk(algorithm, &encoding)).unwrap_err(), Unusable::Kind);
    }

    #[test]
    fn keys_for_other_purposes_are_refused() {
        let [_, (algorithm, encoding, _), ..] = algorithms();
        for (name, value) in
            [("use", json!("enc")), ("alg", json!("RS512")), ("alg", json!("RSA-OAEP")), ("key_ops", json!(["sign"]))]
        {
            let mut jwk = jwk(algorithm, &encoding);
            jwk[name] = value;
            assert_eq!(key(jwk).unwrap_err(), Unusable::Purpose, "{name}");
        }
        for (name, value) in [("use", json!("sig")), ("key_ops", json!(["verify"]))] {
            let mut jwk = jwk(algorithm, &encoding);
            jwk[name] = value;
            assert!(key(jwk).is_ok(), "{name}");
        }
    }

    #[test]
    fn malformed_keys_are_refused() {
        for jwk in [
            json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" }),
            json!({ "kty": "OKP", "crv": "X25519", "x": "AAAA" }),
            json!({ "kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA" }),
            json!({ "kty": "EC", "crv": "P-384", "x": "AAAA", "y": "AAAA" }),
            json!({ "kty": "RSA", "n": "!", "e": "AQAB" }),
            json!({ "kty": "XYZ" }),
        ] {
            assert_eq!(key(jwk.clone()).unwrap_err(), Unusable::Kind, "{jwk}");
        }
        assert_eq!(key(json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" })).unwrap_err(), Unusable::RsaSize);
    }
}
