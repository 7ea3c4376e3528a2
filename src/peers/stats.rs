//! What the peers count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters over all peers, since the start.
#[derive(Debug, Default)]
pub struct PeerStats {
    /// Items put on a stream, repeats included.
    pub items_sent: AtomicU64,
    /// Stream messages that carried them, hellos aside.
    pub stream_messages_sent: AtomicU64,
    /// Answers to items that were waiting for one.
    pub answers: AtomicU64,
    /// Answers to nothing that was waiting: an unknown id, a repeat, one that was given up.
    pub answers_unknown: AtomicU64,
    /// Items put on a stream once more after the stream before broke.
    pub resent: AtomicU64,
    /// Items refused because the queue was full or they were too large.
    pub dropped_full: AtomicU64,
    /// Volatile items that grew too old, or were on a stream that broke.
    pub dropped_old: AtomicU64,
    /// Stored items that had no answer by their deadline.
    pub dropped_deadline: AtomicU64,
    /// Stored items for a server that was not known.
    pub dropped_unknown: AtomicU64,
    /// Recipients that were not there.
    pub not_here: AtomicU64,
    /// Items with recipients that were not, or not only, there, which the reader of the reports had no room for.
    pub not_here_lost: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}
