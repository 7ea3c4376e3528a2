//! The clock on the wall, which people and other servers share; what is measured here goes by `Instant`. And how
//! spans are told to others: in ms.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in ms since 1970; 0 where the clock is set to before that.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A span in whole ms; one that is too long for the number is the longest.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
