//! What NATS says: lines of text, some with a payload after them, in frames that end anywhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::{Foreign, Heard, Target};
use crate::mark::Mark;

/// How long servers are given to tell each other of subscriptions. They do not say when they have.
pub(super) const SPREADS_IN: Duration = Duration::from_secs(1);

/// The longest line, in bytes. The longest that a server sends is the one it introduces itself with.
const LONGEST_LINE: usize = 32 * 1024;

/// The longest payload, in bytes: what a server allows.
const LONGEST_PAYLOAD: usize = 1 << 20;

const LINE_END: &[u8] = b"\r\n";

const PONG: &[u8] = b"PONG\r\n";

/// The subject of a user or a room.
pub(super) fn subject(target: Target<'_>) -> String {
    match target {
        Target::User(name) => format!("u.{name}"),
        Target::Room(name) => format!("r.{name}"),
    }
}

/// Introduces a user and subscribes to what is for it. The server answers the `PING` when it has done all of that.
pub(super) fn connect(user: &str, rooms: &[Arc<str>], token: Option<&str>) -> String {
    let mut options = serde_json::json!({
        "verbose": false, "pedantic": false, "tls_required": false, "name": user, "lang": "load", "version": "1",
        "protocol": 1,
        // Who writes gets no copy, as with minichat.
        "echo": false,
    });
    if let Some(token) = token {
        options["auth_token"] = token.into();
    }
    let mut text = format!("CONNECT {options}\r\n");
    let targets = rooms.iter().map(|room| Target::Room(room));
    for (number, target) in [Target::User(user)].into_iter().chain(targets).enumerate() {
        // Writing into memory does not fail.
        let _ = write!(text, "SUB {} {}\r\n", subject(target), number + 1);
    }
    text + "PING\r\n"
}

/// Writes a message with `payload` bytes.
pub(super) fn write_message(out: &mut Vec<u8>, subject: &str, mark: Mark, payload: usize) {
    // Writing into memory does not fail.
    let _ = write!(out, "PUB {subject} {payload}\r\n");
    mark.write(out);
    out.resize(out.len() + payload.saturating_sub(Mark::LEN), b'x');
    out.extend_from_slice(LINE_END);
}

/// The first message of `bytes` and how many bytes it takes; none while it is not here as a whole.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Heard<'_>, usize)>, Foreign> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return if bytes.len() > LONGEST_LINE { Err(Foreign) } else { Ok(None) };
    };
    let (line, start) = (bytes[..end].strip_suffix(b"\r").ok_or(Foreign)?, end + 1);
    let heard = match line {
        [b'M', b'S', b'G', b' ', arguments @ ..] => return message(arguments, bytes, start),
        [b'P', b'I', b'N', b'G'] => Heard::Ping(PONG),
        [b'P', b'O', b'N', b'G'] => Heard::Welcome,
        [b'-', b'E', b'R', b'R', b' ', text @ ..] => Heard::Error(quoted(text)),
        [b'+', b'O', b'K'] | [b'I', b'N', b'F', b'O', ..] => Heard::Other,
        _ => return Err(Foreign),
    };
    Ok(Some((heard, start)))
}

/// A message whose payload begins at `start`. Its arguments are subject, subscription, where to reply, and length.
fn message<'a>(arguments: &[u8], bytes: &'a [u8], start: usize) -> Result<Option<(Heard<'a>, usize)>, Foreign> {
    let length = memchr::memrchr(b' ', arguments).and_then(|blank| number(&arguments[blank + 1..]));
    let end = start + length.filter(|length| *length <= LONGEST_PAYLOAD).ok_or(Foreign)?;
    let Some(after) = bytes.get(end..end + LINE_END.len()) else { return Ok(None) };
    if after != LINE_END {
        return Err(Foreign);
    }
    let heard = Mark::read(&bytes[start..end]).map_or(Heard::Other, Heard::Signal);
    Ok(Some((heard, end + LINE_END.len())))
}

/// The number that `digits` are. One with more of them than a payload can have bytes is none.
fn number(digits: &[u8]) -> Option<usize> {
    if !(1..=9).contains(&digits.len()) {
        return None;
    }
    let value = |digit: &u8| digit.is_ascii_digit().then(|| usize::from(digit - b'0'));
    digits.iter().try_fold(0, |sum, digit| Some(sum * 10 + value(digit)?))
}

