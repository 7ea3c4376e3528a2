//! What a member sees of their rooms, and who is in them.

use std::collections::HashSet;

use super::connection::{Arg, Db};
use super::failure::Failure;
use super::{Error, Head, MemberView, Membership, Refusal, RoomView, Store};
use crate::ids::{RoomId, UserId};

/// The view of a user (`$1`), of the rooms that `$which` chooses.
macro_rules! views {
    ($which:literal) => {
        concat!(
            "SELECT r.id, r.name, r.low, r.high, r.open, r.head, m.since, m.delivered, m.read, m.muted, r.size
            FROM members m JOIN rooms r ON r.id = m.room
            WHERE m.user_id = $1 AND ",
            $which
        )
    };
}

const VIEW: &str = views!("m.room = $2");

const VIEWS: &str = views!("m.room > $2 ORDER BY m.room LIMIT $3");

const MEMBERS: &str =
    "SELECT user_id, delivered, read FROM members WHERE room = $1 AND user_id > $2 ORDER BY user_id LIMIT $3";

const MEMBERSHIP: &str = "SELECT r.version, m.user_id, m.since FROM rooms r
    LEFT JOIN members m ON m.room = r.id WHERE r.id = $1 ORDER BY m.user_id";

const HEAD: &str = "SELECT head FROM rooms WHERE id = $1";

const SIGHT: &str = "SELECT r.head, m.since FROM members m JOIN rooms r ON r.id = m.room
    WHERE m.room = $1 AND m.user_id = $2";

/// How many users one query asks for.
const USERS_AT_ONCE: usize = 1_000;

#[derive(sqlx::FromRow)]
struct ViewRow {
    id: String,
    name: Option<String>,
    low: Option<String>,
    high: Option<String>,
    open: bool,
    head: i64,
    since: i64,
    delivered: i64,
    read: i64,
    muted: bool,
    size: i64,
}

impl ViewRow {
    fn view(self, user: &UserId) -> RoomView {
        let peer = if self.low.as_deref() == Some(user.as_str()) { self.high } else { self.low };
        RoomView {
            room: RoomId::trusted(self.id),
            name: self.name,
            peer: peer.map(UserId::trusted),
            open: self.open,
            head: self.head as u64,
            since: self.since as u64,
            delivered: self.delivered as u64,
            read: self.read as u64,
            muted: self.muted,
            count: self.size as u64,
        }
    }
}

impl Store {
    /// A room as `user` sees it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for who is not a member.
    pub async fn view(&self, user: &UserId, room: &RoomId) -> Result<RoomView, Error> {
        let args = [Arg::Text(user.as_str()), Arg::Text(room.as_str())];
        let row: Option<ViewRow> = self.reader().await?.one(VIEW, &args).await?;
        Ok(row.ok_or(Refusal::NotFound)?.view(user))
    }

    /// The rooms of `user` by room id, from after `after` on, at most `limit`.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn rooms(&self, user: &UserId, after: Option<&RoomId>, limit: u32) -> Result<Vec<RoomView>, Error> {
        let args = [Arg::Text(user.as_str()), Arg::Text(after.map_or("", RoomId::as_str)), Arg::Number(limit.into())];
        let rows: Vec<ViewRow> = self.reader().await?.all(VIEWS, &args).await?;
        Ok(rows.into_iter().map(|row| row.view(user)).collect())
    }

    /// The members of a room in order, each with their positions, from after `after` on, at most `limit`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where `asker` is not a member.
    pub async fn members_page(
        &self,
        asker: &UserId,
        room: &RoomId,
        after: Option<&UserId>,
        limit: u32,
    ) -> Result<Vec<MemberView>, Error> {
        let args = [Arg::Text(room.as_str()), Arg::Text(after.map_or("", UserId::as_str)), Arg::Number(limit.into())];
        let db = &mut self.reader().await?;
        sight(db, asker, room).await?;
        let rows: Vec<(String, i64, i64)> = db.all(MEMBERS, &args).await?;
        Ok(rows.into_iter().map(member).collect())
    }

    /// The members of a room and the version of that list, from one snapshot; none where there is no such room.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn membership(&self, room: &RoomId) -> Result<Option<Membership>, Error> {
        let args = [Arg::Text(room.as_str())];
        let rows: Vec<(i64, Option<String>, Option<i64>)> = self.reader().await?.all(MEMBERSHIP, &args).await?;
        Ok(rows.first().map(|(version, ..)| *version as u64).map(|version| Membership {
            version,
            members: rows
                .into_iter()
                .filter_map(|(_, user, since)| Some((UserId::trusted(user?), since? as u64)))
                .collect(),
        }))
    }

    /// The head of every room of every one of `users`, in no order.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn heads(&self, users: &[UserId]) -> Result<Vec<Head>, Error> {
        let db = &mut self.reader().await?;
        let mut heads = Vec::new();
        for users in users.chunks(USERS_AT_ONCE) {
            let args = [Arg::Texts(users.iter().map(UserId::as_str).collect())];
            let rows: Vec<(String, String, i64, i64)> = db.all(db.dialect().heads, &args).await?;
            heads.extend(rows.into_iter().map(|(user, room, head, since)| Head {
                user: UserId::trusted(user),
                room: RoomId::trusted(room),
                head: head as u64,
                since: since as u64,
            }));
        }
        Ok(heads)
    }

    /// Those of `users` who are in a room with `user`.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn sharing(&self, user: &UserId, users: &[UserId]) -> Result<HashSet<UserId>, Error> {
        let args = [Arg::Text(user.as_str()), Arg::Texts(users.iter().map(UserId::as_str).collect())];
        let mut db = self.reader().await?;
        let rows: Vec<(String,)> = db.all(db.dialect().sharing, &args).await?;
        Ok(rows.into_iter().map(|(user,)| UserId::trusted(user)).collect())
    }

    /// The seq of a room's latest entry; none where there is no such room.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn head(&self, room: &RoomId) -> Result<Option<u64>, Error> {
        Ok(head(&mut self.reader().await?, room).await?)
    }
}

fn member((user, delivered, read): (String, i64, i64)) -> MemberView {
    MemberView { user: UserId::trusted(user), delivered: delivered as u64, read: read as u64 }
}

/// The head of a room.
pub(super) async fn head(db: &mut Db, room: &RoomId) -> Result<Option<u64>, Failure> {
    let row: Option<(i64,)> = db.one(HEAD, &[Arg::Text(room.as_str())]).await?;
    Ok(row.map(|(head,)| head as u64))
}

/// The head of a room and where a member's view begins; a refusal for who is no member.
pub(super) async fn sight(db: &mut Db, user: &UserId, room: &RoomId) -> Result<(u64, u64), Failure> {
    let row: Option<(i64, i64)> = db.one(SIGHT, &[Arg::Text(room.as_str()), Arg::Text(user.as_str())]).await?;
    let (head, since) = row.ok_or(Refusal::NotFound)?;
    Ok((head as u64, since as u64))
}
