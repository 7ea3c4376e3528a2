//! The names of all keys, and the Cluster slots they fall into.

use crate::ids::{ServerId, UserId};

/// The servers, sorted by lease end.
pub(super) const SERVERS: &str = "ws:servers";

/// The id of the database that belongs to this registry.
pub(super) const CLUSTER: &str = "ws:cluster";

/// How many slots Redis Cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// When a user was last seen. The key of the entry with another beginning.
pub(super) fn seen(id: &UserId) -> String {
    named("ws:user:seen:", id)
}

/// A user's entry.
pub(super) fn user(id: &UserId) -> String {
    named("ws:user:server:", id)
}

/// A user's key. `{` and `}` would choose the slot of the key, and so the node that carries the load of it; they are
/// percent-encoded, and `%` with them, so that two users never share a key.
fn named(beginning: &str, id: &UserId) -> String {
    let mut key = String::with_capacity(beginning.len() + id.as_str().len());
    key.push_str(beginning);
    for char in id.as_str().chars() {
        match char {
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            '%' => key.push_str("%25"),
            plain => key.push(plain),
        }
    }
    key
}

/// A server's row.
pub(super) fn server(id: &ServerId) -> String {
    format!("ws:server:{id}")
}

/// The slot of a key of ours. They have no `{`, so the whole key is hashed.
pub(super) fn slot(key: &str) -> u16 {
    key.bytes().fold(0, crc16) % SLOTS
}

/// One step of CRC-16/XMODEM, which Redis Cluster hashes with.
fn crc16(crc: u16, byte: u8) -> u16 {
    (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(user_id: &str) -> String {
        user(&user_id.parse().unwrap())
    }

    #[test]
    fn a_user_id_cannot_choose_the_slot_of_its_key() {
        assert_eq!(key_of("{tag}"), "ws:user:server:%7Btag%7D");
        assert_eq!(key_of("}{"), "ws:user:server:%7D%7B");
    }

    #[test]
    fn no_two_users_share_a_key() {
        assert_eq!(key_of("{"), "ws:user:server:%7B");
        assert_eq!(key_of("%7B"), "ws:user:server:%257B");
    }

    #[test]
    fn other_characters_stay_as_they_are() {
        assert_eq!(key_of("a:b ü*"), "ws:user:server:a:b ü*");
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
    }
}
