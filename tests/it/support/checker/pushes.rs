//! Who was pushed, who had to be, and who must not be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::{Log, Muted, Stored};

/// What the target of pushes got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pushes {
    /// By message id and user: the key of each call, and when it came.
    pub(crate) by: BTreeMap<(String, String), Vec<(String, Instant)>>,
}

impl Pushes {
    /// Notes a call.
    pub(crate) fn note(&mut self, message: &str, user: &str, key: &str) {
        let calls = self.by.entry((message.to_owned(), user.to_owned())).or_default();
        calls.push((key.to_owned(), Instant::now()));
    }

    /// How many messages were pushed to someone, each person counted.
    pub(crate) fn count(&self) -> usize {
        self.by.len()
    }

    /// How many calls came again under their key.
    pub(crate) fn repeats(&self) -> usize {
        self.by.values().map(|calls| calls.len() - 1).sum()
    }
}

/// What is wrong with what was pushed.
pub(super) fn faults(log: &Log, muted: &Muted, pushes: &Pushes) -> Vec<String> {
    let mut faults = missing(log, muted, pushes);
    let members = membership(log);
    let by_id: HashMap<_, _> = log.messages().map(|message| (message.id.as_str(), message)).collect();
    for ((id, user), calls) in &pushes.by {
        let Some(message) = by_id.get(id.as_str()) else {
            faults.push(format!("{user} was pushed {id}, which is no message"));
            continue;
        };
        faults.extend(unwanted(message, user, muted, &members).map(|why| format!("{user} {why}: {}", place(message))));
        let keys: BTreeSet<_> = calls.iter().map(|(key, _)| key).collect();
        if keys.len() > 1 {
            faults.push(format!("{user} was pushed {} under several keys: {keys:?}", place(message)));
        }
    }
    faults
}

/// Members who have never acknowledged a message, and were not pushed it.
fn missing(log: &Log, muted: &Muted, pushes: &Pushes) -> Vec<String> {
    let mut members: HashMap<&str, Vec<_>> = HashMap::new();
    for member in log.members.iter().filter(|member| !is_muted(muted, &member.user, &member.room)) {
        members.entry(&member.room).or_default().push(member);
    }
    let mut faults = Vec::new();
    for message in log.messages() {
        for member in members.get(message.room.as_str()).into_iter().flatten() {
            let has = message.seq <= member.delivered.max(member.read) || message.seq < member.since;
            let key = (message.id.clone(), member.user.clone());
            if !has && member.user != message.sender && !pushes.by.contains_key(&key) {
                let row = log.pushes.iter().find(|push| (&push.message, &push.user) == (&key.0, &key.1));
                let why = row.map_or("is not decided", |row| if row.dead { "was given up" } else { "waits" });
                faults.push(format!("{} was not pushed {}: it {why}", member.user, place(message)));
            }
        }
    }
    faults
}

/// Why someone should not have been pushed a message.
fn unwanted(message: &Stored, user: &str, muted: &Muted, members: &Membership) -> Option<&'static str> {
    if user == message.sender {
        return Some("was pushed an own message");
    }
    if is_muted(muted, user, &message.room) {
        return Some("was pushed though it is muted");
    }
    let stays = members.get(&(message.room.as_str(), user)).map_or(&[][..], Vec::as_slice);
    let was_in = stays.iter().any(|(since, until)| (*since..*until).contains(&message.seq));
    (!was_in).then_some("was pushed a message of a room without being in it then")
}

/// When who was in which room: from a seq to another, which is the first without them.
type Membership<'a> = HashMap<(&'a str, &'a str), Vec<(u64, u64)>>;

fn membership(log: &Log) -> Membership<'_> {
    let mut members: Membership<'_> = HashMap::new();
    for entry in &log.entries {
        for user in &entry.users {
            let stays = members.entry((&entry.room, user)).or_default();
            match entry.event.as_deref() {
                Some("created" | "joined") => stays.push((entry.seq, u64::MAX)),
                Some("left") => stays.iter_mut().for_each(|stay| stay.1 = stay.1.min(entry.seq)),
                _ => {}
            }
        }
    }
    members
}

fn is_muted(muted: &Muted, user: &str, room: &str) -> bool {
    muted.contains(&(user.to_owned(), None)) || muted.contains(&(user.to_owned(), Some(room.to_owned())))
}

fn place(message: &Stored) -> String {
    format!("{}/{} by {}", message.room, message.seq, message.sender)
}
