//! How long a target is left alone that takes nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::call::LONGEST_WAIT;
use super::verdict::{Closed, Verdict};

/// The shortest pause: one who says to wait no time at all would be asked without end.
const SHORTEST: Duration = Duration::from_secs(1);

/// The pause of one target.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    /// How often it was closed in a row, the answers of one time counted once.
    times: u32,
}

impl Pause {
    /// Takes note of what a try came to, and answers how much of the pause is left.
    pub(super) fn note(&self, verdict: &Verdict, now: Instant) -> Duration {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match verdict {
            Verdict::Closed { closed, .. } => state.close(*closed, now),
            Verdict::Delivered => state.times = 0,
            Verdict::Failed { .. } | Verdict::Refused { .. } | Verdict::Unregistered => {}
        }
        state.left(now)
    }

    /// How much of it is left.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).left(now)
    }
}

impl State {
    fn close(&mut self, closed: Closed, now: Instant) {
        let is_news = self.left(now).is_zero();
        let wait = match closed {
            Closed::For(wait) => wait,
            // What was on its way when it closed says the same once more.
            Closed::Unsaid(_) if !is_news => return,
            Closed::Unsaid(first) => first.saturating_mul(2_u32.saturating_pow(self.times)),
        };
        self.times = self.times.saturating_add(u32::from(is_news));
        self.until = self.until.max(Some(now + wait.clamp(SHORTEST, LONGEST_WAIT)));
    }

    fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn closed(closed: Closed) -> Verdict {
        Verdict::Closed { reason: String::new(), closed }
    }

    #[test]
    fn a_target_that_stays_closed_is_left_alone_for_longer_each_time() {
        let (pause, mut now) = (Pause::default(), Instant::now());
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pause.note(&closed(Closed::Unsaid(MINUTE)), now), MINUTE * minutes);
            // Another that was on its way.
            assert_eq!(pause.note(&closed(Closed::Unsaid(MINUTE)), now), MINUTE * minutes);
            now += MINUTE * minutes;
            assert_eq!(pause.left(now), Duration::ZERO);
        }
        pause.note(&Verdict::Delivered, now);
        assert_eq!(pause.note(&closed(Closed::Unsaid(MINUTE)), now), MINUTE);
    }

    #[test]
    fn it_is_left_alone_for_as_long_as_it_says() {
        let (pause, now) = (Pause::default(), Instant::now());
        assert_eq!(pause.note(&closed(Closed::For(MINUTE * 5)), now), MINUTE * 5);
        assert_eq!(pause.note(&closed(Closed::For(MINUTE)), now), MINUTE * 5);
        assert_eq!(pause.note(&Verdict::Delivered, now), MINUTE * 5);
        assert_eq!(Pause::default().note(&closed(Closed::For(Duration::ZERO)), now), SHORTEST);
    }
}
