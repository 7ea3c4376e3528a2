//! One device of one user of a crowd.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::Shared;
use super::plan::{Role, user};
use crate::support::checker::Life;
use crate::support::client::fresh_cid;

/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);

/// How often what has no answer is sent again: a server may have refused it.
const REPEAT: Duration = Duration::from_secs(3);

/// How many messages may be without an answer.
const UNANSWERED: usize = 4;

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(4);

/// After how long without a word a connection counts as dead: it may have ended without one.
const SILENCE: Duration = Duration::from_secs(10);

/// The most bytes that a body has for its padding: a power of two.
const PADDING: u32 = 13;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(super) struct Member {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    /// Which of the lives is this device's.
    pub(super) life: usize,
    pub(super) role: Role,
    pub(super) random: StdRng,
    pub(super) rooms: [String; 2],
    pub(super) token: String,
    /// When it goes for good.
    pub(super) goes: Option<Instant>,
}

/// Why a stay on a server ended.
enum Turn {
    Move,
    Broken,
    Leave,
}

/// When a stay does what.
struct Times {
    end: Instant,
    write: Instant,
    repeats: Interval,
    acknowledges: Interval,
    pings: Interval,
    heard: Instant,
}

impl Member {
    pub(super) async fn live(mut self) {
        // Not all at once.
        sleep(Duration::from_millis(self.random.random_range(0..self.shared.plan.stay_ms.start.max(1)))).await;
        while !self.shared.end.is_cancelled() {
            let Some(socket) = self.connect().await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            if matches!(self.stay(socket).await, Turn::Leave) {
                return;
            }
        }
    }

    /// Connects to any server and says again what has no answer; none where that fails.
    async fn connect(&mut self) -> Option<Socket> {
        let server = {
            let doors = self.shared.doors.lock().unwrap();
            let index = self.random.random_range(0..doors.len().max(1));
            let door = doors.values().nth(index)?;
            // Who stays is who can be cut off without a word.
            if self.role == Role::Wanders { door.open.clone() } else { door.fragile.clone() }
        };
        let (mut socket, _) = timeout(CONNECTING, connect_async(server)).await.ok()?.ok()?;
        let mut hello = self.life(Life::hello);
        hello["token"] = self.token.as_str().into();
        socket.send(Message::text(hello.to_string())).await.ok()?;
        for frame in self.life(|life| life.to_repeat()) {
            socket.send(Message::text(frame.to_string())).await.ok()?;
        }
        Some(socket)
    }

    async fn stay(&mut self, mut socket: Socket) -> Turn {
        let mut times = self.times();
        let turn = self.turn(&mut socket, &mut times).await;
        self.shared.places.lock().unwrap().remove(&self.life);
        if self.random.random() {
            // Whether it gets there is the server's affair.
            let _ = timeout(CONNECTING, socket.close(None)).await;
        } else if let MaybeTlsStream::Plain(tcp) = socket.get_ref() {
            let _ = tcp.set_zero_linger();
        }
        turn
    }

    async fn turn(&mut self, socket: &mut Socket, times: &mut Times) -> Turn {
        let shared = Arc::clone(&self.shared);
        let goes = self.goes.unwrap_or_else(|| Instant::now() + Duration::from_secs(1 << 30));
        loop {
            let calm = shared.calm.is_cancelled();
            let frames = tokio::select! {
                () = shared.end.cancelled() => return Turn::Leave,
                () = shared.calm.cancelled(), if !calm && self.role == Role::GoesLate => return self.leave(),
                () = sleep_until(goes) => return self.leave(),
                () = sleep_until(times.end), if !calm && self.role.moves() => return Turn::Move,
                () = sleep_until(times.write), if !calm && !self.role.is_silent() => {
                    times.write = self.next_write();
                    // Who gets no answers does not go on and on.
                    if self.life(|life| life.to_repeat().len()) < UNANSWERED { vec![self.message()] } else { Vec::new() }
                }
                () = shared.probes.notified(), if calm && !self.role.is_silent() => vec![self.message()],
                _ = times.repeats.tick() => self.life(|life| life.to_repeat()),
                _ = times.acknowledges.tick() => self.acknowledge(),
                _ = times.pings.tick() => match times.heard.elapsed() > SILENCE {
                    true => return Turn::Broken,
                    false => vec![json!({"type": "ping"})],
                },
                message = socket.next() => match message {
                    Some(Ok(message)) => {
                        times.heard = Instant::now();
                        if let Message::Text(text) = message {
                            self.hear(&serde_json::from_str(&text).expect("JSON"));
                        }
                        Vec::new()
                    }
                    Some(Err(_)) | None => return Turn::Broken,
                },
            };
            for frame in frames {
                let sent = timeout(SILENCE, socket.send(Message::text(frame.to_string()))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return Turn::Broken;
                }
            }
        }
    }

    fn times(&mut self) -> Times {
        let ticks = |every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first is at once.
            ticks.reset();
            ticks
        };
        Times {
            end: Instant::now() + Duration::from_millis(self.random.random_range(self.shared.plan.stay_ms.clone())),
            write: self.next_write(),
            repeats: ticks(REPEAT),
            acknowledges: ticks(Duration::from_millis(self.shared.plan.acknowledge_ms)),
            pings: ticks(PING),
            heard: Instant::now(),
        }
    }

    fn leave(&self) -> Turn {
        self.shared.left.lock().unwrap().insert(user(self.number));
        Turn::Leave
    }

    fn hear(&self, frame: &Value) {
        if frame["type"] == "welcome" {
            let server = frame["server"].as_str().expect("a server").to_owned();
            self.shared.places.lock().unwrap().insert(self.life, server);
        }
        self.life(|life| life.hears(frame));
    }

    /// Acknowledges what was heard, and now and then says of a room that something of it was read.
    fn acknowledge(&mut self) -> Vec<Value> {
        let mut frames = self.life(Life::positions);
        let room = self.rooms[self.random.random_range(0..self.rooms.len())].clone();
        let last = self.life(|life| life.last(&room));
        // Once all are calm nothing new is said, or there would always be something on its way.
        let may_read = !self.role.is_silent() && !self.shared.calm.is_cancelled();
        if last > 0 && may_read && self.random.random_range(0..3) == 0 {
            let seq = self.random.random_range(1..=last);
            frames.push(self.life(|life| life.reads(&room, seq)));
        }
        frames
    }

    fn next_write(&mut self) -> Instant {
        Instant::now() + Duration::from_millis(self.random.random_range(self.shared.plan.write_ms.clone()))
    }

    /// A message to a room, or to another user.
    fn message(&mut self) -> Value {
        // Most are small.
        let most = 1_usize << self.random.random_range(0..=PADDING);
        let padding = self.random.random_range(0..most);
        let body = json!({"from": self.number, "padding": "x".repeat(padding)});
        let mut frame = json!({"type": "send", "cid": fresh_cid(), "body": body});
        if self.random.random_range(0..4) == 0 {
            // Few others, so that direct rooms are used more than once.
            let other = (self.number + self.random.random_range(1..4)) % self.shared.plan.users;
            frame["to"] = user(other).into();
        } else {
            frame["room"] = self.rooms[self.random.random_range(0..self.rooms.len())].as_str().into();
        }
        self.life(|life| life.sends(&frame));
        frame
    }

    fn life<T>(&self, act: impl FnOnce(&mut Life) -> T) -> T {
        act(&mut self.shared.lives[self.life].lock().unwrap())
    }
}
