//! One frame of a client: who may, and what comes of it.

use std::sync::Arc;

use super::Router;
use super::signal::reject;
use crate::feed::message_view;
use crate::ids::{Cid, MessageId, RoomId};
use crate::protocol::{
    Body, ClientFrame, Code, Frame, HistoryFrom, Parsed, Place, ReceiptView, Reject, RoomInfo, ServerFrame, Target,
};
use crate::sessions::{Expected, Session};
use crate::store::writer::Job;
use crate::store::{Append, MemberView, Position, RoomView};

/// The most bytes of bodies in one `history` answer. It is one frame, and has to fit what a socket may buffer.
const HISTORY_BYTES: usize = 64 * 1024;

impl Router {
    /// Does what a frame asks for, in the name of the session's user. Answers the frame that goes back at once; a `send`
    /// has none, its `sent` comes in the room's order. `hello` is the gateway's own.
    pub async fn accept(&self, session: &Arc<Session>, parsed: Parsed) -> Option<Frame> {
        let Parsed { cid, frame } = parsed;
        let answer = match frame {
            Ok(frame) => self.answer(session, cid.as_ref(), frame).await,
            Err(reject) => Err(reject),
        };
        answer.unwrap_or_else(|reject| {
            self.0.parts.metrics.rejected(reject.code);
            Some(ServerFrame::error(cid.as_ref(), &reject).encode())
        })
    }

    async fn answer(
        &self,
        session: &Arc<Session>,
        cid: Option<&Cid>,
        frame: ClientFrame,
    ) -> Result<Option<Frame>, Reject> {
        match frame {
            ClientFrame::Send { cid, to, body } => self.send(session, cid, to, body).await.map(|()| None),
            ClientFrame::Signal { to, body } => self.signal(session, &to, &body).await.map(|()| ok_if_marked(cid)),
            ClientFrame::Typing(room) => self.typing(session, &room).await.map(|()| ok_if_marked(cid)),
            ClientFrame::Ack(place) => self.position(session, place, false).await.map(|()| ok_if_marked(cid)),
            ClientFrame::Read(place) => self.position(session, place, true).await.map(|()| ok_if_marked(cid)),
            ClientFrame::Ping => Ok(Some(ServerFrame::Pong { cid }.encode())),
            ClientFrame::Hello(_) => Ok(None),
            // These wait for the store. What that takes is boxed, so that every connection need not have room for it.
            frame => Box::pin(self.answer_from_store(session, cid, frame)).await,
        }
    }

    async fn answer_from_store(
        &self,
        session: &Arc<Session>,
        cid: Option<&Cid>,
        frame: ClientFrame,
    ) -> Result<Option<Frame>, Reject> {
        let user = &session.user;
        match frame {
            ClientFrame::History { room, from, limit } => {
                self.history(session, cid, &room, from, limit).await.map(Some)
            }
            ClientFrame::Create { room, members, name, open } => {
                self.create(user, cid, room, members, name, open).await.map(Some)
            }
            ClientFrame::Join { room, create } => self.join(user, cid, room, create).await.map(Some),
            ClientFrame::Leave(room) => self.leave(user, &room).await.map(|()| Some(ok(cid))),
            ClientFrame::Add(room, users) => self.add(user, &room, users).await.map(|()| Some(ok(cid))),
            ClientFrame::Remove(room, users) => self.remove(user, &room, users).await.map(|()| Some(ok(cid))),
            ClientFrame::Rooms { after, limit } => self.list_rooms(user, cid, after.as_ref(), limit).await.map(Some),
            ClientFrame::Members { room, after, limit } => {
                self.list_members(user, cid, &room, after.as_ref(), limit).await.map(Some)
            }
            ClientFrame::Presence(users) => self.watch(session, users).await.map(|()| ok_if_marked(cid)),
            ClientFrame::Settings { room, muted } => {
                self.settings(user, room.as_ref(), muted).await.map(|()| Some(ok(cid)))
            }
            ClientFrame::DeviceToken(said) => self.device_token(session, &said).await.map(|()| Some(ok(cid))),
            _ => Ok(None),
        }
    }

