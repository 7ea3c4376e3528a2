//! Ids that are unique in the cluster without asking anyone: 41 bits of milliseconds, 10 bits of worker number, 12
//! bits of count (the layout that Twitter published in 2010 as Snowflake).
//!
//! The worker number is leased in the store, together with the time up to which ids may be made under it. Time here is
//! logical: it follows the clock forwards, never backwards, and a burst of more than 4,096 ids in a millisecond
//! borrows from the next one instead of waiting.

use std::sync::Mutex;
use std::time::Instant;

use crate::clock::unix_ms;

/// The first millisecond that an id can name: 2026-01-01T00:00:00Z. 41 bits last until 2095.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// Bits of the count within one millisecond.
const COUNT_BITS: u32 = 12;

/// Bits of the worker number: up to 1,024 servers at once.
const WORKER_BITS: u32 = 10;

/// The right to make ids under one worker number, for a while.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// The worker number, 0 to 1,023.
    pub worker: u16,
    /// Ids must be later than this logical time (ms since 1970): the highest that an earlier holder may have used.
    pub above_ms: u64,
    /// Ids must not be later than this logical time (ms since 1970): it is what the store has noted as used.
    pub until_ms: u64,
    /// When the lease ends, by this machine's monotonic clock.
    pub expires: Instant,
}

/// No id can be made now: the lease has ended, or its span of time is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease on this server's worker number has ended")]
pub struct Exhausted;

/// Makes ids under a lease. Never waits.
#[derive(Debug)]
pub struct Snowflakes {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// The logical time of the last id, in ms since 1970.
    at_ms: u64,
    /// How many ids were made within `at_ms`.
    count: u64,
}

impl Snowflakes {
    /// Starts under `lease`.
    pub fn new(lease: Lease) -> Self {
        Self { state: Mutex::new(State { lease, at_ms: lease.above_ms.max(EPOCH_MS), count: 1 << COUNT_BITS }) }
    }

    /// Goes on under a renewed or a new lease.
    pub fn renew(&self, lease: Lease) {
        let mut state = self.lock();
        if lease.worker != state.lease.worker {
            state.at_ms = state.at_ms.max(lease.above_ms);
            state.count = 1 << COUNT_BITS;
        }
        state.lease = lease;
    }

    /// The worker number in use.
    pub fn worker(&self) -> u16 {
        self.lock().lease.worker
    }

    /// The logical time of the last id (ms since 1970): what a lease that is given back must leave noted.
    pub fn used_ms(&self) -> u64 {
        self.lock().at_ms
    }

    /// The next id, above all ids this value gave before.
    ///
    /// # Errors
    /// [`Exhausted`] when the lease has ended or all its ids are used.
    pub fn next(&self) -> Result<u64, Exhausted> {
        let clock_ms = unix_ms();
        self.next_at(clock_ms, Instant::now())
    }

    fn next_at(&self, clock_ms: u64, now: Instant) -> Result<u64, Exhausted> {
        let mut state = self.lock();
        let (mut at_ms, mut count) = (state.at_ms, state.count);
        if clock_ms > at_ms {
            (at_ms, count) = (clock_ms, 0);
        } else if count >> COUNT_BITS != 0 {
            (at_ms, count) = (at_ms + 1, 0);
        }
        if now >= state.lease.expires || at_ms > state.lease.until_ms {
            return Err(Exhausted);
        }
        (state.at_ms, state.count) = (at_ms, count + 1);
        let worker = u64::from(state.lease.worker);
        Ok((at_ms - EPOCH_MS) << (WORKER_BITS + COUNT_BITS) | worker << COUNT_BITS | count)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = EPOCH_MS + 1_000_000;

    fn lease(worker: u16, above_ms: u64, until_ms: u64) -> Lease {
        Lease { worker, above_ms, until_ms, expires: Instant::now() + Duration::from_secs(30) }
    }

    #[test]
    fn ids_grow_through_a_burst_and_a_clock_that_steps_back() {
        let ids = Snowflakes::new(lease(1, 0, NOW + 60_000));
        let mut last = 0;
        for clock in [NOW, NOW, NOW - 5_000, NOW + 1, 0].into_iter().cycle().take(20_000) {
            let id = ids.next_at(clock, Instant::now()).unwrap();
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }

    #[test]
    fn a_new_holder_starts_above_the_time_that_was_used() {
        let first = Snowflakes::new(lease(1, 0, NOW + 30_000));
        let before = first.next_at(NOW + 20_000, Instant::now()).unwrap();
        let second = Snowflakes::new(lease(1, NOW + 30_000, NOW + 60_000));
        assert!(second.next_at(NOW, Instant::now()).unwrap() > before);
    }

    #[test]
    fn an_ended_lease_makes_no_ids() {
        let ids = Snowflakes::new(lease(1, 0, NOW + 10));
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(ids.next_at(NOW, late), Err(Exhausted));
        assert_eq!(ids.next_at(NOW + 11, Instant::now()), Err(Exhausted));
        ids.renew(lease(1, 0, NOW + 60_000));
        assert!(ids.next_at(NOW + 11, Instant::now()).is_ok());
    }

    #[test]
    fn two_workers_never_share_an_id() {
        let (a, b) = (Snowflakes::new(lease(1, 0, NOW + 9)), Snowflakes::new(lease(2, 0, NOW + 9)));
        let now = Instant::now();
        let mut all: Vec<_> = (0..5_000).flat_map(|_| [a.next_at(NOW, now), b.next_at(NOW, now)]).collect();
        all.sort_by_key(|id| id.unwrap_or(0));
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }
}
