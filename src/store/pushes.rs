//! Pushes on their way: each is taken by one server at a time, tried, and forgotten, put off or given up.
//!
//! As with rooms, the hold is the time at which the push would be due again, and what is said about it later comes to
//! nothing.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{Arg, Db, Pools, again};
use super::failure::Failure;
use super::{Became, DeadLetter, Error, Push, PushKind, PushOutcome, Store};
use crate::ids::{MessageId, RoomId, UserId};

/// How many dead letters are handled by one statement.
const AT_ONCE: u32 = 1_000;

/// `$1` after which one, `$2` how many.
const DEAD: &str = "SELECT id, kind, user_id, room, seq, message, tries, reason, died AS at FROM pushes
    WHERE died IS NOT NULL AND id > $1 ORDER BY id LIMIT $2";

impl PushKind {
    /// Its name in the store, and that of the provider of its device tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Fcm => "fcm",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Webhook, Self::Fcm].into_iter().find(|kind| kind.as_str() == name)
    }
}

#[derive(sqlx::FromRow)]
struct PushRow {
    id: i64,
    hold: i64,
    kind: String,
    token: String,
    user_id: String,
    room: String,
    name: Option<String>,
    seq: i64,
    message: i64,
    sender: String,
    at: i64,
    body: String,
    tries: i64,
    age: i64,
    wanted: bool,
}

impl PushRow {
    fn push(self) -> Option<Push> {
        Some(Push {
            id: self.id,
            hold: self.hold,
            kind: PushKind::named(&self.kind)?,
            token: self.token,
            user: UserId::trusted(self.user_id),
            room: RoomId::trusted(self.room),
            room_name: self.name,
            seq: self.seq as u64,
            message: MessageId(self.message as u64),
            from: UserId::trusted(self.sender),
            at: self.at as u64,
            body: self.body.into(),
            tries: self.tries as u32,
            age_ms: self.age.max(0) as u64,
            wanted: self.wanted,
        })
    }
}

#[derive(sqlx::FromRow)]
struct DeadRow {
    id: i64,
    kind: String,
    user_id: String,
    room: String,
    seq: i64,
    message: i64,
    tries: i64,
    reason: Option<String>,
    at: i64,
}

impl DeadRow {
    fn letter(self) -> Option<DeadLetter> {
        Some(DeadLetter {
            id: self.id,
            kind: PushKind::named(&self.kind)?,
            user: UserId::trusted(self.user_id),
            room: RoomId::trusted(self.room),
            seq: self.seq as u64,
            message: MessageId(self.message as u64),
            tries: self.tries as u32,
            reason: self.reason.unwrap_or_default(),
            at: self.at as u64,
        })
    }
}

impl Store {
    /// Takes pushes of some kinds that are due, those that are longest, at most `limit`: they are held until it is said
    /// what became of them, or `hold` is over.
    ///
    /// # Errors
    /// Those of the database only. Where the answer is missing, what was taken is due again after `hold`.
    pub async fn take_pushes(&self, kinds: &[PushKind], limit: u32, hold: Duration) -> Result<Vec<Push>, Error> {
        let names = || Arg::Texts(kinds.iter().map(|kind| kind.as_str()).collect());
        let mut db = self.reader().await?;
        let due: Option<(i64,)> = db.one(db.dialect().push.pushes_due, &[names()]).await?;
        drop(db);
        if due.is_none() {
            return Ok(Vec::new());
        }
        let args = [names(), Arg::Number(limit.into()), Arg::millis(hold)];
        let taken: Vec<(i64, i64)> = again(|| async {
            let mut db = self.writer().await?;
            db.all(db.dialect().push.take_pushes, &args).await
        })
        .await?;
        let holds: HashMap<i64, i64> = taken.into_iter().collect();
        let mut db = self.reader().await?;
        let ids = Arg::Numbers(holds.keys().copied().collect());
        let rows: Vec<PushRow> = db.all(db.dialect().push.look_at_pushes, &[ids]).await?;
        let held = rows.into_iter().filter(|row| holds.get(&row.id) == Some(&row.hold));
        Ok(held.filter_map(PushRow::push).collect())
    }

