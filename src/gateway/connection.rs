//! The loop of one socket. Nothing else writes to it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Message;
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep_until, timeout};
use tracing::debug;

use super::catch_up::{CatchUp, Fetched};
use super::fault::close_of;
use super::socket::{Happened, Socket};
use crate::auth::{Auth, Identity};
use crate::ids::{Cid, RoomId};
use crate::protocol::{ClientFrame, Close, Code, Frame, Hello, Parsed, Reject, ServerFrame};
use crate::router::Router;
use crate::sessions::Session;

/// How many bytes are handed to the socket at a time: on a slow link, one such piece is what a pong may have to wait
/// for. Not more than the socket gathers before it writes, so that handing it over never waits.
const PIECE_BYTES: usize = super::WRITE_BUFFER_BYTES;

/// The most that the protocol puts before a frame of a server (RFC 6455, section 5.2).
const HEADER_BYTES: usize = 10;

/// How long the answers to sends that are on their way are waited for when the server is about to stop.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(2);

/// What a connection is given.
pub(super) struct Given {
    pub(super) socket: Socket,
    pub(super) session: Arc<Session>,
    pub(super) router: Router,
    pub(super) auth: Auth,
    pub(super) catch_up: CatchUp,
    pub(super) limits: Limits,
}

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How often the client is pinged.
    pub(super) ping_interval: Duration,
    /// How many bytes may wait to be written before nothing more is read.
    pub(super) queue_bytes: usize,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed it, or it broke.
    Gone,
    /// The server closes it.
    Close(Close),
}

/// One socket with its session.
pub(super) struct Connection {
    given: Given,
    outgoing: VecDeque<Frame>,
    outgoing_bytes: usize,
    /// When the proof of who this is ends.
    expiry: Option<Pin<Box<Sleep>>>,
    ping: Interval,
    /// Something was heard since the last ping.
    heard: bool,
}

impl Connection {
    pub(super) fn new(given: Given, identity: &Identity) -> Self {
        let period = given.limits.ping_interval;
        let mut ping = interval_at(Instant::now() + period, period);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let expiry = identity.expires.map(|end| Box::pin(sleep_until(end)));
        Self { given, outgoing: VecDeque::new(), outgoing_bytes: 0, expiry, ping, heard: true }
    }

    /// Queues a frame to be written before all that comes.
    pub(super) fn queue(&mut self, frame: Frame) {
        self.outgoing_bytes += frame.len();
        self.outgoing.push_back(frame);
    }

    /// Enters a room of which the client has all up to `cursor`, `head` being its latest entry.
    pub(super) fn enter(&mut self, room: &RoomId, cursor: u64, head: u64) {
        self.given.catch_up.enter(room, cursor, head);
    }

    /// Answers a frame.
    pub(super) async fn answer(&mut self, parsed: Parsed) {
        let urgent = matches!(parsed.frame, Ok(ClientFrame::Ping));
        let answer = match parsed.frame {
            Ok(ClientFrame::Hello(hello)) => Some(Box::pin(self.greet_again(parsed.cid, hello)).await),
            _ => self.given.router.accept(&self.given.session, parsed).await,
        };
        match answer {
            Some(frame) if urgent => self.queue_early(frame),
            Some(frame) => self.queue(frame),
            None => {}
        }
    }

    /// Queues a frame to be written soon: on a slow link a client must not take what waits for silence. Not first of
    /// all, since that may be the welcome.
    fn queue_early(&mut self, frame: Frame) {
        self.outgoing_bytes += frame.len();
        self.outgoing.insert(self.outgoing.len().min(1), frame);
    }

