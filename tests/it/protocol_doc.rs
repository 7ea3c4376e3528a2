//! `docs/protocol.md` says what the code does: its examples are read and compared, its tables are those of the code.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::collections::{BTreeMap, BTreeSet};

use minichat::ids::{Cid, MessageId, RoomId, ServerId, SessionId, UserId};
use minichat::protocol::{
    ClientFrame, Close, Code, MAX_BODY_BYTES, MAX_FRAME_BYTES, MAX_PAGE, MessageView, Parsed, PushToken, ReceiptView,
    Reject, Return, RoomInfo, ServerFrame, TracePath,
};
use minichat::store::{MAX_MEMBERS, MAX_TOKENS};
use serde_json::{Value, json};

const DOC: &str = include_str!("../../docs/protocol.md");
const CLIENT: &str = include_str!("../../web/minichat.js");

/// Names every variant of an enum once, and gives the list of the names. A variant that is missing does not compile.
macro_rules! kinds {
    ($all:ident, $kind:ident($frame:ty) { $($variant:pat => $name:literal,)+ }) => {
        const $all: &[&str] = &[$($name),+];

        fn $kind(frame: &$frame) -> &'static str {
            match frame {
                $($variant => $name,)+
            }
        }
    };
}

kinds!(CLIENT_KINDS, client_kind(ClientFrame) {
    ClientFrame::Hello(_) => "hello",
    ClientFrame::Send { .. } => "send",
    ClientFrame::Signal { .. } => "signal",
    ClientFrame::Typing(_) => "typing",
    ClientFrame::Ack(_) => "ack",
    ClientFrame::Read(_) => "read",
    ClientFrame::History { .. } => "history",
    ClientFrame::Create { .. } => "create",
    ClientFrame::Join { .. } => "join",
    ClientFrame::Leave(_) => "leave",
    ClientFrame::Add(..) => "add",
    ClientFrame::Remove(..) => "remove",
    ClientFrame::Rooms { .. } => "rooms",
    ClientFrame::Members { .. } => "members",
    ClientFrame::Presence(_) => "presence",
    ClientFrame::Settings { .. } => "settings",
    ClientFrame::DeviceToken(_) => "device_token",
    ClientFrame::Ping => "ping",
});

kinds!(SERVER_KINDS, server_kind(ServerFrame<'_>) {
    ServerFrame::Welcome { .. } => "welcome",
    ServerFrame::Sent { .. } => "sent",
    ServerFrame::Message(_) => "message",
    ServerFrame::Signal { .. } => "signal",
    ServerFrame::Typing { .. } => "typing",
    ServerFrame::Presence { .. } => "presence",
    ServerFrame::Receipt { .. } => "receipt",
    ServerFrame::Room { .. } => "room",
    ServerFrame::Rooms { .. } => "rooms",
    ServerFrame::Members { .. } => "members",
    ServerFrame::History { .. } => "history",
    ServerFrame::Error { .. } => "error",
    ServerFrame::Trace { .. } => "trace",
    ServerFrame::Closing { .. } => "closing",
    ServerFrame::Ok { .. } => "ok",
    ServerFrame::Pong { .. } => "pong",
});

/// What the document says of one frame.
#[derive(Debug, Default)]
struct Entry {
    examples: Vec<&'static str>,
    fields: BTreeSet<&'static str>,
}

/// The text of a `##` section.
fn section(title: &str) -> &'static str {
    let start = DOC.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no section {title:?}")) + 4;
    let rest = &DOC[start..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// The frames of a section, by the names in its `###` headings.
fn entries(title: &str) -> BTreeMap<&'static str, Entry> {
    let parts = section(title).split("\n### ").skip(1);
    parts.map(|part| (in_backticks(part).expect("a heading names its frame"), entry(part))).collect()
}

fn entry(part: &'static str) -> Entry {
    let blocks = part.split("```json\n").skip(1);
    Entry {
        examples: blocks.map(|block| block.split("\n```").next().unwrap()).collect(),
        fields: rows(part).iter().map(|row| in_backticks(row[0]).expect("a field in backticks")).collect(),
    }
}

