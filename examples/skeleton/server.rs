//! What a server knows, and what it does with a frame.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use minichat::wire::Item;
use tokio::sync::mpsc;

use crate::bus::{self, CAME, NEW_ROOM, Opened, TO_ROOM, TO_USER, WENT};
use crate::directory::{Directory, Session};
use crate::frames::{Said, Says};
use crate::places::Places;

/// How many items may wait for one other server before sockets wait for it.
const QUEUE: usize = 8_192;

/// Another server.
#[derive(Debug)]
struct Peer {
    /// Where it takes streams. It is known by it.
    address: SocketAddr,
    queue: mpsc::Sender<Item>,
}

/// What a server knows.
#[derive(Debug)]
pub(crate) struct Server {
    directory: Mutex<Directory>,
    places: Mutex<Places>,
    peers: Vec<Peer>,
    next_id: AtomicU64,
}

/// What waits for another server, and where that is.
pub(crate) type Waiting = (SocketAddr, mpsc::Receiver<Item>);

impl Server {
    /// A server among these others, and what it has to say to each.
    pub(crate) fn among(addresses: &[SocketAddr]) -> (Self, Vec<Waiting>) {
        let queues = addresses.iter().map(|&address| {
            let (queue, items) = mpsc::channel(QUEUE);
            (Peer { address, queue }, (address, items))
        });
        let (peers, waiting) = queues.unzip();
        (Self { directory: Mutex::default(), places: Mutex::default(), peers, next_id: AtomicU64::new(0) }, waiting)
    }

    /// A number for a session, unlike all others here.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// The number of the other server that is known by this address.
    pub(crate) fn peer_at(&self, address: &str) -> Option<usize> {
        let address: SocketAddr = address.parse().ok()?;
        self.peers.iter().position(|peer| peer.address == address)
    }

    /// Lets those here and on the other servers find a session.
    pub(crate) async fn enter(&self, session: &Session) {
        self.directory().enter(session);
        self.tell_all(bus::item(CAME, &session.user, "", Bytes::new())).await;
    }

    /// The opposite of [`Self::enter`].
    pub(crate) async fn leave(&self, session: &Session) {
        self.directory().leave(session);
        self.tell_all(bus::item(WENT, &session.user, "", Bytes::new())).await;
    }

    /// Takes a frame. Answers what goes back at once.
    pub(crate) async fn accept(&self, session: &Session, text: &str) -> Option<String> {
        let refuse = |code, message| Some(Says::Error { code, message }.encode());
        let Ok(said) = serde_json::from_str::<Said<'_>>(text) else { return refuse("bad_frame", "not a frame") };
        let signal = |room, body| Says::Signal { room, from: &session.user, body }.encode();
        match (&*said.kind, said.body, said.room, said.to) {
            ("hello", ..) => return Some(Says::Welcome { user: &session.user }.encode()),
            ("signal", Some(body), Some(room), None) => {
                self.route(TO_ROOM, &room, &session.user, signal(Some(&room), body)).await;
            }
            ("signal", Some(body), None, Some(user)) => {
                self.route(TO_USER, &user, &session.user, signal(None, body)).await;
            }
            ("signal", ..) => return refuse("bad_field", "what, and to whom?"),
            ("create", _, Some(room), _) => {
                let mut members = said.members.unwrap_or_default();
                members.push(session.user.to_string());
                self.create(&room, &members).await;
                return Some(Says::Room { room: &room }.encode());
            }
            _ => return refuse("unknown_type", "not here"),
        }
        None
    }

    /// Takes what came from another server.
    pub(crate) fn take(&self, peer: usize, item: &Item) {
        let Some(opened) = Opened::read(item) else { return };
        if !matches!(opened.kind, TO_USER | TO_ROOM) {
            self.places().learn(peer, &opened);
        }
        self.directory().deliver(&opened);
    }

    /// Gives a frame to those here, and to the servers that hold others for whom it is.
    async fn route(&self, kind: u8, to: &str, sender: &str, frame: String) {
        self.directory().deliver(&Opened { kind, to, sender, frame: &frame });
        let servers = self.places().of(kind, to);
        let Some((last, others)) = servers.split_last() else { return };
        let item = bus::item(kind, to, sender, frame.into());
        for &other in others {
            self.tell(other, item.clone()).await;
        }
        self.tell(*last, item).await;
    }

    async fn create(&self, room: &str, members: &[String]) {
        // Writing these into memory cannot fail.
        let frame = serde_json::to_string(members).unwrap_or_default();
        let news = Opened { kind: NEW_ROOM, to: room, sender: "", frame: &frame };
        self.places().create(&news);
        self.directory().deliver(&news);
        self.tell_all(bus::item(NEW_ROOM, room, "", frame.into())).await;
    }

    async fn tell_all(&self, item: Item) {
        for peer in 0..self.peers.len() {
            self.tell(peer, item.clone()).await;
        }
    }

    async fn tell(&self, peer: usize, item: Item) {
        // The process ends with the stream.
        let _ = self.peers[peer].queue.send(item).await;
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
