//! Compares what clients lived through with what is stored, what the registry says and what was pushed.

mod life;
mod planted;
mod positions;
mod pushes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use life::{Counts, Life};
pub(crate) use positions::Watch;
pub(crate) use pushes::Pushes;

/// One entry of the log, as the database has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    pub(crate) room: String,
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) sender: String,
    pub(crate) cid: Option<String>,
    /// What happened, for a membership change, and to whom.
    pub(crate) event: Option<String>,
    pub(crate) users: Vec<String>,
}

/// One room of one user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Member {
    pub(crate) user: String,
    pub(crate) room: String,
    pub(crate) since: u64,
    pub(crate) delivered: u64,
    pub(crate) read: u64,
}

/// A push that the database still has.
#[derive(Debug, Clone)]
pub(crate) struct KeptPush {
    pub(crate) user: String,
    pub(crate) message: String,
    /// It was given up.
    pub(crate) dead: bool,
}

/// All that is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    /// By room and seq.
    pub(crate) entries: Vec<Stored>,
    pub(crate) members: Vec<Member>,
    pub(crate) pushes: Vec<KeptPush>,
}

/// Who wants no pushes: of one room, or of none at all.
pub(crate) type Muted = BTreeSet<(String, Option<String>)>;

/// The servers of each user.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

/// All that a run leaves to be judged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// One for each device.
    pub(crate) lives: Vec<Life>,
    /// Users who have left for good: they need not have seen the end.
    pub(crate) left: BTreeSet<String>,
    pub(crate) log: Log,
    /// Where the clients are, by what they were told.
    pub(crate) places: Places,
    /// Where they are by the registry.
    pub(crate) registry: Places,
    /// The registry may name servers besides the right ones: some were killed.
    pub(crate) killed: bool,
    pub(crate) muted: Muted,
    /// What was pushed, where there is a target.
    pub(crate) pushes: Option<Pushes>,
}

impl Log {
    /// The entries that are messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Stored> {
        self.entries.iter().filter(|entry| entry.event.is_none())
    }
}

impl Evidence {
    /// All that is wrong; empty where all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<_> = self.lives.iter().flat_map(Life::wrong).collect();
        let heads = heads(&self.log, &mut faults);
        faults.extend(self.unstored());
        faults.extend(self.unheard(&heads));
        faults.extend(self.unanswered());
        faults.extend(self.misplaced());
        faults.extend(positions::faults(&self.lives, &self.left, &self.log));
        if let Some(pushes) = &self.pushes {
            faults.extend(pushes::faults(&self.log, &self.muted, pushes));
        }
        faults
    }

    /// What was answered and is not there, or elsewhere.
    fn unstored(&self) -> impl Iterator<Item = String> {
        let named = |entry: &'_ Stored| entry.cid.clone().map(|cid| (cid, (entry.room.clone(), entry.seq)));
        let stored: HashMap<_, _> = self.log.entries.iter().filter_map(named).collect();
        self.lives.iter().flat_map(move |life| {
            let stored = &stored;
            let wrong = life.answers().filter(|(cid, room, seq)| {
                stored
                    .get(*cid)
                    .is_none_or(|(stored_room, stored_seq)| (stored_room.as_str(), stored_seq) != (*room, seq))
            });
            let say =
                |(cid, room, seq)| format!("{}: {cid} was answered as {room}/{seq} and is not stored so", life.name());
            wrong.map(say).collect::<Vec<_>>()
        })
    }

    /// Rooms that were not heard from their beginning, or not to their end. What one device has acknowledged, another
    /// that has nothing of the room need not hear.
    fn unheard(&self, heads: &HashMap<&str, u64>) -> Vec<String> {
        let mut faults = Vec::new();
        for member in self.log.members.iter().filter(|member| !self.left.contains(&member.user)) {
            let head = heads.get(member.room.as_str()).copied().unwrap_or(0);
            for life in self.lives.iter().filter(|life| life.user == member.user && life.last(&member.room) != head) {
                let (name, last) = (life.name(), life.last(&member.room));
                if life.knows(&member.room) || self.acknowledged(life, &member.room) < head {
                    faults.push(format!("{name}: {} ends at {head}, and it was heard up to {last}", member.room));
                }
            }
        }
        for life in &self.lives {
            let early = life.began().filter(|(room, seq)| self.acknowledged(life, room) + 1 < *seq);
            faults.extend(early.map(|(room, seq)| format!("{}: {room} was heard from {seq} on", life.name())));
        }
        faults
    }

    /// How far the other devices of a user have acknowledged a room.
    fn acknowledged(&self, of: &Life, room: &str) -> u64 {
        let others = self.lives.iter().filter(|life| life.user == of.user && life.device != of.device);
        others.map(|life| life.said(room).0).max().unwrap_or(0)
    }

    fn unanswered(&self) -> impl Iterator<Item = String> {
        let waits = |life: &&Life| !life.is_answered() && !self.left.contains(&life.user);
        let say = |life: &Life| format!("{} waits for {} answers", life.name(), life.to_repeat().len());
        self.lives.iter().filter(waits).map(say)
    }

    /// Where the registry is wrong: it must name exactly the servers of each user, and nobody else.
    fn misplaced(&self) -> Vec<String> {
        let users: BTreeSet<_> = self.places.keys().chain(self.registry.keys()).collect();
        let nowhere = BTreeSet::new();
        let mut faults = Vec::new();
        for user in users {
            let truth = self.places.get(user).unwrap_or(&nowhere);
            let registry = self.registry.get(user).unwrap_or(&nowhere);
            let right = if self.killed { truth.is_subset(registry) } else { truth == registry };
            if !right {
                faults.push(format!("{user} is on {truth:?}; the registry says {registry:?}"));
            }
        }
        faults
    }
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
