//! Rooms come to be, and their members change. Each change is an entry of the room's log.

use serde_json::json;

use super::connection::{Arg, Db, again};
use super::failure::Failure;
use super::{Change, Changed, Content, Entry, Error, Event, EventKind, MAX_MEMBERS, NewRoom, Refusal, Store};
use crate::ids::{MessageId, RoomId, UserId};

const CREATOR: &str = "SELECT creator FROM rooms WHERE id = $1";

const DIRECT_ROOM: &str = "SELECT id FROM rooms WHERE low = $1 AND high = $2";

/// A room that a transaction holds.
#[derive(sqlx::FromRow)]
struct HeldRoom {
    creator: String,
    direct: bool,
    open: bool,
    head: i64,
    size: i64,
}

/// What a change comes to, once the rights are checked.
struct Step {
    kind: EventKind,
    /// Those who are really changed, in order.
    users: Vec<UserId>,
}

impl Store {
    /// Makes a room. One of this id that its creator made before is left as it is.
    ///
    /// # Errors
    /// [`Refusal::Taken`] where another user made it, [`Refusal::Full`] for too many members.
    pub async fn create(&self, room: &NewRoom) -> Result<Changed, Error> {
        let members = distinct(room.members.iter().chain([&room.creator]));
        if members.len() > MAX_MEMBERS {
            return Err(Refusal::Full.into());
        }
        let made = again(|| async {
            let mut db = self.transaction().await?;
            let made = make(&mut db, room, &members, None).await;
            db.finish(made).await
        });
        Ok(Changed { room: room.room.clone(), entry: made.await? })
    }

    /// The one direct room of a pair, made by `a` where it is missing. With oneself it is a room of one.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn direct(&self, a: &UserId, b: &UserId, id: MessageId) -> Result<Changed, Error> {
        let pair = (a.min(b), a.max(b));
        if let Some(room) = find_direct(&mut self.reader().await?, pair).await? {
            return Ok(Changed { room, entry: None });
        }
        let made = RoomId::made(id);
        let room = NewRoom { room: made, creator: a.clone(), members: vec![b.clone()], name: None, open: false, id };
        let made = again(|| async {
            let mut db = self.transaction().await?;
            let made = make_direct(&mut db, &room, pair).await;
            db.finish(made).await
        });
        Ok(made.await?)
    }

    /// Changes the members of a room. The entry lists those who were really changed; where nobody is, there is none.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is no such room or the actor is not in it (nor may join it), and the other
    /// refusals by their rules.
    pub async fn change(
        &self,
        room: &RoomId,
        actor: &UserId,
        change: &Change,
        id: MessageId,
    ) -> Result<Changed, Error> {
        let entry = again(|| async {
            let mut db = self.transaction().await?;
            let entry = change_within(&mut db, room, actor, change, id).await;
            db.finish(entry).await
        });
        Ok(Changed { room: room.clone(), entry: entry.await? })
    }
}

/// The direct room of a pair, in order, if it is there.
async fn find_direct(db: &mut Db, (low, high): (&UserId, &UserId)) -> Result<Option<RoomId>, Failure> {
    let row: Option<(String,)> = db.one(DIRECT_ROOM, &[Arg::Text(low.as_str()), Arg::Text(high.as_str())]).await?;
    Ok(row.map(|(room,)| RoomId::trusted(room)))
}

/// Makes the direct room of a pair, or finds the one that someone else made a moment ago.
async fn make_direct(db: &mut Db, room: &NewRoom, pair: (&UserId, &UserId)) -> Result<Changed, Failure> {
    let members = distinct([pair.0, pair.1]);
    if let Some(entry) = make(db, room, &members, Some(pair)).await? {
        return Ok(Changed { room: room.room.clone(), entry: Some(entry) });
    }
    let found = find_direct(db, pair).await?;
    let room = found.ok_or_else(|| Failure::Conflict("the direct room is being made".into()))?;
    Ok(Changed { room, entry: None })
}

/// Makes a room with its members and the entry that says so; none where it is there already and the creator's.
async fn make(
    db: &mut Db,
    room: &NewRoom,
    members: &[UserId],
    pair: Option<(&UserId, &UserId)>,
) -> Result<Option<Entry>, Failure> {
    let inserted = db
        .execute(
            db.dialect().make_room,
            &[
                Arg::Text(room.room.as_str()),
                Arg::Text(room.creator.as_str()),
                Arg::MaybeText(room.name.as_deref()),
                Arg::Flag(room.open),
                Arg::MaybeText(pair.map(|(low, _)| low.as_str())),
                Arg::MaybeText(pair.map(|(_, high)| high.as_str())),
                Arg::Number(members.len() as i64),
            ],
        )
        .await?;
    if inserted == 0 {
        let creator = db.one::<(String,)>(CREATOR, &[Arg::Text(room.room.as_str())]).await?;
        let another = creator.is_some_and(|(creator,)| creator != room.creator.as_str());
        return if another { Err(Refusal::Taken.into()) } else { Ok(None) };
    }
    add(db, &room.room, 1, members).await?;
    let event = Event { kind: EventKind::Created, users: members.to_vec() };
    log(db, &room.room, 1, &room.creator, event, room.id).await.map(Some)
}

