//! How old a volatile item is, though two servers' clocks differ.
//!
//! The difference between the clocks is not known, but it is never less than what was seen on the fastest item of the
//! stream; what takes longer than that one by more than the limit has waited somewhere on the way.

use crate::clock::unix_ms;

/// The age past which a volatile item is worth nothing, in ms.
const LIMIT_MS: i64 = 2_000;

/// What one stream has taught of the way.
#[derive(Debug, Default)]
pub(super) struct Ages {
    fastest_ms: Option<i64>,
    now_ms: u64,
}

impl Ages {
    /// Looks at the clock: items are come now, until the next look.
    pub(super) fn look(&mut self) {
        self.now_ms = unix_ms();
    }

    /// Whether an item that was sent at `sent_at_ms`, by the sender's clock, has become too old on its way.
    pub(super) fn is_too_old(&mut self, sent_at_ms: u64) -> bool {
        self.is_too_old_at(sent_at_ms, self.now_ms)
    }

    fn is_too_old_at(&mut self, sent_at_ms: u64, now_ms: u64) -> bool {
        let took_ms = now_ms.wrapping_sub(sent_at_ms).cast_signed();
        let fastest_ms = self.fastest_ms.map_or(took_ms, |fastest| fastest.min(took_ms));
        self.fastest_ms = Some(fastest_ms);
        took_ms.saturating_sub(fastest_ms) > LIMIT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_is_too_old_whatever_the_clocks_say() {
        for skew in [-60_000, 0, 60_000_i64] {
            let mut ages = Ages::default();
            let at = |ms: u64| ms.checked_add_signed(skew).unwrap();
            assert!(!ages.is_too_old_at(at(100_000), 100_005));
            assert!(!ages.is_too_old_at(at(101_000), 102_900));
            assert!(ages.is_too_old_at(at(102_000), 104_100));
            assert!(!ages.is_too_old_at(at(105_000), 105_001));
        }
    }

    #[test]
    fn nonsense_is_survived() {
        let mut ages = Ages::default();
        for (sent, now) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX / 2, 1), (7, 7)] {
            ages.is_too_old_at(sent, now);
        }
    }
}
