//! Who is online, told to sessions that have asked.
//!
//! Nobody announces that they come or go. A server asks the registry every two seconds for all whom its own sessions
//! want to know of, with one look-up, and tells those sessions what has changed. So it costs nothing where nobody asks,
//! it is right again after any loss, and a server that dies leaves nobody online.

mod person;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::signal::reject;
use super::{Router, Whereabouts};
use crate::clock::unix_ms;
use crate::ids::{SessionId, UserId};
use crate::protocol::{Frame, Reject, ServerFrame};
use crate::sessions::{Push, Session, Sessions};
use person::{Person, Shown};

/// How often the registry is asked.
const EVERY: Duration = Duration::from_secs(2);

/// The most users of one look-up.
const USERS_AT_ONCE: usize = 1_000;

/// Who wants to know of whom.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<Table>);

/// Bounded by the sessions that are here, and the users that each of them may name.
#[derive(Debug, Default)]
struct Table {
    watchers: HashMap<SessionId, Watcher>,
    people: HashMap<UserId, Watched>,
}

#[derive(Debug)]
struct Watcher {
    session: Arc<Session>,
    users: Vec<UserId>,
    /// There was no room for something; all is to be told anew.
    stale: bool,
}

#[derive(Debug, Default)]
struct Watched {
    person: Person,
    watchers: HashSet<SessionId>,
}

impl Router {
    /// Tells a session whether users are online, now and whenever that changes, in place of those it named before. Of
    /// people in none of its user's rooms it is told that it cannot be told.
    pub(super) async fn watch(&self, session: &Arc<Session>, users: Vec<UserId>) -> Result<(), Reject> {
        let known = self.0.parts.store.sharing(&session.user, &users).await.map_err(reject)?;
        self.look_for(known.iter().cloned().collect()).await;
        let mut table = self.0.presence.table();
        for stranger in users.iter().filter(|user| !known.contains(*user)) {
            // Volatile, as all of this is.
            let _ = session.push_volatile(&Shown::Unknown.frame(stranger));
        }
        table.watch(session, known.into_iter().collect());
        Ok(())
    }

    /// Asks for all who are watched, again and again, until `stop`.
    pub(super) async fn watch_all(&self, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let users = self.0.presence.table().prune(&self.0.parts.sessions);
            for users in users.chunks(USERS_AT_ONCE) {
                self.look_for(users.into()).await;
            }
            self.0.presence.table().tell_stale();
        }
    }

    /// Looks where users are, and tells the sessions that watch them what has changed.
    async fn look_for(&self, users: Vec<UserId>) {
        let places = self.whereabouts(users).await;
        let seen = self.last_seen(&places).await;
        let (now, now_ms) = (Instant::now(), unix_ms());
        let mut table = self.0.presence.table();
        for (user, place) in places {
            let seen = seen.get(&user).copied().flatten();
            table.found(user, |person| person.found(&place, seen, now, now_ms));
        }
    }

    /// When those were last seen who are not connected, unless they are known to be away.
    async fn last_seen(&self, places: &HashMap<UserId, Whereabouts>) -> HashMap<UserId, Option<u64>> {
        let away: Vec<_> = {
            let table = self.0.presence.table();
            let is_news = |user: &UserId| table.people.get(user).is_none_or(|watched| watched.person.may_turn());
            let absent = places.iter().filter(|(_, place)| place.is_absent());
            absent.map(|(user, _)| user).filter(|user| is_news(user)).cloned().collect()
        };
        if away.is_empty() {
            return HashMap::new();
        }
        match self.0.parts.registry.last_seen(&away).await {
            Ok(seen) => away.into_iter().zip(seen).collect(),
            Err(error) => {
                debug!(%error, "cannot tell when users were last seen");
                HashMap::new()
            }
        }
    }
}

impl Whereabouts {
    /// Connected nowhere, as far as can be told.
    fn is_absent(&self) -> bool {
        matches!(self, Self::Nowhere | Self::Gone | Self::Astray)
    }
}

impl Presence {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A session watches these from now on, and no others; it is told how they are.
    fn watch(&mut self, session: &Arc<Session>, users: Vec<UserId>) {
        self.forget(session.id);
        for user in &users {
            self.people.entry(user.clone()).or_default().watchers.insert(session.id);
        }
        self.watchers.insert(session.id, Watcher { session: Arc::clone(session), users, stale: true });
        self.tell_stale();
    }

    /// Takes in where someone was found, and tells those who watch them if that changes anything.
    fn found(&mut self, user: UserId, found: impl FnOnce(&mut Person) -> bool) {
        let Self { watchers, people } = self;
        let watched = people.entry(user.clone()).or_default();
        if !found(&mut watched.person) {
            return;
        }
        let frame = watched.person.shown().frame(&user);
        for session in &watched.watchers {
            let Some(watcher) = watchers.get_mut(session) else { continue };
            watcher.stale |= watcher.session.push_volatile(&frame) == Push::Full;
        }
    }

    fn forget(&mut self, session: SessionId) {
        let Some(watcher) = self.watchers.remove(&session) else { return };
        for user in &watcher.users {
            if let Some(watched) = self.people.get_mut(user) {
                watched.watchers.remove(&session);
            }
        }
    }

    /// Forgets sessions that have ended and people whom nobody watches. Answers the others.
    fn prune(&mut self, sessions: &Sessions) -> Vec<UserId> {
        let gone = self.watchers.values().map(|watcher| &watcher.session).filter(|session| !sessions.has(session));
        let gone: Vec<_> = gone.map(|session| session.id).collect();
        gone.into_iter().for_each(|session| self.forget(session));
        self.people.retain(|_, watched| !watched.watchers.is_empty());
        self.people.keys().cloned().collect()
    }

    /// Tells sessions that are to be told anew.
    fn tell_stale(&mut self) {
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.stale) {
            let shown = |user: &UserId| self.people.get(user).map_or(Shown::Unknown, |watched| watched.person.shown());
            watcher.stale =
                !watcher.users.iter().all(|user| watcher.session.push_volatile(&shown(user).frame(user)) != Push::Full);
        }
    }
}

impl Shown {
    /// As clients get it.
    fn frame(self, user: &UserId) -> Frame {
        let (online, last_seen) = match self {
            Self::Unknown => (None, None),
            Self::Online => (Some(true), None),
            Self::Offline { last_seen } => (Some(false), last_seen),
        };
        ServerFrame::Presence { user, online, last_seen }.encode()
    }
}
