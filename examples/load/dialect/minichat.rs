//! The frames of minichat's protocol, as text: written by hand, and read without a JSON parser, since the servers write the
//! fields of each frame in one order and without blanks.

use std::io::Write;
use std::sync::Arc;

use memchr::memmem;

use super::{Heard, LEAST_PAYLOAD, Target};
use crate::mark::Mark;

/// Reads a text frame.
pub(super) fn read(text: &[u8]) -> Heard<'_> {
    let Some(rest) = text.strip_prefix(b"{\"type\":\"") else { return Heard::Other };
    let kind = until_quote(rest);
    match kind {
        b"signal" => string(rest, b"\"body\":\"").and_then(Mark::read).map_or(Heard::Other, Heard::Signal),
        b"message" => entry(rest, b"\"body\":\"", |room, seq, mark| Heard::Message { room, seq, mark }),
        b"sent" => entry(rest, b"\"cid\":\"", |room, seq, mark| Heard::Sent { room, seq, mark }),
        b"welcome" => Heard::Welcome,
        b"room" => Heard::Room,
        b"error" => Heard::Error(string(rest, b"\"code\":\"").unwrap_or(b"?")),
        _ => Heard::Other,
    }
}

fn entry<'a>(text: &'a [u8], mark_in: &[u8], make: impl FnOnce(&'a [u8], u64, Option<Mark>) -> Heard<'a>) -> Heard<'a> {
    let (Some(room), Some(seq)) = (string(text, b"\"room\":\""), number(text, b"\"seq\":")) else {
        return Heard::Other;
    };
    make(room, seq, string(text, mark_in).and_then(Mark::read))
}

/// The text after `key`, up to the next quote.
fn string<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    Some(until_quote(&text[memmem::find(text, key)? + key.len()..]))
}

fn until_quote(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b'"', text).unwrap_or(text.len())]
}

fn number(text: &[u8], key: &[u8]) -> Option<u64> {
    let digits = text[memmem::find(text, key)? + key.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// Whom a flow is for, as the fields of a frame have it: `"to":"bob"` or `"room":"r1"`.
pub(super) fn target(target: Target<'_>) -> String {
    let (field, name) = match target {
        Target::User(name) => ("to", name),
        Target::Room(name) => ("room", name),
    };
    format!("\"{field}\":\"{name}\"")
}

/// Writes a `send` or a `signal` with a body of `payload` bytes.
pub(super) fn write_message(out: &mut Vec<u8>, durable: bool, target: &str, mark: Mark, payload: usize) {
    if durable {
        out.extend_from_slice(b"{\"type\":\"send\",\"cid\":\"");
        mark.write(out);
        out.extend_from_slice(b"\",");
    } else {
        out.extend_from_slice(b"{\"type\":\"signal\",");
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b",\"body\":\"");
    mark.write(out);
    out.resize(out.len() + payload.saturating_sub(LEAST_PAYLOAD), b'x');
    out.extend_from_slice(b"\"}");
}

/// A `hello` that says to have the first entry of these rooms.
pub(super) fn hello(rooms: &[Arc<str>]) -> String {
    let cursors: Vec<String> = rooms.iter().map(|room| format!("\"{room}\":1")).collect();
    format!("{{\"type\":\"hello\",\"cursors\":{{{}}}}}", cursors.join(","))
}

/// Writes an `ack`.
pub(super) fn write_ack(out: &mut Vec<u8>, room: &str, seq: u64) {
    // Writing into memory does not fail.
    let _ = write!(out, "{{\"type\":\"ack\",\"room\":\"{room}\",\"seq\":{seq}}}");
}

/// A `send` without a mark.
pub(super) fn first_message(target: &str) -> String {
    format!("{{\"type\":\"send\",\"cid\":\"first\",{target},\"body\":\"hello\"}}")
}

/// A `create` of a room.
pub(super) fn create(room: &str, members: &[String]) -> String {
    format!("{{\"type\":\"create\",\"room\":\"{room}\",\"members\":[\"{}\"]}}", members.join("\",\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { flow: 7, number: 0xFEDC, at: u64::MAX - 1 };

    #[test]
    fn a_message_has_the_payload_that_was_asked_for_and_its_mark_is_read_back() {
        let mut out = Vec::new();
        write_message(&mut out, true, &target(Target::Room("r1")), MARK, 128);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["body"].to_string().len(), 128);
        let cid = value["cid"].as_str().unwrap();
        let sent = format!("{{\"type\":\"sent\",\"cid\":\"{cid}\",\"room\":\"r1\",\"id\":\"9\",\"seq\":43,\"at\":1}}");
        assert_eq!(read(sent.as_bytes()), Heard::Sent { room: b"r1", seq: 43, mark: Some(MARK) });
        let body = &value["body"];
        let signal = format!("{{\"type\":\"signal\",\"from\":\"alice\",\"body\":{body}}}");
        assert_eq!(read(signal.as_bytes()), Heard::Signal(MARK));
        let message = format!(
            "{{\"type\":\"message\",\"room\":\"r1\",\"id\":\"9\",\"seq\":44,\"from\":\"a\",\"at\":1,\"body\":{body}}}"
        );
        assert_eq!(read(message.as_bytes()), Heard::Message { room: b"r1", seq: 44, mark: Some(MARK) });
    }

    #[test]
    fn what_is_none_of_ours_is_passed_over() {
        assert_eq!(read(b"{\"type\":\"signal\",\"from\":\"a\",\"body\":\"hi\"}"), Heard::Other);
        assert_eq!(read(b"{\"type\":\"error\",\"cid\":\"x\",\"code\":\"busy\"}"), Heard::Error(b"busy"));
        assert_eq!(read(b"[]"), Heard::Other);
    }
}
