//! Where one session stands in each of its rooms, and the pages it reads from the store where it is behind.
//!
//! One page is fetched at a time, and the next only when the last one has been written to the socket: a slow link slows
//! its own reading and costs no more memory than that page. It is fetched by a task of its own, since it holds a
//! connection to the database: the session may be waiting for one itself, or for a client that does not read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::feed::{Arrival, Attachment, Feed, Given, Standing};
use crate::ids::{RoomId, ServerId, UserId};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::protocol::{Frame, TracePath};
use crate::router::Parts;
use crate::sessions::{Owed, Session};
use crate::store::{Entry, Error, Page, Refusal, Store};

/// The most entries, and bytes, of one page.
const PAGE: (u32, usize) = (200, 64 * 1024);

/// How long to wait where the store gave no answer, or not yet what is said to exist.
const RETRY: Duration = Duration::from_millis(500);

/// What was read of a room after a seq.
pub(super) type Fetched = (RoomId, u64, Result<Read, Error>);

/// What a read found.
pub(super) enum Read {
    Page(Page),
    /// The user is not a member any more. The entry that says so, where it is not long past.
    Departed(Option<Entry>),
}

/// A page of a room that is being read, after a seq.
struct Fetch {
    room: RoomId,
    after: u64,
    told: oneshot::Receiver<Result<Read, Error>>,
}

/// The rooms of one session.
pub(super) struct CatchUp {
    own: ServerId,
    feed: Feed,
    store: Store,
    metrics: Arc<Metrics>,
    lifecycle: Lifecycle,
    session: Arc<Session>,
    rooms: HashMap<RoomId, Place>,
    /// Rooms in which more is to be read, in turn.
    waiting: VecDeque<RoomId>,
    fetch: Option<Fetch>,
    /// Answers to sends whose entries are about to be read.
    owed: Vec<Owed>,
    /// The last read brought nothing.
    pause: bool,
}

struct Place {
    attachment: Attachment,
    /// All up to here is read; none where the session is live.
    behind: Option<u64>,
    /// Something was noted since the last read began.
    noted: bool,
}

/// Reads the next page of a room, or how the user left it.
async fn read(store: &Store, user: &UserId, room: &RoomId, after: u64) -> Result<Read, Error> {
    match store.page(user, room, after, PAGE.0, PAGE.1).await {
        Err(Error::Refused(Refusal::NotFound)) => store.departure(user, room, after).await.map(Read::Departed),
        page => page.map(Read::Page),
    }
}

impl CatchUp {
    /// Of no room yet.
    pub(super) fn new(parts: &Parts, lifecycle: Lifecycle, session: Arc<Session>) -> Self {
        let Parts { own, feed, store, metrics, .. } = parts;
        Self {
            own: own.clone(),
            feed: feed.clone(),
            store: store.clone(),
            metrics: Arc::clone(metrics),
            lifecycle,
            session,
            rooms: HashMap::new(),
            waiting: VecDeque::new(),
            fetch: None,
            owed: Vec::new(),
            pause: false,
        }
    }

    /// Enters a room of which the client has all up to `cursor`, `head` being its latest entry.
    pub(super) fn enter(&mut self, room: &RoomId, cursor: u64, head: u64) {
        // Who left and came back: to give the old place up puts the session out, so it goes before the new one comes,
        // and what is being read for it is not for this one.
        self.rooms.remove(room);
        self.fetch.take_if(|fetch| fetch.room == *room);
        let attachment = self.feed.attach(&self.session, room, cursor + 1);
        let live = cursor >= head && attachment.go_live(cursor, head) == Standing::Live;
        self.rooms.insert(room.clone(), Place { attachment, behind: (!live).then_some(cursor), noted: false });
        if !live {
            self.waiting.push_back(room.clone());
        }
    }

    /// Learns that a room has entries, up to `known` at least, that the session was not live for.
    pub(super) fn note(&mut self, room: &RoomId, known: u64) {
        let standing = self.rooms.get(room).map(|place| place.attachment.standing());
        match standing {
            // Out: the user left and came back. What is before the last join is not in what is read.
            None | Some(Standing::Out) => self.enter(room, 0, known),
            Some(Standing::CatchingUp) => self.fall_behind(room),
            Some(Standing::Live) => {}
        }
        self.feed.learn(room, known);
    }

    /// The feed gave up pushing, unless the session was reading anyway.
    fn fall_behind(&mut self, room: &RoomId) {
        let Some(place) = self.rooms.get_mut(room) else { return };
        place.noted = true;
        if place.behind.is_none() {
            place.behind = place.attachment.from().map(|from| from - 1);
            self.waiting.push_back(room.clone());
        }
    }

