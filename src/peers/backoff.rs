//! How long to wait before a stream is tried again.

use std::time::Duration;

/// The most that is waited after the first failure.
const FIRST: Duration = Duration::from_millis(50);

/// The most that is ever waited: a server that came back should not be left alone for long.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// Doubles from 50 ms to 2 s. Each wait is anything up to that, so that servers that lost a peer together do not come
/// back to it together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let most = self.most();
        self.failures = self.failures.saturating_add(1);
        rand::random_range(Duration::ZERO..=most)
    }

    /// Makes the next waits long ones: trying again soon would not help.
    pub(super) fn slow_down(&mut self) {
        self.failures = u32::MAX;
    }

    /// The trouble is over.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    fn most(&self) -> Duration {
        2_u32.checked_pow(self.failures).map_or(LONGEST, |factor| FIRST.saturating_mul(factor).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        let bounds: Vec<_> = (0..8).map(|_| (backoff.most(), backoff.next()).0.as_millis()).collect();
        assert_eq!(bounds, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        backoff.reset();
        assert_eq!(backoff.most(), FIRST);
        backoff.slow_down();
        assert!(backoff.next() <= LONGEST && backoff.most() == LONGEST);
    }
}
