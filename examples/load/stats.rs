//! What a thread counts; added up at the end.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use hdrhistogram::Histogram;

/// The longest time that is told from longer ones, in ns.
const LONGEST_NS: u64 = 120_000_000_000;

/// What happened, over the whole run.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Deliveries that must come of what was sent.
    pub(crate) expected: u64,
    /// Those that came, each once.
    pub(crate) delivered: u64,
    /// Those that came again.
    pub(crate) doubled: u64,
    /// Those that came to somebody they were not for.
    pub(crate) strayed: u64,
    /// Those that came after a later one, and those of which it cannot be said any more whether they had come: these are
    /// counted as lost, too.
    pub(crate) out_of_order: u64,
    /// Messages that could not even be written, because the connection was gone or took nothing.
    pub(crate) unsent: u64,
    /// Messages that their sender is to be told are stored.
    pub(crate) asked: u64,
    /// Those of which it was told, each once.
    pub(crate) answered: u64,
    /// How often a closed loop waited in vain, and began again.
    pub(crate) stalls: u64,
    /// Connections that ended before they were told to.
    pub(crate) ended: BTreeMap<String, u64>,
    /// Error frames, by code.
    pub(crate) errors: BTreeMap<String, u64>,
    /// What happened in each counted span.
    pub(crate) spans: Vec<Span>,
}

/// What happened in one counted span.
#[derive(Debug)]
pub(crate) struct Span {
    /// Messages that were sent in it.
    pub(crate) sent: u64,
    /// Deliveries that came in it, whenever what they are of was sent.
    pub(crate) delivered: u64,
    /// What came in it to those who do not count: in a room with a burst, or in one and slow.
    pub(crate) aside: u64,
    /// Of messages that were meant to be sent in it: the time from then to each recipient, in ns.
    pub(crate) latency: Times,
    /// Of the same: the time to their `sent`.
    pub(crate) commits: Times,
    /// Of connections that were meant to be dialled in it: the time from then to their `welcome`.
    pub(crate) connects: Times,
}

/// Many times, in ns.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u32>);

impl Times {
    pub(crate) fn add(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time, in ms, that this share of them does not exceed; 1 is the longest.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e6
    }
}

impl Default for Times {
    #[expect(clippy::expect_used, reason = "the bounds are constants that fit")]
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1_000, LONGEST_NS, 3).expect("these bounds fit"))
    }
}

impl Default for Span {
    fn default() -> Self {
        let [latency, commits, connects] = Default::default();
        Self { sent: 0, delivered: 0, aside: 0, latency, commits, connects }
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.aside += other.aside;
        for (mine, theirs) in [
            (&mut self.latency, other.latency),
            (&mut self.commits, other.commits),
            (&mut self.connects, other.connects),
        ] {
            // Both have the same bounds, so nothing is refused.
            let _ = mine.0.add(theirs.0);
        }
    }
}

impl Totals {
    /// Counts a connection that ended by itself.
    pub(crate) fn ended(&mut self, why: String) {
        *self.ended.entry(why).or_default() += 1;
    }

    /// The span of that number.
    pub(crate) fn span(&mut self, number: usize) -> &mut Span {
        while self.spans.len() <= number {
            self.spans.push(Span::default());
        }
        &mut self.spans[number]
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.doubled += other.doubled;
        self.strayed += other.strayed;
        self.out_of_order += other.out_of_order;
        self.unsent += other.unsent;
        self.asked += other.asked;
        self.answered += other.answered;
        self.stalls += other.stalls;
        for (mine, theirs) in [(&mut self.ended, other.ended), (&mut self.errors, other.errors)] {
            theirs.into_iter().for_each(|(name, count)| *mine.entry(name).or_default() += count);
        }
        for (number, span) in other.spans.into_iter().enumerate() {
            *self.span(number) += span;
        }
    }
}
