//! The place where senders, the task of a peer, and the stream to it meet: one lock around a queue.
//!
//! The request stream reads the queue itself. So an item goes from its sender to the HTTP/2 stream in one hop, without
//! passing through the task of the peer, which only connects and listens.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio_stream::Stream;

use super::encode::Batch;
use super::item::{Item, Returned};
use super::queue::Queue;
use crate::ids::{BootId, ServerId, UserId};
use crate::wire;

/// The run of a server that is meant, and where it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) boot: BootId,
    pub(super) address: String,
}

/// One peer, as all who deal with it see it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: ServerId,
    state: Mutex<State>,
    /// The target changed, or the end has come.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    target: Target,
    /// The number of the stream that may read the queue. A stream that broke may be read by the transport for a while
    /// yet; it must not swallow what belongs to the next one.
    stream: u64,
    phase: Phase,
    /// Nothing more comes; the stream ends when the queue is empty.
    finishing: bool,
    /// The server has said that it does not know introductions.
    unacquaintable: bool,
    /// The server is gone from the cluster.
    left: bool,
    /// Wakes the request stream.
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    /// The hello is out.
    Greeting,
    /// The hello was accepted.
    Up,
}

/// One try at a stream.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) stream: u64,
    pub(super) target: Target,
}

impl Link {
    pub(super) fn new(server: ServerId, target: Target, queue: Queue) -> Self {
        let state = State {
            queue,
            target,
            stream: 0,
            phase: Phase::Down,
            finishing: false,
            unacquaintable: false,
            left: false,
            waker: None,
        };
        Self { server, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Changes the queue, and has the stream look at it.
    pub(super) fn put<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        self.and_wake(|state| change(&mut state.queue))
    }

    /// The same with something for the queue, where the server [responds](Self::responds); else it is given back.
    pub(super) fn put_if_responding<T, R>(
        &self,
        now: Instant,
        patience: Duration,
        what: T,
        change: impl FnOnce(&mut Queue, T) -> R,
    ) -> Result<R, T> {
        let mut state = self.lock();
        if !state.responds(now, patience) {
            return Err(what);
        }
        let result = change(&mut state.queue, what);
        wake(state);
        Ok(result)
    }

    pub(super) fn queue_bytes(&self) -> usize {
        self.lock().queue.bytes()
    }

    pub(super) fn is_up(&self) -> bool {
        self.lock().phase == Phase::Up
    }

    /// Whether the stream is up and every item that went out more than `patience` ago was answered.
    pub(super) fn responds(&self, now: Instant, patience: Duration) -> bool {
        self.lock().responds(now, patience)
    }

    /// Adds an introduction; what is given back is closed at once where the server does not know any.
    pub(super) fn introduce(&self, user: UserId) -> oneshot::Receiver<()> {
        self.and_wake(|state| if state.unacquaintable { oneshot::channel().1 } else { state.queue.introduce(user) })
    }

    pub(super) fn is_acquaintable(&self) -> bool {
        !self.lock().unacquaintable
    }

    /// Notes whether the server knows introductions.
    pub(super) fn note_introduces(&self, introduces: bool) {
        let mut state = self.lock();
        state.unacquaintable = !introduces;
        if !introduces {
            state.queue.forget_introductions();
        }
    }

    /// Takes in where the server is now. Another run of it gets nothing of what was meant for the one before.
    pub(super) fn retarget(&self, target: Target) {
        let moved = self.and_wake(|state| {
            if state.target == target {
                return false;
            }
            let restarted = state.target.boot != target.boot;
            state.target = target;
            state.end_stream();
            if restarted {
                state.queue.abandon();
            }
            true
        });
        if moved {
            self.changed.notify_one();
        }
    }

    /// Ends the link, unless its stream is up; says whether it did.
    pub(super) fn leave_if_down(&self) -> bool {
        let left = self.and_wake(|state| {
            state.left = state.phase != Phase::Up;
            if state.left {
                state.end_stream();
                state.queue.abandon();
            }
            state.left
        });
        if left {
            self.changed.notify_one();
        }
        left
    }

    /// Gives up what has grown too old. Says whether no item is left, sent or not.
    pub(super) fn expire(&self) -> bool {
        let (news, is_empty) = {
            let mut state = self.lock();
            (state.queue.expire(Instant::now()), state.queue.holds_nothing())
        };
        if news {
            self.and_wake(|_| ());
        }
        is_empty
    }

    /// Nothing more comes: the stream may end when it has sent what there is.
    pub(super) fn finish(&self) {
        self.and_wake(|state| state.finishing = true);
        self.changed.notify_one();
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.lock().finishing
    }

    /// Whether the server is gone, or the end has come and there is nothing left to say.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        state.left || state.finishing && state.queue.is_empty()
    }

