//! Messages are appended in SQLite: what is known of them is read, what comes of that is written.
//!
//! SQLite runs on a thread of its own, and all that is asked of it goes there and back. So a step is a script of several
//! statements, and answers with one row. Values are bound one by one: in a JSON text they would be searched for again and
//! again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

use serde::Deserialize;

use super::super::append::stored;
use super::super::connection::{Arg, Db};
use super::super::failure::Failure;
use super::super::{Append, Appended};
use crate::ids::{Cid, RoomId, UserId};

/// There are scripts for 1, 2, 4, ... messages. What a script has space for may stay empty.
const SIZES: usize = 9;

/// The most messages that one script takes; a batch of more needs several.
const MOST: usize = 1 << (SIZES - 1);

type Scripts = [OnceLock<String>; SIZES];

/// When it is, and two JSON arrays: a [`Fact`] of each message, and a [`Known`] of each that is stored already.
type Facts = (i64, String, String);

/// What is known of the place that a message is for.
#[derive(Deserialize)]
struct Fact {
    /// Which message of those that were asked for.
    place: usize,
    /// The head of its room, where its sender is a member.
    head: Option<i64>,
    /// The version of the room's members.
    version: Option<i64>,
}

/// The stored message that has a message's cid.
#[derive(Deserialize)]
struct Known {
    /// Which message of those that were asked for.
    place: usize,
    seq: i64,
    id: i64,
    at: i64,
    room: String,
    body: String,
}

/// What some messages come to.
struct Plan<'a> {
    now: i64,
    outcomes: Vec<Appended>,
    fresh: Vec<(&'a Append, i64)>,
    heads: HashMap<&'a RoomId, i64>,
    /// The first to store a cid, and its outcome.
    leaders: HashMap<(&'a UserId, &'a Cid), (&'a Append, Appended)>,
}

/// Appends a batch, in a transaction that it begins and leaves open.
pub(in crate::store) async fn append(db: &mut Db, batch: &[Append]) -> Result<Vec<Appended>, Failure> {
    let mut outcomes = Vec::with_capacity(batch.len());
    for (number, some) in batch.chunks(MOST).enumerate() {
        let script = if number == 0 { begin_script(some.len()) } else { facts_script(some.len()) };
        outcomes.extend(append_some(db, script, some).await?);
    }
    Ok(outcomes)
}

/// Appends what one script takes. `facts` is the script that asks for what is known of as many messages.
async fn append_some(db: &mut Db, facts: &'static str, some: &[Append]) -> Result<Vec<Appended>, Failure> {
    let asked: Vec<_> = some
        .iter()
        .flat_map(|append| [append.room.as_str(), append.sender.as_str(), append.cid.as_str()])
        .map(Arg::Text)
        .collect();
    let (now, facts, known): Facts = db.one(facts, &asked).await?.ok_or(sqlx::Error::RowNotFound)?;
    let plan = Plan::of(some, now, list(&facts)?, list(&known)?)?;
    if !plan.fresh.is_empty() {
        db.execute(store_script(plan.fresh.len()), &plan.args()).await?;
    }
    Ok(plan.outcomes)
}

fn list<'a, T: Deserialize<'a>>(json: &'a str) -> Result<Vec<T>, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::Away(error.to_string()))
}

impl<'a> Plan<'a> {
    fn of(some: &'a [Append], now: i64, mut facts: Vec<Fact>, known: Vec<Known>) -> Result<Self, Failure> {
        facts.sort_unstable_by_key(|fact| fact.place);
        if !facts.iter().map(|fact| fact.place).eq(0..some.len()) {
            return Err(Failure::Away("the database answered for other messages".into()));
        }
        let known: HashMap<_, _> = known.into_iter().map(|known| (known.place, known)).collect();
        let mut plan = Self {
            now,
            outcomes: Vec::with_capacity(some.len()),
            fresh: Vec::with_capacity(some.len()),
            heads: HashMap::new(),
            leaders: HashMap::with_capacity(some.len()),
        };
        for (append, fact) in some.iter().zip(facts) {
            let outcome = match known.get(&fact.place) {
                Some(known) => known.repeated_by(append, fact.version),
                None => plan.decide(append, &fact),
            };
            plan.outcomes.push(outcome);
        }
        Ok(plan)
    }

    /// Decides about a message whose cid is not in the database.
    fn decide(&mut self, append: &'a Append, fact: &Fact) -> Appended {
        let leader = match self.leaders.entry((&append.sender, &append.cid)) {
            Entry::Occupied(leader) => return repeat(leader.get(), append),
            Entry::Vacant(leader) => leader,
        };
        let (Some(head), Some(version)) = (fact.head, fact.version) else { return Appended::NotMember };
        let seq = *self.heads.entry(&append.room).and_modify(|head| *head += 1).or_insert(head + 1);
        self.fresh.push((append, seq));
        let outcome = stored((seq, append.id.0 as i64, self.now, version), true);
        leader.insert((append, outcome.clone()));
        outcome
    }

    /// The values for the [`store_script`].
    fn args(&self) -> Vec<Arg<'_>> {
        let space = size_of(self.fresh.len());
        let mut args = Vec::with_capacity(2 + 8 * space);
        args.push(Arg::Number(self.now));
        args.extend(self.heads.iter().flat_map(|(room, head)| [Arg::Text(room.as_str()), Arg::Number(*head)]));
        args.extend((self.heads.len()..space).flat_map(|_| [Arg::MaybeText(None), Arg::MaybeText(None)]));
        args.push(Arg::Number(self.now));
        args.extend(self.fresh.iter().flat_map(|(append, seq)| {
            [
                Arg::Text(append.room.as_str()),
                Arg::Number(*seq),
                Arg::Number(append.id.0 as i64),
                Arg::Text(append.sender.as_str()),
                Arg::Text(append.cid.as_str()),
                Arg::Text(&append.body),
            ]
        }));
        args
    }
}

