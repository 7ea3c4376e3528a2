//! A room's log, read in pages that are bounded in bytes.

use super::connection::{Arg, Db};
use super::failure::Failure;
use super::views::{head, sight};
use super::{Content, Entry, Error, Event, EventKind, Page, Refusal, Store};
use crate::ids::{Cid, MessageId, RoomId, UserId};

/// The entries of a room (`$1`) with a seq above `$2` and below `$3`, at most `$4`, and no more than `$5` bytes of
/// bodies except for the first, read in `$order`.
macro_rules! entries {
    ($order:literal) => {
        concat!(
            "SELECT room, seq, id, sender, cid, at, event, body FROM (
                SELECT chosen.*, sum(octet_length(body)) OVER (ORDER BY seq ",
            $order,
            ") AS bytes, row_number() OVER (ORDER BY seq ",
            $order,
            ") AS place
                FROM (SELECT * FROM messages WHERE room = $1 AND seq > $2 AND seq < $3 ORDER BY seq ",
            $order,
            " LIMIT $4) AS chosen
            ) AS counted WHERE bytes <= $5 OR place = 1 ORDER BY seq"
        )
    };
}

const FORWARD: &str = entries!("ASC");

const BACKWARD: &str = entries!("DESC");

const BY_CID: &str = "SELECT room, seq, id, sender, cid, at, event, body FROM messages WHERE sender = $1 AND cid = $2";

/// The entries after `$2`, of the latest `$3` of a room (`$1`), by which users have left it, the latest first.
const DEPARTURES: &str = "SELECT room, seq, id, sender, cid, at, event, body FROM messages
    WHERE room = $1 AND seq > $2 AND seq > (SELECT head FROM rooms WHERE id = $1) - $3 AND event = 'left'
    ORDER BY seq DESC LIMIT $3";

/// How many of a room's latest entries are looked through for one user's departure.
const LATEST: i64 = 1_000;

#[derive(sqlx::FromRow)]
struct EntryRow {
    room: String,
    seq: i64,
    id: i64,
    sender: String,
    cid: Option<String>,
    at: i64,
    event: Option<String>,
    body: String,
}

impl From<EntryRow> for Entry {
    fn from(row: EntryRow) -> Self {
        let content = match row.event.as_deref().and_then(EventKind::named) {
            Some(kind) => Content::Event(Event { kind, users: users(&row.body) }),
            None => Content::Body(row.body.into()),
        };
        Self {
            room: RoomId::trusted(row.room),
            seq: row.seq as u64,
            id: MessageId(row.id as u64),
            sender: UserId::trusted(row.sender),
            cid: row.cid.map(Cid::trusted),
            at: row.at as u64,
            content,
        }
    }
}

/// The users of a change, as they were written.
fn users(json: &str) -> Vec<UserId> {
    let names: Vec<String> = serde_json::from_str(json).unwrap_or_default();
    names.into_iter().map(UserId::trusted).collect()
}

impl EventKind {
    /// Its name in the log and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Joined => "joined",
            Self::Left => "left",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Created, Self::Joined, Self::Left].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// How much of a log is read at once.
#[derive(Clone, Copy)]
struct Bounds {
    rows: u32,
    bytes: usize,
}

impl Store {
    /// The entries after `after` that `user` may see, at most `rows` and no more than `bytes` of bodies; at least one,
    /// where there is one.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for who is not a member.
    pub async fn page(&self, user: &UserId, room: &RoomId, after: u64, rows: u32, bytes: usize) -> Result<Page, Error> {
        let db = &mut self.reader().await?;
        let (head, since) = sight(db, user, room).await?;
        let after = after.max(since.saturating_sub(1));
        let entries = entries(db, FORWARD, room, (after, head + 1), Bounds { rows, bytes }).await?;
        Ok(Page { entries, head })
    }

    /// The latest entries before `before` that `user` may see, in ascending order, within the same bounds as
    /// [`page`](Self::page).
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for who is not a member.
    pub async fn page_before(
        &self,
        user: &UserId,
        room: &RoomId,
        before: u64,
        rows: u32,
        bytes: usize,
    ) -> Result<Page, Error> {
        let db = &mut self.reader().await?;
        let (head, since) = sight(db, user, room).await?;
        let span = (since.saturating_sub(1), before.min(head + 1));
        let entries = entries(db, BACKWARD, room, span, Bounds { rows, bytes }).await?;
        Ok(Page { entries, head })
    }

    /// The entries after `after`, whoever may see them, within the same bounds as [`page`](Self::page).
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is no such room.
    pub async fn range(&self, room: &RoomId, after: u64, rows: u32, bytes: usize) -> Result<Page, Error> {
        let db = &mut self.reader().await?;
        let head = head(db, room).await?.ok_or(Refusal::NotFound)?;
        let entries = entries(db, FORWARD, room, (after, head + 1), Bounds { rows, bytes }).await?;
        Ok(Page { entries, head })
    }

    /// The entry after `after` by which `user`, who is not a member any more, has left the room; none where it is not
    /// among the latest 1,000 of the room.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn departure(&self, user: &UserId, room: &RoomId, after: u64) -> Result<Option<Entry>, Error> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let args = [Arg::Text(room.as_str()), Arg::Number(after), Arg::Number(LATEST)];
        let rows: Vec<EntryRow> = self.reader().await?.all(DEPARTURES, &args).await?;
        let is_theirs = |entry: &Entry| matches!(&entry.content, Content::Event(event) if event.users.contains(user));
        Ok(rows.into_iter().map(Entry::from).find(is_theirs))
    }

    /// The message that `sender` marked with `cid`, if it is stored.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn find(&self, sender: &UserId, cid: &Cid) -> Result<Option<Entry>, Error> {
        let args = [Arg::Text(sender.as_str()), Arg::Text(cid.as_str())];
        let row: Option<EntryRow> = self.reader().await?.one(BY_CID, &args).await?;
        Ok(row.map(Entry::from))
    }
}

/// Reads the entries between two seqs, both left out.
async fn entries(
    db: &mut Db,
    sql: &'static str,
    room: &RoomId,
    (above, below): (u64, u64),
    bounds: Bounds,
) -> Result<Vec<Entry>, Failure> {
    let args = [
        Arg::Text(room.as_str()),
        Arg::Number(i64::try_from(above).unwrap_or(i64::MAX)),
        Arg::Number(i64::try_from(below).unwrap_or(i64::MAX)),
        Arg::Number(bounds.rows.into()),
        Arg::Number(i64::try_from(bounds.bytes).unwrap_or(i64::MAX)),
    ];
    let rows: Vec<EntryRow> = db.all(sql, &args).await?;
    Ok(rows.into_iter().map(Entry::from).collect())
}
