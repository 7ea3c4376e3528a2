//! Where an audience is.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::time::Instant;
use tracing::debug;

use super::forward::Publication;
use super::{Parts, Router};
use crate::ids::{ServerId, UserId};
use crate::peers::Peers;
use crate::registry;

/// How long a server that is well takes to answer at most; it may gather answers for half of that.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

type Found = HashMap<UserId, Place, RandomState>;

/// Where users are, as one look-up said, or as it was known before.
#[derive(Default)]
pub(super) struct Places {
    found: Found,
    /// Nobody was looked up.
    all_known: bool,
    /// Whether the registry had an answer, if it was asked.
    pub(super) answered: bool,
}

enum Place {
    /// Here and nowhere else, or where they are remembered.
    Known(ServerId),
    LookedUp(Vec<ServerId>),
}

impl Places {
    pub(super) fn of(&self, user: &UserId) -> &[ServerId] {
        match self.found.get(user) {
            Some(Place::Known(server)) => std::slice::from_ref(server),
            Some(Place::LookedUp(servers)) => servers,
            None => &[],
        }
    }

    /// Puts those first who were not looked up, and says how many they are.
    pub(super) fn put_known_first(&self, users: &mut [UserId]) -> u32 {
        if self.all_known {
            return users.len() as u32;
        }
        let is_known = |user: &UserId| matches!(self.found.get(user), Some(Place::Known(_)));
        users.sort_by_cached_key(|user| !is_known(user));
        users.partition_point(is_known) as u32
    }

    /// Each of the servers of those who are on several, sorted.
    pub(super) fn copies(&self, users: &[UserId]) -> Vec<(UserId, ServerId)> {
        let placed = users.iter().map(|user| (user, self.of(user)));
        let several = placed.filter(|(_, servers)| servers.len() > 1);
        let mut copies: Vec<_> =
            several.flat_map(|(user, servers)| servers.iter().map(|server| (user.clone(), server.clone()))).collect();
        copies.sort_unstable();
        copies
    }
}

impl Router {
    /// Where the audience is, if nobody has to be looked up.
    pub(super) fn known_places(&self, publication: &Publication) -> Option<Places> {
        let (found, rest) = self.recall(publication.audience());
        if !rest.is_empty() {
            return None;
        }
        self.0.parts.metrics.recalled_users.inc_by(found.len() as u64);
        Some(Places { found, all_known: true, answered: true })
    }

    /// Where the audience is: as it is known before, and for the rest by one look-up that begins now.
    pub(super) async fn places(&self, publications: &[Publication]) -> Places {
        let (mut found, rest) = self.recall(publications.iter().flat_map(Publication::audience));
        self.0.parts.metrics.recalled_users.inc_by(found.len() as u64);
        if rest.is_empty() {
            return Places { found, all_known: true, answered: true };
        }
        let looked_up = self.look_up(rest).await;
        found.extend(looked_up.found);
        Places { found, answered: looked_up.answered, ..Places::default() }
    }

    /// Where users are, as it is remembered and as it is known here; and who is to be looked up.
    fn recall<'a>(&self, users: impl Iterator<Item = &'a UserId>) -> (Found, HashSet<&'a UserId>) {
        let Parts { own, claims, cluster, peers, .. } = &self.0.parts;
        if !cluster.is_calm() {
            return (Found::default(), users.collect());
        }
        let (mut found, mut rest, mut reachable) = (Found::default(), HashSet::new(), Reachable::default());
        let now = Instant::now();
        for user in users {
            if found.contains_key(user) {
                continue;
            }
            match self.0.remembered.recall(user, now).filter(|server| reachable.is(server, peers)) {
                Some(server) => _ = found.insert(user.clone(), Place::Known(server)),
                None => _ = rest.insert(user),
            }
        }
        if !rest.is_empty() {
            for user in claims.alone(rest.iter().copied()) {
                rest.remove(user);
                found.insert(user.clone(), Place::Known(own.clone()));
            }
        }
        (found, rest)
    }

    /// Where users are, by one look-up that begins now.
    pub(super) async fn look_up(&self, users: HashSet<&UserId>) -> Places {
        let metrics = &self.0.parts.metrics;
        let users: Vec<_> = users.into_iter().cloned().collect();
        metrics.lookups.inc();
        metrics.looked_up_users.inc_by(users.len() as u64);
        let began = Instant::now();
        match self.0.parts.registry.locate(&users).await {
            Ok(places) => {
                self.remember(&users, &places, began);
                let found = users.into_iter().zip(places.into_iter().map(Place::LookedUp)).collect();
                Places { found, answered: true, ..Places::default() }
            }
            Err(error) => {
                metrics.failed_lookups.inc();
                // The registry's own trouble is logged where it is found, not once per message.
                debug!(%error, "no answer to a look-up");
                debug_assert!(matches!(error, registry::Error::Away | registry::Error::Refused(_)));
                Places::default()
            }
        }
    }

    /// Remembers who is on one server only.
    fn remember(&self, users: &[UserId], places: &[Vec<ServerId>], since: Instant) {
        for (user, servers) in users.iter().zip(places) {
            match &servers[..] {
                [server] if *server != self.0.parts.own => {
                    self.0.remembered.note(user.clone(), server.clone(), since);
                }
                _ => self.0.remembered.forget(user),
            }
        }
    }
}

/// Which servers can be relied on to say where else a user is, each asked about once.
#[derive(Default)]
struct Reachable(Vec<(ServerId, bool)>);

impl Reachable {
    fn is(&mut self, server: &ServerId, peers: &Peers) -> bool {
        if let Some((_, reachable)) = self.0.iter().find(|(asked, _)| asked == server) {
            return *reachable;
        }
        let reachable = peers.responds(server, std::time::Instant::now(), ANSWERS_WITHIN);
        self.0.push((server.clone(), reachable));
        reachable
    }
}

#[cfg(test)]
impl Places {
    pub(super) fn looked_up(found: HashMap<UserId, Vec<ServerId>>) -> Self {
        let found = found.into_iter().map(|(user, servers)| (user, Place::LookedUp(servers))).collect();
        Self { found, answered: true, ..Self::default() }
    }
}
