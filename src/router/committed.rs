//! After the commit: tell the sender, and send the message on its way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;
use tracing::{error, warn};

use super::Router;
use crate::protocol::{Close, Code, Reject, ServerFrame};
use crate::sessions::{Push, Session};
use crate::store::writer::Done;
use crate::store::{Append, Appended, Content, Entry, Error, Membership};

/// How often a member list that is missing right after a commit is asked for.
const LIST_TRIES: u32 = 5;

/// How long to wait between these.
const LIST_RETRY: Duration = Duration::from_millis(200);

impl Router {
    /// Follows one lane of the writer, in commit order, until the writer ends.
    pub(super) async fn follow_commits(&self, mut committed: mpsc::Receiver<Vec<Done<Arc<Session>>>>) {
        while let Some(batch) = committed.recv().await {
            for done in batch {
                // A batch may be large, and others wait for this thread.
                consume_budget().await;
                self.committed(done).await;
            }
        }
    }

    async fn committed(&self, done: Done<Arc<Session>>) {
        let Done { append, origin, outcome } = done;
        match outcome {
            Ok(Appended::Stored { seq, id, at, members_version, fresh }) => {
                let metrics = &self.0.parts.metrics;
                if fresh {
                    metrics.sends.inc()
                } else {
                    metrics.repeated_sends.inc()
                };
                let Append { room, sender, cid, body, .. } = append;
                let entry = Entry { room, seq, id, sender, cid: Some(cid), at, content: Content::Body(body) };
                let members = self.members_after_commit(&entry, members_version).await;
                self.publish(entry, Some(origin), members).await;
            }
            Ok(Appended::NotMember) => {
                self.refuse(
                    &origin,
                    &append,
                    Reject::new(Code::NotFound, "there is no such room, or you are not in it"),
                );
            }
            Ok(Appended::CidReused) => {
                self.refuse(&origin, &append, Reject::new(Code::CidReused, "this cid was used for another message"));
            }
            Err(error) => {
                if !matches!(error, Error::Unavailable(_)) {
                    warn!(room = %append.room, %error, "a message could not be stored for sure");
                }
                self.refuse(&origin, &append, Reject::unavailable());
            }
        }
    }

    fn refuse(&self, origin: &Session, append: &Append, reject: Reject) {
        self.0.parts.metrics.rejected(reject.code);
        let error = || ServerFrame::error(Some(&append.cid), &reject).encode();
        let answer = origin.answer(&append.cid, error).or_else(|| {
            // The message that has the cid came first, and counted as the answer: this one is not stored all the same.
            (reject.code == Code::CidReused).then(|| origin.push(&error()))
        });
        if answer == Some(Push::Full) {
            // Unlike a message, it cannot be read from the store later.
            origin.end(Close::Slow);
        }
    }

    /// The member list that a message goes by: at least as new as the change it was committed after.
    pub(super) async fn members_after_commit(&self, entry: &Entry, version: u64) -> Arc<Membership> {
        for _ in 0..LIST_TRIES {
            match self.0.parts.rooms.members(&entry.room, version).await {
                Ok(members) => return members,
                Err(error) => warn!(room = %entry.room, %error, "no member list yet"),
            }
            sleep(LIST_RETRY).await;
        }
        // Those who are live in the room here get it still; for the others, all servers look into the store.
        error!(room = %entry.room, seq = entry.seq, "a stored message has no member list to go by");
        self.0.parts.peers.leave_to_the_store();
        self.0.parts.cluster.doubt();
        Arc::new(Membership { version: 0, members: Vec::new() })
    }
}
