//! The contract of the store: one suite, run on SQLite and on a real PostgreSQL.

mod appends;
mod devices;
mod lists;
mod log;
mod membership;
mod opening;
mod outages;
mod positions;
mod pushes;
mod sweep;
mod workers;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};

use minichat::ids::{DeviceId, MessageId, RoomId, UserId};
use minichat::store::{
    Append, Appended, Change, Changed, Content, Entry, Error, NewRoom, Options, Position, Refusal, Store,
};
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::support::postgres::Postgres;

/// Runs each of the named tests, functions of a [`Database`], on both databases.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::store::Database::sqlite()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::store::Database::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// An empty database of a test's own.
struct Database {
    url: String,
    /// Where the SQLite file is; none for PostgreSQL.
    directory: Option<TempDir>,
}

impl Database {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { url: format!("sqlite:{}/chat.db", directory.path().display()), directory: Some(directory) }
    }

    async fn postgres() -> Self {
        Self { url: Postgres::shared().fresh_database().await, directory: None }
    }

    async fn open(&self) -> Store {
        Store::open(&self.url, &Options::default()).await.unwrap()
    }

    /// Runs SQL on a connection of its own.
    async fn run(&self, sql: &'static str) {
        if self.directory.is_some() {
            sqlx::query(sql).execute(&mut SqliteConnection::connect(&self.url).await.unwrap()).await.unwrap();
        } else {
            sqlx::query(sql).execute(&mut PgConnection::connect(&self.url).await.unwrap()).await.unwrap();
        }
    }

    /// The number that a query answers.
    async fn number(&self, sql: &'static str) -> Option<i64> {
        let (number,) = if self.directory.is_some() {
            sqlx::query_as(sql).fetch_one(&mut SqliteConnection::connect(&self.url).await.unwrap()).await.unwrap()
        } else {
            sqlx::query_as(sql).fetch_one(&mut PgConnection::connect(&self.url).await.unwrap()).await.unwrap()
        };
        number
    }

    /// Lets two and a half hours pass for all that waits.
    async fn ripen(&self) {
        for sql in ["UPDATE rooms SET due = due - 9000000", "UPDATE pushes SET due = due - 9000000"] {
            self.run(sql).await;
        }
    }

    /// The same database as two servers have it, as far as it takes two.
    async fn open_twice(&self) -> [Store; 2] {
        let first = self.open().await;
        let second = if self.directory.is_some() { first.clone() } else { self.open().await };
        [first, second]
    }
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn users(names: &[&str]) -> Vec<UserId> {
    names.iter().map(|name| user(name)).collect()
}

fn room(name: &str) -> RoomId {
    name.parse().unwrap()
}

fn position(who: &str, at: &str, device: Option<&str>, delivered: u64, read: u64) -> Position {
    let device = device.map(|device| device.parse::<DeviceId>().unwrap());
    Position { user: user(who), room: room(at), device, delivered, read }
}

/// An id that no other call answers.
fn id() -> MessageId {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 60);
    MessageId(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn message(to: &str, from: &str, cid: &str, body: &str) -> Append {
    Append { room: room(to), sender: user(from), cid: cid.parse().unwrap(), id: id(), body: body.into() }
}

/// What became of one message.
async fn send(store: &Store, to: &str, from: &str, cid: &str, body: &str) -> Appended {
    store.append(&[message(to, from, cid, body)]).await.unwrap().remove(0)
}

/// The seq of a message that is new.
async fn sent(store: &Store, to: &str, from: &str, cid: &str) -> u64 {
    match send(store, to, from, cid, "\"hi\"").await {
        Appended::Stored { seq, fresh: true, .. } => seq,
        other => panic!("{cid} to {to}: {other:?}"),
    }
}

fn new_room(name: &str, creator: &str, members: &[&str], open: bool) -> NewRoom {
    NewRoom { room: room(name), creator: user(creator), members: users(members), name: None, open, id: id() }
}

/// Makes a closed room whose creator is the first of the members.
async fn make(store: &Store, name: &str, members: &[&str]) {
    store.create(&new_room(name, members[0], members, false)).await.unwrap();
}

async fn change(store: &Store, name: &str, actor: &str, change: Change) -> Result<Changed, Error> {
    store.change(&room(name), &user(actor), &change, id()).await
}

/// The refusal that a call ended with.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn seqs(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

fn body(entry: &Entry) -> &str {
    match &entry.content {
        Content::Body(body) => body,
        Content::Event(event) => panic!("{event:?}"),
    }
}
