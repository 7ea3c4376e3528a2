//! What goes out on a stream, as bytes: a `RelayRequest` of `proto/relay.proto`, in the encoding of Protocol Buffers
//! (protobuf.dev/programming-guides/encoding).
//!
//! Items are most of it, and are written from what they are: the generated message owns every name it holds, and making
//! one only to write it costs more than the writing.

use std::sync::Arc;

use bytes::BufMut;
use prost::Message;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use super::item::Item;
use crate::wire;

/// The field of a request that items are in.
const ITEMS: u32 = 3;

/// The buffer of a stream holds most batches without growing, and is handed on when it is full.
const BUFFER_BYTES: usize = 32 * 1024;

/// What goes out as one stream message.
#[derive(Debug, Default)]
pub struct Batch {
    /// All of it but the items.
    pub head: wire::RelayRequest,
    /// The items.
    pub items: Vec<Numbered>,
}

/// An item on its way.
#[derive(Debug)]
pub struct Numbered {
    /// The id that its answer names.
    pub id: u64,
    /// When it was queued, in ms since 1970.
    pub sent_at_ms: u64,
    /// What goes out.
    pub item: Arc<Item>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.head == wire::RelayRequest::default()
    }

    /// Appends it as a `RelayRequest` to a buffer that grows.
    ///
    /// # Panics
    /// Where the buffer neither grows nor has room for [`encoded_len`](Self::encoded_len) bytes.
    pub fn encode(&self, to: &mut impl BufMut) {
        // Not `encode`, which writes nothing where there is no room, and says so.
        self.head.encode_raw(to);
        let mut to = Written(to);
        self.items.iter().for_each(|item| to.nested(ITEMS, item));
    }

    /// How many bytes that is.
    pub fn encoded_len(&self) -> usize {
        let mut length = Length(self.head.encoded_len());
        self.items.iter().for_each(|item| length.nested(ITEMS, item));
        length.0
    }
}

/// Writes batches, and reads what comes back.
#[derive(Debug, Default)]
pub(super) struct BatchCodec;