fn in_backticks(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

/// The cells of each row of the tables in `text`, without the head.
fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let mut rows: Vec<_> = cells.collect();
    if let Some(rule) = rows.iter().position(|row| row[0].starts_with("---")) {
        rows.drain(..=rule);
    }
    rows
}

fn names(kinds: &[&'static str]) -> BTreeSet<&'static str> {
    kinds.iter().copied().collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).filter(|key| *key != "type").collect()
}

#[test]
fn every_frame_is_in_the_document_and_no_other() {
    assert_eq!(entries("Client frames").into_keys().collect::<BTreeSet<_>>(), names(CLIENT_KINDS));
    assert_eq!(entries("Server frames").into_keys().collect::<BTreeSet<_>>(), names(SERVER_KINDS));
}

#[test]
fn every_client_example_is_the_frame_it_claims_to_be() {
    for (name, entry) in entries("Client frames") {
        assert!(!entry.examples.is_empty(), "{name} has no example");
        for example in entry.examples {
            let frame = Parsed::read(example).frame.unwrap_or_else(|reject| panic!("{name}: {}", reject.message));
            assert_eq!(client_kind(&frame), name, "{example}");
        }
    }
}

#[test]
fn the_fields_of_a_client_frame_are_those_that_the_code_reads() {
    let entries = entries("Client frames");
    let all: BTreeSet<&str> = entries.values().flat_map(|entry| &entry.fields).copied().collect();
    for (name, entry) in &entries {
        let example: Value = serde_json::from_str(entry.examples[0]).unwrap();
        let shown = entry.fields.iter().chain(&["cid"]).copied().collect();
        assert!(keys(&example).is_subset(&shown), "{name}: the example has a field that the table has not");
        // A body may be any JSON, and every frame may have a cid.
        for field in all.iter().filter(|field| !["body", "cid"].contains(field)) {
            let mut spoilt = example.clone();
            spoilt[field] = json!([0]);
            let read = Parsed::read(&spoilt.to_string()).frame.is_err();
            assert_eq!(read, entry.fields.contains(field), "{name}: is {field} a field of it?");
        }
    }
}

#[test]
fn the_server_examples_are_what_the_code_writes() {
    let entries = entries("Server frames");
    let mut shown: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (name, entry) in &entries {
        shown.insert(name, entry.examples.iter().map(|text| serde_json::from_str(text).unwrap()).collect());
    }
    let mut written: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (name, frame) in samples() {
        written.entry(name).or_default().push(frame);
    }
    assert_eq!(shown, written);
}

#[test]
fn the_fields_of_a_server_frame_are_those_that_the_code_writes() {
    for (name, entry) in entries("Server frames") {
        let examples: Vec<Value> = entry.examples.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let mut written: BTreeSet<&str> = examples.iter().flat_map(keys).collect();
        if name == "room" {
            // Only a direct chat has it, and that is never made by the frames that are answered with `room`.
            written.insert("peer");
        }
        assert_eq!(entry.fields, written, "{name}");
    }
}

#[test]
fn every_error_code_is_in_the_table_with_its_retry() {
    let shown: Vec<_> =
        rows(section("Error codes")).iter().map(|row| (in_backticks(row[0]).unwrap(), row[2])).collect();
    let retry = |code: &Code| code.retry_after_ms().map_or("no".to_owned(), |ms| format!("after {ms} ms"));
    let written: Vec<_> = Code::ALL.iter().map(|code| (code.name(), retry(code))).collect();
    let shown: Vec<_> = shown.into_iter().map(|(name, retry)| (name, retry.to_owned())).collect();
    assert_eq!(shown, written);
}

#[test]
fn every_close_code_is_in_the_table_with_its_return() {
    let row = |row: &Vec<&'static str>| (row[0].parse::<u16>().unwrap(), in_backticks(row[1]).unwrap(), row[3]);
    let shown: Vec<_> = rows(section("Close codes")).iter().map(row).collect();
    let written: Vec<_> = Close::ALL.iter().map(|close| (close.code(), close.reason(), words(*close))).collect();
    assert_eq!(shown, written);
}

fn words(close: Close) -> &'static str {
    match close.comes_back() {
        Return::Come => "at once",
        Return::Later => "later",
        Return::WithToken => "with a fresh token",
        Return::Never => "no",
    }
}

