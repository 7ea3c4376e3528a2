//! The fields of a client's frame: which of them a type reads, and what each must be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::super::{Code, MAX_BODY_BYTES, MAX_PAGE, Reject};
use super::{Body, ClientFrame, DeviceToken, Hello, HistoryFrom, Place, Provider, PushToken, Target};
use crate::ids::{Cid, RoomId, UserId};

/// Declares the keys that any type of frame reads.
macro_rules! keys {
    ($($key:ident $name:literal,)+) => {
        #[derive(Clone, Copy, Deserialize)]
        #[serde(field_identifier)]
        enum Key {
            $(#[serde(rename = $name)] $key,)+
            #[serde(other)]
            Other,
        }

        impl Key {
            const COUNT: usize = Self::Other as usize;

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)+
                    Self::Other => "",
                }
            }
        }
    };
}

keys! {
    Type "type",
    Cid "cid",
    Room "room",
    To "to",
    Body "body",
    Seq "seq",
    Token "token",
    Device "device",
    Trace "trace",
    Cursors "cursors",
    More "more",
    Before "before",
    After "after",
    Limit "limit",
    Members "members",
    Name "name",
    Open "open",
    Create "create",
    Users "users",
    Muted "muted",
    Provider "provider",
    Remove "remove",
}

/// A field's text, if the field is there; `null` is a value like any other.
type Raw<'a> = Option<&'a RawValue>;

/// The fields of a frame by their keys.
pub(super) struct Fields<'a> {
    kind: Text<'a>,
    raw: [Raw<'a>; Key::COUNT],
}

/// A string, borrowed where nothing in it is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Takes an object apart in one pass.
struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let (mut kind, mut raw) = (None, [None; Key::COUNT]);
        while let Some(key) = map.next_key::<Key>()? {
            let came_before = match key {
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::Type => kind.replace(map.next_value()?).is_some(),
                key => raw[key as usize].replace(map.next_value()?).is_some(),
            };
            if came_before {
                return Err(A::Error::duplicate_field(key.name()));
            }
        }
        let kind = kind.ok_or_else(|| A::Error::missing_field(Key::Type.name()))?;
        Ok(Fields { kind, raw })
    }
}

impl<'a> Fields<'a> {
    /// The frame that the type asks for; `cid` is its mark, which [`cid`](Self::cid) has read.
    pub(super) fn frame(&self, cid: Option<&Cid>) -> Result<ClientFrame, Reject> {
        Ok(match &*self.kind.0 {
            "send" => ClientFrame::Send {
                cid: cid.cloned().ok_or_else(|| Reject::field("cid", "is missing; a send needs one, best a UUID"))?,
                to: self.target()?,
                body: self.body()?,
            },
            "signal" => ClientFrame::Signal { to: self.target()?, body: self.body()? },
            "ack" => ClientFrame::Ack(self.place()?),
            "read" => ClientFrame::Read(self.place()?),
            "typing" => ClientFrame::Typing(self.room()?),
            "hello" => ClientFrame::Hello(self.hello()?),
            "history" => {
                ClientFrame::History { room: self.room()?, from: self.history_from()?, limit: self.limit(50)? }
            }
            "create" => ClientFrame::Create {
                room: self.chosen_room()?,
                members: self.optional(Key::Members)?.unwrap_or_default(),
                name: self.name()?,
                open: self.optional(Key::Open)?.unwrap_or(false),
            },
            "join" => self.join()?,
            "leave" => ClientFrame::Leave(self.room()?),
            "add" => ClientFrame::Add(self.room()?, self.required(Key::Users)?),
            "remove" => ClientFrame::Remove(self.room()?, self.required(Key::Users)?),
            "rooms" => ClientFrame::Rooms { after: self.optional(Key::After)?, limit: self.limit(MAX_PAGE)? },
            "members" => ClientFrame::Members {
                room: self.room()?,
                after: self.optional(Key::After)?,
                limit: self.limit(MAX_PAGE)?,
            },
            "presence" => ClientFrame::Presence(self.watched()?),
            "settings" => ClientFrame::Settings {
                room: self.optional(Key::Room)?,
                muted: self
                    .optional(Key::Muted)?
                    .ok_or_else(|| Reject::field("muted", "is missing; true for no pushes, false for pushes"))?,
            },
            "device_token" => ClientFrame::DeviceToken(self.device_token()?),
            "ping" => ClientFrame::Ping,
            other => return Err(unknown_type(other)),
        })
    }

