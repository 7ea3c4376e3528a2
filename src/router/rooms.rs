//! Rooms and their members: what clients ask of them.

use super::Router;
use super::accept::{receipt_view, room_info};
use super::signal::reject;
use crate::ids::{Cid, MessageId, RoomId, UserId};
use crate::protocol::{Frame, Reject, ServerFrame};
use crate::store::{Change, Changed, Error, NewRoom, Refusal};

impl Router {
    /// The direct room of two users, made when it is missing.
    pub(super) async fn direct_room(&self, from: &UserId, to: &UserId) -> Result<RoomId, Reject> {
        let changed = self.0.parts.rooms.direct(from, to, self.message_id()?).await.map_err(reject)?;
        Ok(self.changed(changed).await)
    }

    pub(super) async fn create(
        &self,
        creator: &UserId,
        cid: Option<&Cid>,
        room: Option<RoomId>,
        members: Vec<UserId>,
        name: Option<String>,
        open: bool,
    ) -> Result<Frame, Reject> {
        let id = self.message_id()?;
        let room = room.unwrap_or_else(|| RoomId::made(id));
        let new = NewRoom { room, creator: creator.clone(), members, name, open, id };
        let room = self.changed(self.0.parts.store.create(&new).await.map_err(reject)?).await;
        self.show(creator, cid, &room).await
    }

    pub(super) async fn join(
        &self,
        user: &UserId,
        cid: Option<&Cid>,
        room: RoomId,
        create: bool,
    ) -> Result<Frame, Reject> {
        let changed = match self.change(user, &room, Change::Join).await {
            Err(Error::Refused(Refusal::NotFound)) if create => self.create_open(user, &room).await,
            changed => changed,
        };
        let room = self.changed(changed.map_err(reject)?).await;
        self.show(user, cid, &room).await
    }

    /// Makes an open room. Where another was faster with that id, it is joined if it is open.
    async fn create_open(&self, user: &UserId, room: &RoomId) -> Result<Changed, Error> {
        let id = self.message_id().map_err(|_| Error::Unavailable("no ids".into()))?;
        let new =
            NewRoom { room: room.clone(), creator: user.clone(), members: Vec::new(), name: None, open: true, id };
        match self.0.parts.store.create(&new).await {
            Err(Error::Refused(Refusal::Taken)) => self.change(user, room, Change::Join).await,
            created => created,
        }
    }

    pub(super) async fn leave(&self, user: &UserId, room: &RoomId) -> Result<(), Reject> {
        self.change_and_publish(user, room, Change::Leave).await
    }

    pub(super) async fn add(&self, user: &UserId, room: &RoomId, users: Vec<UserId>) -> Result<(), Reject> {
        self.change_and_publish(user, room, Change::Add(users)).await
    }

    pub(super) async fn remove(&self, user: &UserId, room: &RoomId, users: Vec<UserId>) -> Result<(), Reject> {
        self.change_and_publish(user, room, Change::Remove(users)).await
    }

    pub(super) async fn list_rooms(
        &self,
        user: &UserId,
        cid: Option<&Cid>,
        after: Option<&RoomId>,
        limit: u32,
    ) -> Result<Frame, Reject> {
        let mut views = self.0.parts.store.rooms(user, after, limit + 1).await.map_err(reject)?;
        let more = views.len() > limit as usize;
        views.truncate(limit as usize);
        Ok(ServerFrame::Rooms { cid, rooms: views.iter().map(room_info).collect(), more }.encode())
    }

    pub(super) async fn list_members(
        &self,
        asker: &UserId,
        cid: Option<&Cid>,
        room: &RoomId,
        after: Option<&UserId>,
        limit: u32,
    ) -> Result<Frame, Reject> {
        let mut members = self.0.parts.store.members_page(asker, room, after, limit + 1).await.map_err(reject)?;
        let more = members.len() > limit as usize;
        members.truncate(limit as usize);
        let users: Vec<_> = members.iter().map(|member| &member.user).collect();
        let count = self.0.parts.rooms.members(room, 0).await.map_err(reject)?.members.len();
        let shown = if self.has_receipts(count) { &members[..] } else { &[] };
        let receipts: Vec<_> = shown.iter().map(receipt_view).collect();
        Ok(ServerFrame::Members { cid, room, users: &users, receipts: &receipts, more }.encode())
    }

    async fn show(&self, user: &UserId, cid: Option<&Cid>, room: &RoomId) -> Result<Frame, Reject> {
        let view = self.0.parts.store.view(user, room).await.map_err(reject)?;
        Ok(ServerFrame::Room { cid, info: room_info(&view) }.encode())
    }

    async fn change_and_publish(&self, actor: &UserId, room: &RoomId, change: Change) -> Result<(), Reject> {
        let changed = self.change(actor, room, change).await.map_err(reject)?;
        self.changed(changed).await;
        Ok(())
    }

    async fn change(&self, actor: &UserId, room: &RoomId, change: Change) -> Result<Changed, Error> {
        let id = self.message_id().map_err(|_| Error::Unavailable("no ids".into()))?;
        self.0.parts.store.change(room, actor, &change, id).await
    }

    /// Sends the entry that a change has written on its way, if it has written one. Says which room it was.
    async fn changed(&self, changed: Changed) -> RoomId {
        if let Some(entry) = changed.entry {
            let members = self.members_after_commit(&entry, entry.seq).await;
            self.publish(entry, None, members).await;
        }
        changed.room
    }

    fn message_id(&self) -> Result<MessageId, Reject> {
        self.fresh_id().map(MessageId).map_err(|_| Reject::unavailable())
    }
}