#[test]
fn the_javascript_client_obeys_the_table_of_close_codes() {
    let table = CLIENT.split("const CLOSES = {").nth(1).and_then(|rest| rest.split("};").next()).unwrap();
    let row = |line: &'static str| line.trim().trim_end_matches(',').split_once(": ");
    let shown: Vec<_> = table.lines().filter_map(row).collect();
    // What it does not name is "later" to it.
    let named = Close::ALL.iter().filter(|close| words(**close) != "later");
    let written: Vec<_> = named.map(|close| (close.code().to_string(), quoted(*close))).collect();
    let shown: Vec<_> = shown.into_iter().map(|(code, word)| (code.to_owned(), word.to_owned())).collect();
    assert_eq!(shown, written);
}

fn quoted(close: Close) -> String {
    format!("\"{}\"", words(close))
}

#[test]
fn the_bounds_are_those_of_the_code() {
    let shown: BTreeMap<_, _> = rows(DOC.split("\n## ").next().unwrap()).iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(shown["frame"], format!("{MAX_FRAME_BYTES} bytes"));
    assert_eq!(shown["`body`"], format!("{MAX_BODY_BYTES} bytes of JSON text"));
    assert_eq!(shown["entries of one page"], MAX_PAGE.to_string());
    assert_eq!(shown["members of a room"], MAX_MEMBERS.to_string());
    assert_eq!(shown["push token"], format!("1 to {} bytes, no control characters", PushToken::MAX_BYTES));
    assert_eq!(shown["push tokens of a user"], MAX_TOKENS.to_string());
}

/// The ids that the samples are made of.
struct Ids {
    alice: UserId,
    bob: UserId,
    team: RoomId,
    direct: RoomId,
    server: ServerId,
}

impl Ids {
    fn new() -> Self {
        Self {
            alice: "alice".parse().unwrap(),
            bob: "bob".parse().unwrap(),
            team: "team".parse().unwrap(),
            direct: "7163482910220288".parse().unwrap(),
            server: "local1".parse().unwrap(),
        }
    }

    /// A message of Bob's in the team.
    fn message(&self, id: u64, seq: u64, at: u64) -> MessageView<'_> {
        let id = MessageId(id);
        MessageView { room: &self.team, id, seq, from: &self.bob, at, body: None, event: None, users: &[], cid: None }
    }
}

/// One frame of each kind, and two of those with two forms, encoded and read back.
fn samples() -> Vec<(&'static str, Value)> {
    let ids = Ids::new();
    let mut samples = log_samples(&ids);
    samples.extend(room_samples(&ids));
    samples.extend(connection_samples(&ids));
    samples
}

fn sample(frame: &ServerFrame<'_>) -> (&'static str, Value) {
    (server_kind(frame), serde_json::from_str(frame.encode().as_str()).unwrap())
}

fn cid(text: &str) -> Cid {
    text.parse().unwrap()
}

