//! Rooms, members, the log of each room, positions: what must not be lost.
//!
//! One [`Store`] over SQLite (one server, no set-up) or PostgreSQL (several servers), with one SQL text where that
//! goes and one test suite for both.
//!
//! Every call has a deadline and never hangs. A call that changes something either did so wholly or not at all; where
//! the answer to its commit is missing, it fails with [`Error::Unknown`]. Every call may be repeated: a message is
//! known by its sender and cid, and a change that is there already changes nothing.

mod append;
mod connection;
mod devices;
mod due;
mod failure;
mod log;
mod membership;
mod model;
mod open;
mod pool;
mod positions;
mod postgres;
mod pushes;
mod sql;
mod sqlite;
mod stands;
mod sweep;
mod views;
mod workers;
pub mod writer;

use std::fs::File;
use std::sync::Arc;

pub use devices::MAX_TOKENS;
pub use due::*;
pub use model::*;
pub use open::{OpenError, Options};
pub use sweep::{LOOK, MAX_PUSHES};

use connection::Pools;

/// How many batches PostgreSQL takes side by side; each has rooms of its own, so they do not wait for each other's locks.
const LANES: usize = 4;

/// The database. A cheap handle; the database is closed when the last one is dropped.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    pools: Pools,
    options: Options,
    database_id: String,
    /// Held for as long as the SQLite file is ours.
    _lock: Option<File>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("database_id", &self.inner.database_id).finish_non_exhaustive()
    }
}

impl Store {
    /// The random id that is kept in the database itself, from its first opening on.
    pub fn database_id(&self) -> &str {
        &self.inner.database_id
    }

    /// How many batches of messages the database takes side by side: SQLite has one writer, and a second lane would only
    /// make the first one's batches smaller.
    pub fn lanes(&self) -> usize {
        match self.inner.pools {
            Pools::Sqlite { .. } => 1,
            Pools::Postgres { .. } => LANES,
        }
    }

    /// The most messages that are committed together. SQLite writes each page that a commit has changed, so what is for
    /// the same rooms costs less together; in PostgreSQL a commit keeps others from its rooms meanwhile.
    pub(super) fn most_in_commit(&self) -> usize {
        match self.inner.pools {
            Pools::Sqlite { .. } => 2_048,
            Pools::Postgres { .. } => 256,
        }
    }

    /// Whether what is locked is a room; in SQLite it is the whole database.
    pub(super) fn locks_rooms(&self) -> bool {
        matches!(self.inner.pools, Pools::Postgres { .. })
    }

    /// Whether the database answers; it is really asked.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        self.reader().await?.one::<(String,)>(sql::DATABASE_ID, &[]).await?;
        Ok(())
    }
}

/// Why something cannot be, however often it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such room, or the user is not in it: the two are not told apart.
    #[error("there is no such room, or you are not in it")]
    NotFound,
    /// Only its creator may.
    #[error("only the room's creator may do this")]
    Forbidden,
    /// The members of a direct chat are fixed.
    #[error("the members of a direct chat are fixed")]
    Direct,
    /// It would have more than [`MAX_MEMBERS`].
    #[error("a room has at most 5000 members")]
    Full,
    /// Another user has made a room of this id.
    #[error("this room id is taken")]
    Taken,
}

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing was stored, and a later try may succeed.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// A commit was begun and its answer is missing: it may be stored or not.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}
