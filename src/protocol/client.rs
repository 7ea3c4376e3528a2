//! What clients say.
//!
//! A frame is split into its fields in one pass, each kept as the text it was; then its `type` decides which fields are
//! read. So a body is never parsed, a field that does not belong to the type is ignored whatever it holds, and a key
//! that comes twice is an error rather than a choice.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Code, MAX_BODY_BYTES, MAX_PAGE, Reject};
use crate::ids::{Cid, DeviceId, RoomId, UserId};

/// A frame of a client, with the mark that its answer carries.
#[derive(Debug)]
pub struct Parsed {
    /// The client's mark, if it gave one.
    pub cid: Option<Cid>,
    /// The frame, or what is wrong with it.
    pub frame: Result<ClientFrame, Reject>,
}

/// What a client asks for.
#[derive(Debug, PartialEq)]
pub enum ClientFrame {
    /// Who I am and where I was.
    Hello(Hello),
    /// Store this and deliver it.
    Send {
        /// The mark by which a repeat is known.
        cid: Cid,
        /// Where it goes.
        to: Target,
        /// JSON text.
        body: Box<str>,
    },
    /// Deliver this to who is there now.
    Signal {
        /// Where it goes.
        to: Target,
        /// JSON text.
        body: Box<str>,
    },
    /// I am writing.
    Typing(RoomId),
    /// I have all up to here.
    Ack(Place),
    /// I have read all up to here.
    Read(Place),
    /// Show me part of the log.
    History {
        /// Which room's.
        room: RoomId,
        /// From where.
        from: HistoryFrom,
        /// How much.
        limit: u32,
    },
    /// Make a room.
    Create {
        /// Its id, where the client chooses it.
        room: Option<RoomId>,
        /// Who is in it besides the creator.
        members: Vec<UserId>,
        /// What people call it.
        name: Option<String>,
        /// Whether anyone may join.
        open: bool,
    },
    /// Let me in.
    Join {
        /// Where.
        room: RoomId,
        /// Make it, open to all, when it is missing.
        create: bool,
    },
    /// Let me out.
    Leave(RoomId),
    /// Let them in.
    Add(RoomId, Vec<UserId>),
    /// Put them out.
    Remove(RoomId, Vec<UserId>),
    /// Which rooms am I in?
    Rooms {
        /// Those after this one.
        after: Option<RoomId>,
        /// How many.
        limit: u32,
    },
    /// Who is in it?
    Members {
        /// In which.
        room: RoomId,
        /// Those after this one.
        after: Option<UserId>,
        /// How many.
        limit: u32,
    },
    /// Are you there?
    Ping,
}

/// The first frame of every client.
#[derive(Debug, Default, PartialEq)]
pub struct Hello {
    /// A JWT, where it did not come with the request.
    pub token: Option<String>,
    /// The device's name.
    pub device: Option<DeviceId>,
    /// Whether to tell how each message travelled.
    pub trace: bool,
    /// The last seq the client has, by room.
    pub cursors: HashMap<RoomId, u64>,
    /// Whether another `hello` follows with more cursors.
    pub more: bool,
}

/// A position in a room's log.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The room.
    pub room: RoomId,
    /// The seq, from 1.
    pub seq: u64,
}

/// Whom a message is for.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// The members of a room.
    Room(RoomId),
    /// One user: the direct room with them.
    User(UserId),
}

/// Which part of the log.
#[derive(Debug, PartialEq, Eq)]
pub enum HistoryFrom {
    /// The last entries before this seq.
    Before(u64),
    /// The first entries after this seq.
    After(u64),
}

impl Parsed {
    /// Reads one text frame.
    pub fn read(text: &str) -> Self {
        let fields: Fields<'_> = match serde_json::from_str(text) {
            Ok(fields) => fields,
            Err(error) => return Self { cid: None, frame: Err(not_a_frame(text, &error)) },
        };
        match fields.cid() {
            Ok(cid) => Self { frame: fields.frame(cid.as_ref()), cid },
            Err(reject) => Self { cid: None, frame: Err(reject) },
        }
    }
}

fn not_a_frame(text: &str, error: &serde_json::Error) -> Reject {
    let problem = if !text.trim_start().starts_with('{') {
        "a frame is one JSON object, such as {\"type\":\"ping\"}".into()
    } else if error.is_data() {
        // Such as `duplicate field` or `missing field`: serde's words name the field and quote no values.
        format!("a frame is one JSON object with a type: {error}")
    } else {
        format!("not JSON: {error}")
    };
    Reject::new(Code::BadFrame, problem)
}

/// All fields that any type of frame reads.
#[derive(Deserialize)]
struct Fields<'a> {
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
}

