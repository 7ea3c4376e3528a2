//! Whether and where a user is pushed: what clients ask for.

use super::Router;
use super::signal::reject;
use crate::ids::{RoomId, UserId};
use crate::protocol::{DeviceToken, Reject};
use crate::sessions::Session;

impl Router {
    /// Whether `user` wants no pushes: of a room they are in, or of any.
    pub(super) async fn settings(&self, user: &UserId, room: Option<&RoomId>, muted: bool) -> Result<(), Reject> {
        let store = &self.0.parts.store;
        let set = match room {
            Some(room) => store.mute_room(user, room, muted).await,
            None => store.mute_all(user, muted).await,
        };
        set.map_err(reject)
    }

    /// Keeps, or forgets, how a push service reaches the session's device.
    pub(super) async fn device_token(&self, session: &Session, said: &DeviceToken) -> Result<(), Reject> {
        let (store, user) = (&self.0.parts.store, &session.user);
        let (provider, token) = (said.provider.name(), said.token.expose());
        let kept = if said.remove {
            store.forget_token(user, provider, token).await
        } else {
            store.register_token(user, session.device.as_ref(), provider, token).await
        };
        kept.map_err(reject)
    }
}
