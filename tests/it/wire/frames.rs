//! What is no frame, no message, no WebSocket: answered where it can be, and ended with a code where it cannot.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use super::raw::{CLOSE, PING, PONG, Raw, TEXT, frame, header};
use super::resident_kib;
use crate::support::client::Client;
use crate::support::server::Server;

#[tokio::test]
async fn what_cannot_be_done_is_answered_and_the_connection_lives() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let deep = format!("{{\"type\":\"ping\",\"x\":{}}}", "[".repeat(30_000));
    for (text, code) in [
        ("", "bad_frame"),
        ("{", "bad_frame"),
        ("{}", "bad_frame"),
        ("[]", "bad_frame"),
        ("[{\"type\":\"ping\"}]", "bad_frame"),
        ("null", "bad_frame"),
        ("\"ping\"", "bad_frame"),
        ("{\"type\":\"ping\"}{\"type\":\"ping\"}", "bad_frame"),
        ("{\"type\":\"ping\",}", "bad_frame"),
        ("{\"type\":7}", "bad_frame"),
        ("{\"type\":null}", "bad_frame"),
        ("{\"type\":\"ping\",\"type\":\"ping\"}", "bad_frame"),
        ("{\"type\":\"send\",\"to\":\"b\",\"to\":\"c\",\"cid\":\"1\",\"body\":1}", "bad_frame"),
        (deep.as_str(), "bad_frame"),
        ("{\"type\":\"Ping\"}", "unknown_type"),
        ("{\"type\":\"welcome\"}", "unknown_type"),
        ("{\"type\":\"\"}", "unknown_type"),
        ("{\"type\":\"send\",\"room\":\"r\",\"body\":1}", "bad_field"),
        ("{\"type\":\"send\",\"cid\":\"\",\"room\":\"r\",\"body\":1}", "bad_field"),
        ("{\"type\":\"send\",\"cid\":\"1\",\"room\":\"r\",\"to\":\"b\",\"body\":1}", "bad_field"),
        ("{\"type\":\"send\",\"cid\":\"1\",\"room\":\"r\"}", "bad_field"),
        ("{\"type\":\"send\",\"cid\":\"1\",\"to\":7,\"body\":1}", "bad_field"),
        ("{\"type\":\"send\",\"cid\":\"1\",\"to\":\"\",\"body\":1}", "bad_field"),
        ("{\"type\":\"ack\",\"room\":\"r\",\"seq\":\"1\"}", "bad_field"),
        ("{\"type\":\"ack\",\"room\":\"r\",\"seq\":-1}", "bad_field"),
        ("{\"type\":\"ack\",\"room\":\"r\",\"seq\":1.5}", "bad_field"),
        ("{\"type\":\"ack\",\"room\":\"r\",\"seq\":99999999999999999999}", "bad_field"),
        ("{\"type\":\"history\",\"room\":\"r\",\"limit\":0}", "bad_field"),
        ("{\"type\":\"add\",\"room\":\"r\",\"users\":\"bob\"}", "bad_field"),
        ("{\"type\":\"create\",\"room\":\"42\"}", "bad_field"),
        ("{\"type\":\"history\",\"room\":\"r\",\"after\":18446744073709551615}", "not_found"),
    ] {
        alice.send_raw(Message::text(text)).await;
        let answer = alice.next_frame().await;
        assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!(code)), "{text:.80}: {answer}");
    }
    alice.ask_for("pong", json!({"type": "ping"})).await;
}

#[tokio::test]
async fn the_largest_of_everything_passes_and_one_byte_more_does_not() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    alice.create("team", &[]).await;
    let body = |bytes: usize| json!({"type": "send", "room": "team", "body": "x".repeat(bytes - 2)});
    assert_eq!(alice.ask(body(16_384)).await["type"], "sent");
    assert_eq!(alice.ask(body(16_385)).await["code"], "too_large");
    let frame = |bytes: usize| {
        let rest = r#"{"type":"ping","cid":"p","x":""}"#;
        Message::text(rest.replace("\"x\":\"", &format!("\"x\":\"{}", "x".repeat(bytes - rest.len()))))
    };
    alice.send_raw(frame(65_536)).await;
    assert_eq!(alice.expect("pong").await["cid"], "p");
    alice.send_raw(frame(65_537)).await;
    alice.expect_close(1009).await;
}

