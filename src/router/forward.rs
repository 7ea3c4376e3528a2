//! To the other servers: look up where the audience is, and send each server that holds some of it one item.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Level, debug, enabled, info};

use super::places::{ANSWERS_WITHIN, Places};
use super::plan::{Share, plan};
use super::{CROWD, Router};
use crate::feed::Arrival;
use crate::ids::{Cid, MessageId, RoomId, ServerId, UserId};
use crate::metrics::Drop;
use crate::peers::{Heard, Item, Sent};
use crate::protocol::Frame;
use crate::store::{Event, EventKind, Membership};
use crate::wire;

/// The most answers that share one look-up.
const BATCH: usize = 1_024;

/// After so many recipients other tasks have their turn.
const STRETCH: usize = 256;

/// A payload for an audience that may be anywhere.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) room: Option<RoomId>,
    /// 0 for what is volatile.
    pub(super) seq: u64,
    pub(super) id: MessageId,
    pub(super) at: u64,
    pub(super) sender: UserId,
    pub(super) cid: Option<Cid>,
    pub(super) event: Option<Event>,
    pub(super) frame: Bytes,
    pub(super) audience: Audience,
    /// Set where it says how far the sender has come.
    pub(super) receipt: Option<wire::Receipt>,
}

/// For whom something is.
#[derive(Debug)]
pub(super) enum Audience {
    /// The members who see an entry, and those whom it puts out.
    Members(Arc<Membership>, Vec<UserId>),
    /// These.
    Users(Vec<UserId>),
}

impl Publication {
    /// An entry that has just been committed.
    pub(super) fn stored(arrival: &Arrival, members: Arc<Membership>) -> Self {
        let out = arrival.event.iter().filter(|event| event.kind == EventKind::Left).flat_map(|event| &event.users);
        let out = out.cloned().collect();
        Self {
            room: Some(arrival.room.clone()),
            seq: arrival.seq,
            id: arrival.id,
            at: arrival.at,
            sender: arrival.sender.clone(),
            cid: arrival.cid.clone(),
            event: arrival.event.clone(),
            frame: arrival.frame.clone().into_bytes(),
            audience: Audience::Members(members, out),
            receipt: None,
        }
    }

    /// Something volatile, for these users.
    pub(super) fn volatile(room: Option<RoomId>, sender: UserId, frame: Frame, users: Vec<UserId>) -> Self {
        Self {
            room,
            seq: 0,
            id: MessageId(0),
            at: 0,
            sender,
            cid: None,
            event: None,
            frame: frame.into_bytes(),
            audience: Audience::Users(users),
            receipt: None,
        }
    }

    /// For whom it is.
    pub(super) fn audience(&self) -> impl Iterator<Item = &UserId> + Clone {
        let seq = self.seq;
        let (members, users) = match &self.audience {
            Audience::Members(members, out) => (Some(members), out),
            Audience::Users(users) => (None, users),
        };
        members.into_iter().flat_map(move |members| members.seeing(seq)).chain(users)
    }

    /// For how many it is, those counted twice who are named twice.
    pub(super) fn audience_size(&self) -> usize {
        match &self.audience {
            Audience::Members(members, out) => members.members.len() + out.len(),
            Audience::Users(users) => users.len(),
        }
    }

    /// The item for the whole audience, which is remembered to be on one server. Takes instead of copying.
    fn into_item(self) -> Item {
        let recipients = match self.audience {
            Audience::Users(users) => users,
            Audience::Members(members, out) => members.seeing(self.seq).cloned().chain(out).collect(),
        };
        Item {
            room: self.room,
            seq: self.seq,
            id: self.id,
            at: self.at,
            cid: self.cid.filter(|_| recipients.contains(&self.sender)),
            event: self.event.as_ref().map(to_wire),
            receipt: self.receipt,
            remembered: recipients.len() as u32,
            ..Item::new(self.sender, self.frame, recipients)
        }
    }

    fn item(&self, recipients: Vec<UserId>, asked: bool) -> Item {
        Item {
            room: self.room.clone(),
            seq: self.seq,
            id: self.id,
            at: self.at,
            cid: self.cid.clone().filter(|_| recipients.contains(&self.sender)),
            event: self.event.as_ref().map(to_wire),
            receipt: self.receipt,
            asked,
            ..Item::new(self.sender.clone(), self.frame.clone(), recipients)
        }
    }
}