/// A field's text, if the field is there; `null` is a value like any other.
type Raw<'a> = Option<&'a RawValue>;

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Raw<'de>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Fields<'_> {
    fn frame(&self, cid: Option<&Cid>) -> Result<ClientFrame, Reject> {
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
            "ping" => ClientFrame::Ping,
            other => return Err(unknown_type(other)),
        })
    }

    fn cid(&self) -> Result<Option<Cid>, Reject> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> ClientFrame {
        Parsed::read(text).frame.unwrap_or_else(|reject| panic!("{text}: {}", reject.message))
    }

    fn reject(text: &str) -> Reject {
        Parsed::read(text).frame.expect_err(text)
    }

    #[test]
    fn a_body_stays_the_text_it_was() {
        for body in ["1e400", "{\"b\":1,\"a\":2, \"b\":3}", "\"\\u0000\"", "12345678901234567890123", "null", "[ 1 ]"] {
            let text = format!(r#"{{"type":"signal","to":"b","body":{body}}}"#);
            let ClientFrame::Signal { body: read, .. } = frame(&text) else { panic!("{text}") };
            assert_eq!(&*read, body);
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_an_error_however_it_is_spelt() {
        for text in [
            r#"{"type":"send","cid":"1","to":"b","to":"c","body":1}"#,
            r#"{"type":"send","cid":"1","to":"b","\u0074o":"c","body":1}"#,
            r#"{"type":"ping","type":"send"}"#,
        ] {
            assert_eq!(reject(text).code, Code::BadFrame, "{text}");
            assert!(reject(text).message.contains("duplicate field"), "{text}");
        }
    }

    #[test]
    fn fields_of_other_types_and_of_none_are_ignored() {
        assert_eq!(frame(r#"{"type":"ping","room":5,"from":"eve","To":1}"#), ClientFrame::Ping);
    }

    #[test]
    fn a_cursor_that_cannot_be_is_as_if_it_were_not_there() {
        let text =
            r#"{"type":"hello","cursors":{"a":7,"b":-1,"c":"7","d":1.5,"e f":1,"g":null,"h":99999999999999999999}}"#;
        let ClientFrame::Hello(hello) = frame(text) else { panic!("{text}") };
        assert_eq!(hello.cursors, HashMap::from([("a".parse().unwrap(), 7)]));
        assert_eq!(reject(r#"{"type":"hello","cursors":[7]}"#).code, Code::BadField);
    }

    #[test]
    fn an_error_names_the_field_and_what_would_be_right() {
        for (text, part) in [
            ("", "one JSON object"),
            ("[1]", "one JSON object"),
            ("{", "not JSON"),
            ("{}", "missing field `type`"),
            (r#"{"type":"dance"}"#, "\"dance\" is not a frame"),
            (r#"{"type":"send","to":"b","body":1}"#, "cid: is missing"),
            (r#"{"type":"send","cid":"1","body":1}"#, "either room, or to"),
            (r#"{"type":"send","cid":"1","room":"a b","body":1}"#, "room: room id must be 1 to 64"),
            (r#"{"type":"send","cid":"1","room":"a"}"#, "body: is missing"),
            (r#"{"type":"ack","room":"a","seq":"7"}"#, "seq: invalid type"),
            (r#"{"type":"ack","room":"a","seq":-7}"#, "seq: invalid value"),
            (r#"{"type":"create","room":"42"}"#, "at least one letter"),
            (r#"{"type":"history","room":"a","before":1,"after":2}"#, "not both"),
            (r#"{"type":"rooms","limit":0}"#, "at least 1"),
        ] {
            assert!(reject(text).message.contains(part), "{text}: {}", reject(text).message);
        }
    }

    #[test]
    fn an_error_of_a_frame_with_a_cid_carries_it() {
        let parsed = Parsed::read(r#"{"type":"ack","cid":"7"}"#);
        assert_eq!(parsed.cid.map(|cid| cid.to_string()), Some("7".to_owned()));
        assert!(parsed.frame.is_err());
    }

    #[test]
    fn a_body_at_the_limit_passes_and_one_beyond_does_not() {
        let body = |bytes: usize| format!(r#"{{"type":"signal","to":"b","body":"{}"}}"#, "x".repeat(bytes - 2));
        assert!(Parsed::read(&body(MAX_BODY_BYTES)).frame.is_ok());
        assert_eq!(reject(&body(MAX_BODY_BYTES + 1)).code, Code::TooLarge);
    }

    #[test]
    fn a_null_cid_is_none_and_a_number_is_refused() {
        assert_eq!(Parsed::read(r#"{"type":"ping","cid":null}"#).cid, None);
        assert_eq!(reject(r#"{"type":"ping","cid":7}"#).code, Code::BadField);
    }
}
