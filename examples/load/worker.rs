//! A thread of the generator: one poll over its sockets, and nothing that waits elsewhere.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::control::{Command, Shared};
use crate::dialect::Dialect;
use crate::dialer::Dialer;
use crate::plan::{NewRoom, Role, Share, User};
use crate::receipts::Receipts;
use crate::serve::Readiness;
use crate::socket::{Socket, Stage};
use crate::stats::Totals;
use crate::ticker::Ticker;
use crate::traffic::{Pace, Traffic};
use crate::ws;

/// How long a poll may wait: commands are looked for in between.
const POLL_LIMIT: Duration = Duration::from_millis(20);

/// The same while connections are dialled by the clock.
const DIAL_LIMIT: Duration = Duration::from_millis(1);

/// How often the clock of an open loop is looked at, at most.
const LEAST_TICK: Duration = Duration::from_micros(100);

/// How often what happens now and then is seen to, in ns.
const ROUND_NS: u64 = 100_000_000;

/// In how many rounds all acknowledgements are seen to: once a second.
const ACK_ROUNDS: usize = 10;

/// How many rooms a thread has made at once.
const ROOMS_AT_ONCE: usize = 8;

const READ_BYTES: usize = 64 * 1024;

const TICKER: Token = Token(usize::MAX - 1);

/// What all threads do alike.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) servers: Arc<[SocketAddr]>,
    pub(crate) dialect: Dialect,
    /// What all users show.
    pub(crate) auth_token: Option<Arc<str>>,
    /// Signs the token of a user; without it the user's name is said.
    pub(crate) secret: Option<Arc<str>>,
    pub(crate) durable: bool,
    pub(crate) payload: usize,
    pub(crate) acks: bool,
    pub(crate) pace: Pace,
    /// Time between two who do nothing, in ns.
    pub(crate) crowd_period: f64,
}

pub(crate) struct Worker {
    pub(crate) manner: Manner,
    pub(crate) shared: Arc<Shared>,
    commands: Receiver<Command>,
    poll: Poll,
    ticker: Ticker,
    pub(crate) users: Vec<User>,
    crowd: usize,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) dialer: Dialer,
    /// Rooms to be made, the last first.
    rooms: Vec<NewRoom>,
    pub(crate) rooms_under_way: usize,
    pub(crate) traffic: Traffic,
    pub(crate) receipts: Receipts,
    pub(crate) totals: Totals,
    /// Sockets with something queued.
    pub(crate) dirty: Vec<usize>,
    /// Where frames are written before they are masked.
    pub(crate) scratch: Vec<u8>,
    pub(crate) buffer: Vec<u8>,
    /// When what is looked at came, in ns since the start of the process.
    pub(crate) now: u64,
    next_round: u64,
    rounds: usize,
}

impl Worker {
    pub(crate) fn new(
        share: Share,
        manner: Manner,
        shared: Arc<Shared>,
        commands: Receiver<Command>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let ticker = Ticker::new(poll.registry(), TICKER)?;
        let Share { users, crowd, groups, mut rooms } = share;
        rooms.reverse();
        Ok(Self {
            traffic: Traffic::new(groups, manner.pace),
            sockets: users.iter().map(|_| Socket::new()).collect(),
            manner,
            shared,
            commands,
            poll,
            ticker,
            users,
            crowd,
            dialer: Dialer::default(),
            rooms,
            rooms_under_way: 0,
            receipts: Receipts::default(),
            totals: Totals::default(),
            dirty: Vec::new(),
            scratch: Vec::new(),
            buffer: vec![0; READ_BYTES],
            now: 0,
            next_round: 0,
            rounds: 0,
        })
    }

