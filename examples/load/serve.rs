//! What a thread does with its sockets: the way to its welcome, and what is received after it.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use jsonwebtoken::{EncodingKey, Header};

use crate::dialect::Heard;
use crate::mark::Mark;
use crate::plan::Role;
use crate::sequence::Place;
use crate::socket::{Socket, Stage};
use crate::traffic::Due;
use crate::worker::{Manner, Worker};
use crate::ws::{self, Frame};

/// How long a token is valid, in s.
const TOKEN_SECONDS: u64 = 24 * 3600;

/// What a poll says of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readiness {
    pub(crate) to_write: bool,
    /// Nothing more will come after what is here.
    pub(crate) ended: bool,
}

/// Why a connection is over.
type Ended = String;

impl Worker {
    /// Goes on with a socket on which something happened.
    pub(crate) fn serve(&mut self, socket: usize, ready: Readiness) {
        if let Err(why) = self.advance(socket, ready) {
            self.close(socket, Some(why));
        }
    }

    fn advance(&mut self, socket: usize, ready: Readiness) -> Result<(), Ended> {
        let broke = |error: io::Error| format!("broke: {}", error.kind());
        match self.sockets[socket].stage {
            Stage::Away => return Ok(()),
            Stage::Dialing => {
                if !self.sockets[socket].is_connected().map_err(broke)? {
                    return Ok(());
                }
                self.ask_for_upgrade(socket)?;
            }
            _ if ready.to_write => self.sockets[socket].flush().map_err(broke)?,
            _ => {}
        }
        self.receive(socket, ready.ended)
    }

    fn ask_for_upgrade(&mut self, socket: usize) -> Result<(), Ended> {
        let user = &self.users[socket];
        let host = self.manner.servers[user.server].to_string();
        let token = self.manner.secret.as_ref().map(|secret| token(&user.name, secret)).transpose()?;
        let path = self.manner.dialect.path(&user.name, token.is_none());
        let request = ws::request(&host, &path, token.as_deref());
        self.sockets[socket].stage = Stage::Upgrading;
        self.sockets[socket].queue_raw(request.as_bytes());
        self.dirty.push(socket);
        Ok(())
    }

