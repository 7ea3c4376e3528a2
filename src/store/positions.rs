//! How far people have come. Positions only grow, whoever writes them and in whatever order.

use std::collections::BTreeMap;

use serde_json::json;

use super::connection::{Arg, Db, Pools, again};
use super::failure::Failure;
use super::{Advanced, Error, Position, Store};
use crate::ids::{RoomId, UserId};

impl Store {
    /// Moves positions on. What would not grow, is past the room's head, or is of no member, changes nothing. Answers
    /// the members who came further, each once and as they are now.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated; what grew in a call whose answer is missing is not told
    /// again.
    pub async fn advance(&self, positions: &[Position]) -> Result<Vec<Advanced>, Error> {
        let (members, cursors) = gathered(positions);
        if members.is_none() {
            return Ok(Vec::new());
        }
        let moved = again(|| async {
            // One sync of the file is better than two, and two commits are better than a transaction that can be
            // stopped in its midst.
            match self.inner.pools {
                Pools::Sqlite { .. } => {
                    let mut db = self.transaction().await?;
                    let moved = advance(&mut db, members.as_deref(), cursors.as_deref()).await;
                    db.finish(moved).await
                }
                Pools::Postgres { .. } => {
                    advance(&mut self.writer().await?, members.as_deref(), cursors.as_deref()).await
                }
            }
        });
        Ok(moved.await?)
    }
}

/// The members come last: once they have moved on nothing can fail any more, so that who repeats the call after a
/// failure is told of them.
async fn advance(db: &mut Db, members: Option<&str>, cursors: Option<&str>) -> Result<Vec<Advanced>, Failure> {
    if let Some(cursors) = cursors {
        db.execute(db.dialect().advance_cursors, &[Arg::Text(cursors)]).await?;
    }
    let Some(members) = members else { return Ok(Vec::new()) };
    let rows: Vec<(String, String, i64, i64)> = db.all(db.dialect().advance_members, &[Arg::Text(members)]).await?;
    Ok(rows.into_iter().map(advanced).collect())
}

fn advanced((room, user, delivered, read): (String, String, i64, i64)) -> Advanced {
    Advanced {
        room: RoomId::trusted(room),
        user: UserId::trusted(user),
        delivered: delivered as u64,
        read: read as u64,
    }
}

/// The furthest of the positions as JSON, each member once and each device once, in order; none where there is none.
fn gathered(positions: &[Position]) -> (Option<String>, Option<String>) {
    let mut members = BTreeMap::new();
    let mut cursors = BTreeMap::new();
    for position in positions {
        let (delivered, read) = members.entry((&position.room, &position.user)).or_insert((0, 0));
        *delivered = position.delivered.max(*delivered);
        *read = position.read.max(*read);
        if let Some(device) = position.device.as_ref().filter(|_| position.delivered > 0) {
            let seq = cursors.entry((&position.user, &position.room, device)).or_insert(0);
            *seq = position.delivered.max(*seq);
        }
    }
    let members: Vec<_> = members
        .into_iter()
        .map(|((room, user), (delivered, read))| {
            json!({ "room": room, "user_id": user, "delivered": delivered, "read": read })
        })
        .collect();
    let cursors: Vec<_> = cursors
        .into_iter()
        .map(|((user, room, device), seq)| json!({ "user_id": user, "room": room, "device": device, "seq": seq }))
        .collect();
    (text(members), text(cursors))
}

fn text(rows: Vec<serde_json::Value>) -> Option<String> {
    (!rows.is_empty()).then(|| serde_json::Value::from(rows).to_string())
}