    /// The answer to a send whose entry was not pushed, if it is to be written now: not where the session is about to
    /// read that entry, nor where it was answered meanwhile.
    pub(super) fn owe(&mut self, owed: Owed) -> Option<Frame> {
        let behind = self.rooms.get(&owed.room).and_then(|place| place.behind);
        if behind.is_some_and(|read| read < owed.seq) {
            self.owed.push(owed);
            return None;
        }
        self.session.answered(&owed.cid).then_some(owed.sent)
    }

    /// Waits for the next page; for ever where nothing is to be read. Cancel-safe.
    pub(super) async fn next(&mut self) -> Fetched {
        if self.fetch.is_none() {
            self.fetch = self.start();
        }
        let Some(fetch) = &mut self.fetch else { return std::future::pending().await };
        let read = (&mut fetch.told).await;
        let read = read.unwrap_or_else(|_| Err(Error::Unavailable("nobody reads it any more".into())));
        let (room, after) = (fetch.room.clone(), fetch.after);
        self.fetch = None;
        (room, after, read)
    }

    /// Begins to read the next page of the next room.
    fn start(&mut self) -> Option<Fetch> {
        loop {
            let room = self.waiting.pop_front()?;
            let Some(place) = self.rooms.get_mut(&room) else { continue };
            let Some(after) = place.behind else { continue };
            place.noted = false;
            let (store, user, pause) = (self.store.clone(), self.session.user.clone(), self.pause);
            let (mut tell, told) = oneshot::channel();
            let reading = room.clone();
            self.lifecycle.spawn("page", async move {
                let page = async {
                    if pause {
                        sleep(RETRY).await;
                    }
                    read(&store, &user, &reading, after).await
                };
                tokio::select! {
                    page = page => drop(tell.send(page)),
                    // The session is over, or has no use for it any more.
                    () = tell.closed() => {}
                }
            });
            return Some(Fetch { room, after, told });
        }
    }

    /// Takes a page: what is to be written. At the room's end the session becomes live.
    pub(super) fn take(&mut self, (room, after, read): Fetched) -> Vec<Frame> {
        match read {
            Ok(Read::Page(page)) => self.take_page(&room, after, page),
            // Who left and came back while it was read, was noted.
            Ok(Read::Departed(_)) if self.rooms.get(&room).is_some_and(|place| place.noted) => {
                self.waiting.push_back(room);
                Vec::new()
            }
            Ok(Read::Departed(departure)) => {
                debug!(%room, user = %self.session.user, "no longer a member");
                self.depart(&room, departure)
            }
            Err(error) => {
                warn!(%room, user = %self.session.user, %error, "cannot read a page yet");
                self.pause = true;
                self.waiting.push_back(room);
                Vec::new()
            }
        }
    }

    fn take_page(&mut self, room: &RoomId, after: u64, page: Page) -> Vec<Frame> {
        let last = page.entries.last().map_or(after.max(page.head), |last| last.seq);
        let Some(place) = self.rooms.get_mut(room) else { return Vec::new() };
        let standing = place.attachment.go_live(last, page.head);
        // Out: the user has left, and the next read tells when. If they came back, a note says so, and what it leads to
        // begins at their join.
        if standing == Standing::Out {
            self.pause = true;
            self.waiting.push_back(room.clone());
            return Vec::new();
        }
        place.behind = (standing == Standing::CatchingUp).then_some(last);
        self.pause = place.behind.is_some() && page.entries.is_empty();
        if place.behind.is_some() {
            self.waiting.push_back(room.clone());
        }
        let mut frames: Vec<_> = page.entries.into_iter().flat_map(|entry| self.frames(entry)).collect();
        frames.extend(self.settle(room, last));
        frames
    }

    /// Gives the room up. The user's own leave is the last that is written of it.
    fn depart(&mut self, room: &RoomId, departure: Option<Entry>) -> Vec<Frame> {
        self.pause = false;
        self.rooms.remove(room);
        let mut frames: Vec<_> = departure.into_iter().flat_map(|entry| self.frames(entry)).collect();
        frames.extend(self.settle(room, u64::MAX));
        frames
    }

    /// The answers that are still owed of a room that was read up to `last`.
    fn settle(&mut self, room: &RoomId, last: u64) -> Vec<Frame> {
        let is_read = |owed: &mut Owed| owed.seq <= last && owed.room == *room;
        let settled: Vec<_> = self.owed.extract_if(.., is_read).collect();
        settled.into_iter().filter_map(|owed| self.session.answered(&owed.cid).then_some(owed.sent)).collect()
    }

    fn frames(&self, entry: Entry) -> Vec<Frame> {
        let arrival = Arrival::new(entry, self.own.clone(), TracePath::Healed, None);
        self.feed.forget_older_list(&arrival);
        match arrival.frame_for(&self.session) {
            Given::Sent(sent) => vec![sent],
            Given::Message(message) => {
                self.metrics.delivered(TracePath::Healed, 1);
                std::iter::once(message).chain(arrival.trace_for(&self.session)).collect()
            }
        }
    }
}
