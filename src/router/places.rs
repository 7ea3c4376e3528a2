//! Where an audience is.

use std::collections::{HashMap, HashSet};

use foldhash::quality::RandomState;
use tokio::time::Instant;
use tracing::debug;

use super::Router;
use super::forward::Publication;
use crate::ids::{ServerId, UserId};
use crate::registry;

type Found = HashMap<UserId, Place, RandomState>;

/// Where users are, as one look-up said, or as it was known before.
#[derive(Default)]
pub(super) struct Places {
    found: Found,
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

    /// Whether one of these was not looked up.
    pub(super) fn any_known(&self, users: &[UserId]) -> bool {
        users.iter().any(|user| matches!(self.found.get(user), Some(Place::Known(_))))
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
        rest.is_empty().then_some(Places { found, answered: true })
    }

    /// Where the audience is: as it is known before, and for the rest by one look-up that begins now.
    pub(super) async fn places(&self, publications: &[Publication]) -> Places {
        let (mut found, rest) = self.recall(publications.iter().flat_map(Publication::audience));
        if rest.is_empty() {
            return Places { found, answered: true };
        }
        let looked_up = self.look_up(rest).await;
        found.extend(looked_up.found);
        Places { found, answered: looked_up.answered }
    }

    /// Where users are, as it is remembered and as it is known here; and who is to be looked up.
    fn recall<'a>(&self, users: impl Iterator<Item = &'a UserId>) -> (Found, HashSet<&'a UserId>) {
        if !self.0.parts.cluster.all_introduce() {
            return (Found::default(), users.collect());
        }
        let now = Instant::now();
        let (mut found, mut rest) = (Found::default(), HashSet::new());
        for user in users {
            if found.contains_key(user) {
                continue;
            }
            match self.0.memory.recall(user, now) {
                Some(server) => _ = found.insert(user.clone(), Place::Known(server)),
                None => _ = rest.insert(user),
            }
        }
        if !rest.is_empty() {
            for user in self.0.parts.claims.alone(rest.iter().copied()) {
                rest.remove(user);
                found.insert(user.clone(), Place::Known(self.0.parts.own.clone()));
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
                Places { found, answered: true }
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

    /// Remembers who is on one server only, as long as that one can be asked.
    fn remember(&self, users: &[UserId], places: &[Vec<ServerId>], since: Instant) {
        for (user, servers) in users.iter().zip(places) {
            match &servers[..] {
                [server] => self.0.memory.note(user.clone(), server.clone(), since),
                _ => self.0.memory.forget(user),
            }
        }
        // Only now, so that a stream that breaks meanwhile, at which all is forgotten, does so before or after this.
        let peers = self.0.parts.peers.servers();
        let is_up = |server: &ServerId| peers.iter().any(|(peer, up)| peer == server && *up);
        let lost = users.iter().zip(places).filter(|(_, servers)| !servers.iter().all(is_up));
        lost.for_each(|(user, _)| self.0.memory.forget(user));
    }
}

#[cfg(test)]
impl Places {
    pub(super) fn looked_up(found: HashMap<UserId, Vec<ServerId>>) -> Self {
        let found = found.into_iter().map(|(user, servers)| (user, Place::LookedUp(servers))).collect();
        Self { found, answered: true }
    }
}
