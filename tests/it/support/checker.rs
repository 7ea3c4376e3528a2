//! Compares what clients lived through with what is stored and what the registry says.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// What one client lived through, over all its connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) user: String,
    /// The seqs that came of each room, in the order in which they came.
    seen: BTreeMap<String, Vec<u64>>,
    /// What it sent and has no answer to: by cid.
    unanswered: BTreeMap<String, Value>,
    /// By cid, where `sent` said that it is stored.
    answered: BTreeMap<String, (String, u64)>,
    /// What answers were that did not fit.
    wrong: Vec<String>,
}

/// One entry of the log, as the database has it.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) room: String,
    pub(crate) seq: u64,
    pub(crate) cid: Option<String>,
}

/// All that is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    /// By room and seq.
    pub(crate) entries: Vec<Stored>,
    /// Each room of each user.
    pub(crate) members: Vec<(String, String)>,
}

impl Life {
    pub(crate) fn of(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    /// Notes a `send` frame before it goes out.
    pub(crate) fn sends(&mut self, frame: &Value) {
        self.unanswered.insert(text(frame, "cid"), frame.clone());
    }

    /// What is to be sent again on the next connection.
    pub(crate) fn to_repeat(&self) -> Vec<Value> {
        self.unanswered.values().cloned().collect()
    }

    /// Whether all that it sent is answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Notes a frame that came.
    pub(crate) fn hears(&mut self, frame: &Value) {
        match frame["type"].as_str() {
            Some("message") => self.sees(&text(frame, "room"), number(frame)),
            Some("sent") => self.is_told(frame),
            // Nothing is known of a send that was refused: it is repeated on the next connection.
            Some("error") if matches!(frame["code"].as_str(), Some("unavailable" | "busy")) => {}
            Some("error") => self.wrong.push(frame.to_string()),
            _ => {}
        }
    }

    /// The last seq of each room: the cursors of the next connection.
    pub(crate) fn cursors(&self) -> HashMap<String, u64> {
        self.seen.iter().filter_map(|(room, seqs)| Some((room.clone(), *seqs.last()?))).collect()
    }

    /// How far it is in a room.
    pub(crate) fn last(&self, room: &str) -> u64 {
        self.seen.get(room).and_then(|seqs| seqs.last().copied()).unwrap_or(0)
    }

    /// How many entries it has seen.
    pub(crate) fn count(&self) -> usize {
        self.seen.values().map(Vec::len).sum()
    }

    fn sees(&mut self, room: &str, seq: u64) {
        self.seen.entry(room.to_owned()).or_default().push(seq);
    }

    /// `sent` stands in the message's place; the answer to a repeat comes after it.
    fn is_told(&mut self, frame: &Value) {
        let (cid, room, seq) = (text(frame, "cid"), text(frame, "room"), number(frame));
        if self.unanswered.remove(&cid).is_none() && self.answered.get(&cid) != Some(&(room.clone(), seq)) {
            self.wrong.push(format!("an answer to nothing: {frame}"));
        }
        if !self.seen.get(&room).is_some_and(|seqs| seqs.contains(&seq)) {
            self.sees(&room, seq);
        }
        self.answered.insert(cid, (room, seq));
    }
}

/// All that is wrong; empty where all is well. Those in `left` need not have seen the end.
pub(crate) fn faults(lives: &[Life], left: &BTreeSet<String>, log: &Log) -> Vec<String> {
    let mut faults = Vec::new();
    let heads = heads(log, &mut faults);
    let cids: HashMap<_, _> = log
        .entries
        .iter()
        .filter_map(|entry| Some((entry.cid.as_deref()?, (entry.room.as_str(), entry.seq))))
        .collect();
    for life in lives {
        faults.extend(life.wrong.iter().map(|wrong| format!("{}: {wrong}", life.user)));
        for (cid, (room, seq)) in &life.answered {
            if cids.get(cid.as_str()) != Some(&(room.as_str(), *seq)) {
                faults.push(format!("{}: {cid} was answered as {room}/{seq} and is not stored so", life.user));
            }
        }
        faults.extend(life.seen.iter().filter_map(|(room, seqs)| disorder(&life.user, room, seqs)));
    }
    let by_user: HashMap<_, _> = lives.iter().map(|life| (life.user.as_str(), life)).collect();
    for (user, room) in log.members.iter().filter(|(user, _)| !left.contains(user)) {
        let (Some(life), head) = (by_user.get(user.as_str()), heads.get(room.as_str()).copied().unwrap_or(0)) else {
            continue;
        };
        if life.last(room) != head {
            faults.push(format!("{user}: {room} ends at {head}, and it was heard up to {}", life.last(room)));
        }
    }
    faults
}

/// The heads of all rooms; a room must be contiguous from 1.
fn heads<'a>(log: &'a Log, faults: &mut Vec<String>) -> HashMap<&'a str, u64> {
    let mut heads = HashMap::new();
    for entry in &log.entries {
        let head = heads.entry(entry.room.as_str()).or_insert(0);
        if entry.seq != *head + 1 {
            faults.push(format!("the log of {} goes from {head} to {}", entry.room, entry.seq));
        }
        *head = entry.seq;
    }
    heads
}