    /// Notes what became of pushes. Those that another has taken since are passed over.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated.
    pub async fn finish_pushes(&self, outcomes: &[PushOutcome]) -> Result<(), Error> {
        if outcomes.is_empty() {
            return Ok(());
        }
        let endings = Endings::new(outcomes);
        let finished = again(|| async {
            // As with positions: one sync of the file, and no transaction that can be stopped in its midst.
            match self.inner.pools {
                Pools::Sqlite { .. } => {
                    let mut db = self.transaction().await?;
                    let finished = endings.write(&mut db).await;
                    db.finish(finished).await
                }
                Pools::Postgres { .. } => endings.write(&mut self.writer().await?).await,
            }
        });
        Ok(finished.await?)
    }

    /// The pushes that were given up, by number, from after `after` on, at most `limit`.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn dead_pushes(&self, after: i64, limit: u32) -> Result<Vec<DeadLetter>, Error> {
        let args = [Arg::Number(after), Arg::Number(limit.into())];
        let rows: Vec<DeadRow> = self.reader().await?.all(DEAD, &args).await?;
        Ok(rows.into_iter().filter_map(DeadRow::letter).collect())
    }

    /// Has pushes that were given up, or all of them, tried as if they were new. Answers how many there were.
    ///
    /// # Errors
    /// Those of the database only. Some may be due already; the call may be repeated.
    pub async fn replay_pushes(&self, ids: Option<&[i64]>) -> Result<u64, Error> {
        if let Some(ids) = ids {
            return self.replay(ids).await;
        }
        let (mut replayed, mut after) = (0, 0);
        loop {
            let ids: Vec<_> = self.dead_pushes(after, AT_ONCE).await?.iter().map(|letter| letter.id).collect();
            let Some(last) = ids.last() else { return Ok(replayed) };
            after = *last;
            replayed += self.replay(&ids).await?;
        }
    }

    async fn replay(&self, ids: &[i64]) -> Result<u64, Error> {
        let args = [Arg::Numbers(ids.to_vec())];
        let replayed = again(|| async {
            let mut db = self.writer().await?;
            db.execute(db.dialect().push.replay_pushes, &args).await
        });
        Ok(replayed.await?)
    }

    /// Forgets the pushes that were given up longer than `older` ago. Answers how many there were.
    ///
    /// # Errors
    /// Those of the database only. Some may be gone already; the call may be repeated.
    pub async fn purge_dead_pushes(&self, older: Duration) -> Result<u64, Error> {
        let args = [Arg::millis(older), Arg::Number(AT_ONCE.into())];
        let mut purged = 0;
        loop {
            let gone = again(|| async {
                let mut db = self.writer().await?;
                db.execute(db.dialect().push.purge_pushes, &args).await
            });
            let gone = gone.await?;
            purged += gone;
            if gone < AT_ONCE.into() {
                return Ok(purged);
            }
        }
    }
}

/// What became of pushes, by what is to be done. JSON texts.
#[derive(Default)]
struct Endings {
    done: Vec<Value>,
    again: Vec<Value>,
    dead: Vec<Value>,
    unregistered: Vec<Value>,
}

impl Endings {
    fn new(outcomes: &[PushOutcome]) -> Self {
        let mut endings = Self::default();
        for PushOutcome { id, hold, became } in outcomes {
            let (list, ending) = match became {
                Became::Done => (&mut endings.done, json!({ "id": id, "hold": hold })),
                Became::Unregistered => (&mut endings.unregistered, json!({ "id": id, "hold": hold })),
                Became::Dead { reason } => {
                    (&mut endings.dead, json!({ "id": id, "hold": hold, "tries": 1, "reason": clean(reason) }))
                }
                Became::Again { after_ms, reason, counts } => {
                    let (tries, reason) = (u8::from(*counts), clean(reason));
                    let ending = json!({ "id": id, "hold": hold, "wait": after_ms, "tries": tries, "reason": reason });
                    (&mut endings.again, ending)
                }
            };
            list.push(ending);
        }
        endings
    }

    /// The tokens go before the pushes that name them.
    async fn write(&self, db: &mut Db) -> Result<(), Failure> {
        let texts = &db.dialect().push;
        for (sql, endings) in [
            (texts.forget_pushes, &self.done),
            (texts.put_off_pushes, &self.again),
            (texts.give_up_pushes, &self.dead),
            (texts.forget_tokens, &self.unregistered),
            (texts.forget_pushes_to, &self.unregistered),
        ] {
            if !endings.is_empty() {
                db.execute(sql, &[Arg::Text(&json!(endings).to_string())]).await?;
            }
        }
        Ok(())
    }
}

/// A text that came from elsewhere, without what PostgreSQL has no text for.
fn clean(reason: &str) -> String {
    reason.replace('\0', "")
}