    /// Serves the socket until it ends. Who is sent away because the server stops gets the answers that are on their way.
    pub(super) async fn run(&mut self) -> End {
        loop {
            let step = match self.given.session.ended() {
                Some(Close::GoingAway) => return Box::pin(self.give_last_answers()).await,
                Some(close) => return End::Close(close),
                None => self.step().await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Waits for the next thing to do, and does it.
    async fn step(&mut self) -> Result<(), End> {
        if !self.given.socket.is_writing() {
            self.write_piece().await?;
        }
        let Given { socket, session, catch_up, limits, .. } = &mut self.given;
        let may_read = self.outgoing_bytes < limits.queue_bytes;
        let idle = !socket.is_writing();
        tokio::select! {
            // First what moves on the socket, then the end of the proof, then what is to be read from the store, and only then
            // what is new.
            biased;
            happened = socket.happens(may_read) => {
                self.check_proof()?;
                self.follow(happened).await
            }
            () = passed(&mut self.expiry) => Err(End::Close(Close::Unauthenticated)),
            page = catch_up.next(), if idle => self.take_page(page),
            () = session.ready(), if idle => Ok(()),
            () = session.ending(), if !idle => Ok(()),
            // A client that takes what is written is there.
            _ = self.ping.tick(), if idle => self.ping().await,
        }
    }

    /// Ends the session where the proof of who this is has ended, before what is said after that is heard. To look at the
    /// clock costs less than to ask the timer, which is asked where nothing moves.
    fn check_proof(&self) -> Result<(), End> {
        let is_over = self.expiry.as_ref().is_some_and(|end| end.deadline() <= Instant::now());
        if is_over { Err(End::Close(Close::Unauthenticated)) } else { Ok(()) }
    }

    /// Reads nothing more from the client, and goes on until all its sends are answered, at most for a while.
    async fn give_last_answers(&mut self) -> End {
        let answers = async {
            loop {
                // Asked before the outbox is emptied: an answer is queued in the same step in which it is not waited
                // for any more.
                let awaited = self.given.session.awaits_answers();
                if !self.given.socket.is_writing() {
                    let fed = self.write_piece().await?;
                    if fed {
                        continue;
                    }
                    if !awaited {
                        return Ok(());
                    }
                }
                self.last_step().await?;
            }
        };
        match timeout(LAST_ANSWERS_LIMIT, answers).await {
            Ok(Err(end)) => end,
            Ok(Ok(())) | Err(_) => End::Close(Close::GoingAway),
        }
    }

    async fn last_step(&mut self) -> Result<(), End> {
        let Given { socket, session, catch_up, .. } = &mut self.given;
        let idle = !socket.is_writing();
        tokio::select! {
            biased;
            happened = socket.happens(false) => self.follow(happened).await,
            page = catch_up.next(), if idle => self.take_page(page),
            () = session.queued(), if idle => Ok(()),
        }
    }

    fn take_page(&mut self, page: Fetched) -> Result<(), End> {
        self.given.catch_up.take(page).into_iter().for_each(|frame| self.queue(frame));
        Ok(())
    }

    async fn follow(&mut self, happened: Happened) -> Result<(), End> {
        match happened {
            Happened::Read(message) => self.receive(message).await,
            Happened::Written(outcome) => {
                if !self.outgoing.is_empty() {
                    // Who has much to write takes turns with the others, a piece each.
                    yield_now().await;
                }
                written(outcome)
            }
            Happened::Stalled => Err(End::Close(Close::Slow)),
        }
    }

    /// Takes what others have queued, where nothing else is to be written. Rooms are entered before frames are written, so
    /// that nothing is written of a room that is not entered.
    fn take_waiting(&mut self) {
        let Some(waiting) = self.given.session.take() else { return };
        for (room, known) in waiting.notes {
            self.given.catch_up.note(&room, known);
        }
        self.outgoing_bytes += waiting.frames.iter().map(Frame::len).sum::<usize>();
        self.outgoing = waiting.frames;
        for owed in waiting.owed {
            if let Some(sent) = self.given.catch_up.owe(owed) {
                self.queue(sent);
            }
        }
    }

    async fn receive(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.heard = true;
        match message {
            Some(Ok(Message::Text(text))) => self.answer(Parsed::read(&text)).await,
            Some(Ok(Message::Binary(_))) => return Err(End::Close(Close::Binary)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(End::Gone),
            Some(Err(error)) => return Err(close_of(error).map_or(End::Gone, End::Close)),
        }
        // Who has much to say, be it pongs, takes turns with the others: what was read ahead is there without waiting.
        consume_budget().await;
        Ok(())
    }

    /// A later `hello` with a fresh token of the same user extends the session.
    async fn greet_again(&mut self, cid: Option<Cid>, hello: Hello) -> Frame {
        let Some(token) = hello.token else { return ServerFrame::Ok { cid: cid.as_ref() }.encode() };
        let refused = match self.given.auth.verify(&token).await {
            Ok(identity) if identity.user == self.given.session.user => {
                self.expiry = identity.expires.map(|end| Box::pin(sleep_until(end)));
                return ServerFrame::Ok { cid: cid.as_ref() }.encode();
            }
            Ok(_) => Reject::new(Code::BadToken, "token: it is another user's"),
            Err(denied) => Reject::new(Code::BadToken, format!("token: {}", denied.reason())),
        };
        ServerFrame::error(cid.as_ref(), &refused).encode()
    }

    /// Hands the socket some of what is to be written; says whether there was any. If that is all and leaves at once, it is
    /// written with this; else wait until the socket has [written](Happened::Written) it.
    async fn write_piece(&mut self) -> Result<bool, End> {
        if self.outgoing.is_empty() {
            self.take_waiting();
        }
        let mut bytes = 0;
        while bytes < PIECE_BYTES
            && let Some(frame) = self.outgoing.pop_front()
        {
            bytes += frame.len() + HEADER_BYTES;
            self.outgoing_bytes -= frame.len();
            written(self.given.socket.feed(Message::Text(frame.into_text())).await)?;
        }
        if self.outgoing.is_empty() {
            written(self.given.socket.write_now().await)?;
        }
        Ok(bytes > 0)
    }

    async fn ping(&mut self) -> Result<(), End> {
        if !std::mem::take(&mut self.heard) {
            return Err(End::Close(Close::Silent));
        }
        written(self.given.socket.feed(Message::Ping(bytes::Bytes::new())).await)
    }

    /// The socket, to be closed once the seat is given up.
    pub(super) fn into_socket(self) -> Socket {
        self.given.socket
    }
}

fn written(outcome: Result<(), axum::Error>) -> Result<(), End> {
    outcome.map_err(|error| {
        debug!(%error, "a socket broke");
        End::Gone
    })
}

/// Waits for a timer, if there is one.
async fn passed(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
