//! Frames: JSON in and out.

use divan::{Bencher, black_box};
use minichat::ids::{Cid, MessageId, RoomId, UserId};
use minichat::protocol::{Frame, MessageView, Parsed, ServerFrame};

use crate::support::body;

fn message(room: &RoomId, from: &UserId, body: &str) -> Frame {
    let view = MessageView {
        room,
        id: MessageId(7_163_482_910_221_235),
        seq: 44,
        from,
        at: 1_767_225_601_000,
        body: Some(body),
        event: None,
        users: &[],
        cid: None,
    };
    ServerFrame::Message(view).encode()
}

#[divan::bench]
fn read_signal(bencher: Bencher<'_, '_>) {
    let text = format!(r#"{{"type":"signal","to":"user-4711","body":{}}}"#, body());
    bencher.bench(|| Parsed::read(black_box(&text)));
}

#[divan::bench]
fn read_send(bencher: Bencher<'_, '_>) {
    let text =
        format!(r#"{{"type":"send","cid":"5f0c9a52-6d0e-4f0b-9d53-0f6f4a1e2b77","room":"team","body":{}}}"#, body());
    bencher.bench(|| Parsed::read(black_box(&text)));
}

#[divan::bench]
fn encode_message(bencher: Bencher<'_, '_>) {
    let (room, from, body) = ("team".parse().expect("a room"), "user-4711".parse().expect("a user"), body());
    bencher.bench(|| message(black_box(&room), &from, &body));
}

#[divan::bench]
fn mark_for_the_senders_sessions(bencher: Bencher<'_, '_>) {
    let (room, from) = ("team".parse().expect("a room"), "user-4711".parse().expect("a user"));
    let frame = message(&room, &from, &body());
    let cid: Cid = "5f0c9a52-6d0e-4f0b-9d53-0f6f4a1e2b77".parse().expect("a cid");
    bencher.bench(|| black_box(&frame).with_cid(&cid));
}