/// Bytes that no client may send, with the codes that may end the connection.
fn faults() -> Vec<(&'static str, Vec<u8>, &'static [u16])> {
    let unmasked = [&[TEXT, 2][..], b"{}"].concat();
    let text = |bytes: &[u8]| frame(TEXT, bytes);
    let in_fragments = |first: &[u8], rest: &[u8]| [frame(0x01, first), frame(0x80, rest)].concat();
    vec![
        ("binary", frame(0x82, b"{}"), &[1003]),
        ("binary in fragments", [frame(0x02, b"{"), frame(0x80, b"}")].concat(), &[1003]),
        ("not UTF-8", text(&[0xc3, 0x28]), &[1007]),
        ("a surrogate", text(&[0xed, 0xa0, 0x80]), &[1007]),
        ("a letter cut short", text(&[0xf0, 0x9f, 0x92]), &[1007]),
        ("a letter cut short, in fragments", in_fragments(&[0xf0, 0x9f], &[0x92]), &[1007]),
        ("a wrong continuation, in fragments", in_fragments(&[0xc3], &[0x28]), &[1007]),
        ("reserved data opcode", frame(0x83, b"{}"), &[1002]),
        ("reserved control opcode", frame(0x8b, b""), &[1002]),
        ("reserved bit 1", frame(0xc1, b"{}"), &[1002]),
        ("reserved bit 2", frame(0xa1, b"{}"), &[1002]),
        ("reserved bit 3", frame(0x91, b"{}"), &[1002]),
        ("not masked", unmasked, &[1002]),
        ("a large ping", frame(PING, &[0; 126]), &[1002]),
        ("a ping in fragments", frame(0x09, b""), &[1002]),
        ("a continuation of nothing", frame(0x80, b"{}"), &[1002]),
        ("a text within a text", [frame(0x01, b"{"), frame(TEXT, b"}")].concat(), &[1002]),
        ("2^31 bytes", header(TEXT, 1 << 31), &[1009]),
        ("2^32 bytes", header(TEXT, 1 << 32), &[1009]),
        ("2^63 - 1 bytes", header(TEXT, (1 << 63) - 1), &[1009]),
        ("2^63 bytes", header(TEXT, 1 << 63), &[1002, 1009]),
        ("2^64 - 1 bytes", header(TEXT, u64::MAX), &[1002, 1009]),
        ("too large in fragments", [frame(0x01, &[b' '; 65_536]), frame(0x80, b" ")].concat(), &[1009]),
        ("a close of one byte", frame(CLOSE, &[3]), &[1002]),
        ("a close whose reason is not UTF-8", frame(CLOSE, &[3, 0xe8, 0xc3, 0x28]), &[1007]),
        ("a close that is too large", frame(CLOSE, &[3; 126]), &[1002]),
    ]
}

#[tokio::test]
async fn broken_bytes_end_that_connection_with_a_code_of_the_table_and_no_other() {
    let server = Server::start(&[]).await;
    let mut alice = Client::connect(&server, "alice").await;
    let base = resident_kib(&server);
    for (name, bytes, codes) in faults() {
        for begun in [true, false] {
            let raw = Raw::open(server.addr()).await;
            let mut raw = match begun {
                true => raw.begin(server.addr(), "eve", "{\"type\":\"hello\"}").await,
                false => raw.upgrade(server.addr(), "eve").await,
            };
            raw.write(&bytes).await;
            let (close, proper) = raw.ended().await;
            let code = close.map(|(code, _)| code);
            assert!(code.is_some_and(|code| codes.contains(&code)), "{name}: {code:?}");
            assert!(proper, "{name}: reset");
        }
    }
    server.until_metric("minichat_connections", |open| open == 1).await;
    assert!(resident_kib(&server) < base + 16 * 1024, "{base} {}", resident_kib(&server));
    alice.ask_for("pong", json!({"type": "ping"})).await;
}

#[tokio::test]
async fn a_close_is_answered_whatever_its_code() {
    let server = Server::start(&[]).await;
    for (said, answered) in [
        (1000, 1000),
        (1001, 1001),
        (3000, 3000),
        (4999, 4999),
        (999, 1002),
        (1004, 1002),
        (1005, 1002),
        (1006, 1002),
        (5000, 1002),
    ] {
        for begun in [true, false] {
            let raw = Raw::open(server.addr()).await;
            let mut raw = match begun {
                true => raw.begin(server.addr(), "eve", "{\"type\":\"hello\"}").await,
                false => raw.upgrade(server.addr(), "eve").await,
            };
            raw.write(&frame(CLOSE, &u16::to_be_bytes(said))).await;
            assert_eq!(raw.close_code().await, Some(answered), "{said}");
        }
    }
    server.until_metric("minichat_connections", |open| open == 0).await;
}

