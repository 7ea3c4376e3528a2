//! A client that is a small model of one: it says hello, notes what it hears of each room, and waits for what a test
//! expects.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderName;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::server::Server;

/// How long a frame may take before a test gives up: long, since it only matters when something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection of one user.
///
/// What a test expects is looked for in the order in which it came; what is passed over stays for later. Order itself
/// is in [`heard`](Self::heard).
#[derive(Debug)]
pub(crate) struct Client {
    /// The `welcome` frame; null before it.
    pub(crate) welcome: Value,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// What came and has not been expected yet.
    waiting: VecDeque<Value>,
    /// The `message` and `sent` frames of each room, in the order in which they came.
    heard: HashMap<String, Vec<Value>>,
    /// How the server has closed, once it has; without a code where the connection just ended.
    closed: Option<Option<(u16, String)>>,
}

impl Client {
    /// Connects as `user` to a server that takes development logins.
    pub(crate) async fn connect(server: &Server, user: &str) -> Self {
        Self::connect_as(server, user, json!({})).await
    }

    /// The same, with fields for `hello`: `device`, `cursors`, `trace`.
    pub(crate) async fn connect_as(server: &Server, user: &str, hello: Value) -> Self {
        Self::connect_with(&server.ws_url(user), &[], hello).await
    }

    /// Connects to any URL with any headers, says hello with these fields and waits for the welcome.
    pub(crate) async fn connect_with(url: &str, headers: &[(&str, &str)], hello: Value) -> Self {
        let mut client = Self::open(url, headers).await.expect("the server takes the connection");
        client.hello(hello).await;
        client
    }