fn log_samples(ids: &Ids) -> Vec<(&'static str, Value)> {
    let (sent, own, asked, other) = (cid("5f0c9a52-6d0e-4f0b-9d53-0f6f4a1e2b77"), cid("b7"), cid("h1"), "local2");
    let said = ids.message(7_163_482_910_221_235, 44, 1_767_225_601_000);
    let joined = ids.message(7_163_482_910_221_236, 45, 1_767_225_602_000);
    let past = ids.message(7_163_482_910_221_111, 41, 1_767_225_500_000);
    let dave = ["dave".parse().unwrap()];
    let (room, id) = (&ids.team, MessageId(7_163_482_910_221_234));
    let pointed = Parsed::read(r#"{"type":"signal","to":"bob","body":{"x":104,"y":33}}"#).frame;
    let Ok(ClientFrame::Signal { body: pointer, .. }) = pointed else { panic!("{pointed:?}") };
    vec![
        sample(&ServerFrame::Sent { cid: &sent, room, id, seq: 43, at: 1_767_225_600_000 }),
        sample(&ServerFrame::Message(MessageView { body: Some(r#"{"text":"Yes!"}"#), cid: Some(&own), ..said })),
        sample(&ServerFrame::Message(MessageView { from: &ids.alice, event: Some("joined"), users: &dave, ..joined })),
        sample(&ServerFrame::Signal { room: Some(room), from: &ids.bob, body: &pointer }),
        sample(&ServerFrame::Typing { room, user: &ids.bob }),
        sample(&ServerFrame::Presence { user: &ids.bob, online: Some(false), last_seen: Some(1_767_225_600_000) }),
        sample(&ServerFrame::Receipt { room, user: &ids.bob, delivered: Some(44), read: None }),
        sample(&ServerFrame::Receipt { room, user: &ids.alice, delivered: Some(44), read: Some(43) }),
        sample(&ServerFrame::History {
            cid: Some(&asked),
            room,
            messages: vec![MessageView { body: Some("\"Where is everyone?\""), ..past }],
            more: true,
        }),
        sample(&ServerFrame::Trace { room, seq: 44, origin: &other.parse().unwrap(), path: TracePath::Relay, ms: 3 }),
    ]
}

fn room_samples(ids: &Ids) -> Vec<(&'static str, Value)> {
    let team = RoomInfo {
        room: &ids.team,
        name: Some("The team"),
        peer: None,
        open: false,
        head: 1,
        since: 1,
        delivered: 0,
        read: 0,
        count: 3,
        muted: false,
    };
    let lobby = "lobby".parse().unwrap();
    let lobby = RoomInfo {
        room: &lobby,
        name: None,
        peer: None,
        open: true,
        head: 7,
        since: 3,
        delivered: 7,
        read: 5,
        count: 12,
        muted: true,
    };
    let direct = RoomInfo {
        room: &ids.direct,
        name: None,
        peer: Some(&ids.bob),
        open: false,
        head: 7,
        since: 1,
        delivered: 7,
        read: 5,
        count: 2,
        muted: false,
    };
    let carol = "carol".parse().unwrap();
    let users = [&ids.bob, &carol];
    let receipts =
        [ReceiptView { user: &ids.bob, delivered: 43, read: 41 }, ReceiptView { user: &carol, delivered: 12, read: 0 }];
    vec![
        sample(&ServerFrame::Room { cid: Some(&cid("c1")), info: team }),
        sample(&ServerFrame::Room { cid: Some(&cid("j1")), info: lobby }),
        sample(&ServerFrame::Rooms { cid: Some(&cid("r2")), rooms: vec![direct], more: false }),
        sample(&ServerFrame::Members {
            cid: Some(&cid("m1")),
            room: &ids.team,
            users: &users,
            receipts: &receipts,
            more: false,
        }),
    ]
}

fn connection_samples(ids: &Ids) -> Vec<(&'static str, Value)> {
    vec![
        sample(&ServerFrame::Welcome {
            user: &ids.alice,
            session: SessionId(7_163_482_910_220_001),
            server: &ids.server,
            ping_interval_ms: 25_000,
        }),
        sample(&ServerFrame::error(Some(&cid("c0b6a3de-8c53-4b2e-a3ab-7f1f0f2f9a10")), &Reject::busy())),
        sample(&ServerFrame::closing(Close::GoingAway, Some(1_200))),
        sample(&ServerFrame::Ok { cid: Some(&cid("l1")) }),
        sample(&ServerFrame::Pong { cid: Some(&cid("p1")) }),
    ]
}
