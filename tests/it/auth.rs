//! Tokens checked with a set of keys that a real HTTP server gives out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::future::join_all;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use minichat::auth::{Auth, Denied, Error, Identity};
use minichat::config::{self, Keys, SecretUrl};
use minichat::lifecycle::Lifecycle;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A key that signs tokens under a name.
struct Signer {
    name: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Signer {
    fn ec(name: &'static str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Self { name, algorithm: Algorithm::ES256, key: EncodingKey::from_ec_der(&pair.serialize_der()) }
    }

    fn ed(name: &'static str) -> Self {
        // The oldest form of a private key; the library that signs here does not read the newer one of rcgen.
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let key = [&head[..], &rand::random::<[u8; 32]>()].concat();
        Self { name, algorithm: Algorithm::EdDSA, key: EncodingKey::from_ed_der(&key) }
    }

    /// The public half, as a set has it.
    fn public(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.name.to_owned());
        serde_json::to_value(jwk).unwrap()
    }

    fn token(&self) -> String {
        self.token_naming(Some(self.name))
    }

    fn token_naming(&self, name: Option<&str>) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = name.map(str::to_owned);
        encode(&header, &json!({ "sub": "alice", "exp": get_current_timestamp() + 3600 }), &self.key).unwrap()
    }
}

/// What the issuer answers.
enum Answer {
    Keys(Vec<Value>),
    Text(String),
    Status(StatusCode),
    Redirect(String),
    Never,
}

/// An HTTP server that gives out keys and counts how often it was asked.
struct Issuer {
    address: SocketAddr,
    desk: Arc<Desk>,
    server: JoinHandle<()>,
}

struct Desk {
    answer: Mutex<Answer>,
    asked: AtomicUsize,
}

impl Issuer {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Arc::new(Desk { answer: Mutex::new(answer), asked: AtomicUsize::new(0) });
        let router = Router::new().fallback(answer_request).with_state(desk.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, desk, server }
    }

    fn answers(&self, answer: Answer) {
        *self.desk.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.desk.asked.load(Ordering::SeqCst)
    }

    async fn auth(&self) -> Result<Auth, Error> {
        auth(&format!("http://{}/keys", self.address), &Lifecycle::new()).await
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer_request(State(desk): State<Arc<Desk>>, uri: Uri) -> Response {
    desk.asked.fetch_add(1, Ordering::SeqCst);
    let response = desk.answer.lock().unwrap().response(&uri);
    match response {
        Some(response) => response,
        None => std::future::pending().await,
    }
}

impl Answer {
    fn response(&self, uri: &Uri) -> Option<Response> {
        Some(match self {
            Self::Keys(keys) => axum::Json(json!({ "keys": keys })).into_response(),
            Self::Text(text) => text.clone().into_response(),
            Self::Status(status) => status.into_response(),
            Self::Redirect(_) if uri.path() == "/moved" => axum::Json(json!({ "keys": [] })).into_response(),
            Self::Redirect(to) => Redirect::temporary(to).into_response(),
            Self::Never => return None,
        })
    }
}

async fn auth(url: &str, lifecycle: &Lifecycle) -> Result<Auth, Error> {
    let keys = Some(Keys::Jwks(SecretUrl::new(url.parse().unwrap())));
    Auth::start(&config::Auth { dev: false, keys, audience: None, issuer: None }, lifecycle).await
}

fn is_alice(outcome: Result<Identity, Denied>) -> bool {
    outcome.is_ok_and(|identity| identity.user.as_str() == "alice")
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition().await {
        assert!(std::time::Instant::now() < deadline, "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets time pass for the timers at once, and go on as usual after.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn tokens_of_all_keys_in_the_set_are_taken() {
    let (ec, ed) = (Signer::ec("a"), Signer::ed("b"));
    let strange = json!({ "kty": "quantum", "kid": "c" });
    let issuer = Issuer::start(Answer::Keys(vec![strange, ec.public(), ed.public()])).await;
    let auth = issuer.auth().await.unwrap();
    assert!(is_alice(auth.verify(&ec.token()).await));
    assert!(is_alice(auth.verify(&ed.token()).await));
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_key_is_used_under_its_own_name_and_algorithm_only() {
    let (ec, ed) = (Signer::ec("a"), Signer::ed("b"));
    let issuer = Issuer::start(Answer::Keys(vec![ec.public(), ed.public()])).await;
    let auth = issuer.auth().await.unwrap();
    assert_eq!(auth.verify(&ec.token_naming(Some("b"))).await, Err(Denied::Algorithm));
    assert_eq!(auth.verify(&Signer::ec("a").token()).await, Err(Denied::Signature));
}

#[tokio::test]
async fn a_token_that_names_no_key_is_taken_when_there_is_no_doubt() {
    let (first, second) = (Signer::ec("a"), Signer::ec("b"));
    let issuer = Issuer::start(Answer::Keys(vec![first.public(), Signer::ed("c").public()])).await;
    assert!(is_alice(issuer.auth().await.unwrap().verify(&first.token_naming(None)).await));
    issuer.answers(Answer::Keys(vec![first.public(), second.public()]));
    let auth = issuer.auth().await.unwrap();
    assert_eq!(auth.verify(&first.token_naming(None)).await, Err(Denied::NoKeyNamed));
}

#[tokio::test]
async fn a_new_key_is_taken_after_one_fetch_and_a_withdrawn_one_no_more() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(Answer::Keys(vec![old.public()])).await;
    let auth = issuer.auth().await.unwrap();
    issuer.answers(Answer::Keys(vec![new.public()]));
    assert!(is_alice(auth.verify(&old.token()).await));
    assert!(is_alice(auth.verify(&new.token()).await));
    assert_eq!(issuer.asked(), 2);
    assert_eq!(auth.verify(&old.token()).await, Err(Denied::UnknownKey("old".into())));
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test]
async fn however_many_unknown_keys_are_named_one_fetch_answers_them() {
    let (known, stranger) = (Signer::ec("known"), Signer::ec("stranger"));
    let issuer = Issuer::start(Answer::Keys(vec![known.public()])).await;
    let auth = issuer.auth().await.unwrap();
    let tokens: Vec<_> = (0..50).map(|i| stranger.token_naming(Some(&format!("stranger {i}")))).collect();
    let flood = async || {
        let outcomes = join_all(tokens.iter().map(|token| auth.verify(token))).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Denied::UnknownKey(_)))));
    };
    flood().await;
    flood().await;
    assert_eq!(issuer.asked(), 2);
    assert!(is_alice(auth.verify(&known.token()).await));

    pass(Duration::from_secs(11)).await;
    flood().await;
    flood().await;
    assert_eq!(issuer.asked(), 3);
}

