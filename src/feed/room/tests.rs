//! A model of one room on one server: a log that grows, arrivals in any order, any number of times or never, readers
//! that connect, fall behind and leave. Whatever the order, each reader sees each entry once and in order.

use std::collections::{BTreeMap, HashMap};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::*;
use crate::ids::{Cid, MessageId, ServerId};
use crate::protocol::{Frame, TracePath};
use crate::sessions::Expected;
use crate::store::{Content, Entry, Event};

const USERS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 400;
const SEEDS: u64 = 400;
const PAGE_ROWS: usize = 3;

/// Little enough that sessions fall behind for want of room.
const QUEUE_BYTES: usize = 400;

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn server() -> ServerId {
    "s1".parse().unwrap()
}

/// The room's log and members, as a store has them.
#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    /// Each member with the seq of their last join.
    members: BTreeMap<UserId, u64>,
}

impl Log {
    fn head(&self) -> u64 {
        self.entries.len() as u64
    }

    fn commit(&mut self, sender: &UserId, cid: Option<Cid>, content: Content) -> Entry {
        let seq = self.head() + 1;
        if let Content::Event(event) = &content {
            for user in &event.users {
                match event.kind {
                    EventKind::Left => _ = self.members.remove(user),
                    EventKind::Joined | EventKind::Created => _ = self.members.insert(user.clone(), seq),
                }
            }
        }
        let (room, id, sender) = ("r".parse().unwrap(), MessageId(seq), sender.clone());
        let entry = Entry { room, seq, id, sender, cid, at: 0, content };
        self.entries.push(entry.clone());
        entry
    }

    /// What a member may read after `after`; none for who is not one.
    fn page(&self, user: &UserId, after: u64, rows: usize) -> Option<Vec<Entry>> {
        let since = *self.members.get(user)?;
        Some(self.entries.iter().skip(after.max(since - 1) as usize).take(rows).cloned().collect())
    }
}

/// A session with what its task does, in small.
struct Reader {
    session: Arc<Session>,
    /// All up to here is read; none where it is live.
    behind: Option<u64>,
    /// Something was noted since the last read began.
    noted: bool,
    fetched: Option<(u64, Option<Vec<Entry>>, u64)>,
    owed: Vec<Owed>,
    /// What its doings came to, for others to be told.
    effects: Vec<Effect>,
    seen: Vec<u64>,
    answered: HashMap<String, u32>,
}

impl Reader {
    fn new(session: Arc<Session>) -> Self {
        let (owed, effects, seen, answered) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        Self { session, behind: None, noted: false, fetched: None, owed, effects, seen, answered }
    }

    fn enter(&mut self, state: &mut State, cursor: u64, head: u64) {
        self.effects.push(state.detach(self.session.id));
        state.attach(&self.session, cursor + 1);
        self.effects.push(state.learn(head));
        let live = cursor >= head && state.go_live(self.session.id, cursor) == Standing::Live;
        self.behind = (!live).then_some(cursor);
    }

    fn take(&mut self, state: &mut State) {
        let waiting = self.session.take().unwrap_or_default();
        self.noted |= !waiting.notes.is_empty();
        for (_, known) in waiting.notes {
            match state.standing(self.session.id) {
                Standing::Out => self.enter(state, 0, known),
                Standing::CatchingUp if self.behind.is_none() => {
                    self.behind = state.from(self.session.id).map(|from| from - 1);
                }
                Standing::CatchingUp | Standing::Live => {}
            }
            self.effects.push(state.learn(known));
        }
        waiting.frames.iter().for_each(|frame| self.see(frame));
        for owed in waiting.owed {
            if self.behind.is_some_and(|read| read < owed.seq) {
                self.owed.push(owed);
            } else {
                self.pay(&owed);
            }
        }
    }

    fn fetch(&mut self, log: &Log, rows: usize) {
        if let (Some(after), None) = (self.behind, &self.fetched) {
            self.noted = false;
            self.fetched = Some((after, log.page(&self.session.user, after, rows), log.head()));
        }
    }

    fn read(&mut self, state: &mut State) {
        let Some((after, page, head)) = self.fetched.take() else { return };
        let entries = match page {
            None if self.noted => return,
            None => return self.leave(state),
            Some(entries) => entries,
        };
        let last = entries.last().map_or(after.max(head), |last| last.seq);
        self.effects.push(state.learn(head));
        match state.go_live(self.session.id, last) {
            Standing::Out => return self.leave(state),
            Standing::Live => self.behind = None,
            Standing::CatchingUp => self.behind = Some(last),
        }
        for entry in entries {
            let arrival = Arrival::new(entry, server(), TracePath::Healed, None);
            let (super::super::Given::Sent(frame) | super::super::Given::Message(frame)) =
                arrival.frame_for(&self.session);
            self.see(&frame);
        }
        let owed: Vec<_> = self.owed.extract_if(.., |owed| owed.seq <= last).collect();
        owed.iter().for_each(|owed| self.pay(owed));
    }