impl Known {
    /// The outcome for a message that has the same cid.
    fn repeated_by(&self, append: &Append, version: Option<i64>) -> Appended {
        match version {
            Some(version) if self.room == append.room.as_str() && *self.body == *append.body => {
                stored((self.seq, self.id, self.at, version), false)
            }
            _ => Appended::CidReused,
        }
    }
}

/// The outcome for a message whose cid was stored just before.
fn repeat((leader, outcome): &(&Append, Appended), append: &Append) -> Appended {
    match outcome {
        Appended::Stored { seq, id, at, members_version, .. }
            if leader.room == append.room && leader.body == append.body =>
        {
            Appended::Stored { seq: *seq, id: *id, at: *at, members_version: *members_version, fresh: false }
        }
        _ => Appended::CidReused,
    }
}

/// Begins a transaction, and goes on as [`facts_script`].
fn begin_script(messages: usize) -> &'static str {
    static SCRIPTS: Scripts = [const { OnceLock::new() }; SIZES];
    script(&SCRIPTS, messages, |space| format!("BEGIN IMMEDIATE; {}", facts(space)))
}

/// Answers [`Facts`] of up to so many messages. Of each message: room, sender, cid.
fn facts_script(messages: usize) -> &'static str {
    static SCRIPTS: Scripts = [const { OnceLock::new() }; SIZES];
    script(&SCRIPTS, messages, facts)
}

fn facts(space: usize) -> String {
    let rows: Vec<_> = (0..space).map(|place| format!("({place}, ?, ?, ?)")).collect();
    format!(
        "WITH given (place, room, sender, cid) AS (VALUES {})
        SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER),
            json_group_array(json_object(
                'place', given.place,
                'head', iif(members.since IS NULL, NULL, rooms.head),
                'version', rooms.version
            )),
            json_group_array(json_object(
                'place', given.place, 'seq', known.seq, 'id', known.id, 'at', known.at,
                'room', known.room, 'body', known.body
            )) FILTER (WHERE known.seq IS NOT NULL)
        FROM given
        LEFT JOIN rooms ON rooms.id = given.room
        LEFT JOIN members ON members.room = given.room AND members.user_id = given.sender
        LEFT JOIN messages AS known ON known.sender = given.sender AND known.cid = given.cid
        WHERE given.room IS NOT NULL",
        rows.join(", ")
    )
}

/// Stores up to so many messages. The time; of each of their rooms its id and its new head, filled up with nulls; the
/// time; of each message its room, seq, id, sender, cid, body.
fn store_script(messages: usize) -> &'static str {
    static SCRIPTS: Scripts = [const { OnceLock::new() }; SIZES];
    script(&SCRIPTS, messages, |space| {
        let (heads, rows) = (vec!["(?, ?)"; space].join(", "), vec!["(?, ?, ?, ?, ?, ?)"; space].join(", "));
        format!(
            "UPDATE OR ROLLBACK rooms SET due = coalesce(rooms.due, ? + 1000), head = tops.column2
            FROM (VALUES {heads}) AS tops WHERE rooms.id = tops.column1;
            INSERT OR ROLLBACK INTO messages (at, room, seq, id, sender, cid, body)
            SELECT ?, column1, column2, column3, column4, column5, column6 FROM (VALUES {rows})
            WHERE column1 IS NOT NULL"
        )
    })
}

/// The script of the next size that has space for so many messages.
fn script(scripts: &'static Scripts, messages: usize, make: impl Fn(usize) -> String) -> &'static str {
    let space = size_of(messages);
    scripts[space.ilog2() as usize].get_or_init(|| make(space))
}

fn size_of(messages: usize) -> usize {
    messages.next_power_of_two()
}
