//! Where members are who have not acknowledged, and to have their sessions healed there.

use std::collections::{BTreeMap, HashMap};

use tracing::debug;

use super::Router;
use crate::cluster::Standing;
use crate::ids::{RoomId, ServerId, UserId};
use crate::wire;

/// The most users in one heal.
const HEAL_USERS: usize = 500;

/// Where someone is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// Connected, to these servers.
    Connected(Vec<ServerId>),
    /// They were connected to a server that is gone, and are nowhere else: for one lease at least.
    Gone,
    /// Connected to no server that is known. The one that is named was gone before this one came, or is new.
    Astray,
    /// Connected nowhere.
    Nowhere,
    /// It cannot be told: the registry does not answer, or may have lost them.
    Unknown,
}

impl Router {
    /// Where users are, with one look-up for all.
    pub async fn whereabouts(&self, users: Vec<UserId>) -> HashMap<UserId, Whereabouts> {
        if users.is_empty() {
            return HashMap::new();
        }
        let places = self.look_up(users.iter().collect()).await;
        // Where others would be asked as well for who is not found, not to be found says nothing.
        let certain = self.0.parts.cluster.asked(places.answered).is_empty() && places.answered;
        let place = |user| {
            let whereabouts = self.whereabouts_by(&user, places.of(&user), certain);
            (user, whereabouts)
        };
        users.into_iter().map(place).collect()
    }

    /// What the registry's entry of a user comes to. Of its own users a server knows better.
    fn whereabouts_by(&self, user: &UserId, named: &[ServerId], certain: bool) -> Whereabouts {
        let parts = &self.0.parts;
        let others: Vec<_> = named.iter().filter(|server| **server != parts.own).collect();
        let is = |server: &ServerId, standing| parts.cluster.standing(server) == standing;
        let there = others.iter().copied().filter(|server| is(server, Standing::There));
        let own = parts.sessions.holds(user).then_some(&parts.own);
        let servers: Vec<_> = there.chain(own).cloned().collect();
        if !servers.is_empty() {
            Whereabouts::Connected(servers)
        } else if !certain {
            Whereabouts::Unknown
        } else if others.iter().any(|server| is(server, Standing::Unknown)) {
            Whereabouts::Astray
        } else if !others.is_empty() {
            Whereabouts::Gone
        } else {
            Whereabouts::Nowhere
        }
    }

    /// Has the sessions of members healed, wherever they are: what they lack of the room up to `seq` is read from the
    /// store.
    pub fn heal(&self, room: &RoomId, seq: u64, members: &[(&UserId, &[ServerId])]) {
        let parts = &self.0.parts;
        let mut elsewhere: BTreeMap<&ServerId, Vec<String>> = BTreeMap::new();
        for (user, servers) in members {
            for server in *servers {
                if *server == parts.own {
                    parts.feed.remind(room, seq, user);
                } else {
                    elsewhere.entry(server).or_default().push(user.to_string());
                }
            }
        }
        for (server, users) in elsewhere {
            for users in users.chunks(HEAL_USERS) {
                let sent = parts.peers.heal(server, wire::Heal { room: room.to_string(), seq, users: users.into() });
                debug!(%room, seq, target = %server, ?sent, "asked for members to be healed");
            }
        }
    }
}
