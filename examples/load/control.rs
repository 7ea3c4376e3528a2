//! What the main thread tells the others, and what it sees of them meanwhile.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// What a thread is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    /// Connect those who take part.
    Connect,
    /// Make the rooms.
    MakeRooms,
    /// Begin to send.
    Start,
    /// Who is slow stops reading, or reads on.
    Slow(bool),
    /// Send so many messages at once, where groups wait for that.
    Burst(u32),
    /// Send nothing more.
    Stop,
    /// Connect those who do nothing.
    ConnectCrowd,
    /// Disconnect them.
    DismissCrowd,
}

/// No span is counted.
pub(crate) const UNCOUNTED: usize = usize::MAX;

/// What all threads see.
#[derive(Debug)]
pub(crate) struct Shared {
    started: Instant,
    /// The span that is counted now.
    span: AtomicUsize,
    /// When it began.
    span_began: AtomicU64,
    /// Connections that have had their welcome and are there still.
    pub(crate) open: AtomicUsize,
    /// Rooms that were made.
    pub(crate) rooms: AtomicUsize,
    pub(crate) expected: AtomicU64,
    pub(crate) delivered: AtomicU64,
    /// Connections that ended untold.
    pub(crate) ended: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            span: AtomicUsize::new(UNCOUNTED),
            span_began: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            rooms: AtomicUsize::new(0),
            expected: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
        }
    }
}

impl Shared {
    /// Now, in ns since the start of the process.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// From now on things count for this span, or for none.
    pub(crate) fn count_for(&self, span: usize) {
        self.span_began.store(self.now(), Relaxed);
        self.span.store(span, Relaxed);
    }

    /// The span that is counted, and when it began.
    pub(crate) fn span(&self) -> (Option<usize>, u64) {
        let span = self.span.load(Relaxed);
        ((span != UNCOUNTED).then_some(span), self.span_began.load(Relaxed))
    }
}
