//! Rooms with something undecided: taken by one server at a time, looked at, and settled.
//!
//! An entry makes its room due a second later, by the database's clock. Who takes a room holds it by the time at which
//! it would be due again: another can take it only after that, and then the mark is another one. So nothing has to be
//! given back by a server that goes away, and what it still does comes to nothing.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{Arg, Pools, again};
use super::failure::Failure;
use super::sql::Texts;
use super::{DueRoom, Error, OpenMember, OpenMessage, OpenRoom, PushKind, Settled, Store, postgres, sqlite};
use crate::ids::{MessageId, RoomId, ServerId, UserId};

/// How many entries of a room one look goes through, at the most.
pub const LOOK: u32 = 1_000;

/// The most pushes that should come of one look at one room: the room's messages wait while they are made.
pub const MAX_PUSHES: usize = 1_000;

/// How long a room that is due is left to the server that looked last. That one knows how it stands, and no other is
/// to come in its way; it looks twice a second.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Nothing is put off for as long as that. What is due later was noted before the database's clock was set back.
const TOO_LATE: Duration = Duration::from_secs(2 * 3600);

/// A member for whom something is open: room, user, up to where nothing is, muted, and the first message that is.
type MemberRow = (String, String, i64, bool, Option<String>);

/// What was decided, as the database takes it. JSON texts.
pub(super) struct Decisions {
    /// Rooms: `room`, `hold`, `swept`, `again`.
    pub(super) rooms: String,
    /// Members who are decided further than their room: `room`, `user_id`, `seq`.
    pub(super) decided: String,
    /// Pushes to be made: `room`, `user_id`, `seq`.
    pub(super) pushes: String,
}

impl Decisions {
    pub(super) fn new(settled: &[&Settled]) -> Self {
        let rooms = settled.iter().map(|settled| {
            let DueRoom { room, hold, .. } = &settled.due;
            json!({ "room": room, "hold": hold, "swept": settled.swept, "again": settled.again_ms })
        });
        Self {
            rooms: rooms.collect::<Value>().to_string(),
            decided: marks(settled, |settled| &settled.decided),
            pushes: marks(settled, |settled| &settled.pushes),
        }
    }
}

fn marks(settled: &[&Settled], of: impl Fn(&Settled) -> &[(UserId, u64)]) -> String {
    let marks = settled.iter().flat_map(|settled| {
        let room = &settled.due.room;
        of(settled).iter().map(move |(user, seq)| json!({ "room": room, "user_id": user, "seq": seq }))
    });
    marks.collect::<Value>().to_string()
}

impl Store {
    /// Takes rooms that are due, those that are longest, at most `limit`, for `looker`, who holds each until it settles
    /// it or `hold` is over. One that another server looked at last is left to that one for a while.
    ///
    /// # Errors
    /// Those of the database only. Where the answer is missing, what was taken is due again after `hold`.
    pub async fn take_due_rooms(&self, looker: &ServerId, limit: u32, hold: Duration) -> Result<Vec<DueRoom>, Error> {
        let (looker, patience) = (Arg::Text(looker.as_str()), Arg::millis(PATIENCE));
        let args = [looker, patience, Arg::Number(limit.into()), Arg::millis(hold), Arg::Number(LOOK.into())];
        let mut db = self.reader().await?;
        let due: Option<(i64,)> = db.one(db.dialect().push.rooms_due, &args[..2]).await?;
        drop(db);
        if due.is_none() {
            return Ok(Vec::new());
        }
        let rows: Vec<(String, i64, i64, i64)> = again(|| async {
            let mut db = self.writer().await?;
            db.all(db.dialect().push.take_rooms, &args).await
        })
        .await?;
        Ok(rows.into_iter().map(due_room).collect())
    }

    /// Makes due what would wait for hours since the database's clock was set back: rooms, and pushes. Answers how many.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated.
    pub async fn make_up_for_clock(&self) -> Result<u64, Error> {
        let args = [Arg::millis(TOO_LATE)];
        let mut made_due = 0;
        for sql in [|texts: &Texts| texts.bring_rooms, |texts: &Texts| texts.bring_pushes] {
            made_due += again(|| async {
                let mut db = self.writer().await?;
                db.execute(sql(&db.dialect().push), &args).await
            })
            .await?;
        }
        Ok(made_due)
    }

    /// What is open in rooms that were taken: the members who may not have all, and of the undecided messages those that
    /// are the first open one of somebody. In the order of `due`.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn open_rooms(&self, due: Vec<DueRoom>) -> Result<Vec<OpenRoom>, Error> {
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let asked = asked(&due);
        let db = &mut self.reader().await?;
        let rows: Vec<MemberRow> = db.all(db.dialect().push.open_members, &[Arg::Text(&asked)]).await?;

