//! The fields of a client's frame: which of them a type reads, and what each must be.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::super::{Code, MAX_BODY_BYTES, MAX_PAGE, Reject};
use super::{ClientFrame, DeviceToken, Hello, HistoryFrom, Place, Provider, PushToken, Target};
use crate::ids::{Cid, RoomId, UserId};

/// All fields that any type of frame reads.
#[derive(Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow, deserialize_with = "present")]
    cid: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    room: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    to: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    body: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    seq: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    token: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    device: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    trace: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    cursors: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    more: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    before: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    after: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    limit: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    members: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    name: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    open: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    create: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    users: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    muted: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    provider: Raw<'a>,
    #[serde(default, borrow, deserialize_with = "present")]
    remove: Raw<'a>,
}

/// A field's text, if the field is there; `null` is a value like any other.
type Raw<'a> = Option<&'a RawValue>;

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Raw<'de>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Fields<'_> {
    /// The frame that the type asks for; `cid` is its mark, which [`cid`](Self::cid) has read.
    pub(super) fn frame(&self, cid: Option<&Cid>) -> Result<ClientFrame, Reject> {
        Ok(match &*self.kind {
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
                members: optional("members", self.members)?.unwrap_or_default(),
                name: self.name()?,
                open: optional("open", self.open)?.unwrap_or(false),
            },
            "join" => self.join()?,
            "leave" => ClientFrame::Leave(self.room()?),
            "add" => ClientFrame::Add(self.room()?, required("users", self.users)?),
            "remove" => ClientFrame::Remove(self.room()?, required("users", self.users)?),
            "rooms" => ClientFrame::Rooms { after: optional("after", self.after)?, limit: self.limit(MAX_PAGE)? },
            "members" => ClientFrame::Members {
                room: self.room()?,
                after: optional("after", self.after)?,
                limit: self.limit(MAX_PAGE)?,
            },
            "presence" => ClientFrame::Presence(self.watched()?),
            "settings" => ClientFrame::Settings {
                room: optional("room", self.room)?,
                muted: optional("muted", self.muted)?
                    .ok_or_else(|| Reject::field("muted", "is missing; true for no pushes, false for pushes"))?,
            },
            "device_token" => ClientFrame::DeviceToken(self.device_token()?),
            "ping" => ClientFrame::Ping,
            other => return Err(unknown_type(other)),
        })
    }

    /// The client's mark, if there is one.
    pub(super) fn cid(&self) -> Result<Option<Cid>, Reject> {
        optional("cid", self.cid)
    }

    fn room(&self) -> Result<RoomId, Reject> {
        required("room", self.room)
    }

    fn chosen_room(&self) -> Result<Option<RoomId>, Reject> {
        match optional::<RoomId>("room", self.room)? {
            Some(room) if !room.is_choosable() => {
                Err(Reject::field("room", "needs at least one letter; ids of digits only are the server's"))
            }
            room => Ok(room),
        }
    }

    fn target(&self) -> Result<Target, Reject> {
        match (self.room, self.to) {
            (Some(_), None) => Ok(Target::Room(self.room()?)),
            (None, Some(_)) => Ok(Target::User(required("to", self.to)?)),
            _ => Err(Reject::field("room", "give either room, or to with a user id")),
        }
    }

    fn body(&self) -> Result<Box<str>, Reject> {
        let body = self.body.ok_or_else(|| Reject::field("body", "is missing; any JSON will do"))?.get();
        if body.len() > MAX_BODY_BYTES {
            let problem = format!("body: has {} bytes, at most {MAX_BODY_BYTES} are taken", body.len());
            return Err(Reject::new(Code::TooLarge, problem));
        }
        Ok(body.into())
    }

    fn place(&self) -> Result<Place, Reject> {
        Ok(Place { room: self.room()?, seq: required("seq", self.seq)? })
    }

    fn limit(&self, default: u32) -> Result<u32, Reject> {
        match optional("limit", self.limit)?.unwrap_or(default) {
            0 => Err(Reject::field("limit", "must be at least 1")),
            limit => Ok(limit.min(MAX_PAGE)),
        }
    }

    fn history_from(&self) -> Result<HistoryFrom, Reject> {
        match (optional("before", self.before)?, optional("after", self.after)?) {
            (Some(_), Some(_)) => Err(Reject::field("before", "give before or after, not both")),
            (None, Some(after)) => Ok(HistoryFrom::After(after)),
            (before, None) => Ok(HistoryFrom::Before(before.unwrap_or(u64::MAX))),
        }
    }

    fn name(&self) -> Result<Option<String>, Reject> {
        match optional::<String>("name", self.name)? {
            Some(name) if name.len() > 128 || name.chars().any(char::is_control) => {
                Err(Reject::field("name", "must be at most 128 bytes without control characters"))
            }
            name => Ok(name.filter(|name| !name.is_empty())),
        }
    }

    fn join(&self) -> Result<ClientFrame, Reject> {
        let create = optional("create", self.create)?.unwrap_or(false);
        let room = if create { self.chosen_room()? } else { None };
        Ok(ClientFrame::Join { room: room.map_or_else(|| self.room(), Ok)?, create })
    }

    fn watched(&self) -> Result<Vec<UserId>, Reject> {
        match required::<Vec<UserId>>("users", self.users)? {
            users if users.len() > MAX_PAGE as usize => {
                Err(Reject::field("users", format!("has {} ids, at most {MAX_PAGE} are taken", users.len())))
            }
            users => Ok(users),
        }
    }

    fn device_token(&self) -> Result<DeviceToken, Reject> {
        let remove = optional("remove", self.remove)?.unwrap_or(false);
        Ok(DeviceToken { provider: self.provider()?, token: self.push_token()?, remove })
    }

    fn provider(&self) -> Result<Provider, Reject> {
        let name: Option<String> = optional("provider", self.provider)?;
        let known = Provider::ALL.into_iter().find(|known| name.as_deref() == Some(known.name()));
        known.ok_or_else(|| {
            let names = Provider::ALL.map(|known| format!("\"{}\"", known.name())).join(" or ");
            Reject::field("provider", format!("must be {names}"))
        })
    }

    fn push_token(&self) -> Result<PushToken, Reject> {
        let token: String = required("token", self.token)?;
        PushToken::new(token).ok_or_else(|| {
            let most = PushToken::MAX_BYTES;
            Reject::field("token", format!("must be 1 to {most} bytes without control characters"))
        })
    }

    fn hello(&self) -> Result<Hello, Reject> {
        Ok(Hello {
            token: optional("token", self.token)?,
            device: optional("device", self.device)?,
            trace: optional("trace", self.trace)?.unwrap_or(false),
            cursors: self.cursors()?,
            more: optional("more", self.more)?.unwrap_or(false),
        })
    }

    /// One that cannot be is as if it were not there: a client whose memory is damaged is to come in all the same.
    fn cursors(&self) -> Result<HashMap<RoomId, u64>, Reject> {
        let said: HashMap<Cow<'_, str>, &RawValue> = optional("cursors", self.cursors)?.unwrap_or_default();
        let cursor = |(room, seq): (Cow<'_, str>, &RawValue)| Some((room.parse().ok()?, seq.get().parse().ok()?));
        Ok(said.into_iter().filter_map(cursor).collect())
    }
}

fn unknown_type(kind: &str) -> Reject {
    let shown: String = kind.chars().take(32).collect();
    Reject::new(Code::UnknownType, format!("type: {shown:?} is not a frame that clients send"))
}

fn required<'a, T: Deserialize<'a>>(name: &str, raw: Raw<'a>) -> Result<T, Reject> {
    optional(name, raw)?.ok_or_else(|| Reject::field(name, "is missing"))
}

/// Reads a field; one that is absent or `null` is none.
fn optional<'a, T: Deserialize<'a>>(name: &str, raw: Raw<'a>) -> Result<Option<T>, Reject> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some(text) => serde_json::from_str(text).map(Some).map_err(|error| Reject::field(name, without_place(&error))),
    }
}

/// serde's words without its `at line 1 column 7`, which would count from the start of the field.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
