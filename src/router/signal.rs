//! What is volatile: looked up and delivered like a message, never stored, dropped where it would have to wait.

use std::sync::Arc;

use tokio::task::yield_now;

use super::forward::Publication;
use super::{CROWD, Router};
use crate::ids::{RoomId, UserId};
use crate::metrics::Drop;
use crate::protocol::{Body, Code, Frame, Reject, ServerFrame, Target};
use crate::sessions::{Push, Session};
use crate::store::Error;

impl Router {
    pub(super) async fn signal(&self, session: &Arc<Session>, to: &Target, body: &Body) -> Result<(), Reject> {
        let (room, users) = match to {
            Target::User(user) => (None, vec![user.clone()]),
            Target::Room(room) => (Some(room), self.others_in(session, room).await?),
        };
        let frame = ServerFrame::Signal { room, from: &session.user, body }.encode();
        self.spread(session, room.cloned(), users, frame).await;
        Ok(())
    }

    pub(super) async fn typing(&self, session: &Arc<Session>, room: &RoomId) -> Result<(), Reject> {
        let users = self.others_in(session, room).await?;
        let frame = ServerFrame::Typing { room, user: &session.user }.encode();
        self.spread(session, Some(room.clone()), users, frame).await;
        Ok(())
    }

    /// The members of a room besides the sender, who must be one.
    async fn others_in(&self, session: &Session, room: &RoomId) -> Result<Vec<UserId>, Reject> {
        let members = self.0.parts.rooms.members(room, 0).await.map_err(reject)?;
        if !members.has(&session.user) {
            return Err(reject(crate::store::Refusal::NotFound.into()));
        }
        Ok(members.users().filter(|user| **user != session.user).cloned().collect())
    }

    async fn spread(&self, session: &Session, room: Option<RoomId>, users: Vec<UserId>, frame: Frame) {
        let metrics = &self.0.parts.metrics;
        metrics.signals.inc();
        for local in users.iter().flat_map(|user| self.0.parts.sessions.of(user)).filter(|to| to.id != session.id) {
            match local.push_volatile(&frame) {
                Push::Queued => _ = metrics.signal_deliveries.inc(),
                Push::Full => metrics.dropped(Drop::SignalToSlow),
                Push::Gone => {}
            }
        }
        if users.len() > CROWD {
            yield_now().await;
        }
        if self.0.parts.alone {
            return;
        }
        let publication = Publication::volatile(room, session.user.clone(), frame, users);
        if let Some(publication) = self.forward_now(publication)
            && !self.0.gathering.try_put(publication)
        {
            metrics.dropped(Drop::SignalQueueFull);
        }
    }
}

/// What the store's answer means to a client.
pub(super) fn reject(error: Error) -> Reject {
    use crate::store::Refusal;
    let Error::Refused(refusal) = error else { return Reject::unavailable() };
    let code = match refusal {
        Refusal::NotFound => Code::NotFound,
        Refusal::Forbidden | Refusal::Direct => Code::Forbidden,
        Refusal::Full => Code::RoomFull,
        Refusal::Taken => Code::RoomTaken,
    };
    Reject::new(code, refusal.to_string())
}