    /// Begins a stream; the ones before get nothing more.
    pub(super) fn begin(&self) -> Attempt {
        self.and_wake(|state| {
            state.end_stream();
            state.phase = Phase::Greeting;
            Attempt { stream: state.stream, target: state.target.clone() }
        })
    }

    /// The hello was accepted: items may go out. False if the stream is not the current one any more.
    pub(super) fn open(&self, stream: u64) -> bool {
        self.and_wake(|state| {
            let current = state.stream == stream;
            if current {
                state.phase = Phase::Up;
            }
            current
        })
    }

    /// The stream broke, if it still was the current one.
    pub(super) fn broke(&self, stream: u64) {
        self.and_wake(|state| {
            if state.stream == stream {
                state.end_stream();
            }
        });
    }

    /// Returns once this stream is not the current one any more.
    pub(super) async fn superseded(&self, stream: u64) {
        while self.lock().stream == stream {
            self.changed.notified().await;
        }
    }

    /// Returns at once if the target changed or an end came lately, else when that happens.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes in answers that came on this stream, and gives back whose place was another, or not the only one.
    pub(super) fn answer(&self, response: wire::RelayResponse) -> Vec<Returned> {
        let (returned, _done) = self.lock().queue.answer(response, Instant::now());
        returned
    }

    /// Takes the items that were meant for a run that is over.
    pub(super) fn take_homeless(&self) -> Vec<Arc<Item>> {
        self.lock().queue.take_homeless()
    }

    fn and_wake<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        wake(state);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the stream look at what has changed, once the lock is given up: it takes it at once.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl State {
    fn responds(&self, now: Instant, patience: Duration) -> bool {
        self.phase == Phase::Up && self.queue.longest_out(now) <= patience
    }

    fn end_stream(&mut self) {
        self.stream += 1;
        self.phase = Phase::Down;
        self.queue.rewind();
    }

    fn next_batch(&mut self) -> Option<Batch> {
        if self.phase == Phase::Up { self.queue.next_batch(Instant::now()) } else { None }
    }

    fn poll(&mut self, stream: u64, context: &Context<'_>) -> Poll<Option<Batch>> {
        if self.stream != stream {
            return Poll::Ready(None);
        }
        if let Some(batch) = self.next_batch() {
            return Poll::Ready(Some(batch));
        }
        if self.finishing && self.phase == Phase::Up {
            return Poll::Ready(None);
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The request stream of one attempt: the hello alone, then what queues.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) link: Arc<Link>,
    pub(super) stream: u64,
    pub(super) hello: Option<wire::Hello>,
}

impl Stream for Outgoing {
    type Item = Batch;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Batch>> {
        if let Some(hello) = self.hello.take() {
            let head = wire::RelayRequest { hello: Some(hello), ..wire::RelayRequest::default() };
            return Poll::Ready(Some(Batch { head, ..Batch::default() }));
        }
        self.link.lock().poll(self.stream, context)
    }
}

#[cfg(test)]
mod tests;
