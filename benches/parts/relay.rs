//! Items between servers: protobuf in and out.

use std::sync::Arc;

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use minichat::peers::{Batch, Item, Numbered};
use minichat::wire::RelayRequest;
use prost::Message;

/// A stream message of so many items with so many recipients each.
fn batch(items: usize, recipients: usize) -> Batch {
    let user = |number: usize| format!("user-{number}").parse().expect("a user's name");
    let item = |id: usize| Item {
        remembered: id as u32,
        ..Item::new(user(1), Bytes::from(vec![b'x'; 180]), (0..recipients).map(user).collect())
    };
    let numbered = |id: usize| Numbered { id: id as u64, sent_at_ms: 1_767_225_601_000, item: Arc::new(item(id)) };
    Batch { items: (0..items).map(numbered).collect(), ..Batch::default() }
}

fn encoded(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(batch.encoded_len());
    batch.encode(&mut bytes);
    bytes
}

/// Items and recipients.
const SHAPES: [(usize, usize); 3] = [(1, 1), (32, 1), (1, 50)];

#[divan::bench(args = SHAPES)]
fn encode(bencher: Bencher<'_, '_>, (items, recipients): (usize, usize)) {
    let batch = batch(items, recipients);
    bencher.counter(ItemsCount::new(items)).bench(|| encoded(black_box(&batch)));
}

#[divan::bench(args = SHAPES)]
fn decode(bencher: Bencher<'_, '_>, (items, recipients): (usize, usize)) {
    let bytes = Bytes::from(encoded(&batch(items, recipients)));
    bencher.counter(ItemsCount::new(items)).bench(|| RelayRequest::decode(black_box(&bytes).clone()));
}