    /// Works until nobody can command it any more. Answers what it counted.
    pub(crate) fn run(mut self) -> io::Result<Totals> {
        let mut events = Events::with_capacity(1_024);
        loop {
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.obey(command)?,
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(self.totals),
                }
            }
            self.dial_due();
            self.flush_dirty();
            let limit = if self.dialer.is_busy() { DIAL_LIMIT } else { POLL_LIMIT };
            match self.poll.poll(&mut events, Some(limit)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    TICKER => self.ticker.take(),
                    Token(socket) => {
                        let ready = Readiness { to_write: event.is_writable(), ended: event.is_read_closed() };
                        self.serve(socket, ready);
                    }
                }
            }
            self.send_by_clock();
            self.see_to_rounds();
        }
    }

    fn obey(&mut self, command: Command) -> io::Result<()> {
        let active = self.users.len() - self.crowd;
        match command {
            Command::Connect => self.dialer.dial(0..active),
            Command::ConnectCrowd => {
                let (now, period) = (self.shared.now(), self.manner.crowd_period);
                self.dialer.dial_by_clock(active..self.users.len(), now, period);
            }
            Command::MakeRooms => self.make_rooms(),
            Command::Start => self.start()?,
            Command::Stop => {
                self.traffic.stop();
                self.ticker.set(Duration::ZERO)?;
            }
            Command::Slow(slow) => self.slow_down(slow),
            Command::Burst(count) => (0..count).for_each(|_| self.burst()),
            Command::DismissCrowd => {
                (active..self.users.len()).for_each(|socket| self.dismiss(socket));
                self.receipts.forget_from(active);
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let now = self.shared.now();
        self.traffic.start(now);
        if let Pace::Every(period) = self.manner.pace {
            self.ticker.set(Duration::from_nanos(period as u64).max(LEAST_TICK))?;
        }
        (0..self.traffic.steady()).for_each(|group| self.refill(group, now));
        Ok(())
    }

    fn slow_down(&mut self, slow: bool) {
        for socket in 0..self.sockets.len() {
            if self.users[socket].role == Role::Slow {
                self.sockets[socket].paused = slow;
                // What came meanwhile is not told again.
                self.serve(socket, Readiness { to_write: true, ended: true });
            }
        }
    }

    fn dismiss(&mut self, socket: usize) {
        if self.sockets[socket].stage != Stage::Open {
            return self.close(socket, None);
        }
        self.sockets[socket].queue(ws::Kind::Close, &1000_u16.to_be_bytes(), 0);
        // The server learns of it from the end of the connection, if not from this.
        let _ = self.sockets[socket].flush();
        self.close(socket, None);
    }

    /// Has the next rooms made, so many at once.
    pub(crate) fn make_rooms(&mut self) {
        while self.rooms_under_way < ROOMS_AT_ONCE
            && let Some(room) = self.rooms.pop()
        {
            self.rooms_under_way += 1;
            self.say(room.creator, room.frame.as_bytes());
        }
    }

    fn dial_due(&mut self) {
        let now = self.shared.now();
        while let Some((socket, at)) = self.dialer.next(now) {
            if let Err(error) = self.dial(socket, at) {
                self.dialer.done();
                self.close(socket, Some(format!("cannot be dialled: {error}")));
            }
        }
    }

    fn dial(&mut self, socket: usize, at: u64) -> io::Result<()> {
        let user = &self.users[socket];
        let stream = self.sockets[socket].dial(self.manner.servers[user.server], user.role == Role::Slow, at)?;
        self.poll.registry().register(stream, Token(socket), Interest::READABLE | Interest::WRITABLE)
    }

    /// Queues something to be said, as a frame.
    pub(crate) fn say(&mut self, socket: usize, text: &[u8]) {
        if !self.sockets[socket].queue(self.manner.dialect.frame(), text, rand::random()) {
            self.totals.unsent += 1;
        }
        self.dirty.push(socket);
    }

    fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for socket in dirty.drain(..) {
            if let Err(error) = self.sockets[socket].flush() {
                self.close(socket, Some(format!("broke: {}", error.kind())));
            }
        }
        // Closing queues nothing, so nothing was added meanwhile.
        self.dirty = dirty;
    }

    fn see_to_rounds(&mut self) {
        let now = self.shared.now();
        if now < self.next_round {
            return;
        }
        self.next_round = now + ROUND_NS;
        self.rounds += 1;
        let stalled = self.traffic.give_up(now);
        if stalled > 0 {
            self.totals.stalls += stalled;
            (0..self.traffic.steady()).for_each(|group| self.refill(group, now));
        }
        if self.manner.acks {
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        let (mut receipts, mut text) = (std::mem::take(&mut self.receipts), std::mem::take(&mut self.scratch));
        for (socket, room, seq) in receipts.due_acks(self.rounds % ACK_ROUNDS, ACK_ROUNDS) {
            text.clear();
            self.manner.dialect.write_ack(&mut text, room, seq);
            if self.sockets[socket].stage == Stage::Open && !self.sockets[socket].paused {
                self.say(socket, &text);
            }
        }
        (self.receipts, self.scratch) = (receipts, text);
    }

    /// Closes a socket; with a reason where nobody told it to.
    pub(crate) fn close(&mut self, socket: usize, why: Option<String>) {
        let stage = self.sockets[socket].leave();
        match stage {
            Stage::Open => _ = self.shared.open.fetch_sub(1, Relaxed),
            Stage::Dialing | Stage::Upgrading | Stage::Greeting => self.dialer.done(),
            Stage::Away => {}
        }
        if let Some(why) = why {
            self.totals.ended(why);
            self.shared.ended.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn worker(server: SocketAddr) -> Worker {
        let manner = Manner {
            servers: [server].into(),
            dialect: Dialect::Minichat,
            auth_token: None,
            secret: None,
            durable: false,
            payload: 128,
            acks: false,
            pace: Pace::Window(1),
            crowd_period: 0.0,
        };
        let user = User { name: "alice".into(), server: 0, role: Role::Counted, rooms: Vec::new() };
        let share = Share { users: vec![user], ..Share::default() };
        Worker::new(share, manner, Arc::default(), std::sync::mpsc::channel().1).unwrap()
    }

    #[test]
    fn an_end_that_comes_with_the_last_bytes_is_seen() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut worker = worker(server.local_addr().unwrap());
        worker.dial(0, 0).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        worker.serve(0, Readiness { to_write: true, ended: false });
        worker.flush_dirty();
        assert!(accepted.read(&mut [0; 1024]).unwrap() > 0);
        accepted.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
        drop(accepted);
        worker.serve(0, Readiness { to_write: false, ended: true });
        assert_eq!(worker.sockets[0].stage, Stage::Away);
        assert_eq!(worker.totals.ended.keys().collect::<Vec<_>>(), ["ended by the server"]);
    }
}
