//! Messages are stored: in batches, all or nothing, each once.

use super::connection::{Arg, Pools, again};
use super::failure::Failure;
use super::{Append, Appended, Error, Store, postgres, sqlite};
use crate::ids::MessageId;

/// `$1` sender, `$2` cid, `$3` room, `$4` body.
const STORED: &str = "SELECT m.seq, m.id, m.at, r.version FROM messages m JOIN rooms r ON r.id = m.room
    WHERE m.sender = $1 AND m.cid = $2 AND m.room = $3 AND m.body = $4";

impl Store {
    /// Stores a batch in one commit: all of it or, on an error, nothing. Answers each message in order.
    ///
    /// A message is known by its sender and cid. A repeat with the same room and body gets the first result, also
    /// within one batch and also from who is no member any more; a repeat with anything else stores nothing. The
    /// sender of a new message must be a member at the commit.
    ///
    /// # Errors
    /// [`Error::Unknown`] where the answer to the commit is missing.
    pub async fn append(&self, batch: &[Append]) -> Result<Vec<Appended>, Error> {
        Ok(self.try_append(batch).await?)
    }

    /// Like [`append`](Self::append), with more about why not.
    pub(super) async fn try_append(&self, batch: &[Append]) -> Result<Vec<Appended>, Failure> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self.inner.pools {
            Pools::Sqlite { .. } => {
                let mut db = self.beginning().await?;
                let outcomes = sqlite::append(&mut db, batch).await;
                db.finish(outcomes).await
            }
            Pools::Postgres { .. } => {
                again(|| async { postgres::append(&mut self.writer().await?, batch).await }).await
            }
        }
    }

    /// The result of an append whose outcome was unknown, if it was stored after all.
    pub(super) async fn stored(&self, append: &Append) -> Result<Option<Appended>, Error> {
        let args = [
            Arg::Text(append.sender.as_str()),
            Arg::Text(append.cid.as_str()),
            Arg::Text(append.room.as_str()),
            Arg::Text(&append.body),
        ];
        let row: Option<(i64, i64, i64, i64)> = self.reader().await?.one(STORED, &args).await?;
        Ok(row.map(|(seq, id, at, version)| stored((seq, id, at, version), false)))
    }
}

/// What a row says of a message that is stored: its seq, its id, when, and the version of the room's members.
pub(super) fn stored((seq, id, at, version): (i64, i64, i64, i64), fresh: bool) -> Appended {
    Appended::Stored {
        seq: seq as u64,
        id: MessageId(id as u64),
        at: at as u64,
        members_version: version as u64,
        fresh,
    }
}