    /// Opens a socket and says nothing yet.
    pub(crate) async fn open(url: &str, headers: &[(&str, &str)]) -> Result<Self, Error> {
        let mut request = url.into_client_request()?;
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header's name");
            request.headers_mut().insert(name, value.parse().expect("a header's value"));
        }
        let (socket, _) = timeout(PATIENCE, connect_async(request)).await.expect("an answer to the request")?;
        let (waiting, heard) = (VecDeque::new(), HashMap::new());
        Ok(Self { welcome: Value::Null, socket, waiting, heard, closed: None })
    }

    /// Says hello with these fields and waits for the welcome.
    pub(crate) async fn hello(&mut self, mut fields: Value) {
        fields["type"] = "hello".into();
        self.send_frame(fields).await;
        self.welcome = self.expect("welcome").await;
    }

    /// Sends one frame.
    pub(crate) async fn send_frame(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    /// Sends anything, such as what no client should. A connection that has ended takes it too.
    pub(crate) async fn send_raw(&mut self, message: Message) {
        // Whether the server heard it shows in what it answers.
        let _ = timeout(PATIENCE, self.socket.send(message)).await.expect("the server reads");
    }

    /// Sends a message into a room under a new cid, which is the answer.
    pub(crate) async fn send(&mut self, room: &str, body: impl Into<Value>) -> String {
        let cid = fresh_cid();
        self.send_with(&cid, room, body).await;
        cid
    }

    /// Sends a message into a room under this cid.
    pub(crate) async fn send_with(&mut self, cid: &str, room: &str, body: impl Into<Value>) {
        self.send_frame(json!({"type": "send", "cid": cid, "room": room, "body": body.into()})).await;
    }

    /// Sends a message and waits until it is stored: its `sent`.
    pub(crate) async fn say(&mut self, room: &str, body: impl Into<Value>) -> Value {
        let cid = self.send(room, body).await;
        self.expect_sent(&cid).await
    }

    /// Sends a frame under a new cid and waits for what answers it, an `error` too.
    pub(crate) async fn ask(&mut self, mut frame: Value) -> Value {
        let cid = fresh_cid();
        frame["cid"] = cid.as_str().into();
        self.send_frame(frame).await;
        self.expect_that(&format!("an answer to {cid}"), |frame| frame["cid"] == cid.as_str()).await
    }

    /// The same where the answer must be of this type.
    pub(crate) async fn ask_for(&mut self, kind: &str, frame: Value) -> Value {
        let answer = self.ask(frame).await;
        assert_eq!(answer["type"], kind, "{answer}");
        answer
    }

    /// Makes a room with these members besides oneself.
    pub(crate) async fn create(&mut self, room: &str, members: &[&str]) {
        self.ask_for("room", json!({"type": "create", "room": room, "members": members})).await;
    }

    /// Acknowledges a room up to `seq`, and waits until that is taken.
    pub(crate) async fn ack(&mut self, room: &str, seq: u64) {
        self.ask_for("ok", json!({"type": "ack", "room": room, "seq": seq})).await;
    }

    /// The messages of a room above `after`, as `history` gives them.
    pub(crate) async fn history(&mut self, room: &str, after: u64) -> Vec<Value> {
        let frame = json!({"type": "history", "room": room, "after": after, "limit": 200});
        let answer = self.ask_for("history", frame).await;
        answer["messages"].as_array().expect("a list").clone()
    }

    /// Waits for a `sent` with this cid.
    pub(crate) async fn expect_sent(&mut self, cid: &str) -> Value {
        self.expect_that(&format!("sent {cid}"), |frame| frame["type"] == "sent" && frame["cid"] == cid).await
    }

    /// Waits for a `message` that fits.
    pub(crate) async fn expect_message(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        self.expect_that("a message", |frame| frame["type"] == "message" && fits(frame)).await
    }

    /// Waits for a `message` with this body.
    pub(crate) async fn expect_body(&mut self, body: impl Into<Value>) -> Value {
        let body = body.into();
        self.expect_that(&format!("the message {body}"), |frame| frame["type"] == "message" && frame["body"] == body)
            .await
    }

    /// Waits for an `error` with this code.
    pub(crate) async fn expect_error(&mut self, code: &str) -> Value {
        self.expect_that(&format!("error {code}"), |frame| frame["type"] == "error" && frame["code"] == code).await
    }

    /// Waits for a frame of this type.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        self.expect_that(kind, |frame| frame["type"] == kind).await
    }

    /// Waits for a frame that fits. What comes before it stays for later.
    pub(crate) async fn expect_that(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.waiting.iter().position(&fits) {
            return self.waiting.remove(index).expect("it is there");
        }
        loop {
            let Some(frame) = self.read().await.unwrap_or_else(|| panic!("no {what}; unexpected: {:#?}", self.waiting))
            else {
                panic!("closed ({:?}) before {what}; unexpected: {:#?}", self.closed, self.waiting);
            };
            if fits(&frame) {
                return frame;
            }
            self.waiting.push_back(frame);
        }
    }

    /// Waits for the close with this code, and gives its reason. Frames before it stay for later.
    pub(crate) async fn expect_close(&mut self, code: u16) -> String {
        let (closed, reason) = self.until_closed().await.expect("a close frame");
        assert_eq!(closed, code, "{reason}");
        reason
    }

    /// Waits for the end of the connection, and gives the code and reason of the close frame if there was one.
    pub(crate) async fn until_closed(&mut self) -> Option<(u16, String)> {
        while let Some(frame) = self.read().await.unwrap_or_else(|| panic!("it is not closed: {:#?}", self.waiting)) {
            self.waiting.push_back(frame);
        }
        self.closed.clone().expect("it is closed")
    }

    /// The next frame, whatever it is.
    pub(crate) async fn next_frame(&mut self) -> Value {
        if let Some(frame) = self.waiting.pop_front() {
            return frame;
        }
        let frame = self.read().await.expect("a frame in time");
        frame.unwrap_or_else(|| panic!("closed: {:?}", self.closed))
    }

    /// Waits until the server has answered all that was sent so far: what it had queued for this session until then
    /// is here.
    pub(crate) async fn sync(&mut self) {
        // Not a ping: its answer may come before what waits.
        self.ask_for("ok", json!({"type": "hello"})).await;
    }

    /// The frames that came and were not expected; see [`sync`](Self::sync).
    pub(crate) fn unexpected(&self) -> impl Iterator<Item = &Value> {
        self.waiting.iter()
    }

    /// What came of a room, `message` and `sent`, in the order in which it came.
    pub(crate) fn heard(&self, room: &str) -> &[Value] {
        self.heard.get(room).map_or(&[], Vec::as_slice)
    }

    /// The `seq` of all that came of a room, in the order in which it came.
    pub(crate) fn seqs(&self, room: &str) -> Vec<u64> {
        self.heard(room).iter().map(|frame| frame["seq"].as_u64().expect("a number")).collect()
    }

    /// Checks that a room was heard in order, without gap or duplicate.
    pub(crate) fn assert_in_order(&self, room: &str) {
        let seqs = self.seqs(room);
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{room}: {seqs:?}");
    }

    /// Closes politely, and waits until the server has closed too.
    pub(crate) async fn close(mut self) {
        let _ = timeout(PATIENCE, self.socket.close(None)).await.expect("the server reads");
        self.until_closed().await;
    }

    /// Breaks the connection as a network that ends does: with a reset, without a word.
    pub(crate) fn drop_hard(self) {
        if let MaybeTlsStream::Plain(tcp) = self.socket.get_ref() {
            let _ = tcp.set_zero_linger();
        }
    }

    /// The next frame from the socket: none in time, or `Some(None)` at the end.
    async fn read(&mut self) -> Option<Option<Value>> {
        timeout(PATIENCE, self.read_frame()).await.ok()
    }

    async fn read_frame(&mut self) -> Option<Value> {
        while self.closed.is_none() {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(self.note(&text)),
                Some(Ok(Message::Close(frame))) => {
                    self.closed = Some(frame.map(|frame| (frame.code.into(), frame.reason.to_string())));
                    // Answers the close, and ends the connection, as clients do.
                    let _ = self.socket.flush().await;
                    let _ = self.socket.get_mut().shutdown().await;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.closed = Some(None),
            }
        }
        None
    }

    fn note(&mut self, text: &str) -> Value {
        let frame: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        if let ("message" | "sent", Some(room)) = (frame["type"].as_str().unwrap_or_default(), frame["room"].as_str()) {
            self.heard.entry(room.to_owned()).or_default().push(frame.clone());
        }
        frame
    }
}

/// A cid that nobody has used.
pub(crate) fn fresh_cid() -> String {
    format!("{:016x}", rand::random::<u64>())
}
