//! A number that many threads count up at once.
//!
//! One atomic number would have to travel between the cores each time another one counts, which costs more than all else
//! about counting. So each thread has a stripe of it, in a cache line of its own, and who asks for the number adds them up.
//! The stripes are as those of `LongAdder` in java.util.concurrent.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use prometheus_client::metrics::counter::Atomic;

/// How many stripes there are. Threads beyond that share them.
const STRIPES: usize = 16;

/// A number in stripes.
#[derive(Debug, Default)]
pub struct Striped([Stripe; STRIPES]);

/// Two lines of 64 bytes, since some processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Striped {
    fn own(&self) -> &AtomicU64 {
        &self.0[own_stripe()].0
    }
}

/// The stripe of this thread.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Relaxed) % STRIPES;
        OWN.set(Some(own));
        own
    })
}

impl Atomic<u64> for Striped {
    /// What comes back is of this thread's stripe only.
    fn inc(&self) -> u64 {
        self.inc_by(1)
    }

    /// What comes back is of this thread's stripe only.
    fn inc_by(&self, count: u64) -> u64 {
        self.own().fetch_add(count, Relaxed)
    }

    fn get(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_any_thread_counts_is_in_the_sum() {
        let number = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..100).for_each(|_| _ = number.inc()));
            }
        });
        number.inc_by(7);
        assert_eq!(number.get(), 2 * STRIPES as u64 * 100 + 7);
    }
}
