//! What is done in PostgreSQL's own way: to open it, and to append in one round trip.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::timeout;

use super::append::stored;
use super::connection::{ACQUIRE_TIMEOUT, Arg, Db, Pools};
use super::failure::Failure;
use super::open::{OpenError, Options, Trouble};
use super::pool::Pool;
use super::sweep::Decisions;
use super::{Append, Appended, PushKind, Settled, sql};
use crate::ids::ServerId;

static MIGRATOR: Migrator = sqlx::migrate!("src/store/migrations/postgres");

/// How long a connection to begin with may take, log-in and all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the schema may take, with other servers that start now before us.
const MIGRATE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that stops in the midst of a transaction loses it after this, so that it holds no room for the others.
const IDLE_IN_TRANSACTION_MS: u32 = 2_000;

/// What is read is looked up by keys, of which there are few at a time. So its plan is made once and kept, which costs less
/// than to plan it for each use, and it must not be one that reads whole tables: they may have been empty when it was made.
const LOOK_UPS: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

const APPEND: &str = "SELECT outcome, seq, id, at, version FROM append_messages($1, $2, $3, $4, $5) ORDER BY place";

const SETTLE: &str = "SELECT settle_rooms($1, $2::json, $3::json, $4::json, $5)";

#[derive(sqlx::FromRow)]
struct Outcome {
    outcome: String,
    seq: Option<i64>,
    id: Option<i64>,
    at: Option<i64>,
    version: Option<i64>,
}

/// Appends a batch, in a statement that commits by itself.
pub(super) async fn append(db: &mut Db, batch: &[Append]) -> Result<Vec<Appended>, Failure> {
    let args = [
        Arg::Texts(batch.iter().map(|append| append.room.as_str()).collect()),
        Arg::Texts(batch.iter().map(|append| append.sender.as_str()).collect()),
        Arg::Texts(batch.iter().map(|append| append.cid.as_str()).collect()),
        Arg::Numbers(batch.iter().map(|append| append.id.0 as i64).collect()),
        Arg::Texts(batch.iter().map(|append| &*append.body).collect()),
    ];
    let rows: Vec<Outcome> = db.all(APPEND, &args).await?;
    if rows.len() != batch.len() {
        return Err(Failure::Lost("the database answered for another batch".into()));
    }
    Ok(rows.into_iter().map(Outcome::appended).collect())
}

impl Outcome {
    fn appended(self) -> Appended {
        match (self.outcome.as_str(), self.seq, self.id, self.at, self.version) {
            ("fresh", Some(seq), Some(id), Some(at), Some(version)) => stored((seq, id, at, version), true),
            ("repeat", Some(seq), Some(id), Some(at), Some(version)) => stored((seq, id, at, version), false),
            ("cid_reused", ..) => Appended::CidReused,
            _ => Appended::NotMember,
        }
    }
}

/// Settles rooms, in a statement that commits by itself.
pub(super) async fn settle(
    db: &mut Db,
    looker: &ServerId,
    settled: &[Settled],
    kinds: &[PushKind],
) -> Result<u64, Failure> {
    let Decisions { rooms, decided, pushes } = Decisions::new(&settled.iter().collect::<Vec<_>>());
    let kinds = Arg::Texts(kinds.iter().map(|kind| kind.as_str()).collect());
    let args = [Arg::Text(looker.as_str()), Arg::Text(&rooms), Arg::Text(&decided), Arg::Text(&pushes), kinds];
    let (made,): (i64,) = db.one(SETTLE, &args).await?.ok_or(sqlx::Error::RowNotFound)?;
    Ok(made as u64)
}

/// Brings the schema up to date and makes the pools. Answers with the database's id.
pub(super) async fn open(url: &str, options: &Options) -> Result<(Pools, String), OpenError> {
    let connect = PgConnectOptions::from_str(url).map_err(|error| OpenError::bad_url(url, &error))?;
    let connect = connect.application_name("minichat").disable_statement_logging();
    let database_id = timeout(MIGRATE_TIMEOUT, prepare(&connect))
        .await
        .unwrap_or_else(|_| Err(Trouble::Slow))
        .map_err(|trouble| trouble.at(url))?;
    // Messages get at least half of the connections.
    let readers = (options.connections / 2).max(1);
    let writers = options.connections.saturating_sub(readers).max(1);
    let connect = connect.options(limits(options));
    let read = Pool::new(connect.clone().options(LOOK_UPS), readers, ACQUIRE_TIMEOUT);
    let write = Pool::new(connect, writers, ACQUIRE_TIMEOUT);
    Ok((Pools::Postgres { read, write }, database_id))
}

/// Runs the migrations, one server after the other, on a connection whose waits are bounded by ours alone.
async fn prepare(connect: &PgConnectOptions) -> Result<String, Trouble> {
    let connected = timeout(CONNECT_TIMEOUT, PgConnection::connect_with(connect)).await;
    let mut connection = connected.map_err(|_| Trouble::Slow)??;
    // `run` would do, but the compiler cannot tell that its future may move between threads.
    MIGRATOR.run_direct(None, &mut connection, false).await?;
    let fresh = super::open::fresh_id();
    sqlx::query(sql::GIVE_DATABASE_ID).bind(fresh).execute(&mut connection).await?;
    let (id,) = sqlx::query_as(sql::DATABASE_ID).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(id)
}

/// What each connection tells the database when it begins. The keepalives are for the database's end: by them it
/// notices a server that vanished, and lets go of what that one held.
fn limits(options: &Options) -> [(&'static str, String); 8] {
    [
        ("statement_timeout", options.statement_timeout.as_millis().to_string()),
        ("lock_timeout", options.lock_timeout.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MS.to_string()),
        ("default_transaction_isolation", "read committed".into()),
        ("tcp_keepalives_idle", "10".into()),
        ("tcp_keepalives_interval", "5".into()),
        ("tcp_keepalives_count", "3".into()),
        ("tcp_user_timeout", "20000".into()),
    ]
}
