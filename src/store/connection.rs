//! A connection to either database, with deadlines, so that the rest need not know which one it is.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::sqlite::{Sqlite, SqlitePool, SqliteRow};
use sqlx::{Error as SqlError, FromRow};
use tokio::time::timeout;

use super::Store;
use super::failure::Failure;
use super::pool::{Lent, Pool};
use super::sql::{self, Dialect};

/// How long a call waits for a connection.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);

/// How much longer than the database itself a call waits for the database to give up.
const GRACE: Duration = Duration::from_secs(1);

/// How often work is tried that another was in the way of.
const TRIES: u32 = 4;

/// The connections, those that write apart from those that read, so that no flood of readers holds up a message.
pub(super) enum Pools {
    /// One that writes.
    Sqlite { read: SqlitePool, write: SqlitePool },
    /// Several of each.
    Postgres { read: Pool, write: Pool },
}

impl Pools {
    async fn reader(&self) -> Result<Connection, SqlError> {
        Ok(match self {
            Self::Sqlite { read, .. } => Connection::Sqlite(read.acquire().await?),
            Self::Postgres { read, .. } => Connection::Postgres(read.acquire().await?),
        })
    }

    async fn writer(&self) -> Result<Connection, SqlError> {
        Ok(match self {
            Self::Sqlite { write, .. } => Connection::Sqlite(write.acquire().await?),
            Self::Postgres { write, .. } => Connection::Postgres(write.acquire().await?),
        })
    }
}

enum Connection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(Lent),
}

/// A borrowed connection.
///
/// Dropped while it is whole it goes back to its pool. Dropped in the midst of something, by a deadline, an error or a
/// caller that went away, it is closed, which undoes what was open.
pub(super) struct Db {
    /// Taken when it is dropped only.
    connection: Option<Connection>,
    mode: Mode,
    /// Whether a statement is under way, or the connection of no more use.
    torn: bool,
    /// How long one statement may take.
    deadline: Duration,
}

/// What is done on a connection, and so what a missing answer means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It only reads: a missing answer means nothing.
    Reading,
    /// A transaction is open, its commit not begun: a missing answer means nothing.
    Transaction,
    /// Each statement commits by itself: one without an answer may have taken effect.
    Committing,
}