/// Makes a change, within the transaction that is open; no entry where it changes nothing.
async fn change_within(
    db: &mut Db,
    room: &RoomId,
    actor: &UserId,
    change: &Change,
    id: MessageId,
) -> Result<Option<Entry>, Failure> {
    let held: Option<HeldRoom> = db.one(db.dialect().hold_room, &[Arg::Text(room.as_str())]).await?;
    let held = held.ok_or(Refusal::NotFound)?;
    let step = decide(db, &held, room, actor, change).await?;
    if step.users.is_empty() {
        return Ok(None);
    }
    apply(db, &held, room, actor, step, id).await.map(Some)
}

/// Checks the rights, and says who would be changed.
async fn decide(db: &mut Db, held: &HeldRoom, room: &RoomId, actor: &UserId, change: &Change) -> Result<Step, Failure> {
    let inside = !present(db, room, std::slice::from_ref(actor)).await?.is_empty();
    match change {
        Change::Join if inside => Ok(Step { kind: EventKind::Joined, users: Vec::new() }),
        Change::Join if held.open => fitting(held, vec![actor.clone()]),
        _ if !inside => Err(Refusal::NotFound.into()),
        _ if held.direct => Err(Refusal::Direct.into()),
        Change::Leave => Ok(Step { kind: EventKind::Left, users: vec![actor.clone()] }),
        _ if held.creator != actor.as_str() => Err(Refusal::Forbidden.into()),
        Change::Add(users) => {
            let users = distinct(users);
            let there = present(db, room, &users).await?;
            fitting(held, users.into_iter().filter(|user| there.binary_search(user).is_err()).collect())
        }
        Change::Remove(users) => Ok(Step { kind: EventKind::Left, users: present(db, room, &distinct(users)).await? }),
        Change::Join => Err(Refusal::NotFound.into()),
    }
}

/// The step by which `users` join, if there is room for them.
fn fitting(held: &HeldRoom, users: Vec<UserId>) -> Result<Step, Failure> {
    if held.size as usize + users.len() > MAX_MEMBERS {
        return Err(Refusal::Full.into());
    }
    Ok(Step { kind: EventKind::Joined, users })
}

/// Which of `users` are members, in order. They are held until the transaction ends.
async fn present(db: &mut Db, room: &RoomId, users: &[UserId]) -> Result<Vec<UserId>, Failure> {
    let rows = db.all::<(String,)>(db.dialect().hold_members, &[Arg::Text(room.as_str()), texts(users)]).await?;
    Ok(rows.into_iter().map(|(user,)| UserId::trusted(user)).collect())
}

async fn apply(
    db: &mut Db,
    held: &HeldRoom,
    room: &RoomId,
    actor: &UserId,
    step: Step,
    id: MessageId,
) -> Result<Entry, Failure> {
    let seq = held.head + 1;
    let count = step.users.len() as i64;
    let growth = if step.kind == EventKind::Left {
        remove(db, room, &step.users).await?;
        -count
    } else {
        add(db, room, seq, &step.users).await?;
        count
    };
    db.execute(db.dialect().grow_room, &[Arg::Text(room.as_str()), Arg::Number(seq), Arg::Number(growth)]).await?;
    log(db, room, seq, actor, Event { kind: step.kind, users: step.users }, id).await
}

/// Makes `users` members whose view begins at `seq`.
async fn add(db: &mut Db, room: &RoomId, seq: i64, users: &[UserId]) -> Result<(), Failure> {
    db.execute(db.dialect().add_members, &[Arg::Text(room.as_str()), Arg::Number(seq), texts(users)]).await?;
    Ok(())
}

/// Takes `users` out, and forgets where their devices stood.
async fn remove(db: &mut Db, room: &RoomId, users: &[UserId]) -> Result<(), Failure> {
    for sql in [db.dialect().remove_members, db.dialect().remove_cursors] {
        db.execute(sql, &[Arg::Text(room.as_str()), texts(users)]).await?;
    }
    Ok(())
}

/// Writes a change into the room's log.
async fn log(
    db: &mut Db,
    room: &RoomId,
    seq: i64,
    sender: &UserId,
    event: Event,
    id: MessageId,
) -> Result<Entry, Failure> {
    let users = json!(event.users).to_string();
    let args = [
        Arg::Text(room.as_str()),
        Arg::Number(seq),
        Arg::Number(id.0 as i64),
        Arg::Text(sender.as_str()),
        Arg::Text(event.kind.as_str()),
        Arg::Text(&users),
    ];
    let (at,): (i64,) = db.one(db.dialect().log_event, &args).await?.ok_or(sqlx::Error::RowNotFound)?;
    let (seq, at) = (seq as u64, at as u64);
    Ok(Entry { room: room.clone(), seq, id, sender: sender.clone(), cid: None, at, content: Content::Event(event) })
}

fn texts(users: &[UserId]) -> Arg<'_> {
    Arg::Texts(users.iter().map(UserId::as_str).collect())
}

/// Each user once, in order.
fn distinct<'a>(users: impl IntoIterator<Item = &'a UserId>) -> Vec<UserId> {
    let mut users: Vec<_> = users.into_iter().cloned().collect();
    users.sort_unstable();
    users.dedup();
    users
}
