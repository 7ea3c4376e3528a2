//! What travels between servers: items of the relay protocol, with as little in them as will do.
//!
//! | kind | `recipients` | `room` | `event` | `frame` |
//! |---|---|---|---|---|
//! | for a user | the user | | | for the sockets |
//! | for a room | | the room | | for the sockets |
//! | a new room | | the room | `CREATED` | its members, as JSON |
//! | a socket has come | its user | | `JOINED` | |
//! | a socket has gone | its user | | `LEFT` | |

use bytes::Bytes;
use minichat::wire::event::Kind;
use minichat::wire::{Event, Item};

pub(crate) const TO_USER: u8 = b'u';
pub(crate) const TO_ROOM: u8 = b'r';
pub(crate) const NEW_ROOM: u8 = b'c';
pub(crate) const CAME: u8 = b'+';
pub(crate) const WENT: u8 = b'-';

/// Something for somebody, nothing of it copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) kind: u8,
    /// The user or the room.
    pub(crate) to: &'a str,
    /// Who does not get it.
    pub(crate) sender: &'a str,
    pub(crate) frame: &'a str,
}

impl<'a> Opened<'a> {
    /// Reads an item; none if its frame is not text.
    pub(crate) fn read(item: &'a Item) -> Option<Self> {
        let kind = match (item.event.as_ref().map(Event::kind), &*item.recipients) {
            (Some(Kind::Created), _) => NEW_ROOM,
            (Some(Kind::Joined), _) => CAME,
            (Some(_), _) => WENT,
            (None, []) => TO_ROOM,
            (None, _) => TO_USER,
        };
        let to = item.recipients.first().unwrap_or(&item.room);
        Some(Self { kind, to, sender: &item.sender, frame: std::str::from_utf8(&item.frame).ok()? })
    }
}

/// Makes an item.
pub(crate) fn item(kind: u8, to: &str, sender: &str, frame: Bytes) -> Item {
    let event = match kind {
        NEW_ROOM => Some(Kind::Created),
        CAME => Some(Kind::Joined),
        WENT => Some(Kind::Left),
        _ => None,
    };
    let event = event.map(|kind| Event { kind: kind.into(), users: Vec::new() });
    let item = Item { sender: sender.to_owned(), frame, event, ..Item::default() };
    match kind {
        TO_ROOM | NEW_ROOM => Item { room: to.to_owned(), ..item },
        _ => Item { recipients: vec![to.to_owned()], ..item },
    }
}
