//! Google, as far as pushes need it: access tokens for a service account, and Firebase Cloud Messaging with the answers
//! of its documentation.

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::target::{Call, Reply, Target};

const EMAIL: &str = "push@minichat-test.iam.gserviceaccount.com";
const KEY_ID: &str = "key-1";
pub(crate) const PROJECT: &str = "minichat-test";
const SEND: &str = "/v1/projects/minichat-test/messages:send";

/// The service account's key: private and public.
static KEY: LazyLock<(String, String)> = LazyLock::new(|| {
    let private = openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &private).expect("it can be written");
    let public = openssl(&["pkey", "-pubout", "-in", file.path().to_str().expect("text")]);
    (private, public)
});

fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output();
    let output = output.expect("these tests make keys with openssl; install the package openssl");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A Google of a test's own.
pub(crate) struct Google {
    target: Target,
    state: Arc<Mutex<State>>,
    key_file: NamedTempFile,
}

#[derive(Default)]
struct State {
    /// How many access tokens were given.
    given: usize,
    /// The access token that is taken.
    good: Option<String>,
    /// Whether a given token is taken at all.
    refuses_all: bool,
    /// Answers in place of the usual one, by device token.
    replies: HashMap<String, Vec<Reply>>,
    gone: HashSet<String>,
}

impl Google {
    pub(crate) async fn start() -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let answering = Arc::clone(&state);
        let target = Target::start(move |call| answering.lock().unwrap().answer(call)).await;
        let key_file = NamedTempFile::new().unwrap();
        let google = Self { target, state, key_file };
        std::fs::write(google.key_file.path(), google.account().to_string()).unwrap();
        google
    }

    /// The key file's content.
    pub(crate) fn account(&self) -> Value {
        json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": KEY.0,
            "client_email": EMAIL,
            "client_id": "1",
            "token_uri": self.target.url("/token"),
        })
    }

    /// The flags that send pushes here.
    pub(crate) fn flags(&self) -> [String; 2] {
        [format!("--fcm-key-file={}", self.key_file.path().display()), format!("--fcm-url={}", self.target.url(""))]
    }

    /// Answers the next messages to a device so.
    pub(crate) fn reply(&self, token: &str, replies: impl IntoIterator<Item = Reply>) {
        let mut replies: Vec<Reply> = replies.into_iter().collect();
        replies.reverse();
        self.state.lock().unwrap().replies.insert(token.to_owned(), replies);
    }

    /// The app was removed from a device.
    pub(crate) fn unregister(&self, token: &str) {
        self.state.lock().unwrap().gone.insert(token.to_owned());
    }

    /// The access token that was given last is good no more.
    pub(crate) fn revoke(&self) {
        self.state.lock().unwrap().good = None;
    }

    /// No access token is taken from now on, or any that is given is.
    pub(crate) fn refuse_all(&self, refuses: bool) {
        self.state.lock().unwrap().refuses_all = refuses;
    }

    /// How many access tokens were given.
    pub(crate) fn given(&self) -> usize {
        self.state.lock().unwrap().given
    }

    /// All messages to devices so far, refused ones too.
    pub(crate) fn messages(&self) -> Vec<Call> {
        self.target.calls().into_iter().filter(|call| call.path == SEND).collect()
    }

    /// Waits until so many messages were taken, and gives them.
    pub(crate) async fn until_taken(&self, count: usize) -> Vec<Value> {
        let taken = async || {
            let taken = self.messages().into_iter().filter(|call| call.status == 200);
            Some(taken.map(|call| call.json()["message"].clone()).collect()).filter(|all: &Vec<_>| all.len() >= count)
        };
        super::wait::eventually(&format!("{count} messages"), taken).await
    }
}

impl State {
    fn answer(&mut self, call: &Call) -> Reply {
        match &*call.path {
            "/token" => self.give(call),
            SEND => self.take(call),
            _ => Reply::status(404),
        }
    }

    /// Gives an access token to who shows what Google asks for.
    fn give(&mut self, call: &Call) -> Reply {
        let form: HashMap<String, String> = url::form_urlencoded::parse(call.body.as_bytes()).into_owned().collect();
        assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        assert_eq!(call.header("content-type"), "application/x-www-form-urlencoded");
        let assertion = &form["assertion"];
        assert_eq!(decode_header(assertion).unwrap().kid.as_deref(), Some(KEY_ID));
        let mut validation = Validation::new(Algorithm::RS256);
        validation.set_audience(&[format!("http://{}/token", call.header("host"))]);
        validation.set_issuer(&[EMAIL]);
        let key = DecodingKey::from_rsa_pem(KEY.1.as_bytes()).unwrap();
        let claims = decode::<Value>(assertion, &key, &validation).expect("a good assertion").claims;
        assert_eq!(claims["scope"], "https://www.googleapis.com/auth/firebase.messaging");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3600);

        self.given += 1;
        let token = format!("ya29.access-{}", self.given);
        self.good = Some(token.clone());
        Reply::json(200, &json!({ "access_token": token, "expires_in": 3599, "token_type": "Bearer" }))
    }

    fn take(&mut self, call: &Call) -> Reply {
        let bearer = self.good.as_ref().map(|token| format!("Bearer {token}"));
        if self.refuses_all || bearer.as_deref() != Some(call.header("authorization")) {
            let error = json!({ "code": 401, "message": "invalid credentials", "status": "UNAUTHENTICATED" });
            return Reply::json(401, &json!({ "error": error }));
        }
        let token = call.json()["message"]["token"].as_str().unwrap().to_owned();
        if self.gone.contains(&token) {
            return problem(404, "NOT_FOUND", "UNREGISTERED");
        }
        let reply = self.replies.get_mut(&token).and_then(Vec::pop);
        let name = format!("projects/{PROJECT}/messages/0:{}", self.given);
        reply.unwrap_or_else(|| Reply::json(200, &json!({ "name": name })))
    }
}

/// An error as Firebase Cloud Messaging writes it.
pub(crate) fn problem(status: u16, canonical: &str, code: &str) -> Reply {
    let detail = json!({ "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code });
    let error = json!({ "code": status, "message": "It is wrong.", "status": canonical, "details": [detail] });
    Reply::json(status, &json!({ "error": error }))
}
