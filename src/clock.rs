//! The clock on the wall, which people and other servers share; what is measured here goes by `Instant`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in ms since 1970; 0 where the clock is set to before that.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
