//! What one client lived through, over all its connections.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// What one device of a user sent, was answered, received and acknowledged.
///
/// What is wrong by itself, such as a message that comes twice, is noted as it comes, so that a life of hours stays
/// small.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) user: String,
    /// The name that it says hello with.
    pub(crate) device: Option<String>,
    /// It never acknowledges, so that it begins every connection anew.
    pub(crate) silent: bool,
    pub(crate) counts: Counts,
    /// How far it is in each room.
    heard: BTreeMap<String, u64>,
    /// Answers of rooms of which it has nothing else: they may be answers to repeats, which say nothing of where the
    /// room begins for a device that is new to it.
    aside: BTreeMap<String, u64>,
    /// What it sent and has no answer to, in the order in which it was sent.
    unanswered: Vec<Value>,
    /// By cid, where `sent` said that it is stored.
    answered: BTreeMap<String, (String, u64)>,
    /// Where rooms began of which it had nothing: a device that is new to a room begins where its user stands.
    began: BTreeMap<String, u64>,
    /// The furthest that it has said of each room: delivered and read.
    said: BTreeMap<String, (u64, u64)>,
    /// The furthest that the server has taken on this connection.
    taken: BTreeMap<String, (u64, u64)>,
    /// The furthest receipt of each room and user: delivered and read.
    receipts: BTreeMap<(String, String), (u64, u64)>,
    /// The latest on this connection: a new one may be told what is older.
    shown: BTreeMap<(String, String), (u64, u64)>,
    /// Where it is connected, and the rooms of which something came on this connection.
    server: String,
    fresh: BTreeSet<String>,
    wrong: Vec<String>,
}

/// How much a life had in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: usize,
    pub(crate) answered: usize,
    /// Entries that came, `sent` in place of one's own.
    pub(crate) heard: usize,
    /// Entries that came from a sender on the same server, over the relay, and out of the store.
    pub(crate) local: usize,
    pub(crate) relayed: usize,
    pub(crate) healed: usize,
    /// Welcomes.
    pub(crate) connects: usize,
    pub(crate) receipts: usize,
    /// Positions that a server has taken.
    pub(crate) acks: usize,
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            sent: sum.sent + one.sent,
            answered: sum.answered + one.answered,
            heard: sum.heard + one.heard,
            local: sum.local + one.local,
            relayed: sum.relayed + one.relayed,
            healed: sum.healed + one.healed,
            connects: sum.connects + one.connects,
            receipts: sum.receipts + one.receipts,
            acks: sum.acks + one.acks,
        })
    }
}

impl Life {
    pub(crate) fn of(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    /// Notes a `send` frame before it goes out.
    pub(crate) fn sends(&mut self, frame: &Value) {
        self.counts.sent += 1;
        self.unanswered.push(frame.clone());
    }

    /// What is to be sent again, in the order in which it was sent first.
    pub(crate) fn to_repeat(&self) -> Vec<Value> {
        self.unanswered.clone()
    }

    /// Whether all that it sent is answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Where `sent` said that things are: cid, room, seq.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.answered.iter().map(|(cid, (room, seq))| (cid.as_str(), room.as_str(), *seq))
    }

    /// The furthest that it has said of a room, whether that got there or not: delivered and read.
    pub(crate) fn said(&self, room: &str) -> (u64, u64) {
        self.said.get(room).copied().unwrap_or_default()
    }

    /// Where rooms began of which it had nothing, and which it did not hear from the beginning.
    pub(crate) fn began(&self) -> impl Iterator<Item = (&str, u64)> {
        self.began.iter().map(|(room, seq)| (room.as_str(), *seq))
    }

    /// The furthest receipts: room, user, delivered and read.
    pub(crate) fn receipts(&self) -> impl Iterator<Item = (&str, &str, (u64, u64))> {
        self.receipts.iter().map(|((room, user), at)| (room.as_str(), user.as_str(), *at))
    }