    fn get(&self, key: Key) -> Raw<'a> {
        self.raw[key as usize]
    }

    fn required<T: Deserialize<'a>>(&self, key: Key) -> Result<T, Reject> {
        self.optional(key)?.ok_or_else(|| Reject::field(key.name(), "is missing"))
    }

    /// Reads a field; one that is absent or `null` is none.
    fn optional<T: Deserialize<'a>>(&self, key: Key) -> Result<Option<T>, Reject> {
        match self.get(key).map(RawValue::get) {
            None | Some("null") => Ok(None),
            Some(text) => {
                serde_json::from_str(text).map(Some).map_err(|error| Reject::field(key.name(), without_place(&error)))
            }
        }
    }

    /// The client's mark, if there is one.
    pub(super) fn cid(&self) -> Result<Option<Cid>, Reject> {
        self.optional(Key::Cid)
    }

    fn room(&self) -> Result<RoomId, Reject> {
        self.required(Key::Room)
    }

    fn chosen_room(&self) -> Result<Option<RoomId>, Reject> {
        match self.optional::<RoomId>(Key::Room)? {
            Some(room) if !room.is_choosable() => {
                Err(Reject::field("room", "needs at least one letter; ids of digits only are the server's"))
            }
            room => Ok(room),
        }
    }

    fn target(&self) -> Result<Target, Reject> {
        match (self.get(Key::Room), self.get(Key::To)) {
            (Some(_), None) => Ok(Target::Room(self.room()?)),
            (None, Some(_)) => Ok(Target::User(self.required(Key::To)?)),
            _ => Err(Reject::field("room", "give either room, or to with a user id")),
        }
    }

    fn body(&self) -> Result<Body, Reject> {
        let body = self.get(Key::Body).ok_or_else(|| Reject::field("body", "is missing; any JSON will do"))?;
        let bytes = body.get().len();
        if bytes > MAX_BODY_BYTES {
            let problem = format!("body: has {bytes} bytes, at most {MAX_BODY_BYTES} are taken");
            return Err(Reject::new(Code::TooLarge, problem));
        }
        Ok(Body(body.to_owned()))
    }

    fn place(&self) -> Result<Place, Reject> {
        Ok(Place { room: self.room()?, seq: self.required(Key::Seq)? })
    }

    fn limit(&self, default: u32) -> Result<u32, Reject> {
        match self.optional(Key::Limit)?.unwrap_or(default) {
            0 => Err(Reject::field("limit", "must be at least 1")),
            limit => Ok(limit.min(MAX_PAGE)),
        }
    }

    fn history_from(&self) -> Result<HistoryFrom, Reject> {
        match (self.optional(Key::Before)?, self.optional(Key::After)?) {
            (Some(_), Some(_)) => Err(Reject::field("before", "give before or after, not both")),
            (None, Some(after)) => Ok(HistoryFrom::After(after)),
            (before, None) => Ok(HistoryFrom::Before(before.unwrap_or(u64::MAX))),
        }
    }

    fn name(&self) -> Result<Option<String>, Reject> {
        match self.optional::<String>(Key::Name)? {
            Some(name) if name.len() > 128 || name.chars().any(char::is_control) => {
                Err(Reject::field("name", "must be at most 128 bytes without control characters"))
            }
            name => Ok(name.filter(|name| !name.is_empty())),
        }
    }

    fn join(&self) -> Result<ClientFrame, Reject> {
        let create = self.optional(Key::Create)?.unwrap_or(false);
        let room = if create { self.chosen_room()? } else { None };
        Ok(ClientFrame::Join { room: room.map_or_else(|| self.room(), Ok)?, create })
    }

    fn watched(&self) -> Result<Vec<UserId>, Reject> {
        match self.required::<Vec<UserId>>(Key::Users)? {
            users if users.len() > MAX_PAGE as usize => {
                Err(Reject::field("users", format!("has {} ids, at most {MAX_PAGE} are taken", users.len())))
            }
            users => Ok(users),
        }
    }

    fn device_token(&self) -> Result<DeviceToken, Reject> {
        let remove = self.optional(Key::Remove)?.unwrap_or(false);
        Ok(DeviceToken { provider: self.provider()?, token: self.push_token()?, remove })
    }

    fn provider(&self) -> Result<Provider, Reject> {
        let name: Option<String> = self.optional(Key::Provider)?;
        let known = Provider::ALL.into_iter().find(|known| name.as_deref() == Some(known.name()));
        known.ok_or_else(|| {
            let names = Provider::ALL.map(|known| format!("\"{}\"", known.name())).join(" or ");
            Reject::field("provider", format!("must be {names}"))
        })
    }

    fn push_token(&self) -> Result<PushToken, Reject> {
        let token: String = self.required(Key::Token)?;
        PushToken::new(token).ok_or_else(|| {
            let most = PushToken::MAX_BYTES;
            Reject::field("token", format!("must be 1 to {most} bytes without control characters"))
        })
    }

    fn hello(&self) -> Result<Hello, Reject> {
        Ok(Hello {
            token: self.optional(Key::Token)?,
            device: self.optional(Key::Device)?,
            trace: self.optional(Key::Trace)?.unwrap_or(false),
            cursors: self.cursors()?,
            more: self.optional(Key::More)?.unwrap_or(false),
        })
    }

    /// One that cannot be is as if it were not there: a client whose memory is damaged is to come in all the same.
    fn cursors(&self) -> Result<HashMap<RoomId, u64>, Reject> {
        let said: HashMap<Cow<'_, str>, &RawValue> = self.optional(Key::Cursors)?.unwrap_or_default();
        let cursor = |(room, seq): (Cow<'_, str>, &RawValue)| Some((room.parse().ok()?, seq.get().parse().ok()?));
        Ok(said.into_iter().filter_map(cursor).collect())
    }
}

fn unknown_type(kind: &str) -> Reject {
    let shown: String = kind.chars().take(32).collect();
    Reject::new(Code::UnknownType, format!("type: {shown:?} is not a frame that clients send"))
}

/// serde's words without its `at line 1 column 7`, which would count from the start of the field.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
