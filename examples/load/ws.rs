//! The client's side of WebSocket, no more than a load needs: frames out, whole frames in.
//!
//! A library would do, and would cost the generator several times as much: here nothing is allocated per frame.

use memchr::memmem;

/// A frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// What is said, as text or as bytes.
    Data(&'a [u8]),
    /// To be answered with the same payload.
    Ping(&'a [u8]),
    /// The end, with its code.
    Close(u16),
    /// Nothing to do for.
    Other,
}

/// Bytes that no server of ours sends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a WebSocket frame that a server of ours sends")]
pub(crate) struct Malformed;

/// A frame of the client: what it holds.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Kind {
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Pong = 0xA,
}

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The request that opens a socket.
pub(crate) fn request(host: &str, path: &str, token: Option<&str>) -> String {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    // The key guards browsers against servers that are none of WebSocket; a load needs no fresh one.
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: bG9hZCBnZW5lcmF0b3IhIQ==\r\nSec-WebSocket-Version: 13\r\n{authorization}\r\n"
    )
}

/// The answer to the request: its length once it is here as a whole, or what the server said in place of agreeing.
pub(crate) fn upgraded(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    if bytes.starts_with(b"HTTP/1.1 101") {
        return Ok(Some(end + 4));
    }
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Err(String::from_utf8_lossy(line).into_owned())
}

/// Appends a frame, masked with `mask`.
pub(crate) fn encode(out: &mut Vec<u8>, kind: Kind, payload: &[u8], mask: u32) {
    out.push(FINAL | kind as u8);
    match payload.len() {
        len @ 0..=125 => out.push(MASKED | len as u8),
        len @ 126..=0xFFFF => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    let mask = mask.to_be_bytes();
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    for chunk in out[start..].chunks_mut(4) {
        chunk.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// The first frame of `bytes` and how many bytes it takes; none while it is not here as a whole.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    if first & FINAL == 0 || second & MASKED != 0 {
        return Err(Malformed);
    }
    let Some((start, len)) = extent(bytes, second) else { return Ok(None) };
    let Some(payload) = bytes.get(start..start + len) else { return Ok(None) };
    let frame = match first & 0xF {
        0x1 | 0x2 => Frame::Data(payload),
        0x8 => Frame::Close(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code))),
        0x9 => Frame::Ping(payload),
        0xA => Frame::Other,
        _ => return Err(Malformed),
    };
    Ok(Some((frame, start + len)))
}

/// Where the payload begins, and its length.
fn extent(bytes: &[u8], second: u8) -> Option<(usize, usize)> {
    Some(match second {
        126 => (4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?).into()),
        127 => (10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?),
        len => (2, len.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let mut bytes = vec![0x81, 126, 0, 130];
        bytes.extend([b'x'; 130]);
        assert_eq!(decode(&bytes[..100]), Ok(None));
        bytes.extend([0x88, 2, 0x0F, 0xA1]);
        let (frame, used) = decode(&bytes).unwrap().unwrap();
        assert_eq!((frame, used), (Frame::Data(&[b'x'; 130]), 134));
        assert_eq!(decode(&bytes[used..]), Ok(Some((Frame::Close(4001), 4))));
        assert_eq!(decode(&[0x01, 0]), Err(Malformed), "a fragment");
    }

    #[test]
    fn what_is_masked_twice_is_as_before() {
        let (mut out, payload) = (Vec::new(), b"some text");
        encode(&mut out, Kind::Text, payload, 0x01020304);
        assert_eq!(out[..6], [0x81, 0x80 | 9, 1, 2, 3, 4]);
        let open: Vec<u8> =
            out[6..].iter().zip([1, 2, 3, 4].into_iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        assert_eq!(open, payload);
    }

    #[test]
    fn a_refusal_is_told_by_its_first_line() {
        assert_eq!(upgraded(b"HTTP/1.1 101 Switching Protocols\r\n\r\nrest"), Ok(Some(36)));
        assert_eq!(upgraded(b"HTTP/1.1 101 Sw"), Ok(None));
        assert_eq!(upgraded(b"HTTP/1.1 403 Forbidden\r\n\r\n"), Err("HTTP/1.1 403 Forbidden".into()));
    }
}