#[tokio::test]
async fn a_new_key_is_taken_once_asking_is_of_use_again() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(Answer::Keys(vec![old.public()])).await;
    let auth = issuer.auth().await.unwrap();
    assert!(auth.verify(&new.token()).await.is_err());
    issuer.answers(Answer::Keys(vec![old.public(), new.public()]));
    assert!(auth.verify(&new.token()).await.is_err());
    pass(Duration::from_secs(11)).await;
    assert!(is_alice(auth.verify(&new.token()).await));
}

#[tokio::test]
async fn the_old_keys_stay_while_the_issuer_fails() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(Answer::Keys(vec![old.public()])).await;
    let auth = issuer.auth().await.unwrap();
    for answer in [
        Answer::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Answer::Text("<html>".into()),
        Answer::Keys(Vec::new()),
        Answer::Redirect("http://localhost:1/keys".into()),
    ] {
        issuer.answers(answer);
        assert_eq!(auth.verify(&new.token()).await, Err(Denied::UnknownKey("new".into())));
        assert!(is_alice(auth.verify(&old.token()).await));
        pass(Duration::from_secs(11)).await;
    }
    assert_eq!(issuer.asked(), 5);
    drop(issuer);
    assert_eq!(auth.verify(&new.token()).await, Err(Denied::UnknownKey("new".into())));
    assert!(is_alice(auth.verify(&old.token()).await));
}

#[tokio::test]
async fn the_set_is_fetched_again_unasked() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(Answer::Keys(vec![old.public()])).await;
    let auth = issuer.auth().await.unwrap();
    issuer.answers(Answer::Keys(vec![new.public()]));
    tokio::task::yield_now().await;
    pass(Duration::from_secs(601)).await;
    eventually("the set is fetched", async || issuer.asked() == 2).await;
    let token = old.token();
    eventually("the withdrawn key is refused", async || auth.verify(&token).await.is_err()).await;
}

#[tokio::test]
async fn a_set_that_is_of_no_use_at_the_start_is_one_clear_line() {
    for (answer, expected) in [
        (Answer::Status(StatusCode::NOT_FOUND), "404"),
        (Answer::Text("<html>".into()), "no set of keys"),
        (Answer::Text("{}".into()), "no set of keys"),
        (Answer::Keys(Vec::new()), "no key for RS256"),
        (Answer::Text(" ".repeat(1024 * 1024 + 1)), "more than 1048576 bytes"),
        (Answer::Redirect("http://localhost:1/keys".into()), "redirects to another host"),
        (Answer::Redirect("/again".into()), "redirects too often"),
        (Answer::Redirect("/moved".into()), "no key for RS256"),
    ] {
        let issuer = Issuer::start(answer).await;
        let line = issuer.auth().await.unwrap_err().to_string();
        assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        assert!(line.contains(&issuer.address.to_string()), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_does_not_answer_is_waited_for_only_so_long() {
    let issuer = Issuer::start(Answer::Never).await;
    let line = issuer.auth().await.unwrap_err().to_string();
    assert!(line.contains("does not answer"), "{line}");
}

#[tokio::test]
async fn an_issuer_that_is_not_there_is_one_clear_line_without_its_password() {
    for url in ["http://me:hunter2@127.0.0.1:1/keys", "https://me:hunter2@127.0.0.1:1/keys"] {
        let line = auth(url, &Lifecycle::new()).await.unwrap_err().to_string();
        assert!(!line.contains("hunter2") && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn the_task_that_fetches_ends_with_the_server_and_nobody_waits_for_it() {
    let (known, stranger) = (Signer::ec("known"), Signer::ec("stranger"));
    let issuer = Issuer::start(Answer::Keys(vec![known.public()])).await;
    let lifecycle = Lifecycle::new();
    let auth = auth(&format!("http://{}/keys", issuer.address), &lifecycle).await.unwrap();
    issuer.answers(Answer::Never);
    let token = stranger.token();
    let waiting = auth.verify(&token);
    let stopping = async {
        eventually("the fetch begins", async || issuer.asked() == 2).await;
        lifecycle.stop.cancel();
        lifecycle.tasks.close();
        lifecycle.tasks.wait().await;
    };
    let (outcome, ()) = tokio::join!(waiting, stopping);
    assert_eq!(outcome, Err(Denied::UnknownKey("stranger".into())));
    assert!(is_alice(auth.verify(&known.token()).await));
}