    async fn send(&self, session: &Arc<Session>, cid: Cid, to: Target, body: Body) -> Result<(), Reject> {
        let room = match to {
            Target::Room(room) => room,
            Target::User(user) => Box::pin(self.direct_room(&session.user, &user)).await?,
        };
        let id = MessageId(self.fresh_id().map_err(|_| Reject::unavailable())?);
        let expected = session.expect(&cid);
        if expected == Expected::TooMany {
            return Err(Reject::busy());
        }
        let append = Append { room, sender: session.user.clone(), cid, id, body: body.into_text() };
        let job = Job { append, origin: Arc::clone(session) };
        self.0.writer.submit(job).map_err(|full| {
            if expected == Expected::Now {
                session.answered(&full.0.append.cid);
            }
            Reject::busy()
        })
    }

    /// Notes how far a device has come. What it cannot have is an error.
    async fn position(&self, session: &Session, place: Place, read: bool) -> Result<(), Reject> {
        let Place { room, seq } = place;
        if self.known_to(session, &room).await?.is_none_or(|known| seq > known) {
            let head = Box::pin(self.0.parts.store.view(&session.user, &room)).await.map_err(reject)?.head;
            if seq > head {
                return Err(Reject::new(Code::PastHead, format!("seq: the latest in this room is {head}")));
            }
        }
        let position = Position {
            user: session.user.clone(),
            room,
            device: session.device.clone(),
            delivered: if read { 0 } else { seq },
            read: if read { seq } else { 0 },
        };
        if self.0.positions.note(position, session.id) { Ok(()) } else { Err(Reject::busy()) }
    }

    /// Up to where a room goes, as far as that is known here of a room that the user is known to be in.
    async fn known_to(&self, session: &Session, room: &RoomId) -> Result<Option<u64>, Reject> {
        let members = self.0.parts.rooms.members(room, 0).await.map_err(reject)?;
        Ok(members.has(&session.user).then(|| self.0.parts.feed.known(room)))
    }

    async fn history(
        &self,
        session: &Session,
        cid: Option<&Cid>,
        room: &RoomId,
        from: HistoryFrom,
        limit: u32,
    ) -> Result<Frame, Reject> {
        let (store, user) = (&self.0.parts.store, &session.user);
        let since = store.view(user, room).await.map_err(reject)?.since;
        let page = match from {
            HistoryFrom::Before(before) => store.page_before(user, room, before, limit, HISTORY_BYTES).await,
            HistoryFrom::After(after) => store.page(user, room, after, limit, HISTORY_BYTES).await,
        };
        let page = page.map_err(reject)?;
        let more = match from {
            HistoryFrom::Before(_) => page.entries.first().is_some_and(|first| first.seq > since),
            HistoryFrom::After(_) => page.entries.last().is_some_and(|last| last.seq < page.head),
        };
        let own = |entry: &crate::store::Entry| entry.sender == *user;
        let view = |entry| message_view(entry, entry.cid.as_ref().filter(|_| own(entry)));
        let messages = page.entries.iter().map(view).collect();
        Ok(ServerFrame::History { cid, room, messages, more }.encode())
    }
}

pub(super) fn ok(cid: Option<&Cid>) -> Frame {
    ServerFrame::Ok { cid }.encode()
}

/// A frame that comes often is answered only where it asks for it, by a `cid`.
fn ok_if_marked(cid: Option<&Cid>) -> Option<Frame> {
    cid.map(|cid| ok(Some(cid)))
}

pub(super) fn receipt_view(member: &MemberView) -> ReceiptView<'_> {
    ReceiptView { user: &member.user, delivered: member.delivered, read: member.read }
}

pub(super) fn room_info(view: &RoomView) -> RoomInfo<'_> {
    RoomInfo {
        room: &view.room,
        name: view.name.as_deref(),
        peer: view.peer.as_ref(),
        open: view.open,
        head: view.head,
        since: view.since,
        delivered: view.delivered,
        read: view.read,
        count: view.count,
        muted: view.muted,
    }
}