    fn leave(&mut self, state: &mut State) {
        self.effects.push(state.detach(self.session.id));
        self.behind = None;
        let owed: Vec<_> = self.owed.drain(..).collect();
        owed.iter().for_each(|owed| self.pay(owed));
    }

    fn pay(&mut self, owed: &Owed) {
        if self.session.answered(&owed.cid) {
            *self.answered.entry(owed.cid.to_string()).or_default() += 1;
        }
    }

    fn see(&mut self, frame: &Frame) {
        let frame: Value = serde_json::from_str(&frame.clone().into_text()).unwrap();
        self.seen.push(frame["seq"].as_u64().unwrap());
        if frame["type"] == "sent" {
            *self.answered.entry(frame["cid"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
}

struct World {
    random: StdRng,
    log: Log,
    room: Room,
    network: Vec<Arrival>,
    readers: Vec<Reader>,
    /// A session that has read the heads, and has not entered yet: with its cursor and the head.
    connecting: Option<(Reader, u64, u64)>,
    sessions: u64,
    sent: Vec<(SessionId, String)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut log = Log::default();
        let users = USERS[..2].iter().copied().map(user).collect();
        log.commit(&user("a"), None, Content::Event(Event { kind: EventKind::Created, users }));
        let room = Room::new("r".parse().unwrap());
        let (network, readers, sent) = (Vec::new(), Vec::new(), Vec::new());
        let random = StdRng::seed_from_u64(seed);
        Self { random, log, room, network, readers, connecting: None, sessions: 0, sent }
    }

    fn step(&mut self) {
        match self.random.random_range(0..12) {
            0 | 1 => self.send(),
            2 => self.change(),
            3..=5 => self.deliver(),
            6 => self.heal(),
            7 => self.connect(),
            8 => self.disconnect(),
            _ => self.read(),
        }
        self.tell_all();
        self.check();
    }

    fn tell_all(&mut self) {
        let effects: Vec<_> = self.readers.iter_mut().flat_map(|reader| reader.effects.drain(..)).collect();
        effects.iter().for_each(|effect| self.tell(effect));
    }

    /// A message from here, whose arrival has an origin, or from another server, which may be lost, or twice.
    fn send(&mut self) {
        let members: Vec<_> = self.log.members.keys().cloned().collect();
        if members.is_empty() {
            return;
        }
        let sender = members[self.random.random_range(0..members.len())].clone();
        let origin = self.readers.iter().find(|reader| reader.session.user == sender);
        let origin = origin.map(|reader| Arc::clone(&reader.session)).filter(|_| self.random.random());
        let cid: Cid = format!("c{}", self.log.head()).parse().unwrap();
        if let Some(origin) = &origin {
            assert_eq!(origin.expect(&cid), Expected::Now);
            self.sent.push((origin.id, cid.to_string()));
        }
        let entry = self.log.commit(&sender, Some(cid), Content::Body("1".into()));
        self.travel(entry, origin);
    }

    fn change(&mut self) {
        let who = user(USERS[self.random.random_range(0..USERS.len())]);
        let kind = if self.log.members.contains_key(&who) { EventKind::Left } else { EventKind::Joined };
        let entry = self.log.commit(&who, None, Content::Event(Event { kind, users: vec![who.clone()] }));
        self.travel(entry, None);
    }

    fn travel(&mut self, entry: Entry, origin: Option<Arc<Session>>) {
        let is_change = matches!(entry.content, Content::Event(_));
        // A change that is lost is found by a comparison with the store only, which is not in this model.
        let copies = if origin.is_some() || is_change { 1..=2 } else { 0..=2 };
        for _ in 0..self.random.random_range(copies) {
            self.network.push(Arrival::new(entry.clone(), server(), TracePath::Local, origin.clone()));
        }
    }

    fn deliver(&mut self) {
        if !self.network.is_empty() {
            let index = self.random.random_range(0..self.network.len());
            let arrival = self.network.swap_remove(index);
            self.arrive(arrival);
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        if let Some((reader, ..)) = &self.connecting {
            reader.session.note(&self.room.id, arrival.seq);
        }
        let effect = self.room.lock().arrive(arrival);
        self.tell(&effect);
    }

    fn tell(&self, effect: &Effect) {
        let connecting = self.connecting.iter().map(|(reader, ..)| reader);
        for reader in self.readers.iter().chain(connecting) {
            for (_, seq) in effect.joined.iter().filter(|(user, _)| *user == reader.session.user) {
                reader.session.note(&self.room.id, *seq);
            }
        }
    }

    fn heal(&mut self) {
        let next = {
            let state = self.room.lock();
            if !state.has_gap() {
                return;
            }
            state.next()
        };
        let entries: Vec<_> = self.log.entries.iter().skip(next as usize - 1).take(PAGE_ROWS).cloned().collect();
        for entry in entries {
            self.arrive(Arrival::new(entry, server(), TracePath::Healed, None));
        }
    }

    /// First the heads are read, and some steps later the room is entered.
    fn connect(&mut self) {
        if let Some((mut reader, cursor, head)) = self.connecting.take() {
            if cursor > 0 {
                reader.enter(&mut self.room.lock(), cursor, head);
            }
            self.readers.push(reader);
            return;
        }
        if self.readers.len() >= 5 {
            return;
        }
        self.sessions += 1;
        let who = user(USERS[self.random.random_range(0..USERS.len())]);
        let since = self.log.members.get(&who).copied();
        let head = self.log.head();
        let cursor = since.map_or(0, |since| self.random.random_range(since.max(1)..=head));
        let session = Arc::new(Session::new(SessionId(self.sessions), who, None, false, QUEUE_BYTES));
        let mut reader = Reader::new(session);
        reader.seen.extend((cursor > 0).then_some(cursor));
        self.connecting = Some((reader, cursor, head));
    }

    fn disconnect(&mut self) {
        if self.readers.len() > 2 {
            let index = self.random.random_range(0..self.readers.len());
            let reader = self.readers.swap_remove(index);
            self.sent.retain(|(session, _)| *session != reader.session.id);
            let effect = self.room.lock().detach(reader.session.id);
            self.tell(&effect);
            let state = self.room.lock();
            if state.is_unused() {
                // As when it is taken out of the map and another takes its place.
                drop(state);
                self.room = Room::new("r".parse().unwrap());
            }
        }
    }

    fn read(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.readers.len());
        let reader = &mut self.readers[index];
        let mut state = self.room.lock();
        match self.random.random_range(0..3) {
            0 => reader.take(&mut state),
            1 => reader.fetch(&self.log, PAGE_ROWS),
            // Only what has been taken is written before a page.
            _ => {
                reader.take(&mut state);
                reader.read(&mut state);
            }
        }
    }

    /// Each entry once and in order; the next one is the next of the log, or one's own later join.
    fn check(&self) {
        for reader in &self.readers {
            for pair in reader.seen.windows(2) {
                let joins = |entry: &Entry| match &entry.content {
                    Content::Event(event) => {
                        event.kind == EventKind::Joined && event.users.contains(&reader.session.user)
                    }
                    Content::Body(_) => false,
                };
                let follows = pair[1] == pair[0] + 1;
                let rejoins = pair[1] > pair[0] && joins(&self.log.entries[pair[1] as usize - 1]);
                assert!(follows || rejoins, "{} saw {:?}", reader.session.user, reader.seen);
            }
            assert!(reader.answered.values().all(|count| *count == 1), "{:?}", reader.answered);
        }
    }

    /// Everything arrives, gaps are filled, everyone reads to the end.
    fn settle(&mut self) {
        if self.connecting.is_some() {
            self.connect();
        }
        for _ in 0..200 {
            self.deliver();
            let head = self.log.head();
            if self.network.is_empty() {
                let effect = self.room.lock().learn(head);
                self.tell(&effect);
            }
            self.heal();
            for reader in &mut self.readers {
                let mut state = self.room.lock();
                reader.take(&mut state);
                reader.fetch(&self.log, 100);
                reader.read(&mut state);
            }
            self.tell_all();
        }
        self.check();
    }
}

fn play(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    let head = world.log.head();
    for reader in &world.readers {
        if let Some(since) = world.log.members.get(&reader.session.user) {
            let last = reader.seen.last().copied().unwrap_or(0);
            assert_eq!(last, head, "{} (since {since}) saw {:?}", reader.session.user, reader.seen);
        }
        for (_, cid) in world.sent.iter().filter(|(session, _)| *session == reader.session.id) {
            assert!(reader.answered.contains_key(cid), "{} got no answer to {cid}", reader.session.user);
        }
    }
}

#[test]
fn whatever_the_order_each_session_sees_each_entry_once_and_in_order() {
    for seed in 0..SEEDS {
        if let Err(panic) = std::panic::catch_unwind(|| play(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
