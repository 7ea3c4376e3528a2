//! What other servers have for users here: judged for each recipient, and pushed.

use std::sync::Arc;

use tracing::debug;

use super::Peer;
use super::age::Ages;
use super::answers::Answers;
use crate::claims::{Claims, Presence};
use crate::cluster::Cluster;
use crate::feed::{Arrival, Feed, Receipt};
use crate::ids::{MessageId, RoomId, SessionId, UserId};
use crate::metrics::{Drop, Metrics};
use crate::protocol::Frame;
use crate::sessions::{Push, Session, Sessions};
use crate::store::{Event, EventKind};
use crate::wire;

/// Where items end. A clone is another handle to the same.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// Who is here.
    pub sessions: Sessions,
    /// Entries to local sessions, in order.
    pub feed: Feed,
    /// What the registry is told of users here.
    pub claims: Claims,
    /// What servers say of themselves.
    pub cluster: Cluster,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Where a recipient is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Here,
    /// Here, and perhaps on another server, too.
    Elsewhere,
    NotHere,
}

/// A recipient who is here, as they were found.
trait Found {
    fn user(&self) -> &UserId;
}

impl Found for UserId {
    fn user(&self) -> &UserId {
        self
    }
}

/// The sessions of one user, of whom there is one at least.
struct SessionsOfOne(Vec<Arc<Session>>);

impl SessionsOfOne {
    fn new(sessions: Vec<Arc<Session>>) -> Option<Self> {
        (!sessions.is_empty()).then_some(Self(sessions))
    }
}

impl Found for SessionsOfOne {
    fn user(&self) -> &UserId {
        &self.0[0].user
    }
}

/// A stored item, read.
struct Stored {
    room: RoomId,
    sender: UserId,
    frame: Frame,
    cid: Option<crate::ids::Cid>,
    event: Option<Event>,
}

impl Inbox {
    /// Takes one message of a stream and answers its items and introductions.
    pub(super) fn take(&self, peer: &Peer, request: wire::RelayRequest, ages: &mut Ages, answers: &mut Answers) {
        if let Some(status) = request.status {
            self.cluster.heard(&peer.id, peer.boot, status);
        }
        for kick in request.kicks {
            self.kick(&kick);
        }
        for heal in request.heals {
            self.heal(&heal);
        }
        // Before the items, which may have been sent later.
        for introduction in &request.introductions {
            answers.add_introduced(self.introduce(peer, introduction));
        }
        self.metrics.relay_items_received.inc_by(request.items.len() as u64);
        ages.look();
        for item in request.items {
            let bytes = item.frame.len() + item.recipients.iter().map(String::len).sum::<usize>();
            answers.add(self.answer(peer, item, ages), bytes);
        }
    }

    fn answer(&self, peer: &Peer, item: wire::Item, ages: &mut Ages) -> wire::Answer {
        debug!(sender = %item.sender, server = %peer.id, seq = item.seq, "Received gRPC relay request");
        let answer = wire::Answer { id: item.id, ..wire::Answer::default() };
        if item.seq > 0 { self.stored(peer, item, answer) } else { self.volatile(item, answer, ages) }
    }

    fn stored(&self, peer: &Peer, item: wire::Item, mut answer: wire::Answer) -> wire::Answer {
        let here = self.judge(&item, &mut answer, |name| self.sessions.named(name));
        let Some(Stored { room, sender, frame, cid, event }) = read(&item) else {
            debug!(server = %peer.id, "a malformed item");
            answer.not_here = (0..item.recipients.len() as u32).collect();
            return answer;
        };
        let (id, at) = (MessageId(item.message_id), item.committed_at_ms);
        let arrival = Arrival::relayed(room, item.seq, id, at, sender, cid, event, frame, peer.id.clone());
        self.feed.arrive(arrival, here.iter());
        answer
    }

    /// Who of the recipients, as they are `found` by name, is to have it here. The answer says who is not, or not only; what
    /// the registry says of who has no session here, or perhaps one elsewhere, is written again, since it may not be so any
    /// more.
    fn judge<F: Found>(
        &self,
        item: &wire::Item,
        answer: &mut wire::Answer,
        found: impl Fn(&str) -> Option<F>,
    ) -> Vec<F> {
        let mut here = Vec::with_capacity(item.recipients.len());
        for (index, name) in item.recipients.iter().enumerate() {
            let user = found(name);
            let verdict = self.verdict(item, index, user.as_ref().map(Found::user));
            match verdict {
                Verdict::Here => {}
                Verdict::Elsewhere => answer.elsewhere.push(index as u32),
                Verdict::NotHere => answer.not_here.push(index as u32),
            }
            match user {
                // What is volatile would be shown twice if it came again.
                Some(_) if verdict == Verdict::NotHere && item.seq == 0 => {}
                Some(user) => {
                    if verdict == Verdict::Elsewhere && self.cluster.all_introduce() {
                        // They may have left there since the registry said so.
                        self.claims.write_again(user.user());
                    }
                    here.push(user);
                }
                None if !item.asked => self.disown(name),
                None => {}
            }
        }
        if here.is_empty() && !item.asked {
            self.metrics.wasted_relays.inc();
        }
        here
    }