fn to_wire(event: &Event) -> wire::Event {
    let kind = match event.kind {
        EventKind::Created => wire::event::Kind::Created,
        EventKind::Joined => wire::event::Kind::Joined,
        EventKind::Left => wire::event::Kind::Left,
    };
    wire::Event { kind: kind.into(), users: event.users.iter().map(ToString::to_string).collect() }
}

/// Recipients of an item who were not where they were thought to be, or not only there.
struct Astray {
    item: Arc<Item>,
    users: Vec<UserId>,
    /// Where they were thought to be.
    server: ServerId,
    /// They were there.
    here: bool,
}

impl Astray {
    /// Whether a server has, or was sent, the item for this user.
    fn has_it(&self, user: &UserId, server: &ServerId) -> bool {
        if *server == self.server {
            return self.here;
        }
        self.item.copies.binary_search_by(|(copy, at)| (copy, at).cmp(&(user, server))).is_ok()
    }
}

impl Router {
    /// Forwards what is published, until `end` and nothing has gathered. While one look-up is in flight the next
    /// publications gather, and then share one.
    pub(super) async fn forward_all(&self, end: CancellationToken) {
        let gathered = self.0.gathering.taker();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = gathered.take(&mut batch) => {}
                () = end.cancelled() => return,
            }
            self.forward_together(&batch).await;
            gathered.done(batch.len());
            batch.clear();
            // So that there is more to be taken together, if senders have more.
            yield_now().await;
        }
    }

    /// Forwards a publication at once, if it is for few whose places are all known and overtakes nothing; else gives it
    /// back. Saves who sends little the way through another task.
    pub(super) fn forward_now(&self, publication: Publication) -> Option<Publication> {
        if publication.audience_size() > CROWD || !self.0.gathering.is_idle() || !self.0.parts.cluster.is_calm() {
            return Some(publication);
        }
        let publication = self.forward_to_one(publication)?;
        let Some(places) = self.known_places(&publication) else { return Some(publication) };
        self.forward(&publication, &places, &[]);
        None
    }

    /// Forwards what is for one user only whose place is remembered; else gives it back. It is most of what is volatile,
    /// and needs no plan.
    fn forward_to_one(&self, publication: Publication) -> Option<Publication> {
        let Audience::Users(users) = &publication.audience else { return Some(publication) };
        let [user] = &users[..] else { return Some(publication) };
        let now = Instant::now();
        let Some(server) = self.0.remembered.recall(user, now) else { return Some(publication) };
        let parts = &self.0.parts;
        let (seq, logged) = (publication.seq, enabled!(Level::DEBUG).then(|| user.clone()));
        let into_item = Publication::into_item;
        match parts.peers.send_if_responding(&server, now.into_std(), ANSWERS_WITHIN, publication, into_item) {
            Ok(sent) => {
                // Not where the item is queued, which is under a lock that a log must not hold.
                if let Some(recipient) = logged {
                    debug!(%recipient, target = %server, seq, "Forwarding message via gRPC");
                }
                parts.metrics.recalled_users.inc();
                self.sent(&server, sent, seq > 0);
                None
            }
            Err(publication) => Some(publication),
        }
    }

    /// Forwards publications by one look-up.
    pub(super) async fn forward_together(&self, publications: &[Publication]) {
        if self.0.parts.alone {
            return;
        }
        let places = self.places(publications).await;
        let asked = self.0.parts.cluster.asked(places.answered);
        let mut stretch = 0;
        for publication in publications {
            self.forward(publication, &places, &asked);
            stretch += publication.audience_size();
            if stretch > STRETCH {
                stretch = 0;
                yield_now().await;
            }
        }
    }

    /// Hears what became of items, until `end`.
    pub(super) async fn hear_all(&self, mut heard: mpsc::Receiver<Heard>, end: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = heard.recv_many(&mut batch, BATCH) => if count == 0 { return },
                () = end.cancelled() => return,
            }
            let astray = batch.drain(..).filter_map(|heard| self.astray(heard)).collect();
            self.look_again(astray).await;
        }
    }

    /// Who was not, or not only, where they were thought to be is looked up once more, and what was for them is forwarded
    /// once more.
    async fn look_again(&self, items: Vec<Astray>) {
        let users: HashSet<_> = items.iter().flat_map(|astray| &astray.users).collect();
        if users.is_empty() {
            return;
        }
        let places = self.look_up(users).await;
        let asked = self.0.parts.cluster.asked(places.answered);
        for astray in &items {
            let item = &astray.item;
            let elsewhere = |user| places.of(user).iter().filter(|server| !astray.has_it(user, server));
            let asked: Vec<_> =
                asked.iter().filter(|server| !astray.here || **server != astray.server).cloned().collect();
            let shares = plan(&self.0.parts.own, astray.users.iter(), elsewhere, &asked);
            for (server, share) in shares {
                debug!(sender = %item.sender, target = %server, "Forwarding once more via gRPC");
                let Share { recipients, asked } = share;
                let again = Item { recipients, again: true, asked, remembered: 0, ..Item::clone(item) };
                self.hand_over(&server, again);
            }
        }
    }

    fn forward(&self, publication: &Publication, places: &Places, asked: &[ServerId]) {
        let shares = plan(&self.0.parts.own, publication.audience(), |user| places.of(user).iter(), asked);
        let several = shares.len() > 1;
        for (server, mut share) in shares {
            for recipient in &share.recipients {
                debug!(%recipient, target = %server, seq = publication.seq, "Forwarding message via gRPC");
            }
            if share.asked {
                self.0.parts.metrics.degraded_relays.inc();
            }
            let copies = if several { places.copies(&share.recipients) } else { Vec::new() };
            let remembered = if share.asked { 0 } else { places.put_known_first(&mut share.recipients) };
            let item = Item { copies, remembered, ..publication.item(share.recipients, share.asked) };
            self.hand_over(&server, item);
        }
    }

    fn astray(&self, heard: Heard) -> Option<Astray> {
        match heard {
            Heard::NotHere { item, users, server } => {
                debug!(%server, users = users.len(), "recipients were not there");
                users.iter().for_each(|user| self.0.remembered.forget(user));
                (!item.again).then_some(Astray { item, users, server, here: false })
            }
            Heard::Elsewhere { item, users, server } => {
                debug!(%server, users = users.len(), "recipients are elsewhere, too");
                users.iter().for_each(|user| self.0.remembered.forget(user));
                (!item.again).then_some(Astray { item, users, server, here: true })
            }
            Heard::Connected { server, boot } => {
                debug!(%server, %boot, "connected to a server");
                self.0.parts.claims.reintroduce(&server);
                None
            }
            Heard::Lost { server } => {
                info!(%server, "lost the connection to a server");
                None
            }
        }
    }

    fn hand_over(&self, server: &ServerId, item: Item) {
        let stored = item.seq > 0;
        let sent = self.0.parts.peers.send(server, item);
        self.sent(server, sent, stored);
    }

    fn sent(&self, server: &ServerId, sent: Sent, stored: bool) {
        let metrics = &self.0.parts.metrics;
        match sent {
            Sent::Queued => _ = metrics.relay_items_sent.inc(),
            Sent::Full if stored => metrics.dropped(Drop::RelayQueueFull),
            Sent::Full => metrics.dropped(Drop::SignalQueueFull),
            // It is gone, or so new that it is not in the view yet: its users read the store when they connect.
            Sent::NoSuchPeer => debug!(target = %server, "no such server is known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn who_is_on_several_servers_is_not_sent_again_what_the_others_have() {
        let name = |name: &str| name.parse::<ServerId>().unwrap();
        let (alice, bob): (UserId, UserId) = ("alice".parse().unwrap(), "bob".parse().unwrap());
        let on = |servers: &[&str]| servers.iter().map(|server| name(server)).collect::<Vec<_>>();
        let places = HashMap::from([(alice.clone(), on(&["local2", "local3"])), (bob.clone(), on(&["local2"]))]);
        let audience = [alice.clone(), bob.clone()];
        let users = audience.to_vec();
        let frame = crate::protocol::ServerFrame::Pong { cid: None }.encode();
        let publication = Publication::volatile(None, "carol".parse().unwrap(), frame, users.clone());
        let copies = Places::looked_up(places).copies(&audience);
        let item = Arc::new(Item { copies, ..publication.item(users.clone(), false) });
        let mut astray = Astray { item, users, server: name("local2"), here: false };
        assert!(astray.has_it(&alice, &name("local3")), "it was sent there as well");
        assert!(!astray.has_it(&alice, &name("local2")), "who came back to where they were not has nothing yet");
        assert!(!astray.has_it(&bob, &name("local3")), "who was on one server only is sent it wherever they are now");
        astray.here = true;
        assert!(astray.has_it(&bob, &name("local2")), "who was there as well has it");
        assert!(!astray.has_it(&bob, &name("local3")), "and is sent it where they are besides");
    }
}
