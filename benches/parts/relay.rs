//! Items between servers: protobuf in and out.

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use minichat::wire::{Item, RelayRequest};
use prost::Message;

/// A stream message of so many items with so many recipients each.
fn request(items: usize, recipients: usize) -> RelayRequest {
    let item = |id: usize| Item {
        id: id as u64,
        sender: "user-1".into(),
        frame: Bytes::from(vec![b'x'; 180]),
        recipients: (0..recipients).map(|number| format!("user-{number}")).collect(),
        sent_at_ms: 1_767_225_601_000,
        ..Item::default()
    };
    RelayRequest { items: (0..items).map(item).collect(), ..RelayRequest::default() }
}

/// Items and recipients.
const SHAPES: [(usize, usize); 3] = [(1, 1), (32, 1), (1, 50)];

#[divan::bench(args = SHAPES)]
fn encode(bencher: Bencher<'_, '_>, (items, recipients): (usize, usize)) {
    let request = request(items, recipients);
    bencher.counter(ItemsCount::new(items)).bench(|| black_box(&request).encode_to_vec());
}

#[divan::bench(args = SHAPES)]
fn decode(bencher: Bencher<'_, '_>, (items, recipients): (usize, usize)) {
    let bytes = Bytes::from(request(items, recipients).encode_to_vec());
    bencher.counter(ItemsCount::new(items)).bench(|| RelayRequest::decode(black_box(&bytes).clone()));
}
