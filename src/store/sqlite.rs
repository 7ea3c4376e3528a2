//! What is done in SQLite's own way: to open it, and to append in a transaction of few statements.

mod settle;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sqlx::ConnectOptions;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::append::stored;
use super::connection::{ACQUIRE_TIMEOUT, Arg, Db, Pools};
use super::failure::Failure;
use super::open::{OpenError, Options, Trouble, fresh_id};
use super::{Append, Appended, sql};
use crate::ids::{Cid, RoomId, UserId};

pub(super) use settle::settle;

static MIGRATOR: Migrator = sqlx::migrate!("src/store/migrations/sqlite");

/// The most connections that only read: each is a thread.
const READERS: u32 = 4;

/// What is known of each message of a batch. `$1` a JSON array of them.
const FACTS: &str = "WITH input AS MATERIALIZED (
        SELECT key AS place, value ->> 'room' AS room, value ->> 'sender' AS sender, value ->> 'cid' AS cid,
            value ->> 'body' AS body
        FROM json_each($1)
    )
    SELECT known.seq, known.id, known.at, known.room = input.room AND known.body = input.body AS same,
        rooms.head, rooms.version, members.since IS NOT NULL AS member,
        CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now
    FROM input
    LEFT JOIN messages AS known ON known.sender = input.sender AND known.cid = input.cid
    LEFT JOIN rooms ON rooms.id = input.room
    LEFT JOIN members ON members.room = input.room AND members.user_id = input.sender
    ORDER BY input.place";

/// `$1` a JSON array of messages, `$2` when.
const INSERT: &str = "INSERT INTO messages (room, seq, id, sender, cid, at, body)
    SELECT value ->> 'room', value ->> 'seq', value ->> 'id', value ->> 'sender', value ->> 'cid', $2, value ->> 'body'
    FROM json_each($1)";

/// `$1` a JSON array of rooms with their new heads, `$2` when.
const GROW: &str = "UPDATE rooms SET head = tops.head, due = coalesce(rooms.due, $2 + 1000)
    FROM (SELECT value ->> 0 AS room, value ->> 1 AS head FROM json_each($1)) AS tops WHERE rooms.id = tops.room";

#[derive(sqlx::FromRow)]
struct Fact {
    seq: Option<i64>,
    id: Option<i64>,
    at: Option<i64>,
    same: Option<bool>,
    head: Option<i64>,
    version: Option<i64>,
    member: bool,
    now: i64,
}

/// A message on its way into the database, or on its way to be looked up.
#[derive(Serialize)]
struct Draft<'a> {
    room: &'a str,
    seq: i64,
    id: i64,
    sender: &'a str,
    cid: &'a str,
    body: &'a str,
}

impl<'a> Draft<'a> {
    fn new(append: &'a Append, seq: i64) -> Self {
        Self {
            room: append.room.as_str(),
            seq,
            id: append.id.0 as i64,
            sender: append.sender.as_str(),
            cid: append.cid.as_str(),
            body: &append.body,
        }
    }
}

/// What a batch comes to.
#[derive(Default)]
struct Plan<'a> {
    outcomes: Vec<Appended>,
    fresh: Vec<Draft<'a>>,
    heads: HashMap<&'a RoomId, i64>,
    /// The first of the batch to store a cid: where in the batch, and its outcome.
    leaders: HashMap<(&'a UserId, &'a Cid), (&'a Append, Appended)>,
}

/// Appends a batch, within the transaction that is open.
pub(super) async fn append(db: &mut Db, batch: &[Append]) -> Result<Vec<Appended>, Failure> {
    let asked: Vec<_> = batch.iter().map(|append| Draft::new(append, 0)).collect();
    let facts: Vec<Fact> = db.all(FACTS, &[Arg::Text(&json(&asked)?)]).await?;
    let now = facts.first().map_or(0, |fact| fact.now);
    let mut plan = Plan::default();
    for (append, fact) in batch.iter().zip(&facts) {
        let outcome = plan.decide(append, fact);
        plan.outcomes.push(outcome);
    }
    if !plan.fresh.is_empty() {
        db.execute(INSERT, &[Arg::Text(&json(&plan.fresh)?), Arg::Number(now)]).await?;
        let heads: Vec<_> = plan.heads.iter().map(|(room, head)| (room.as_str(), head)).collect();
        db.execute(GROW, &[Arg::Text(&json(&heads)?), Arg::Number(now)]).await?;
    }
    Ok(plan.outcomes)
}

