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

/// The most counted spans of a run: `idle`, which has the most, has five.
const MOST_SPANS: usize = 8;

/// When a span began and ended, in ns since the start of the process; what is not yet is at the end of time.
#[derive(Debug)]
struct SpanTime {
    began: AtomicU64,
    ended: AtomicU64,
}

impl Default for SpanTime {
    fn default() -> Self {
        Self { began: AtomicU64::new(u64::MAX), ended: AtomicU64::new(u64::MAX) }
    }
}

impl SpanTime {
    fn contains(&self, at: u64) -> bool {
        self.began.load(Relaxed) <= at && at < self.ended.load(Relaxed)
    }
}

/// What all threads see.
#[derive(Debug)]
pub(crate) struct Shared {
    started: Instant,
    /// The span that is counted now.
    span: AtomicUsize,
    times: [SpanTime; MOST_SPANS],
    /// Connections that have had their welcome and are there still.
    pub(crate) open: AtomicUsize,
    /// Rooms that were made.
    pub(crate) rooms: AtomicUsize,
    pub(crate) expected: AtomicU64,
    pub(crate) delivered: AtomicU64,
    /// Messages that their sender is to be told are stored, and those of which it was told.
    pub(crate) asked: AtomicU64,
    pub(crate) answered: AtomicU64,
    /// Connections that ended untold.
    pub(crate) ended: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            span: AtomicUsize::new(UNCOUNTED),
            times: Default::default(),
            open: AtomicUsize::new(0),
            rooms: AtomicUsize::new(0),
            expected: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
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
        debug_assert!(span < MOST_SPANS || span == UNCOUNTED, "there is no place for the times of span {span}");
        let now = self.now();
        if let Some(last) = self.times.get(self.span.swap(span, Relaxed)) {
            last.ended.store(now, Relaxed);
        }
        if let Some(next) = self.times.get(span) {
            next.began.store(now, Relaxed);
        }
    }

    /// The span that is counted now.
    pub(crate) fn span(&self) -> Option<usize> {
        let span = self.span.load(Relaxed);
        (span != UNCOUNTED).then_some(span)
    }

    /// The span in which this time was. What was meant to be done then belongs to it however late it is done: else the
    /// longest waits would belong to none.
    pub(crate) fn span_at(&self, at: u64) -> Option<usize> {
        self.times.iter().position(|time| time.contains(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_belongs_to_the_span_in_which_it_was() {
        let shared = Shared::default();
        let at = |span| {
            shared.count_for(span);
            shared.now()
        };
        let (first, between, second) = (at(0), at(UNCOUNTED), at(1));
        assert_eq!([first, between, second].map(|at| shared.span_at(at)), [Some(0), None, Some(1)]);
        assert_eq!(shared.span(), Some(1));
    }
}