#[tokio::test]
async fn the_close_reaches_a_client_that_is_still_sending() {
    let server = Server::start(&[]).await;
    let raw = Raw::session(server.addr(), "eve").await;
    let (read, mut write) = raw.into_stream().into_split();
    let bytes = frame(TEXT, &vec![b' '; 4 << 20]);
    let sending = tokio::spawn(async move {
        let sent = write.write_all(&bytes).await;
        (write, sent)
    });
    let (write, sent) = {
        let mut waste = Vec::new();
        let mut read = read;
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut waste).await.expect("no reset");
        let (write, sent) = sending.await.unwrap();
        let text = String::from_utf8_lossy(&waste).into_owned();
        assert!(text.contains("frame too big"), "{text}");
        (read.reunite(write).unwrap(), sent)
    };
    sent.expect("all was taken");
    drop(Raw::from_stream(write));
}

#[tokio::test]
async fn fragments_make_one_message_wherever_they_are_cut_and_pings_may_come_between() {
    let server = Server::start(&[]).await;
    let mut raw = Raw::session(server.addr(), "alice").await;
    let text = "{\"type\":\"ping\",\"cid\":\"ä€😀\"}".as_bytes();
    for cut in 1..text.len() {
        let (one, two) = text.split_at(cut);
        raw.write(&[frame(0x01, one), frame(PING, b"between"), frame(0x80, two)].concat()).await;
        assert_eq!(raw.read().await, Some((PONG, b"between".to_vec())), "{cut}");
        raw.text_with("ä€😀").await;
    }
    let mut bytes = frame(0x01, &text[..1]);
    text[1..text.len() - 1].iter().for_each(|&byte| bytes.extend(frame(0, &[byte])));
    bytes.extend(frame(0x80, &text[text.len() - 1..]));
    raw.write(&bytes).await;
    raw.text_with("ä€😀").await;
}

#[tokio::test]
async fn a_flood_of_tiny_fragments_costs_no_more_than_the_largest_message() {
    let server = Server::start(&[]).await;
    let base = resident_kib(&server);
    let mut raws = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::session(server.addr(), "eve").await;
        raw.write(&frame(0x01, b"{")).await;
        raw.write(&frame(0, b" ").repeat(60_000)).await;
        raw.write(&frame(0, b"").repeat(20_000)).await;
        raws.push(raw);
    }
    let mut alice = Client::connect(&server, "alice").await;
    alice.ask_for("pong", json!({"type": "ping"})).await;
    for raw in &mut raws {
        raw.write(&frame(0, b" ").repeat(10_000)).await;
        assert_eq!(raw.close_code().await, Some(1009));
    }
    assert!(resident_kib(&server) < base + 16 * 1024, "{base} {}", resident_kib(&server));
}

#[tokio::test]
async fn a_ping_is_answered_with_what_it_said() {
    let server = Server::start(&[]).await;
    let mut raw = Raw::session(server.addr(), "alice").await;
    for payload in [&b""[..], b"x", &[0xff; 125]] {
        raw.write(&frame(PING, payload)).await;
        assert_eq!(raw.read().await, Some((PONG, payload.to_vec())));
    }
    raw.write(&frame(PONG, b"nobody asked")).await;
    raw.write(&frame(TEXT, b"{\"type\":\"ping\"}")).await;
    assert_eq!(raw.read().await, Some((TEXT, b"{\"type\":\"pong\"}".to_vec())));
}

#[tokio::test]
async fn the_largest_history_fits_one_frame() {
    let server = Server::start(&[]).await;
    // All of it is longer on the wire than in the store, or as long as it may be.
    let (user, room) = ("\"".repeat(128), "r".repeat(64));
    let mut alice = Client::connect(&server, &user).await;
    alice.create(&room, &[]).await;
    let mut cids = Vec::new();
    for index in 0..400 {
        let cid = format!("{index:064}").replace('0', "\"");
        alice.send_with(&cid, &room, "x".repeat(1280)).await;
        cids.push(cid);
    }
    for cid in &cids {
        alice.expect_sent(cid).await;
    }
    let mut seen = 0;
    while seen < 401 {
        let page: Vec<Value> = alice.history(&room, seen).await;
        assert_eq!(page[0]["seq"], seen + 1);
        seen += page.len() as u64;
    }
}
