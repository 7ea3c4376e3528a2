//! Who is here, and in which rooms.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use tokio::sync::mpsc;

use crate::bus::{NEW_ROOM, Opened, TO_ROOM, TO_USER};

/// One socket, as others see it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) user: Arc<str>,
    pub(crate) outbox: mpsc::Sender<Utf8Bytes>,
}

/// Who is here.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    users: HashMap<Box<str>, Vec<Session>>,
    /// The sessions here of each room's members.
    rooms: HashMap<Box<str>, Vec<Session>>,
    memberships: HashMap<Box<str>, Vec<Box<str>>>,
}

impl Directory {
    pub(crate) fn enter(&mut self, session: &Session) {
        self.users.entry((*session.user).into()).or_default().push(session.clone());
        for room in self.memberships.get(&*session.user).into_iter().flatten() {
            self.rooms.entry(room.clone()).or_default().push(session.clone());
        }
    }

    pub(crate) fn leave(&mut self, session: &Session) {
        let is_other = |other: &Session| other.id != session.id;
        if let Some(sessions) = self.users.get_mut(&*session.user) {
            sessions.retain(is_other);
            if sessions.is_empty() {
                self.users.remove(&*session.user);
            }
        }
        for room in self.memberships.get(&*session.user).into_iter().flatten() {
            self.rooms.entry(room.clone()).or_default().retain(is_other);
        }
    }

    fn create(&mut self, room: &str, members: &[String]) {
        for member in members {
            self.memberships.entry(member.as_str().into()).or_default().push(room.into());
            let here = self.users.get(member.as_str()).into_iter().flatten().cloned();
            self.rooms.entry(room.into()).or_default().extend(here);
        }
    }

    /// Gives a message to those here whom it is for.
    pub(crate) fn deliver(&mut self, envelope: &Opened<'_>) {
        let sessions = match envelope.kind {
            TO_USER => self.users.get(envelope.to),
            TO_ROOM => self.rooms.get(envelope.to),
            NEW_ROOM => {
                // What we wrote ourselves is well-formed.
                let members: Vec<String> = serde_json::from_str(envelope.frame).unwrap_or_default();
                return self.create(envelope.to, &members);
            }
            _ => None,
        };
        let mut others = sessions.into_iter().flatten().filter(|session| *session.user != *envelope.sender).peekable();
        if others.peek().is_some() {
            let frame = Utf8Bytes::from(envelope.frame);
            // Who does not read fast enough misses it.
            others.for_each(|session| _ = session.outbox.try_send(frame.clone()));
        }
    }
}