/// What is wrong with the order in which a room was heard from its beginning.
fn disorder(user: &str, room: &str, seqs: &[u64]) -> Option<String> {
    let index = seqs.iter().enumerate().find(|(index, seq)| **seq != *index as u64 + 1)?.0;
    let around = &seqs[index.saturating_sub(3)..seqs.len().min(index + 4)];
    let kind = match seqs[..index].contains(&seqs[index]) {
        true => "twice",
        false => "out of order",
    };
    Some(format!("{user}: {room} was heard {kind}: ... {around:?} ..."))
}

/// Where the registry is wrong: it must name exactly the server of each user, and nobody else.
pub(crate) fn misplaced(truth: &BTreeMap<String, String>, registry: &BTreeMap<String, String>) -> Vec<String> {
    let users: BTreeSet<_> = truth.keys().chain(registry.keys()).collect();
    let differs = |user: &&&String| truth.get(**user) != registry.get(**user);
    let say = |user: &String| format!("{user} is on {:?}; the registry says {:?}", truth.get(user), registry.get(user));
    users.iter().filter(differs).map(|user| say(user)).collect()
}

fn text(frame: &Value, field: &str) -> String {
    frame[field].as_str().unwrap_or_else(|| panic!("no {field}: {frame}")).to_owned()
}

fn number(frame: &Value) -> u64 {
    frame["seq"].as_u64().unwrap_or_else(|| panic!("no seq: {frame}"))
}

mod tests {
    use serde_json::json;

    use super::*;

    fn message(seq: u64) -> Value {
        json!({"type": "message", "room": "r", "seq": seq})
    }

    fn log() -> Log {
        let entry = |seq: u64| Stored { room: "r".into(), seq, cid: (seq > 1).then(|| format!("c{seq}")) };
        Log { entries: (1..=4).map(entry).collect(), members: vec![("a".into(), "r".into())] }
    }

    fn judged(seqs: &[u64]) -> Vec<String> {
        let mut life = Life::of("a");
        seqs.iter().for_each(|seq| life.hears(&message(*seq)));
        faults(&[life], &BTreeSet::new(), &log())
    }

    #[test]
    fn the_checker_is_content_with_what_is_right() {
        let mut life = Life::of("a");
        life.sends(&json!({"type": "send", "cid": "c3"}));
        life.hears(&message(1));
        life.hears(&message(2));
        life.hears(&json!({"type": "sent", "cid": "c3", "room": "r", "seq": 3}));
        life.hears(&message(4));
        life.hears(&json!({"type": "sent", "cid": "c3", "room": "r", "seq": 3}));
        assert!(life.is_answered());
        assert_eq!(faults(&[life], &BTreeSet::new(), &log()), [""; 0]);
        let place: BTreeMap<_, _> = [("a".to_owned(), "local1".to_owned())].into();
        assert_eq!(misplaced(&place, &place), [""; 0]);
    }

    #[test]
    fn the_checker_finds_what_was_lost_doubled_or_reordered() {
        for wrong in [&[1, 2, 4][..], &[1, 2, 3], &[1, 2, 2, 3, 4], &[1, 3, 2, 4], &[2, 3, 4], &[]] {
            assert!(!judged(wrong).is_empty(), "{wrong:?}");
        }
        assert!(judged(&[1, 2, 2, 3, 4])[0].contains("twice"));
        assert!(judged(&[1, 3, 2, 4])[0].contains("out of order"));
    }

    #[test]
    fn the_checker_finds_an_answer_without_a_stored_message_and_a_log_with_a_hole() {
        let mut life = Life::of("a");
        (1..=4).for_each(|seq| life.hears(&message(seq)));
        life.sends(&json!({"type": "send", "cid": "c9"}));
        life.hears(&json!({"type": "sent", "cid": "c9", "room": "r", "seq": 4}));
        assert!(faults(&[life], &BTreeSet::new(), &log())[0].contains("not stored"));
        let mut holed = log();
        holed.entries.remove(1);
        assert!(faults(&[], &BTreeSet::new(), &holed)[0].contains("from 1 to 3"));
    }

    #[test]
    fn the_checker_finds_who_is_not_registered_or_still_is_or_elsewhere() {
        let places = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(user, server)| ((*user).to_owned(), (*server).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let truth = places(&[("a", "local1"), ("b", "local2")]);
        assert_eq!(misplaced(&truth, &places(&[("b", "local2")])).len(), 1);
        assert_eq!(misplaced(&truth, &places(&[("a", "local1"), ("b", "local1,local2"), ("c", "local1")])).len(), 2);
    }
}
