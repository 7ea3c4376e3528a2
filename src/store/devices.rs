//! Where pushes go to, and who wants none: the tokens of devices, and settings.

use super::connection::{Arg, Db, again};
use super::failure::Failure;
use super::{Error, Refusal, Store};
use crate::ids::{DeviceId, RoomId, UserId};

/// The most tokens that a user has with one provider; a new one beyond that drops the oldest.
pub const MAX_TOKENS: usize = 20;

/// Forgets what a device had before. `$1` user, `$2` provider, `$3` the new token, `$4` device.
const REPLACE: &str = "DELETE FROM device_tokens WHERE user_id = $1 AND provider = $2 AND token <> $3 AND device = $4";

/// Forgets the oldest others beyond so many; there are never many more, but SQLite has no OFFSET without a LIMIT. `$1`
/// user, `$2` provider, `$3` the new token, `$4` how many others are kept.
const DROP_OLDEST: &str = "DELETE FROM device_tokens WHERE provider = $2 AND user_id = $1 AND token IN (
        SELECT token FROM device_tokens WHERE user_id = $1 AND provider = $2 AND token <> $3
        ORDER BY at DESC, token LIMIT 1000 OFFSET $4
    )";

/// `$1` user, `$2` provider, `$3` token.
const FORGET: &str = "DELETE FROM device_tokens WHERE user_id = $1 AND provider = $2 AND token = $3";

/// What is on its way to a token. `$1` user, `$2` provider, `$3` token.
const FORGET_PUSHES: &str = "DELETE FROM pushes
    WHERE token = $3 AND token <> '' AND kind = $2 AND user_id = $1 AND due IS NOT NULL";

const MUTE_ROOM: &str = "UPDATE members SET muted = $3 WHERE room = $1 AND user_id = $2";

const MUTE_ALL: &str = "INSERT INTO users (user_id, muted) VALUES ($1, $2)
    ON CONFLICT (user_id) DO UPDATE SET muted = excluded.muted";

impl Store {
    /// Has pushes to `user` sent also to a device, by its `token` with a `provider` (the name of a
    /// [`PushKind`](super::PushKind)). The token is taken from whoever registered it before, and replaces the one that
    /// the same `device` registered before.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated.
    pub async fn register_token(
        &self,
        user: &UserId,
        device: Option<&DeviceId>,
        provider: &str,
        token: &str,
    ) -> Result<(), Error> {
        let registered = again(|| async {
            let mut db = self.transaction().await?;
            let registered = register(&mut db, user, device, provider, token).await;
            db.finish(registered).await
        });
        Ok(registered.await?)
    }

    /// Sends no more pushes to a device, nor those that are on their way to it. Nothing where the token is not the user's.
    ///
    /// # Errors
    /// Those of the database only. The call may be repeated.
    pub async fn forget_token(&self, user: &UserId, provider: &str, token: &str) -> Result<(), Error> {
        let args = [Arg::Text(user.as_str()), Arg::Text(provider), Arg::Text(token)];
        for sql in [FORGET, FORGET_PUSHES] {
            again(|| async { self.writer().await?.execute(sql, &args).await }).await?;
        }
        Ok(())
    }

    /// Whether `user` wants no pushes of a room.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for who is not a member.
    pub async fn mute_room(&self, user: &UserId, room: &RoomId, muted: bool) -> Result<(), Error> {
        let args = [Arg::Text(room.as_str()), Arg::Text(user.as_str()), Arg::Flag(muted)];
        match again(|| async { self.writer().await?.execute(MUTE_ROOM, &args).await }).await? {
            0 => Err(Refusal::NotFound.into()),
            _ => Ok(()),
        }
    }

    /// Whether `user` wants no pushes at all. What they want of each room is kept beside it.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn mute_all(&self, user: &UserId, muted: bool) -> Result<(), Error> {
        let args = [Arg::Text(user.as_str()), Arg::Flag(muted)];
        again(|| async { self.writer().await?.execute(MUTE_ALL, &args).await }).await?;
        Ok(())
    }
}

/// Registers a token, within the transaction that is open.
async fn register(
    db: &mut Db,
    user: &UserId,
    device: Option<&DeviceId>,
    provider: &str,
    token: &str,
) -> Result<(), Failure> {
    let args =
        [Arg::Text(user.as_str()), Arg::Text(provider), Arg::Text(token), Arg::MaybeText(device.map(DeviceId::as_str))];
    db.execute(db.dialect().push.hold_user, &args[..1]).await?;
    db.execute(db.dialect().push.give_token, &args).await?;
    db.execute(REPLACE, &args).await?;
    let [user, provider, token, _] = args;
    db.execute(DROP_OLDEST, &[user, provider, token, Arg::Number(MAX_TOKENS as i64 - 1)]).await?;
    Ok(())
}
