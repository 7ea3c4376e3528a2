//! A client that writes its own bytes, so that they can be wrong.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const TEXT: u8 = 0x81;
pub(super) const CLOSE: u8 = 0x88;
pub(super) const PING: u8 = 0x89;
pub(super) const PONG: u8 = 0x8a;

/// A TCP connection to the public port.
#[derive(Debug)]
pub(super) struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How many bytes came.
    pub(super) bytes: usize,
}

impl Raw {
    /// Connects and says nothing.
    pub(super) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), buffer: Vec::new(), bytes: 0 }
    }

    /// The same with a small receive buffer: what is not read is soon not taken.
    pub(super) async fn open_small(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self { stream: socket.connect(address).await.unwrap(), buffer: Vec::new(), bytes: 0 }
    }

    /// Connects as `user`, up to the welcome.
    pub(super) async fn session(address: SocketAddr, user: &str) -> Self {
        Self::open(address).await.begin(address, user, "{\"type\":\"hello\"}").await
    }

    /// Upgrades, says hello and takes the welcome.
    pub(super) async fn begin(self, address: SocketAddr, user: &str, hello: &str) -> Self {
        let mut raw = self.upgrade(address, user).await;
        raw.write(&frame(TEXT, hello.as_bytes())).await;
        let (_, welcome) = raw.read().await.unwrap();
        assert!(welcome.starts_with(b"{\"type\":\"welcome\""), "{}", String::from_utf8_lossy(&welcome));
        raw
    }

    /// Upgrades and says nothing.
    pub(super) async fn upgrade(mut self, address: SocketAddr, user: &str) -> Self {
        self.write(request(address, &format!("/ws?user={user}"), &[]).as_bytes()).await;
        let head = self.head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        self
    }

    /// Writes bytes; a server that has ended the connection need not take them.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("the server reads");
    }

    /// The head of an HTTP answer.
    pub(super) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                return String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
            }
            assert!(self.fill(4096).await, "no answer: {}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// The next frame: its first byte and its payload; none at the end.
    pub(super) async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        self.read_by(4096).await
    }

    /// The same, by so many bytes at a time.
    pub(super) async fn read_by(&mut self, bytes: usize) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(found) = self.take() {
                return Some(found);
            }
            if !self.fill(bytes).await {
                return None;
            }
        }
    }

    /// A frame that is here already.
    pub(super) fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let (start, length) = match *self.buffer.get(1)? {
            126 => (4, u16::from_be_bytes(self.buffer.get(2..4)?.try_into().unwrap()) as usize),
            127 => (10, u64::from_be_bytes(self.buffer.get(2..10)?.try_into().unwrap()) as usize),
            length => (2, length as usize),
        };
        let payload = self.buffer.get(start..start + length)?.to_vec();
        let first = self.buffer[0];
        self.buffer.drain(..start + length);
        Some((first, payload))
    }

    /// Reads at most so many bytes. False at the end.
    pub(super) async fn fill(&mut self, bytes: usize) -> bool {
        let mut piece = vec![0; bytes];
        let read = timeout(PATIENCE, self.stream.read(&mut piece)).await.expect("something comes");
        let count = read.unwrap_or(0);
        self.buffer.extend_from_slice(&piece[..count]);
        self.bytes += count;
        count > 0
    }

    /// The next text frame that has `part`.
    pub(super) async fn text_with(&mut self, part: &str) -> String {
        loop {
            let (first, payload) = self.read().await.unwrap_or_else(|| panic!("ended before {part}"));
            let text = String::from_utf8_lossy(&payload).into_owned();
            if first == TEXT && text.contains(part) {
                return text;
            }
        }
    }

    /// Waits for the end: the code and reason of the close frame before it, if there was one, and whether the end was a
    /// proper one rather than a reset.
    pub(super) async fn ended(&mut self) -> (Option<(u16, String)>, bool) {
        let mut close = None;
        while let Some((first, payload)) = self.read().await {
            if first == CLOSE {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                close = Some((code, String::from_utf8_lossy(&payload[2..]).into_owned()));
            }
        }
        let proper = matches!(self.stream.read(&mut [0]).await, Ok(0));
        (close, proper)
    }

    /// The code of the close frame.
    pub(super) async fn close_code(&mut self) -> Option<u16> {
        self.ended().await.0.map(|(code, _)| code)
    }

    /// Both halves, to write and read at once.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// From a stream that was taken apart.
    pub(super) fn from_stream(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new(), bytes: 0 }
    }
}

/// An upgrade request.
pub(super) fn request(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!(
        "GET {target} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n"
}

/// A masked frame with this first byte.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(first, payload.len() as u64);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

const MASK: [u8; 4] = [1, 2, 3, 4];

/// The head of a masked frame that says it has so many bytes.
pub(super) fn header(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(0x80 | length as u8),
        126..0x1_0000 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes
}
