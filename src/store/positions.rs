//! How far people have come. Positions only grow, whoever writes them and in whatever order.

use std::collections::BTreeMap;

use serde_json::json;

use super::connection::{Arg, Db, Pools, again};
use super::failure::Failure;
use super::{Error, Position, Store};

impl Store {
    /// Moves positions on. What would not grow, is past the room's head, or is of no member, changes nothing.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated.
    pub async fn advance(&self, positions: &[Position]) -> Result<(), Error> {
        let (members, cursors) = gathered(positions);
        if members.is_none() {
            return Ok(());
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

async fn advance(db: &mut Db, members: Option<&str>, cursors: Option<&str>) -> Result<(), Failure> {
    if let Some(members) = members {
        db.execute(db.dialect().advance_members, &[Arg::Text(members)]).await?;
    }
    if let Some(cursors) = cursors {
        db.execute(db.dialect().advance_cursors, &[Arg::Text(cursors)]).await?;
    }
    Ok(())
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
