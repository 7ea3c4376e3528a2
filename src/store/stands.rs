//! Where those who connect stand in their rooms.

use super::connection::{Arg, Db, Pools};
use super::failure::Failure;
use super::{Comer, Error, Stand, Store};
use crate::ids::{DeviceId, RoomId};

/// The rooms of one who comes, whose user, device, and room to go on after are `$user`, `$device` and `$after`. A device
/// without a name has the empty one.
macro_rules! stands {
    ($user:literal, $device:literal, $after:literal) => {
        concat!(
            "SELECT m.room, r.head, m.since, m.delivered, c.seq, r.version FROM members m
            JOIN rooms r ON r.id = m.room
            LEFT JOIN cursors c ON c.user_id = m.user_id AND c.room = m.room AND c.device = ",
            $device,
            " AND c.device <> '' WHERE m.user_id = ",
            $user,
            " AND m.room > ",
            $after,
            " ORDER BY m.room LIMIT $4"
        )
    };
}

const OF_ONE: &str = stands!("$1", "$2", "$3");

/// Each row begins with whose it is, by their place in the arrays, from 1 on.
const OF_MANY: &str = concat!(
    "SELECT g.place, s.*
    FROM unnest($1, $2, $3) WITH ORDINALITY AS g (user_id, device, after, place)
    CROSS JOIN LATERAL (",
    stands!("g.user_id", "g.device", "g.after"),
    ") AS s"
);

type Row = (String, i64, i64, i64, Option<i64>, i64);

type RowOfMany = (i64, String, i64, i64, i64, Option<i64>, i64);

impl Store {
    /// The rooms of each of `comers`, in their order, at most `limit` each, in no order: those that come next after the one
    /// to go on after. For PostgreSQL it is one query.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn stands(&self, comers: &[Comer], limit: u32) -> Result<Vec<Vec<Stand>>, Error> {
        let db = &mut self.reader().await?;
        let stands = match self.inner.pools {
            Pools::Sqlite { .. } => one_by_one(db, comers, limit).await,
            Pools::Postgres { .. } => together(db, comers, limit).await,
        };
        Ok(stands?)
    }
}

async fn one_by_one(db: &mut Db, comers: &[Comer], limit: u32) -> Result<Vec<Vec<Stand>>, Failure> {
    let mut stands = Vec::with_capacity(comers.len());
    for comer in comers {
        let (user, device, after) = texts(comer);
        let args = [Arg::Text(user), Arg::Text(device), Arg::Text(after), Arg::Number(limit.into())];
        let rows: Vec<Row> = db.all(OF_ONE, &args).await?;
        stands.push(rows.into_iter().map(stand).collect());
    }
    Ok(stands)
}

async fn together(db: &mut Db, comers: &[Comer], limit: u32) -> Result<Vec<Vec<Stand>>, Failure> {
    let texts = || comers.iter().map(texts);
    let args = [
        Arg::Texts(texts().map(|(user, ..)| user).collect()),
        Arg::Texts(texts().map(|(_, device, _)| device).collect()),
        Arg::Texts(texts().map(|(.., after)| after).collect()),
        Arg::Number(limit.into()),
    ];
    let rows: Vec<RowOfMany> = db.all(OF_MANY, &args).await?;
    let mut stands: Vec<_> = comers.iter().map(|_| Vec::new()).collect();
    for (place, room, head, since, delivered, cursor, version) in rows {
        if let Some(stands) = stands.get_mut((place - 1) as usize) {
            stands.push(stand((room, head, since, delivered, cursor, version)));
        }
    }
    Ok(stands)
}

fn texts(comer: &Comer) -> (&str, &str, &str) {
    let device = comer.device.as_ref().map_or("", DeviceId::as_str);
    (comer.user.as_str(), device, comer.after.as_ref().map_or("", RoomId::as_str))
}

fn stand((room, head, since, delivered, cursor, version): Row) -> Stand {
    Stand {
        room: RoomId::trusted(room),
        head: head as u64,
        since: since as u64,
        delivered: delivered as u64,
        cursor: cursor.map(|seq| seq as u64),
        members_version: version as u64,
    }
}
