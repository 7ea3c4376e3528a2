//! Who is on which of the other servers, as these have said.

use std::collections::HashMap;

use crate::bus::{CAME, NEW_ROOM, Opened, TO_ROOM, TO_USER, WENT};

/// How many sessions each of the other servers holds, by its number. Those after the last that holds any may be missing.
#[derive(Debug, Default)]
struct Held(Vec<u32>);

impl Held {
    fn add(&mut self, server: usize, sessions: u32) {
        if self.0.len() <= server {
            self.0.resize(server + 1, 0);
        }
        self.0[server] += sessions;
    }

    fn remove_one(&mut self, server: usize) {
        if let Some(sessions) = self.0.get_mut(server) {
            *sessions = sessions.saturating_sub(1);
        }
    }

    fn servers(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().copied().enumerate().filter(|(_, sessions)| *sessions > 0)
    }
}

/// Where to find those who are not here.
#[derive(Debug, Default)]
pub(crate) struct Places {
    users: HashMap<Box<str>, Held>,
    /// Where the members of each room are.
    rooms: HashMap<Box<str>, Held>,
    memberships: HashMap<Box<str>, Vec<Box<str>>>,
}

impl Places {
    /// The servers that hold somebody for whom this is.
    pub(crate) fn of(&self, kind: u8, to: &str) -> Vec<usize> {
        let held = match kind {
            TO_USER => self.users.get(to),
            TO_ROOM => self.rooms.get(to),
            _ => None,
        };
        held.into_iter().flat_map(Held::servers).map(|(server, _)| server).collect()
    }

    /// Takes in what another server says of its sockets, and what any says of a new room.
    pub(crate) fn learn(&mut self, server: usize, news: &Opened<'_>) {
        match news.kind {
            CAME => self.came(server, news.to),
            WENT => self.went(server, news.to),
            NEW_ROOM => self.create(news),
            _ => {}
        }
    }

    fn came(&mut self, server: usize, user: &str) {
        self.users.entry(user.into()).or_default().add(server, 1);
        for room in self.memberships.get(user).into_iter().flatten() {
            self.rooms.entry(room.clone()).or_default().add(server, 1);
        }
    }

    fn went(&mut self, server: usize, user: &str) {
        let Some(held) = self.users.get_mut(user) else { return };
        held.remove_one(server);
        if held.servers().next().is_none() {
            self.users.remove(user);
        }
        for room in self.memberships.get(user).into_iter().flatten() {
            self.rooms.entry(room.clone()).or_default().remove_one(server);
        }
    }

    pub(crate) fn create(&mut self, news: &Opened<'_>) {
        // What servers wrote themselves is well-formed.
        let members: Vec<Box<str>> = serde_json::from_str(news.frame).unwrap_or_default();
        let room = self.rooms.entry(news.to.into()).or_default();
        for member in members {
            let held = self.users.get(&member).into_iter().flat_map(Held::servers);
            held.for_each(|(server, sessions)| room.add(server, sessions));
            self.memberships.entry(member).or_default().push(news.to.into());
        }
    }
}