        let places: HashMap<RoomId, usize> = due.iter().map(|due| due.room.clone()).zip(0..).collect();
        let open = |due| OpenRoom { due, messages: Vec::new(), members: Vec::new() };
        let mut rooms: Vec<_> = due.into_iter().map(open).collect();
        for (room, user, done, muted, first) in rows {
            let room = &mut rooms[places[room.as_str()]];
            room.members.push(OpenMember { user: UserId::trusted(user), done: done as u64, muted });
            if let Some(first) = first {
                room.messages.push(first_message(&first)?);
            }
        }
        for room in &mut rooms {
            room.messages.sort_unstable_by_key(|message| message.seq);
            room.messages.dedup_by_key(|message| message.seq);
        }
        Ok(rooms)
    }

    /// Reads all messages that are undecided in these rooms, whoever wrote them.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn read_open_messages(&self, rooms: &mut [&mut OpenRoom]) -> Result<(), Error> {
        if rooms.is_empty() {
            return Ok(());
        }
        let asked = asked(rooms.iter().map(|open| &open.due));
        let db = &mut self.reader().await?;
        let rows: Vec<(String, i64, i64, String, i64)> =
            db.all(db.dialect().push.open_messages, &[Arg::Text(&asked)]).await?;
        let places: HashMap<RoomId, usize> = rooms.iter().map(|open| open.due.room.clone()).zip(0..).collect();
        rooms.iter_mut().for_each(|open| open.messages.clear());
        for (room, seq, id, sender, age) in rows {
            rooms[places[room.as_str()]].messages.push(open_message(seq, id, sender, age));
        }
        Ok(())
    }

    /// Notes what was decided about rooms, and makes the pushes, each of them once and by each of `kinds`: for each room
    /// all of it or, where another has taken it since, nothing. Answers how many pushes were made.
    ///
    /// No push is made of what is acknowledged, or was decided before. One room should bring [`MAX_PUSHES`] at the
    /// most.
    ///
    /// # Errors
    /// Those of the database only: a room that it does not take, or that is locked, fails alone. The call may be repeated;
    /// some rooms may be settled already.
    pub async fn settle_rooms(&self, looker: &ServerId, settled: &[Settled], kinds: &[PushKind]) -> Result<u64, Error> {
        let (mut made, mut failed) = (0, None);
        let mut waiting = batches(settled);
        // The first is the last.
        waiting.reverse();
        while let Some(batch) = waiting.pop() {
            match self.settle(looker, batch, kinds).await {
                Ok(count) => made += count,
                Err(failure) if !failure.is_of_what_was_asked() => return Err(failure.into()),
                // One room that cannot be settled must not hold up the others.
                Err(_) if batch.len() > 1 => waiting.extend(batch.chunks(1).rev()),
                Err(failure) => failed = Some(failure),
            }
        }
        failed.map_or(Ok(made), |failure| Err(failure.into()))
    }

    async fn settle(&self, looker: &ServerId, batch: &[Settled], kinds: &[PushKind]) -> Result<u64, Failure> {
        again(|| async {
            match self.inner.pools {
                Pools::Sqlite { .. } => {
                    let mut db = self.transaction().await?;
                    let made = sqlite::settle(&mut db, looker, batch, kinds).await;
                    db.finish(made).await
                }
                Pools::Postgres { .. } => postgres::settle(&mut self.writer().await?, looker, batch, kinds).await,
            }
        })
        .await
    }
}

/// Cuts a list so that no piece brings more pushes than [`MAX_PUSHES`], but for a piece of one room.
fn batches(mut settled: &[Settled]) -> Vec<&[Settled]> {
    let mut batches = Vec::new();
    while !settled.is_empty() {
        let mut pushes = 0;
        let fits = settled.iter().take_while(|settled| {
            pushes += settled.pushes.len();
            pushes <= MAX_PUSHES
        });
        let (batch, rest) = settled.split_at(fits.count().max(1));
        batches.push(batch);
        settled = rest;
    }
    batches
}

/// Rooms and how far a look at them goes, as the database takes it.
fn asked<'a>(due: impl IntoIterator<Item = &'a DueRoom>) -> String {
    let rooms = due.into_iter().map(|due| json!({ "room": due.room, "swept": due.swept, "upto": due.upto }));
    rooms.collect::<Value>().to_string()
}

fn first_message(json: &str) -> Result<OpenMessage, Error> {
    let (seq, id, sender, age) = serde_json::from_str(json)
        .map_err(|error| Error::Unavailable(format!("a message is not readable: {error}")))?;
    Ok(open_message(seq, id, sender, age))
}

fn due_room((room, swept, upto, hold): (String, i64, i64, i64)) -> DueRoom {
    DueRoom { room: RoomId::trusted(room), swept: swept as u64, upto: upto as u64, hold }
}

fn open_message(seq: i64, id: i64, sender: String, age: i64) -> OpenMessage {
    OpenMessage {
        seq: seq as u64,
        id: MessageId(id as u64),
        sender: UserId::trusted(sender),
        age_ms: age.max(0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_settled_in_pieces_of_so_many_pushes_and_none_is_left_out() {
        let settled = |pushes| Settled {
            due: DueRoom { room: "r".parse().unwrap(), swept: 0, upto: 9, hold: 1 },
            swept: 9,
            again_ms: 0,
            decided: Vec::new(),
            pushes: vec![("u".parse().unwrap(), 1); pushes],
        };
        let sizes = |pushes: &[usize]| -> Vec<usize> {
            batches(&pushes.iter().map(|pushes| settled(*pushes)).collect::<Vec<_>>()).iter().map(|b| b.len()).collect()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[0, MAX_PUSHES, 0, 1, MAX_PUSHES + 1, 0, 0]), [3, 1, 1, 2]);
    }
}
