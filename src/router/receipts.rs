//! That someone has come further, told to those who are in a small room with them.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Router;
use super::forward::Publication;
use crate::feed::Receipt;
use crate::ids::{RoomId, SessionId, UserId};
use crate::wire;

/// How many rounds of writes may wait to be told. What is told much later is worth nothing.
pub(super) const ROUNDS: usize = 2;

/// A position that has grown.
#[derive(Debug)]
pub(super) struct Grown {
    /// What is told of it.
    pub(super) receipt: Receipt,
    /// The session that knows, since it alone has caused it.
    pub(super) by: Option<SessionId>,
}

impl Router {
    /// Tells what has grown, until `end`. A task of its own: a look-up must delay neither the next write nor messages.
    pub(super) async fn tell_all(&self, mut grown: mpsc::Receiver<Vec<Grown>>, end: CancellationToken) {
        while let Some(Some(round)) = end.run_until_cancelled(grown.recv()).await {
            self.tell(round).await;
        }
    }

    /// Tells of one round of writes: here at once, elsewhere after a look-up that all of it shares.
    async fn tell(&self, round: Vec<Grown>) {
        let parts = &self.0.parts;
        let mut publications = Vec::with_capacity(round.len());
        for Grown { receipt, by } in round {
            let Some(users) = self.told(&receipt.room).await else { continue };
            parts.metrics.receipts.inc();
            let frame = receipt.frame();
            parts.feed.show(&receipt, &frame, by);
            let Receipt { room, user, delivered, read } = receipt;
            let receipt = Some(wire::Receipt { delivered, read });
            publications.push(Publication { receipt, ..Publication::volatile(Some(room), user, frame, users) });
        }
        if !publications.is_empty() {
            self.forward_together(&publications).await;
        }
    }

    /// The members of a room who are told of each other; none where it has too many.
    async fn told(&self, room: &RoomId) -> Option<Vec<UserId>> {
        match self.0.parts.rooms.members(room, 0).await {
            Ok(members) => self.has_receipts(members.members.len()).then(|| members.users().cloned().collect()),
            Err(error) => {
                debug!(%room, %error, "a receipt is not told");
                None
            }
        }
    }

    /// Whether the members of a room of this size are told of each other.
    pub(super) fn has_receipts(&self, members: usize) -> bool {
        members <= self.0.parts.receipt_members
    }
}