    fn receive(&mut self, socket: usize, ended: bool) -> Result<(), Ended> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.receive_into(socket, &mut buffer, ended);
        self.buffer = buffer;
        outcome
    }

    /// Reads until nothing is left. A read that does not fill the buffer has taken all, but for the end, of which one is not
    /// told again.
    fn receive_into(&mut self, socket: usize, buffer: &mut [u8], ended: bool) -> Result<(), Ended> {
        while !self.sockets[socket].paused {
            let read = self.sockets[socket].read(buffer).map_err(|error| format!("broke: {}", error.kind()))?;
            let Some(count) = read else { break };
            if count == 0 {
                return Err("ended by the server".into());
            }
            self.digest(socket, &buffer[..count], |socket| &mut socket.partial, Self::take_frames)?;
            if count < buffer.len() && !ended {
                break;
            }
        }
        Ok(())
    }

    /// Takes bytes, together with those that were left over. `take` answers how many it used.
    fn digest(
        &mut self,
        socket: usize,
        bytes: &[u8],
        left_over: impl Fn(&mut Socket) -> &mut Vec<u8>,
        take: impl FnOnce(&mut Self, usize, &[u8]) -> Result<usize, Ended>,
    ) -> Result<(), Ended> {
        if left_over(&mut self.sockets[socket]).is_empty() {
            let used = take(self, socket, bytes)?;
            left_over(&mut self.sockets[socket]).extend_from_slice(&bytes[used..]);
        } else {
            let mut all = std::mem::take(left_over(&mut self.sockets[socket]));
            all.extend_from_slice(bytes);
            let used = take(self, socket, &all)?;
            all.drain(..used);
            // Empty, it is given back: most sockets have nothing left over.
            *left_over(&mut self.sockets[socket]) = if all.is_empty() { Vec::new() } else { all };
        }
        Ok(())
    }

    /// Answers how many bytes were taken.
    fn take_frames(&mut self, socket: usize, bytes: &[u8]) -> Result<usize, Ended> {
        let mut used = 0;
        if self.sockets[socket].stage == Stage::Upgrading {
            let Some(length) = ws::upgraded(bytes)? else { return Ok(0) };
            used = length;
            self.sockets[socket].stage = Stage::Greeting;
            self.greet(socket);
        }
        // All that came with one read came now.
        self.now = self.shared.now();
        while let Some((frame, length)) = ws::decode(&bytes[used..]).map_err(|error| error.to_string())? {
            used += length;
            match frame {
                Frame::Data(data) => self.digest(socket, data, |socket| &mut socket.cut, Self::take_messages)?,
                Frame::Ping(payload) => {
                    self.sockets[socket].queue(ws::Kind::Pong, payload, rand::random());
                    self.dirty.push(socket);
                }
                Frame::Close(code) => return Err(format!("closed with {code}")),
                Frame::Other => {}
            }
        }
        Ok(used)
    }

    fn greet(&mut self, socket: usize) {
        let (user, Manner { dialect, auth_token, .. }) = (&self.users[socket], &self.manner);
        let greeting = dialect.greeting(&user.name, &user.rooms, auth_token.as_deref());
        self.say(socket, greeting.as_bytes());
    }

    /// Answers how many bytes were taken.
    fn take_messages(&mut self, socket: usize, bytes: &[u8]) -> Result<usize, Ended> {
        let mut used = 0;
        while let Some((heard, length)) = self.manner.dialect.read(&bytes[used..]).map_err(|error| error.to_string())? {
            used += length;
            self.hear(socket, heard, self.now);
        }
        Ok(used)
    }

    fn hear(&mut self, socket: usize, heard: Heard<'_>, now: u64) {
        match heard {
            Heard::Signal(mark) => {
                let place = self.receipts.numbered(socket, mark.flow, mark.number);
                self.delivered(socket, place, mark, now);
            }
            Heard::Message { room, seq, mark } => {
                let place = self.receipts.entry(socket, room, seq);
                match mark {
                    // The log may be in order and what its senders said not, or be there twice.
                    Some(mark) => {
                        let place = place.max(self.receipts.numbered(socket, mark.flow, mark.number));
                        self.delivered(socket, place, mark, now);
                    }
                    None => self.judge(place),
                }
            }
            Heard::Sent { room, seq, mark } => {
                let place = self.receipts.entry(socket, room, seq);
                self.judge(place);
                match mark {
                    Some(_) if place == Place::Again => {}
                    Some(mark) => self.committed(mark, now),
                    None => self.room_made(),
                }
            }
            Heard::Welcome => self.welcomed(socket, now),
            Heard::Room => self.room_made(),
            Heard::Ping(answer) => self.say(socket, answer),
            Heard::Error(code) => {
                let code = String::from_utf8_lossy(code).into_owned();
                *self.totals.errors.entry(code).or_default() += 1;
            }
            Heard::Other => {}
        }
    }

    fn welcomed(&mut self, socket: usize, now: u64) {
        if self.sockets[socket].stage != Stage::Greeting {
            return;
        }
        self.sockets[socket].stage = Stage::Open;
        self.dialer.done();
        self.shared.open.fetch_add(1, Relaxed);
        let dialed = self.sockets[socket].dialed;
        if let Some(span) = self.shared.span_at(dialed) {
            self.totals.span(span).connects.add(now.saturating_sub(dialed));
        }
    }

    fn room_made(&mut self) {
        self.shared.rooms.fetch_add(1, Relaxed);
        self.rooms_under_way = self.rooms_under_way.saturating_sub(1);
        self.make_rooms();
    }

    fn committed(&mut self, mark: Mark, now: u64) {
        self.totals.answered += 1;
        self.shared.answered.fetch_add(1, Relaxed);
        if let Some(span) = self.shared.span_at(mark.at) {
            self.totals.span(span).commits.add(now.saturating_sub(mark.at));
        }
    }

    /// Counts what is not as it should be.
    fn judge(&mut self, place: Place) {
        match place {
            Place::Next => {}
            Place::Late | Place::Unknown => self.totals.out_of_order += 1,
            Place::Again => self.totals.doubled += 1,
        }
    }

    fn delivered(&mut self, socket: usize, place: Place, mark: Mark, now: u64) {
        if !self.traffic.is_for(mark.flow, socket) {
            self.totals.strayed += 1;
            return;
        }
        self.judge(place);
        if matches!(place, Place::Again | Place::Unknown) {
            return;
        }
        if self.users[socket].role != Role::Counted {
            if let Some(span) = self.shared.span() {
                self.totals.span(span).aside += 1;
            }
            return;
        }
        self.totals.delivered += 1;
        self.shared.delivered.fetch_add(1, Relaxed);
        if let Some(span) = self.shared.span() {
            self.totals.span(span).delivered += 1;
        }
        if let Some(span) = self.shared.span_at(mark.at) {
            self.totals.span(span).latency.add(now.saturating_sub(mark.at));
        }
        if let Some(group) = self.traffic.arrived(mark.flow, now) {
            self.refill(group, now);
        }
    }

    /// Sends what a group may by its window.
    pub(crate) fn refill(&mut self, group: usize, now: u64) {
        while let Some(due) = self.traffic.due_by_window(group, now) {
            self.send(due);
        }
    }

    /// Sends a message in each group that waits for a burst.
    pub(crate) fn burst(&mut self) {
        let now = self.shared.now();
        for due in self.traffic.burst(now) {
            self.send(due);
        }
    }

    /// Sends what is due by the clock.
    pub(crate) fn send_by_clock(&mut self) {
        let now = self.shared.now();
        while let Some(due) = self.traffic.due_by_clock(now) {
            self.send(due);
        }
    }

    fn send(&mut self, due: Due) {
        let Some(flow) = self.traffic.flow(due.flow) else { return };
        let from = flow.from;
        if self.sockets[from].stage != Stage::Open {
            self.totals.unsent += 1;
            return;
        }
        self.scratch.clear();
        let mark = Mark { flow: due.flow, number: due.number, at: due.at };
        let Manner { dialect, durable, payload, .. } = self.manner;
        dialect.write_message(&mut self.scratch, durable, &flow.target, mark, payload);
        let text = std::mem::take(&mut self.scratch);
        self.say(from, &text);
        self.scratch = text;
        if durable {
            self.totals.asked += 1;
            self.shared.asked.fetch_add(1, Relaxed);
        }
        self.totals.expected += u64::from(due.recipients);
        self.shared.expected.fetch_add(due.recipients.into(), Relaxed);
        if let Some(span) = self.shared.span() {
            self.totals.span(span).sent += 1;
        }
    }
}

/// A token for a user, as the application would give it.
fn token(user: &str, secret: &str) -> Result<String, Ended> {
    let claims = serde_json::json!({ "sub": user, "exp": jsonwebtoken::get_current_timestamp() + TOKEN_SECONDS });
    let key = EncodingKey::from_secret(secret.as_bytes());
    key.and_then(|key| jsonwebtoken::encode(&Header::default(), &claims, &key)).map_err(|error| error.to_string())
}