impl Codec for BatchCodec {
    type Encode = Batch;
    type Decode = wire::RelayResponse;
    type Encoder = Self;
    type Decoder = ProstDecoder<wire::RelayResponse>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for BatchCodec {
    type Item = Batch;
    type Error = Status;

    fn encode(&mut self, batch: Batch, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(batch.encoded_len());
        batch.encode(to);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

/// Where fields are written, or only measured: a message stands behind its length, so each is measured before it is written.
trait Out {
    fn varint(&mut self, value: u64);
    fn bytes(&mut self, bytes: &[u8]);
    fn nested(&mut self, tag: u32, message: &impl Fields);
}

struct Written<'a, B>(&'a mut B);

struct Length(usize);

impl<B: BufMut> Out for Written<'_, B> {
    fn varint(&mut self, value: u64) {
        encode_varint(value, self.0);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }

    fn nested(&mut self, tag: u32, message: &impl Fields) {
        key(self, tag, WireType::LengthDelimited);
        self.varint(length(message) as u64);
        message.write(self);
    }
}

impl Out for Length {
    fn varint(&mut self, value: u64) {
        self.0 += encoded_len_varint(value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn nested(&mut self, tag: u32, message: &impl Fields) {
        let bytes = length(message);
        key(self, tag, WireType::LengthDelimited);
        self.varint(bytes as u64);
        self.0 += bytes;
    }
}

/// A message, by its fields. What has its default value is left out, as the encoding has it.
trait Fields {
    fn write(&self, to: &mut impl Out);
}

impl Fields for Numbered {
    fn write(&self, to: &mut impl Out) {
        let item = &*self.item;
        fixed(to, 1, self.id);
        text(to, 2, item.room.as_ref().map_or("", |room| room.as_str()));
        number(to, 3, item.seq);
        text(to, 4, item.sender.as_str());
        if !item.frame.is_empty() {
            delimited(to, 5, &item.frame);
        }
        item.recipients.iter().for_each(|user| delimited(to, 6, user.as_str().as_bytes()));
        text(to, 7, item.cid.as_ref().map_or("", |cid| cid.as_str()));
        if let Some(event) = &item.event {
            to.nested(8, event);
        }
        fixed(to, 9, self.sent_at_ms);
        number(to, 10, item.again.into());
        number(to, 11, item.asked.into());
        fixed(to, 12, item.id.0);
        fixed(to, 13, item.at);
        if let Some(receipt) = &item.receipt {
            to.nested(14, receipt);
        }
        number(to, 15, item.remembered.into());
    }
}

impl Fields for wire::Event {
    fn write(&self, to: &mut impl Out) {
        // An enum is written as what it is as a signed number of 64 bits.
        number(to, 1, i64::from(self.kind).cast_unsigned());
        self.users.iter().for_each(|user| delimited(to, 2, user.as_bytes()));
    }
}

impl Fields for wire::Receipt {
    fn write(&self, to: &mut impl Out) {
        number(to, 1, self.delivered);
        number(to, 2, self.read);
    }
}

fn length(message: &impl Fields) -> usize {
    let mut length = Length(0);
    message.write(&mut length);
    length.0
}

fn key(to: &mut impl Out, tag: u32, kind: WireType) {
    to.varint(u64::from(tag << 3 | kind as u32));
}

fn fixed(to: &mut impl Out, tag: u32, value: u64) {
    if value != 0 {
        key(to, tag, WireType::SixtyFourBit);
        to.bytes(&value.to_le_bytes());
    }
}

fn number(to: &mut impl Out, tag: u32, value: u64) {
    if value != 0 {
        key(to, tag, WireType::Varint);
        to.varint(value);
    }
}

fn text(to: &mut impl Out, tag: u32, text: &str) {
    if !text.is_empty() {
        delimited(to, tag, text.as_bytes());
    }
}

fn delimited(to: &mut impl Out, tag: u32, bytes: &[u8]) {
    key(to, tag, WireType::LengthDelimited);
    to.varint(bytes.len() as u64);
    to.bytes(bytes);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::MessageId;
    use crate::peers::item::tests::full;

    /// As the generated code reads it.
    fn read(batch: &Batch) -> wire::RelayRequest {
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        assert_eq!(bytes.len(), batch.encoded_len());
        wire::RelayRequest::decode(bytes.as_slice()).unwrap()
    }

    fn numbered(id: u64, sent_at_ms: u64, item: Item) -> Numbered {
        Numbered { id, sent_at_ms, item: Arc::new(item) }
    }

    #[test]
    fn what_is_written_is_what_the_protocol_reads_field_by_field() {
        let item = full();
        let expected = wire::Item {
            id: 3,
            room: "team".to_owned(),
            seq: item.seq,
            sender: item.sender.to_string(),
            frame: item.frame.clone(),
            recipients: item.recipients.iter().map(ToString::to_string).collect(),
            cid: "c".to_owned(),
            event: item.event.clone(),
            sent_at_ms: u64::MAX,
            again: true,
            asked: true,
            message_id: item.id.0,
            committed_at_ms: item.at,
            receipt: item.receipt,
            remembered: item.remembered,
        };
        let head = wire::RelayRequest {
            status: Some(wire::Status { introduces: true, ..wire::Status::default() }),
            ..wire::RelayRequest::default()
        };
        let batch = Batch { head: head.clone(), items: vec![numbered(3, u64::MAX, item)] };
        assert_eq!(read(&batch), wire::RelayRequest { items: vec![expected], ..head });
    }

    #[test]
    fn what_has_its_default_value_reads_as_that() {
        let item = Item {
            room: None,
            seq: 0,
            id: MessageId(0),
            at: 0,
            frame: Bytes::new(),
            recipients: Vec::new(),
            cid: None,
            event: Some(wire::Event::default()),
            receipt: Some(wire::Receipt::default()),
            again: false,
            asked: false,
            remembered: 0,
            ..full()
        };
        let expected = wire::Item {
            sender: item.sender.to_string(),
            event: item.event.clone(),
            receipt: item.receipt,
            ..wire::Item::default()
        };
        let items = vec![numbered(0, 0, item)];
        assert_eq!(read(&Batch { items, ..Batch::default() }).items, [expected]);
        assert!(Batch::default().is_empty() && read(&Batch::default()) == wire::RelayRequest::default());
    }

    #[test]
    fn the_cost_of_an_item_is_no_less_than_its_bytes() {
        let (cost, items) = (full().cost(), vec![numbered(u64::MAX, u64::MAX, full())]);
        let bytes = Batch { items, ..Batch::default() }.encoded_len();
        assert!(cost >= bytes, "{cost} < {bytes}");
    }

    /// An item as a server reads and writes it that knows no receipts.
    #[derive(Clone, PartialEq, Message)]
    struct OlderItem {
        #[prost(string, tag = "2")]
        room: String,
        #[prost(uint64, tag = "3")]
        seq: u64,
        #[prost(bytes = "bytes", tag = "5")]
        frame: Bytes,
        #[prost(string, repeated, tag = "6")]
        recipients: Vec<String>,
    }

    #[test]
    fn a_server_that_knows_no_receipts_shows_the_frame_and_its_own_items_are_none() {
        let frame = Bytes::from_static(b"{}");
        let receipt = Item { seq: 0, frame: frame.clone(), ..full() };
        let read = read(&Batch { items: vec![numbered(1, 1, receipt)], ..Batch::default() });
        let read = OlderItem::decode(read.items[0].encode_to_vec().as_slice()).unwrap();
        assert_eq!((read.seq, &read.frame, read.recipients.len()), (0, &frame, 1_000));
        let written = OlderItem { room: "team".to_owned(), seq: 0, frame, recipients: vec!["bob".to_owned()] };
        let read = wire::Item::decode(written.encode_to_vec().as_slice()).unwrap();
        assert_eq!((read.receipt, read.room.as_str()), (None, "team"));
    }
}
