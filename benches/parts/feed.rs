//! An entry that comes in its turn, to the sessions that are live in its room.

use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use minichat::feed::{Arrival, Feed};
use minichat::ids::{MessageId, RoomId, ServerId, UserId};
use minichat::lifecycle::Lifecycle;
use minichat::metrics::Metrics;
use minichat::protocol::Frame;
use minichat::rooms::Rooms;
use minichat::sessions::Sessions;

use crate::support::{drain, runtime, seats, sqlite};

#[divan::bench(args = [1, 20, 100], sample_size = 16)]
fn in_order(bencher: Bencher<'_, '_>, count: usize) {
    let runtime = runtime();
    let (store, _home) = sqlite(&runtime);
    let (own, sessions): (ServerId, _) = ("local1".parse().expect("an id"), Sessions::default());
    let (rooms, metrics) = (Rooms::new(store.clone()), Arc::new(Metrics::default()));
    let feed = Feed::new(own.clone(), sessions.clone(), rooms, store, Lifecycle::new(), metrics);
    let room: RoomId = "team".parse().expect("a room");
    let seats = seats(&sessions, count);
    let attachments: Vec<_> = seats.iter().map(|seat| feed.attach(&seat.session, &room, 1)).collect();
    attachments.iter().for_each(|attachment| _ = attachment.go_live(0, 0));
    let users: Vec<UserId> = seats.iter().map(|seat| seat.session.user.clone()).collect();

    let mut seq = 0;
    let frame = Frame::from_relay(vec![b'x'; 240].into()).expect("text");
    let sender: UserId = "elsewhere".parse().expect("a user");
    let bencher = bencher.counter(ItemsCount::new(count)).with_inputs(|| {
        drain(&seats);
        seq += 1;
        let (room, sender, frame) = (room.clone(), sender.clone(), frame.clone());
        Arrival::relayed(room, seq, MessageId(seq), 1, sender, None, None, frame, own.clone())
    });
    bencher.bench_local_values(|arrival| feed.arrive(arrival, users.iter()));
}