/// A value for a placeholder.
pub(super) enum Arg<'a> {
    Text(&'a str),
    MaybeText(Option<&'a str>),
    Number(i64),
    Flag(bool),
    /// A list: an array for PostgreSQL, the text of a JSON array for SQLite.
    Texts(Vec<&'a str>),
    /// A list, in the same way.
    Numbers(Vec<i64>),
}

impl Arg<'_> {
    /// A span as the database counts it.
    pub(super) fn millis(span: Duration) -> Self {
        Self::Number(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Something that rows of both databases can be read as.
pub(super) trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin> Row for T {}

/// Binds `$args` to `$query`, with `$list` to make a value of a list.
macro_rules! bound {
    ($query:expr, $args:expr, $list:ident) => {
        $args.iter().fold($query, |query, arg| match arg {
            Arg::Text(text) => query.bind(*text),
            Arg::MaybeText(text) => query.bind(*text),
            Arg::Number(number) => query.bind(*number),
            Arg::Flag(flag) => query.bind(*flag),
            Arg::Texts(texts) => query.bind($list(texts)),
            Arg::Numbers(numbers) => query.bind($list(numbers)),
        })
    };
}

/// Runs `$query` with `$args` on whichever database it is, and ends it by `$end`.
macro_rules! run {
    ($db:expr, $query:expr, $args:expr, $connection:ident => $end:ident) => {{
        let limit = $db.deadline;
        $db.torn = true;
        let outcome = match $db.connection.as_mut() {
            Some(Connection::Sqlite($connection)) => {
                within(limit, bound!($query, $args, json_array).$end(&mut **$connection)).await.map(Into::into)
            }
            Some(Connection::Postgres($connection)) => {
                within(limit, bound!($query, $args, array).$end(&mut **$connection)).await.map(Into::into)
            }
            None => Err(Failure::Away("the connection is gone".into())),
        };
        $db.ended(outcome)
    }};
}

fn json_array<T: Serialize>(list: &[T]) -> String {
    json!(list).to_string()
}

fn array<T>(list: &[T]) -> &[T] {
    list
}

/// How many rows a statement changed.
struct Count(u64);

impl From<sqlx::sqlite::SqliteQueryResult> for Count {
    fn from(result: sqlx::sqlite::SqliteQueryResult) -> Self {
        Self(result.rows_affected())
    }
}

impl From<sqlx::postgres::PgQueryResult> for Count {
    fn from(result: sqlx::postgres::PgQueryResult) -> Self {
        Self(result.rows_affected())
    }
}

impl Db {
    fn new(connection: Connection, mode: Mode, deadline: Duration) -> Self {
        Self { connection: Some(connection), mode, torn: false, deadline }
    }

    /// The texts of this database.
    pub(super) fn dialect(&self) -> &'static Dialect {
        match &self.connection {
            Some(Connection::Sqlite(_)) => &sql::SQLITE,
            _ => &sql::POSTGRES,
        }
    }

    /// All rows.
    pub(super) async fn all<T: Row>(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<T>, Failure> {
        run!(self, sqlx::query_as(sql), args, connection => fetch_all)
    }

    /// The first row, if there is one.
    pub(super) async fn one<T: Row>(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Option<T>, Failure> {
        run!(self, sqlx::query_as(sql), args, connection => fetch_optional)
    }

    /// No rows; answers how many were changed.
    pub(super) async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64, Failure> {
        let count: Result<Count, _> = run!(self, sqlx::query(sql), args, connection => execute);
        count.map(|Count(rows)| rows)
    }

    /// Ends the transaction: commits what went well, and undoes what did not.
    pub(super) async fn finish<T>(mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let end = match outcome {
            Ok(_) => "COMMIT",
            Err(Failure::Refused(_)) => "ROLLBACK",
            // The connection is closed, which undoes it too.
            Err(_) => return outcome,
        };
        if outcome.is_ok() {
            self.mode = Mode::Committing;
        }
        let ended = self.execute(end, &[]).await;
        self.mode = Mode::Committing;
        self.torn = ended.is_err();
        ended.and(outcome)
    }

    /// Notes whether the connection is whole after a statement, and says what a missing answer means.
    fn ended<T>(&mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        self.torn = matches!(outcome, Err(Failure::Away(_) | Failure::Lost(_)));
        outcome.map_err(|failure| if self.mode == Mode::Committing { failure } else { failure.before_commit() })
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let whole = !self.torn && self.mode != Mode::Transaction;
        match self.connection.take() {
            Some(Connection::Sqlite(connection)) if !whole => drop(connection.detach()),
            Some(Connection::Postgres(connection)) if whole => connection.give_back(),
            // The one goes back by itself, the other is closed.
            Some(Connection::Sqlite(_) | Connection::Postgres(_)) | None => {}
        }
    }
}

/// The outcome of `work`, or that it was not there in time.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, Failure> {
    match timeout(limit, work).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Failure::Lost("the database did not answer in time".into())),
    }
}

impl Store {
    /// A connection that only reads.
    pub(super) async fn reader(&self) -> Result<Db, Failure> {
        let connection = self.inner.pools.reader().await.map_err(|error| Failure::from(error).before_commit())?;
        Ok(Db::new(connection, Mode::Reading, self.longest_statement()))
    }

    /// A connection on which each statement commits by itself.
    pub(super) async fn writer(&self) -> Result<Db, Failure> {
        let connection = self.inner.pools.writer().await.map_err(|error| Failure::from(error).before_commit())?;
        Ok(Db::new(connection, Mode::Committing, self.longest_statement()))
    }

    /// A transaction, to be ended by [`Db::finish`].
    pub(super) async fn transaction(&self) -> Result<Db, Failure> {
        let mut db = self.beginning().await?;
        db.execute(db.dialect().begin, &[]).await?;
        Ok(db)
    }

    /// A connection for a script that begins a transaction, to be ended by [`Db::finish`].
    pub(super) async fn beginning(&self) -> Result<Db, Failure> {
        let mut db = self.writer().await?;
        db.mode = Mode::Transaction;
        Ok(db)
    }

    /// How long after it was sent a statement may still take effect, at the most.
    pub(super) fn longest_statement(&self) -> Duration {
        self.inner.options.statement_timeout + GRACE
    }
}

/// Tries until nothing was in the way, a few times.
pub(super) async fn again<T, F: Future<Output = Result<T, Failure>>>(attempt: impl Fn() -> F) -> Result<T, Failure> {
    for _ in 1..TRIES {
        match attempt().await {
            Err(Failure::Conflict(_)) => {}
            outcome => return outcome,
        }
    }
    attempt().await
}