    /// What was wrong as it came.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = String> {
        self.wrong.iter().map(|wrong| format!("{}: {wrong}", self.name()))
    }

    /// The user, and the device where it has a name.
    pub(crate) fn name(&self) -> String {
        let device = self.device.as_deref().map(|device| format!(" ({device})"));
        format!("{}{}", self.user, device.unwrap_or_default())
    }

    /// How far it is in a room.
    pub(crate) fn last(&self, room: &str) -> u64 {
        self.heard.get(room).or_else(|| self.aside.get(room)).copied().unwrap_or(0)
    }

    /// Whether it has heard anything of a room, answers to its own sends aside.
    pub(crate) fn knows(&self, room: &str) -> bool {
        self.heard.contains_key(room)
    }

    /// The fields of the next `hello`. Cursors acknowledge, so who is silent has none and hears all anew.
    pub(crate) fn hello(&mut self) -> Value {
        let mut hello = json!({"type": "hello", "trace": true});
        if let Some(device) = &self.device {
            hello["device"] = device.as_str().into();
        }
        // What a server has taken it may have lost with its life.
        self.taken.clear();
        if self.silent {
            self.heard.clear();
        } else {
            hello["cursors"] = json!(self.heard);
            for (room, seq) in &self.heard {
                self.said.entry(room.clone()).or_default().0 = *seq;
                self.taken.insert(room.clone(), (*seq, 0));
            }
        }
        hello
    }

    /// `ack` and `read` frames for all that was not taken yet on this connection.
    pub(crate) fn positions(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        for (room, seq) in self.heard.iter().filter(|_| !self.silent) {
            let said = self.said.entry(room.clone()).or_default();
            said.0 = *seq;
            let taken = self.taken.get(room).copied().unwrap_or_default();
            frames.extend((taken.0 < said.0).then(|| position("ack", room, said.0)));
            frames.extend((taken.1 < said.1).then(|| position("read", room, said.1)));
        }
        frames
    }

    /// A `read` frame for a room up to `seq`, which may be less than was said before.
    pub(crate) fn reads(&mut self, room: &str, seq: u64) -> Value {
        let said = self.said.entry(room.to_owned()).or_default();
        said.1 = said.1.max(seq);
        position("read", room, seq)
    }

    /// Notes a frame that came.
    pub(crate) fn hears(&mut self, frame: &Value) {
        match frame["type"].as_str() {
            Some("welcome") => {
                self.counts.connects += 1;
                self.server = text(frame, "server");
                self.fresh.clear();
                self.shown.clear();
            }
            Some("message") => self.sees(&text(frame, "room"), number(frame)),
            Some("sent") => self.is_told(frame),
            Some("trace") => self.is_traced(frame),
            Some("receipt") => self.gets(frame),
            Some("ok") => self.is_taken(frame),
            // Nothing is known of what was refused: it is said again.
            Some("error") if matches!(frame["code"].as_str(), Some("unavailable" | "busy")) => {}
            Some("error") => self.wrong.push(frame.to_string()),
            _ => {}
        }
    }

    fn sees(&mut self, room: &str, seq: u64) {
        self.counts.heard += 1;
        if self.device.is_some() && seq > 1 && !self.knows(room) {
            let first = self.aside.remove(room).filter(|aside| aside + 1 == seq).unwrap_or(seq);
            self.began.insert(room.to_owned(), first);
            self.heard.insert(room.to_owned(), seq - 1);
        }
        let last = self.heard.entry(room.to_owned()).or_default();
        let is_first = self.fresh.insert(room.to_owned());
        if seq != *last + 1 {
            let kind = if seq <= *last { "twice" } else { "out of order" };
            let when = if is_first { ", the first of it" } else { "" };
            let on = format!("connection {} to {}{when}", self.counts.connects, self.server);
            self.wrong.push(format!("{room} was heard {kind}: {seq} after {last} ({on})"));
        }
        *last = seq.max(*last);
    }

    /// `sent` stands in the message's place; the answer to a repeat comes after it.
    fn is_told(&mut self, frame: &Value) {
        let (cid, place) = (text(frame, "cid"), (text(frame, "room"), number(frame)));
        let waiting = self.unanswered.iter().position(|sent| sent["cid"] == cid.as_str());
        if let Some(index) = waiting {
            self.unanswered.remove(index);
            self.counts.answered += 1;
        } else if self.answered.get(&cid) != Some(&place) {
            self.wrong.push(format!("an answer to nothing, or another than before: {frame}"));
        }
        if self.device.is_some() && !self.knows(&place.0) {
            self.aside.insert(place.0.clone(), place.1.max(self.last(&place.0)));
        } else if place.1 > self.last(&place.0) {
            self.sees(&place.0, place.1);
        }
        self.answered.insert(cid, place);
    }

    fn is_taken(&mut self, frame: &Value) {
        let Some((kind, room, seq)) = frame["cid"].as_str().and_then(asked) else { return };
        self.counts.acks += 1;
        let taken = self.taken.entry(room.to_owned()).or_default();
        let at = if kind == "read" { &mut taken.1 } else { &mut taken.0 };
        *at = seq.max(*at);
    }

    fn is_traced(&mut self, frame: &Value) {
        match frame["path"].as_str() {
            Some("local") => self.counts.local += 1,
            Some("relay") => self.counts.relayed += 1,
            _ => self.counts.healed += 1,
        }
    }

    fn gets(&mut self, frame: &Value) {
        self.counts.receipts += 1;
        let (room, user) = (text(frame, "room"), text(frame, "user"));
        let furthest = self.receipts.entry((room.clone(), user.clone())).or_default();
        let shown = self.shown.entry((room, user)).or_default();
        let at = |field: &str, shown| frame[field].as_u64().unwrap_or(shown);
        let now = (at("delivered", shown.0), at("read", shown.1));
        if now.0 < shown.0 || now.1 < shown.1 {
            self.wrong.push(format!("a receipt went back from {shown:?}: {frame}"));
        }
        *shown = now;
        *furthest = (furthest.0.max(now.0), furthest.1.max(now.1));
    }
}

/// A frame that says how far it is, with that in its cid.
fn position(kind: &str, room: &str, seq: u64) -> Value {
    json!({"type": kind, "cid": format!("{kind} {room} {seq}"), "room": room, "seq": seq})
}

/// What such a cid says.
fn asked(cid: &str) -> Option<(&str, &str, u64)> {
    let mut words = cid.split(' ');
    Some((words.next()?, words.next()?, words.next()?.parse().ok()?))
}

fn text(frame: &Value, field: &str) -> String {
    frame[field].as_str().unwrap_or_else(|| panic!("no {field}: {frame}")).to_owned()
}

fn number(frame: &Value) -> u64 {
    frame["seq"].as_u64().unwrap_or_else(|| panic!("no seq: {frame}"))
}
