//! What each connection has received: whether it came once and in order, and up to where it is to be acknowledged.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::sequence::{Place, Sequence};

/// What all connections of a thread have received.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// By connection and flow.
    flows: HashMap<(u32, u32), Sequence>,
    /// By connection and room; to a place in `rooms`.
    places: HashMap<u64, usize>,
    rooms: Vec<Received>,
    hasher: RandomState,
}

/// What a connection has received of a room.
#[derive(Debug)]
struct Received {
    connection: usize,
    room: Box<str>,
    sequence: Sequence,
    acked: u64,
}

impl Receipts {
    /// Takes what somebody said: its number in its flow.
    pub(crate) fn numbered(&mut self, connection: usize, flow: u32, number: u32) -> Place {
        self.flows.entry((connection as u32, flow)).or_default().take(number.into())
    }

    /// Takes an entry of a room's log.
    pub(crate) fn entry(&mut self, connection: usize, room: &[u8], seq: u64) -> Place {
        // Rooms are told apart by 64 bits of a hash: enough for the thousands that there are.
        let key = self.hasher.hash_one((connection, room));
        let place = *self.places.entry(key).or_insert_with(|| {
            let room = String::from_utf8_lossy(room).into();
            self.rooms.push(Received { connection, room, sequence: Sequence::default(), acked: 0 });
            self.rooms.len() - 1
        });
        self.rooms[place].sequence.take(seq)
    }

    /// Forgets what connections from this number on have received: when they come back they may be given it again.
    pub(crate) fn forget_from(&mut self, connection: usize) {
        self.flows.retain(|(of, _), _| (*of as usize) < connection);
        let gone = self.rooms.iter_mut().filter(|received| received.connection >= connection);
        gone.for_each(|received| (received.sequence, received.acked) = Default::default());
    }

    /// The acknowledgements that are due in part `part` of `parts`: connection, room, seq.
    pub(crate) fn due_acks(&mut self, part: usize, parts: usize) -> impl Iterator<Item = (usize, &str, u64)> {
        let len = self.rooms.len();
        let due = &mut self.rooms[len * part / parts..len * (part + 1) / parts];
        due.iter_mut().filter(|received| received.sequence.highest() > received.acked).map(|received| {
            received.acked = received.sequence.highest();
            (received.connection, &*received.room, received.acked)
        })
    }
}