    fn verdict(&self, item: &wire::Item, index: usize, user: Option<&UserId>) -> Verdict {
        let is_remembered = index < item.remembered as usize;
        if item.asked {
            // On the off chance: there is nobody to look up again for.
            return Verdict::Here;
        }
        match user.map(|user| self.claims.presence(user)) {
            // A session whose claim is not answered yet may be in no look-up; it reads the store, and the sender is to
            // look again.
            None | Some(Presence::Unconfirmed) => Verdict::NotHere,
            Some(Presence::Shared) if is_remembered => Verdict::Elsewhere,
            // Where one server cannot tell this one whom it has, they may be there.
            Some(Presence::Here) if is_remembered && !self.cluster.all_introduce() => Verdict::Elsewhere,
            Some(Presence::Shared | Presence::Here) => Verdict::Here,
        }
    }

    fn introduce(&self, peer: &Peer, introduction: &wire::Introduction) -> u64 {
        // Also of a user who is just not here: they may be back before that is written.
        if let Ok(user) = introduction.user.parse() {
            self.claims.introduce(&user, &peer.id);
        }
        introduction.id
    }

    fn disown(&self, name: &str) {
        if let Ok(user) = name.parse() {
            self.claims.write_again(&user);
        }
    }

    fn volatile(&self, item: wire::Item, mut answer: wire::Answer, ages: &mut Ages) -> wire::Answer {
        if ages.is_too_old(item.sent_at_ms) {
            self.metrics.dropped(Drop::SignalTooOld);
            return answer;
        }
        let frame = Frame::from_relay(item.frame.clone());
        if let Some(grown) = &item.receipt {
            // For the answer only: whom it is shown to is the feed's to say.
            self.judge(&item, &mut answer, |name| self.sessions.named(name));
            if let Ok(frame) = &frame {
                self.receipt(&item, grown, frame);
            }
            return answer;
        }
        let here = self.judge(&item, &mut answer, |name| SessionsOfOne::new(self.sessions.called(name)));
        if let Ok(frame) = &frame {
            self.signal(&item, &here, frame, &mut answer);
        }
        answer
    }

    fn receipt(&self, item: &wire::Item, grown: &wire::Receipt, frame: &Frame) {
        if let (Ok(room), Ok(user)) = (item.room.parse(), item.sender.parse()) {
            let receipt = Receipt { room, user, delivered: grown.delivered, read: grown.read };
            self.feed.show(&receipt, frame, None);
        }
    }

    fn signal(&self, item: &wire::Item, here: &[SessionsOfOne], frame: &Frame, answer: &mut wire::Answer) {
        for session in here.iter().flat_map(|one| &one.0) {
            match session.push_volatile(frame) {
                Push::Queued => {
                    debug!(recipient = %session.user, "WebSocket relay succeeded");
                    self.metrics.signal_deliveries.inc();
                }
                Push::Full => {
                    self.metrics.dropped(Drop::SignalToSlow);
                    answer.full.extend(place_of(&session.user, &item.recipients));
                }
                Push::Gone => {}
            }
        }
    }

    fn heal(&self, heal: &wire::Heal) {
        let Ok(room) = heal.room.parse() else { return };
        for user in heal.users.iter().filter_map(|name| self.sessions.named(name)) {
            self.feed.remind(&room, heal.seq, &user);
        }
    }

    fn kick(&self, kick: &wire::Kick) {
        if let (Ok(user), Ok(device)) = (kick.user.parse(), kick.device.parse()) {
            self.sessions.replace(&user, &device, SessionId(kick.newer_than));
        }
    }
}

/// Where a user stands among the recipients.
fn place_of(user: &UserId, recipients: &[String]) -> Option<u32> {
    let place = recipients.iter().position(|name| name == user.as_str())?;
    u32::try_from(place).ok()
}

/// Reads a stored item; none where a name in it is malformed or the frame is not UTF-8.
fn read(item: &wire::Item) -> Option<Stored> {
    let cid = if item.cid.is_empty() { None } else { Some(item.cid.parse().ok()?) };
    let event = match &item.event {
        Some(event) => Some(read_event(event)?),
        None => None,
    };
    Some(Stored {
        room: item.room.parse().ok()?,
        sender: item.sender.parse().ok()?,
        frame: Frame::from_relay(item.frame.clone()).ok()?,
        cid,
        event,
    })
}

fn read_event(event: &wire::Event) -> Option<Event> {
    let kind = match event.kind() {
        wire::event::Kind::Created => EventKind::Created,
        wire::event::Kind::Joined => EventKind::Joined,
        wire::event::Kind::Left => EventKind::Left,
        wire::event::Kind::Unspecified => return None,
    };
    let users = event.users.iter().map(|user| user.parse().ok()).collect::<Option<_>>()?;
    Some(Event { kind, users })
}