/// What stands in single quotes.
fn quoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { flow: 7, number: 0xFEDC, at: u64::MAX - 1 };

    /// What a server makes of a message that was written for it.
    fn delivered(payload: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_message(&mut out, "u.bob", MARK, payload);
        let body = out.strip_prefix(format!("PUB u.bob {payload}\r\n").as_bytes()).unwrap();
        assert_eq!(body.len(), payload + 2);
        [format!("MSG u.bob 1 {payload}\r\n").as_bytes(), body].concat()
    }

    /// All that `pieces` hold, one after another, with what is cut kept for the next.
    fn read_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
        let (mut all, mut left) = (Vec::new(), Vec::new());
        for piece in pieces {
            left.extend_from_slice(piece);
            while let Some((heard, used)) = read(&left).unwrap() {
                all.push(format!("{heard:?}"));
                left.drain(..used);
            }
        }
        (all, left)
    }

    #[test]
    fn messages_are_read_wherever_frames_cut_them() {
        let info = b"INFO {\"server_id\":\"N\",\"headers\":true} \r\n";
        let bytes = [&info[..], b"+OK\r\n", b"PONG\r\n", &delivered(128), b"PING\r\n", &delivered(33)].concat();
        let (whole, left) = read_pieces([&bytes[..]].into_iter());
        let signal = format!("{:?}", Heard::Signal(MARK));
        let ping = format!("{:?}", Heard::Ping(PONG));
        assert_eq!(
            (whole.as_slice(), left.len()),
            (&["Other", "Other", "Welcome", &signal, &ping, &signal].map(String::from)[..], 0)
        );
        for length in 1..bytes.len() {
            assert_eq!(read_pieces(bytes.chunks(length)), (whole.clone(), vec![]), "in pieces of {length}");
            let (one, other) = bytes.split_at(length);
            assert_eq!(read_pieces([one, other].into_iter()), (whole.clone(), vec![]), "cut at {length}");
        }
    }

    #[test]
    fn a_payload_may_hold_what_looks_like_the_end_of_a_line() {
        let bytes = b"MSG r.1 2 reply.to 6\r\n\r\nMSG \r\nPONG\r\n";
        assert_eq!(read(bytes), Ok(Some((Heard::Other, 30))));
        assert_eq!(read(&bytes[30..]), Ok(Some((Heard::Welcome, 6))));
        assert_eq!(read(b"MSG u.bob 1 0\r\n\r\n"), Ok(Some((Heard::Other, 17))));
    }

    #[test]
    fn a_refusal_is_told_without_its_quotes() {
        let line = b"-ERR 'Authorization Violation'\r\n";
        assert_eq!(read(line), Ok(Some((Heard::Error(b"Authorization Violation"), line.len()))));
    }

    #[test]
    fn what_is_none_of_nats_is_not_waited_for() {
        let lines: [&[u8]; 5] =
            [b"HELLO\r\n", b"PING\n", b"MSG a 1 x\r\n", b"MSG a 1 \r\n", b"MSG a 1 18446744073709551616\r\n"];
        for line in lines {
            assert_eq!(read(line), Err(Foreign), "{}", line.escape_ascii());
        }
        assert_eq!(read(b"MSG a 1 2\r\nxyz\r\n"), Err(Foreign), "longer than it says");
        assert_eq!(read(&[b'x'; LONGEST_LINE + 1]), Err(Foreign), "a line without end");
    }

    #[test]
    fn a_user_subscribes_to_its_name_and_its_rooms() {
        let text = connect("alice", &["r1".into(), "r2".into()], Some("secret"));
        let (options, rest) = text.strip_prefix("CONNECT ").unwrap().split_once("\r\n").unwrap();
        let options: serde_json::Value = serde_json::from_str(options).unwrap();
        assert_eq!((&options["echo"], &options["auth_token"]), (&false.into(), &"secret".into()));
        assert_eq!(rest, "SUB u.alice 1\r\nSUB r.r1 2\r\nSUB r.r2 3\r\nPING\r\n");
    }
}
