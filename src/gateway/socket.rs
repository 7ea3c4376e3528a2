//! One WebSocket, read and written side by side by the task that owns it.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::{SinkExt, StreamExt};
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, sleep_until, timeout};

use super::link::Link;
use crate::protocol::{Close, Return, ServerFrame};

/// How long a client is waited for at the end: to take the last words, and to answer them.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What happened on a socket.
pub(super) enum Happened {
    /// Something came, or the end; see [`WebSocket::recv`].
    Read(Option<Result<Message, axum::Error>>),
    /// All that was fed has left.
    Written(Result<(), axum::Error>),
    /// Not one byte has left for the whole limit.
    Stalled,
}

/// A WebSocket over a link.
#[derive(Debug)]
pub(super) struct Socket {
    /// Boxed, since it is large and moves from phase to phase of the connection.
    socket: Box<WebSocket>,
    link: Link,
    write_timeout: Duration,
    writing: Option<Progress>,
    /// Neither the library nor what the link has read ahead has a message, nor the beginning of one that could be completed
    /// without more from the client.
    drained: bool,
    /// Whose turn it is where both sides could move, so that neither starves the other.
    write_first: bool,
}

/// How far a write had come when it was last looked at.
#[derive(Debug, Clone, Copy)]
struct Progress {
    written: u64,
    look_at: Instant,
}

impl Socket {
    /// A socket whose writes fail when for `write_timeout` not one byte could leave.
    pub(super) fn new(socket: WebSocket, link: Link, write_timeout: Duration) -> Self {
        Self { socket: Box::new(socket), link, write_timeout, writing: None, drained: false, write_first: false }
    }

    /// Waits for the next message. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Result<Message, axum::Error>> {
        self.socket.recv().await
    }

    /// Whether something that was fed has not left yet.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Takes a message to be written. Does not wait as long as nothing that was fed before is stuck: feed only what
    /// [`is_writing`](Self::is_writing) allows.
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), axum::Error> {
        if self.writing.is_none() {
            self.note_progress();
        }
        self.socket.feed(message).await
    }

    fn note_progress(&mut self) {
        self.writing = Some(Progress { written: self.link.written(), look_at: Instant::now() + self.write_timeout });
    }

    /// Waits until something happens: reads if it may, and writes what was fed. Cancel-safe.
    pub(super) async fn happens(&mut self, may_read: bool) -> Happened {
        loop {
            let look_at = self.writing.map(|progress| progress.look_at);
            tokio::select! {
                biased;
                happened = self.moves(may_read) => return happened,
                () = at(look_at) => if self.is_stalled() { return Happened::Stalled },
            }
        }
    }

    async fn moves(&mut self, may_read: bool) -> Happened {
        poll_fn(|cx| {
            for write in [self.write_first, !self.write_first] {
                let happened = if write { self.poll_write(cx) } else { self.poll_read(may_read, cx) };
                if happened.is_ready() {
                    return happened;
                }
            }
            Poll::Pending
        })
        .await
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Happened> {
        if self.writing.is_none() {
            return Poll::Pending;
        }
        let outcome = ready!(self.socket.poll_flush_unpin(cx));
        (self.writing, self.write_first) = (None, false);
        Poll::Ready(Happened::Written(outcome))
    }

    /// Writes as much of what was fed as leaves at once. For the rest, wait for what [`happens`](Self::happens).
    pub(super) async fn write_now(&mut self) -> Result<(), axum::Error> {
        poll_fn(|cx| match self.poll_write(cx) {
            Poll::Ready(Happened::Written(outcome)) => Poll::Ready(outcome),
            _ => Poll::Ready(Ok(())),
        })
        .await
    }

    fn poll_read(&mut self, may_read: bool, cx: &mut Context<'_>) -> Poll<Happened> {
        if !may_read {
            return Poll::Pending;
        }
        if self.drained {
            // Most of the time it is not the client who has something to say: then the library need not be asked.
            ready!(self.link.poll_readable(cx));
        }
        let message = self.socket.poll_next_unpin(cx);
        // Where it was only not its turn any more, the link may have more that was read already.
        self.drained = message.is_pending() && has_budget_remaining();
        let message = ready!(message);
        if matches!(message, Some(Ok(Message::Ping(_)))) && !self.is_writing() {
            // The library has queued the answer.
            self.note_progress();
        }
        self.write_first = true;
        Poll::Ready(Happened::Read(message))
    }

    /// Whether nothing has left since the last look.
    fn is_stalled(&mut self) -> bool {
        let stalled = self.writing.is_some_and(|progress| progress.written == self.link.written());
        self.note_progress();
        stalled
    }

    /// Tells the client why it is closed and when within `spread` to come back, and waits a moment for its answer.
    pub(super) async fn close(mut self, close: Close, spread: Duration) {
        let reconnect_after_ms = match close.comes_back() {
            Return::Come | Return::Later => Some(rand::random_range(0..=spread.as_millis() as u64)),
            Return::WithToken | Return::Never => None,
        };
        let farewell = async {
            let closing = ServerFrame::closing(close, reconnect_after_ms).encode();
            self.socket.feed(Message::Text(closing.into_text())).await?;
            let frame = CloseFrame { code: close.code(), reason: close.reason().into() };
            self.socket.send(Message::Close(Some(frame))).await?;
            // The client's own close, or its silence, ends this.
            while self.socket.recv().await.is_some_and(|message| message.is_ok()) {}
            self.link.run_out().await.map_err(axum::Error::new)
        };
        // Whether it heard is its own affair: the session is gone already.
        let _ = timeout(CLOSE_LIMIT, farewell).await;
    }

    /// Lets a client go that has closed: it gets the answer to its close.
    pub(super) async fn part(mut self) {
        let _ = timeout(CLOSE_LIMIT, self.socket.flush()).await;
    }
}

/// Waits for a time, if there is one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
