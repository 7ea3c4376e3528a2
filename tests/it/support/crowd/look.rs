//! What the database and the registry say.

use sqlx::{Connection, PgConnection};

use crate::support::checker::{KeptPush, Log, Member, Places, Stored};
use crate::support::redis::Redis;

/// All entries, members and pushes, as the database has them.
///
/// # Errors
/// When the database is not there.
pub(crate) async fn read_log(database: &str) -> sqlx::Result<Log> {
    let mut connection = PgConnection::connect(database).await?;
    let entries = read_entries(&mut connection).await?;
    Ok(Log { entries, members: read_members(&mut connection).await?, pushes: read_pushes(&mut connection).await? })
}

/// The members alone.
///
/// # Errors
/// When the database is not there.
pub(crate) async fn read_positions(database: &str) -> sqlx::Result<Vec<Member>> {
    read_members(&mut PgConnection::connect(database).await?).await
}

type EntryRow = (String, i64, i64, String, Option<String>, Option<String>, Option<String>);

async fn read_entries(connection: &mut PgConnection) -> sqlx::Result<Vec<Stored>> {
    let rows: Vec<EntryRow> = sqlx::query_as(
        "SELECT room, seq, id, sender, cid, event, CASE WHEN event IS NOT NULL THEN body END \
         FROM messages ORDER BY room, seq",
    )
    .fetch_all(connection)
    .await?;
    let users = |text: String| serde_json::from_str(&text).expect("an array of users");
    let stored = |(room, seq, id, sender, cid, event, about): EntryRow| Stored {
        room,
        seq: seq as u64,
        id: id.to_string(),
        sender,
        cid,
        event,
        users: about.map(users).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(stored).collect())
}

async fn read_members(connection: &mut PgConnection) -> sqlx::Result<Vec<Member>> {
    let rows: Vec<(String, String, i64, i64, i64)> =
        sqlx::query_as("SELECT user_id, room, since, delivered, read FROM members").fetch_all(connection).await?;
    let member = |(user, room, since, delivered, read)| Member {
        user,
        room,
        since: since as u64,
        delivered: delivered as u64,
        read: read as u64,
    };
    Ok(rows.into_iter().map(member).collect())
}

async fn read_pushes(connection: &mut PgConnection) -> sqlx::Result<Vec<KeptPush>> {
    let rows: Vec<(String, i64, bool)> =
        sqlx::query_as("SELECT user_id, message, due IS NULL FROM pushes").fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(user, message, dead)| KeptPush { user, message: message.to_string(), dead }).collect())
}

/// Each user's entry in Redis.
pub(crate) fn read_registry(redis: &Redis) -> Places {
    const PREFIX: &str = "ws:user:server:";
    let text = redis.cli(&["KEYS", &format!("{PREFIX}*")]);
    let keys: Vec<_> = text.lines().filter(|key| !key.is_empty()).collect();
    if keys.is_empty() {
        return Places::new();
    }
    let command: Vec<_> = std::iter::once("MGET").chain(keys.iter().copied()).collect();
    let values = redis.cli(&command);
    let users = keys.iter().map(|key| key.trim_start_matches(PREFIX).to_owned());
    let servers = values.lines().map(|value| value.split(',').map(str::to_owned).collect());
    users.zip(servers).filter(|(_, servers): &(_, std::collections::BTreeSet<String>)| !servers.contains("")).collect()
}
