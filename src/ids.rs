//! The names of things: users, rooms, servers, devices, sessions, messages.
//!
//! Every name is checked once, where it enters; past that point a value of these types is well-formed. Names that
//! travel to many places are reference counted, so that handing one on costs no allocation.

mod snowflake;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use snowflake::{Exhausted, Lease, Snowflakes};

/// A name that does not have the form its kind asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {problem}")]
pub struct Malformed {
    kind: &'static str,
    problem: &'static str,
}

/// Reads a name from where it stands, without a copy of the text in between.
struct Name<T>(PhantomData<T>);

impl<T: FromStr<Err = Malformed>> Visitor<'_> for Name<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Declares a checked, shared, cheaply cloned name.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Takes a name that was checked before, such as one read back from the store.
            #[allow(dead_code, reason = "a device is never read back")]
            pub(crate) fn trusted(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
        }

        impl FromStr for $type {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<Self, Malformed> {
                let check: fn(&str) -> Result<(), &'static str> = $check;
                match check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(problem) => Err(Malformed { kind: $kind, problem }),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Name(PhantomData))
            }
        }
    };
}

name!(
    /// A user, as the application names them: opaque, 1 to 128 bytes, no control characters.
    UserId,
    "user id",
    |text| opaque(text, 128, "must be 1 to 128 bytes without control characters")
);

name!(
    /// One of a user's devices, as the client names it: 1 to 64 bytes, no control characters.
    DeviceId,
    "device",
    |text| opaque(text, 64, "must be 1 to 64 bytes without control characters")
);

name!(
    /// A client's own mark on a frame: 1 to 64 bytes, no control characters; a UUID by habit.
    Cid,
    "cid",
    |text| opaque(text, 64, "must be 1 to 64 bytes without control characters")
);

name!(
    /// A room: 1 to 64 of `A-Z a-z 0-9 . _ : ~ @ -`. Those an application chooses have a letter; those the server makes
    /// are digits only, so the two never meet.
    RoomId,
    "room id",
    |text| if matches!(text.len(), 1..=64) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:~@-".contains(&b)) {
        Ok(())
    } else {
        Err("must be 1 to 64 of A-Z a-z 0-9 . _ : ~ @ -")
    }
);

name!(
    /// A server of the cluster: `[A-Za-z0-9._-]{1,63}`.
    ServerId,
    "server id",
    |text| if matches!(text.len(), 1..=63) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        Ok(())
    } else {
        Err("must be 1 to 63 of A-Z a-z 0-9 . _ -")
    }
);

fn opaque(text: &str, most: usize, rule: &'static str) -> Result<(), &'static str> {
    let fits = !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(rule) }
}

impl RoomId {
    /// The name of a room the server makes: the digits of a fresh id.
    pub fn made(id: MessageId) -> Self {
        Self(id.to_string().into())
    }

    /// Whether an application may choose this name for a new room.
    pub fn is_choosable(&self) -> bool {
        self.0.bytes().any(|byte| byte.is_ascii_alphabetic())
    }
}

/// Declares a number that is a string on the wire, since it exceeds what a JavaScript number holds.
macro_rules! number {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(pub u64);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }
    };
}

number!(
    /// A stored message, a Snowflake: unique in the database, below 2^63. Order is `seq`, never this.
    MessageId
);

number!(
    /// One connection of one user, a Snowflake: unique in the cluster.
    SessionId
);

/// One run of one server: random, and new at every start, so that a server that came back is told from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId(pub u64);

impl BootId {
    /// A fresh one, for this run.
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for BootId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        u64::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| Malformed { kind: "boot id", problem: "must be 16 hexadecimal digits" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_id_is_opaque_but_bounded() {
        for good in ["alice", "a*", "{tag}", "a:b", "ü", " ", "server:1", &"x".repeat(128)] {
            assert!(good.parse::<UserId>().is_ok(), "{good:?}");
        }
        for bad in ["", "a\u{0}", "1\r\nDEL x", "\u{85}", &"x".repeat(129)] {
            assert!(bad.parse::<UserId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_reads_with_escapes_as_without_and_only_from_a_string() {
        for text in [r#""alice""#, r#""\u0061lice""#] {
            assert_eq!(serde_json::from_str::<UserId>(text).unwrap().as_str(), "alice");
        }
        for bad in [r#""""#, r#""\u0000""#, "7", "null"] {
            assert!(serde_json::from_str::<UserId>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_room_the_server_makes_is_no_room_an_application_can_choose() {
        assert!(!RoomId::made(MessageId(42)).is_choosable());
        assert!("team-1".parse::<RoomId>().unwrap().is_choosable());
        assert!("".parse::<RoomId>().is_err());
        assert!("a b".parse::<RoomId>().is_err());
    }

    #[test]
    fn a_message_id_is_a_string_on_the_wire() {
        assert_eq!(serde_json::to_string(&MessageId(9_007_199_254_740_993)).unwrap(), "\"9007199254740993\"");
    }

    #[test]
    fn a_malformed_name_says_which_and_why() {
        let error = "a,b".parse::<ServerId>().unwrap_err();
        assert_eq!(error.to_string(), "server id must be 1 to 63 of A-Z a-z 0-9 . _ -");
    }

    #[test]
    fn a_boot_id_survives_its_text() {
        let boot = BootId(0x00ab);
        assert_eq!(boot.to_string().parse(), Ok(boot));
    }
}
