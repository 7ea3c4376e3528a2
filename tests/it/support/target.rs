//! A local server that pushes are sent to: it keeps every request, and answers as it is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::wait::eventually;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    headers: HeaderMap,
    pub(crate) body: String,
    /// What it was answered.
    pub(crate) status: u16,
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: String,
    /// It comes only when this was notified.
    after: Option<Arc<Notify>>,
}

type Answer = dyn FnMut(&Call) -> Reply + Send;

/// A server that keeps what it is sent, until it is dropped.
pub(crate) struct Target {
    address: SocketAddr,
    state: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    calls: Mutex<Vec<Call>>,
    answer: Mutex<Box<Answer>>,
}

impl Target {
    /// One that answers every request by `answer`.
    pub(crate) async fn start(answer: impl FnMut(&Call) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Shared { calls: Mutex::default(), answer: Mutex::new(Box::new(answer)) });
        let routes = Router::new().fallback(take).with_state(Arc::clone(&state));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { address, state, task }
    }

    /// One that gives these answers, one after the other, and then 200.
    pub(crate) async fn answering(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies = replies.into_iter().collect::<Vec<_>>().into_iter();
        Self::start(move |_| replies.next().unwrap_or_else(|| Reply::status(200))).await
    }

    /// Answers otherwise from now on.
    pub(crate) fn answer(&self, answer: impl FnMut(&Call) -> Reply + Send + 'static) {
        *self.state.answer.lock().unwrap() = Box::new(answer);
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().unwrap().clone()
    }

    /// Waits until there are so many requests, and gives all.
    pub(crate) async fn until_calls(&self, count: usize) -> Vec<Call> {
        let look = async || Some(self.calls()).filter(|calls| calls.len() >= count);
        eventually(&format!("{count} requests"), look).await
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Call {
    /// A header that must be there, once.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no {name}: {self:?}"));
        assert!(values.next().is_none(), "{name} comes twice: {self:?}");
        value.to_str().unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: BTreeMap::new(), body: String::new(), after: None }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self { body: body.to_string(), ..Self::status(status) }.with("content-type", "application/json")
    }

    pub(crate) fn with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.insert(header, value.to_owned());
        self
    }

    /// Comes only when that was notified.
    pub(crate) fn after(self, gate: &Arc<Notify>) -> Self {
        Self { after: Some(Arc::clone(gate)), ..self }
    }

    /// None at all.
    pub(crate) fn never() -> Self {
        Self::status(500).after(&Arc::default())
    }
}

async fn take(
    State(state): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let body = String::from_utf8(body.to_vec()).expect("text");
    let mut call = Call { method, path: uri.path().to_owned(), headers, body, status: 0 };
    let reply = state.answer.lock().unwrap()(&call);
    call.status = reply.status;
    state.calls.lock().unwrap().push(call);
    if let Some(gate) = &reply.after {
        gate.notified().await;
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(reply.body.into()).unwrap()
}
