//! What is done in SQLite's own way: to open it, to append, and to settle rooms.

mod append;
mod settle;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::connection::{ACQUIRE_TIMEOUT, Pools};
use super::open::{OpenError, Options, Trouble, fresh_id};
use super::sql;

pub(super) use append::append;
pub(super) use settle::settle;

static MIGRATOR: Migrator = sqlx::migrate!("src/store/migrations/sqlite");

/// The most connections that only read: each is a thread.
const READERS: u32 = 4;

/// What the connection that writes keeps of the file in memory: 16 MiB, in KiB below zero. A large batch touches nearly as
/// many pages as SQLite keeps by itself, and would read them all again for the next one.
const CACHE: &str = "-16384";

/// After how many pages of 4 KiB in the write-ahead log they are copied into the database. A page that changes often is
/// copied once for many changes.
const CHECKPOINT: &str = "4000";

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
    let write = pool(&connect.clone().pragma("cache_size", CACHE).pragma("wal_autocheckpoint", CHECKPOINT), 1);
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
