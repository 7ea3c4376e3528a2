//! What all servers hear: published over Redis, in the order in which Redis took it.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::Server;
use crate::directory::Session;
use crate::frames::Says;

/// How many messages may wait to be published before sockets wait for it.
pub(crate) const QUEUE: usize = 8_192;

/// The most messages that are published in one pipeline.
const BATCH: usize = 1_024;

/// The one channel that there is.
pub(crate) const CHANNEL: &str = "broadcast";

pub(crate) const TO_USER: u8 = b'u';
pub(crate) const TO_ROOM: u8 = b'r';
pub(crate) const NEW_ROOM: u8 = b'c';

/// Something to be published.
#[derive(Debug)]
pub(crate) enum Post {
    /// A signal, as it goes to the others.
    Ready(Envelope<Bytes>),
    /// A message that is numbered first and answered afterwards.
    Numbered { target: Target, room: String, cid: String, body: Box<RawValue>, from: Session },
    /// A room with its members; answered afterwards.
    Create { room: String, members: Vec<String>, from: Session },
}

/// Whom something is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    User(String),
    Room(String),
}

/// What travels over Redis: lengths and bytes, so that nobody has to parse JSON to find out that it is not for him.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope<F> {
    pub(crate) kind: u8,
    pub(crate) to: String,
    /// Who does not get it.
    pub(crate) sender: String,
    pub(crate) frame: F,
}

impl<F: AsRef<[u8]>> Envelope<F> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind, self.to.len() as u8, self.sender.len() as u8];
        [self.to.as_bytes(), self.sender.as_bytes(), self.frame.as_ref()].iter().for_each(|part| bytes.extend(*part));
        bytes
    }
}

/// An envelope as it came, nothing of it copied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened<'a> {
    pub(crate) kind: u8,
    pub(crate) to: &'a str,
    pub(crate) sender: &'a str,
    pub(crate) frame: &'a str,
}

impl<'a> Opened<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let ([kind, to, sender], rest) = bytes.split_first_chunk()?;
        let (to, rest) = std::str::from_utf8(rest).ok()?.split_at_checked(usize::from(*to))?;
        let (sender, frame) = rest.split_at_checked(usize::from(*sender))?;
        Some(Self { kind: *kind, to, sender, frame })
    }
}

impl Target {
    pub(crate) fn envelope<F>(self, sender: &str, frame: F) -> Envelope<F> {
        let (kind, to) = match self {
            Self::User(to) => (TO_USER, to),
            Self::Room(to) => (TO_ROOM, to),
        };
        Envelope { kind, to, sender: sender.to_owned(), frame }
    }
}

/// The room in which messages are numbered.
pub(crate) fn room_of(target: &Target, from: &str) -> String {
    match target {
        Target::Room(room) => room.clone(),
        Target::User(to) if from <= to.as_str() => format!("{from}~{to}"),
        Target::User(to) => format!("{to}~{from}"),
    }
}

/// Publishes what has gathered, again and again. One round trip, and one more before it where messages are to be
/// numbered.
pub(crate) async fn publish(mut redis: MultiplexedConnection, mut posts: mpsc::Receiver<Post>) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    while posts.recv_many(&mut batch, BATCH).await > 0 {
        let mut numbers = number(&mut redis, &batch).await?.into_iter();
        let mut pipeline = redis::pipe();
        let mut answers = Vec::new();
        for post in batch.drain(..) {
            let bytes = match post {
                Post::Ready(envelope) => envelope.encode(),
                Post::Numbered { target, room, cid, body, from } => {
                    let (seq, at) = (numbers.next().unwrap_or(0), minichat::clock::unix_ms());
                    let id = format!("{room}-{seq}");
                    let frame = Says::Message { room: &room, id: id.clone(), seq, from: &from.user, at, body: &body };
                    let bytes = target.envelope(&from.user, frame.encode()).encode();
                    answers.push((from, Says::Sent { cid: &cid, room: &room, id, seq, at }.encode()));
                    bytes
                }
                Post::Create { room, members, from } => {
                    let frame = serde_json::to_string(&members)?;
                    answers.push((from, Says::Room { room: &room }.encode()));
                    Envelope { kind: NEW_ROOM, to: room, sender: String::new(), frame }.encode()
                }
            };
            pipeline.cmd("PUBLISH").arg(CHANNEL).arg(bytes).ignore();
        }
        pipeline.query_async::<()>(&mut redis).await.context("cannot publish")?;
        answers.into_iter().for_each(|(session, answer)| _ = session.outbox.try_send(answer.into()));
    }
    Ok(())
}

/// Takes a number in its room for each message that needs one.
async fn number(redis: &mut MultiplexedConnection, batch: &[Post]) -> anyhow::Result<Vec<u64>> {
    let mut pipeline = redis::pipe();
    for post in batch {
        if let Post::Numbered { room, .. } = post {
            pipeline.cmd("INCR").arg(format!("broadcast:seq:{room}"));
        }
    }
    if pipeline.is_empty() { Ok(Vec::new()) } else { Ok(pipeline.query_async(redis).await?) }
}

/// Hears everything that is published anywhere.
pub(crate) async fn hear(messages: PubSub, server: Arc<Server>) -> anyhow::Result<()> {
    let mut messages = messages.into_on_message();
    while let Some(message) = messages.next().await {
        if let Some(envelope) = Opened::read(message.get_payload_bytes()) {
            server.directory().deliver(&envelope);
        }
    }
    bail!("Redis has gone")
}
