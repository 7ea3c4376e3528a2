//! An entry of a room's log on its way to this server's sessions.

use std::cell::OnceCell;
use std::sync::Arc;

use tracing::debug;

use crate::clock::unix_ms;
use crate::ids::{Cid, MessageId, RoomId, ServerId, UserId};
use crate::protocol::{Frame, MessageView, ServerFrame, TracePath};
use crate::sessions::{Push, Session};
use crate::store::{Content, Entry, Event, EventKind};

/// An entry of a room's log, with the way it came.
#[derive(Debug)]
pub struct Arrival {
    /// Where.
    pub room: RoomId,
    /// Its place in the room's log.
    pub seq: u64,
    /// Its id.
    pub id: MessageId,
    /// By whom.
    pub sender: UserId,
    /// The sender's mark, where the sender has sessions here.
    pub cid: Option<Cid>,
    /// When it was committed, in ms since 1970.
    pub at: u64,
    /// The change of the membership that it is, if it is one.
    pub event: Option<Event>,
    /// What the members get, without the mark.
    pub frame: Frame,
    /// The server that took it.
    pub server: ServerId,
    /// The way it came.
    pub path: TracePath,
    /// The session that sent it, if that is here and waits for an answer.
    pub origin: Option<Arc<Session>>,
    /// What only some sessions get, encoded when the first of them comes.
    extra: Extra,
}

/// What a session gets of an entry.
#[derive(Debug)]
pub enum Given {
    /// The answer to its send.
    Sent(Frame),
    /// The message.
    Message(Frame),
}

/// What came of an entry for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The message is queued.
    Delivered,
    /// There was no message to queue: the session sent it, or has ended.
    Answered,
    /// There was no room.
    Full,
}

#[derive(Debug, Default)]
struct Extra {
    marked: OnceCell<Frame>,
    trace: OnceCell<Frame>,
}

impl Arrival {
    /// An entry that was committed by, or read from the store on, `server`.
    pub fn new(entry: Entry, server: ServerId, path: TracePath, origin: Option<Arc<Session>>) -> Self {
        let frame = ServerFrame::Message(message_view(&entry, None)).encode();
        let Entry { room, seq, id, sender, cid, at, content } = entry;
        let event = match content {
            Content::Event(event) => Some(event),
            Content::Body(_) => None,
        };
        Self { room, seq, id, sender, cid, at, event, frame, server, path, origin, extra: Extra::default() }
    }

    /// An entry that came from another server, encoded there.
    #[expect(clippy::too_many_arguments, reason = "one per field of the item it is read from")]
    pub fn relayed(
        room: RoomId,
        seq: u64,
        id: MessageId,
        at: u64,
        sender: UserId,
        cid: Option<Cid>,
        event: Option<Event>,
        frame: Frame,
        server: ServerId,
    ) -> Self {
        let path = TracePath::Relay;
        Self { room, seq, id, sender, cid, at, event, frame, server, path, origin: None, extra: Extra::default() }
    }

    /// The answer that the sending session waits for.
    pub fn sent(&self, cid: &Cid) -> Frame {
        ServerFrame::Sent { cid, room: &self.room, id: self.id, seq: self.seq, at: self.at }.encode()
    }

    /// What a session gets of it: `sent` where that session waits for its answer, the message otherwise, with the mark
    /// in the sender's own sessions.
    pub fn frame_for(&self, session: &Session) -> Given {
        match self.own_mark(session) {
            Some(cid) if session.answered(cid) => Given::Sent(self.sent(cid)),
            _ => Given::Message(self.message_for(session)),
        }
    }

    /// The sender's mark, in the sender's own sessions.
    fn own_mark(&self, session: &Session) -> Option<&Cid> {
        self.cid.as_ref().filter(|_| session.user == self.sender)
    }

    fn message_for(&self, session: &Session) -> Frame {
        match self.own_mark(session) {
            Some(cid) => self.extra.marked.get_or_init(|| self.frame.with_cid(cid)).clone(),
            None => self.frame.clone(),
        }
    }

    /// How it travelled, for sessions that ask.
    pub fn trace_for(&self, session: &Session) -> Option<Frame> {
        session.trace.then(|| self.extra.trace.get_or_init(|| self.trace()).clone())
    }

    /// Queues it for one session.
    pub(super) fn push_to(&self, session: &Session) -> Pushed {
        match self.own_mark(session).and_then(|cid| session.answer(cid, || self.sent(cid))) {
            // It gets its answer yet, in its place, when it reads that from the store.
            Some(Push::Full) => Pushed::Full,
            Some(Push::Queued | Push::Gone) => Pushed::Answered,
            None => self.push_message(session),
        }
    }

    fn push_message(&self, session: &Session) -> Pushed {
        match session.push(&self.message_for(session)) {
            Push::Full => Pushed::Full,
            Push::Gone => Pushed::Answered,
            Push::Queued => {
                self.log_delivery(session);
                self.trace_for(session).map(|trace| session.push_volatile(&trace));
                Pushed::Delivered
            }
        }
    }

    fn log_delivery(&self, session: &Session) {
        match self.path {
            TracePath::Local => {
                debug!(recipient = %session.user, room = %self.room, seq = self.seq, "Local delivery succeeded");
            }
            TracePath::Relay => {
                debug!(recipient = %session.user, room = %self.room, seq = self.seq, "WebSocket relay succeeded");
            }
            TracePath::Healed => {
                debug!(recipient = %session.user, room = %self.room, seq = self.seq, "Healed from the store");
            }
        }
    }

    fn trace(&self) -> Frame {
        let ms = unix_ms().saturating_sub(self.at);
        ServerFrame::Trace { room: &self.room, seq: self.seq, origin: &self.server, path: self.path, ms }.encode()
    }
}

/// An entry as clients see it.
pub fn message_view<'a>(entry: &'a Entry, cid: Option<&'a Cid>) -> MessageView<'a> {
    let (body, event, users) = match &entry.content {
        Content::Body(body) => (Some(&**body), None, &[][..]),
        Content::Event(event) => (None, Some(event_name(event.kind)), &*event.users),
    };
    MessageView {
        room: &entry.room,
        id: entry.id,
        seq: entry.seq,
        from: &entry.sender,
        at: entry.at,
        body,
        event,
        users,
        cid,
    }
}

/// The name of a membership change on the wire.
fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Created => "created",
        EventKind::Joined => "joined",
        EventKind::Left => "left",
    }
}