impl<'a> Plan<'a> {
    fn decide(&mut self, append: &'a Append, fact: &Fact) -> Appended {
        if let (Some(seq), Some(id), Some(at)) = (fact.seq, fact.id, fact.at) {
            return match fact.version {
                Some(version) if fact.same == Some(true) => stored((seq, id, at, version), false),
                _ => Appended::CidReused,
            };
        }
        let leader = match self.leaders.entry((&append.sender, &append.cid)) {
            Entry::Occupied(leader) => return repeat(leader.get(), append),
            Entry::Vacant(leader) => leader,
        };
        let (true, Some(head), Some(version)) = (fact.member, fact.head, fact.version) else {
            return Appended::NotMember;
        };
        let seq = *self.heads.entry(&append.room).and_modify(|head| *head += 1).or_insert(head + 1);
        self.fresh.push(Draft::new(append, seq));
        let outcome = stored((seq, append.id.0 as i64, fact.now, version), true);
        leader.insert((append, outcome.clone()));
        outcome
    }
}

/// The outcome for a message whose cid the same batch has stored already.
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

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Rejected(error.to_string()))
}

/// Locks the file, brings the schema up to date and makes the pools. Answers with the database's id and the lock.
pub(super) async fn open(url: &str, options: &Options) -> Result<(Pools, String, File), OpenError> {
    let path = path(url)?;
    let lock = lock(&path)?;
    let connect = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(options.lock_timeout)
        .disable_statement_logging();
    let write = pool(&connect, 1);
    let database_id = prepare(&write).await.map_err(|trouble| trouble.at(url))?;
    let read = pool(&connect.pragma("query_only", "ON"), options.connections.clamp(1, READERS));
    Ok((Pools::Sqlite { read, write }, database_id, lock))
}

async fn prepare(pool: &SqlitePool) -> Result<String, Trouble> {
    let mut connection = pool.acquire().await?;
    // `run` would do, but the compiler cannot tell that its future may move between threads.
    MIGRATOR.run_direct(None, &mut *connection, false).await?;
    sqlx::query(sql::GIVE_DATABASE_ID).bind(fresh_id()).execute(&mut *connection).await?;
    let (id,) = sqlx::query_as(sql::DATABASE_ID).fetch_one(&mut *connection).await?;
    Ok(id)
}

/// The file that a URL names, with its directory made.
fn path(url: &str) -> Result<PathBuf, OpenError> {
    let name = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).unwrap_or_default();
    if name.is_empty() || name.starts_with(':') || name.contains('?') {
        return Err(OpenError::bad_url(url, &"sqlite: is followed by the path of a file and nothing else"));
    }
    let path = PathBuf::from(name);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = path.file_name().ok_or_else(|| OpenError::bad_url(url, &"the path names no file"))?;
    fs::create_dir_all(directory)
        .and_then(|()| directory.canonicalize())
        .map(|directory| directory.join(named))
        .map_err(|error| OpenError::NotWritable { place: url.into(), why: error.to_string() })
}

/// Takes the lock that keeps a second process away, in a file of its own, since SQLite locks the other one itself.
fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let not_writable =
        |error: std::io::Error| OpenError::NotWritable { place: path.display().to_string(), why: error.to_string() };
    let file = File::options().create(true).truncate(false).write(true).open(name).map_err(not_writable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(not_writable(error)),
    }
}

fn pool(connect: &SqliteConnectOptions, connections: u32) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(connect.clone())
}
