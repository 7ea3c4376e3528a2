//! How far people are by the store, compared with what they said and with what was there before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Life, Log, Member};

/// The positions of all members as they were seen last: none may go back.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// By room, user and the join that it counts from: delivered and read.
    seen: BTreeMap<(String, String, u64), (u64, u64)>,
}

impl Watch {
    /// Looks at the positions as they are now, and answers what went back.
    pub(crate) fn sees(&mut self, members: &[Member]) -> Vec<String> {
        let mut faults = Vec::new();
        for member in members {
            let now = (member.delivered, member.read);
            let key = (member.room.clone(), member.user.clone(), member.since);
            let before = self.seen.insert(key, now).unwrap_or_default();
            if now.0 < before.0 || now.1 < before.1 {
                faults.push(format!("{} went back in {} from {before:?} to {now:?}", member.user, member.room));
            }
        }
        faults
    }
}

/// Positions that do not say what the clients said. Of those in `left` the last words may be lost.
pub(super) fn faults(lives: &[Life], left: &BTreeSet<String>, log: &Log) -> Vec<String> {
    let mut said: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    for member in &log.members {
        for life in lives.iter().filter(|life| life.user == member.user) {
            let furthest = said.entry((&member.user, &member.room)).or_default();
            let (delivered, read) = life.said(&member.room);
            *furthest = (furthest.0.max(delivered), furthest.1.max(read));
        }
    }
    let mut faults = Vec::new();
    let mut known = HashMap::new();
    for member in &log.members {
        let stored = (member.delivered, member.read);
        known.insert((member.room.as_str(), member.user.as_str()), stored);
        let Some(said) = said.get(&(member.user.as_str(), member.room.as_str())) else { continue };
        let beyond = stored.0 > said.0 || stored.1 > said.1;
        let behind = (stored.0 < said.0 || stored.1 < said.1) && !left.contains(&member.user);
        if beyond || behind {
            faults.push(format!("{} is at {stored:?} in {} and has said {said:?}", member.user, member.room));
        }
    }
    faults.extend(lives.iter().flat_map(|life| untrue(life, &known)));
    faults
}

/// Receipts of what is not stored.
fn untrue(life: &Life, known: &HashMap<(&str, &str), (u64, u64)>) -> Vec<String> {
    let mut faults = Vec::new();
    for (room, user, at) in life.receipts() {
        // Who has left has no position any more.
        if known.get(&(room, user)).is_some_and(|stored| at.0 > stored.0 || at.1 > stored.1) {
            faults.push(format!("{} got a receipt of {user} in {room} beyond what is stored: {at:?}", life.name()));
        }
    }
    faults
}
