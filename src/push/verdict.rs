//! What one try to make a push came to, and what becomes of the push then. No I/O.

use std::time::Duration;

use crate::clock::millis;
use crate::metrics::Pushed;
use crate::store::{Became, Push};

/// The most that is waited after the first failure. It doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The most that is ever waited between two tries, unless the target asks for more.
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// How long a push is tried that keeps failing.
const GIVE_UP_MS: u64 = 3_600_000;

/// How often it is tried at least: one that has waited for a server to come back is old already.
const FEWEST_TRIES: u32 = 5;

/// How long a push waits whose target takes nothing at all, which is no fault of the push.
const GIVE_UP_CLOSED_MS: u64 = 24 * 3_600_000;

/// What one try came to. The reasons are one line each, and hold neither a secret nor what the message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The target has it.
    Delivered,
    /// It failed and may succeed later, not before `wait` where the target asks for that.
    Failed { reason: String, wait: Option<Duration> },
    /// The target takes nothing at the time.
    Closed { reason: String, closed: Closed },
    /// It will not succeed.
    Refused { reason: String },
    /// The device is not registered any more.
    Unregistered,
}

/// How long a target takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// As long as it says.
    For(Duration),
    /// It does not say: this long at first, then longer each time.
    Unsaid(Duration),
}

/// What becomes of a push after a try. `rest` is how long its target is left alone.
pub(super) fn settle(push: &Push, verdict: Verdict, rest: Duration) -> Became {
    match verdict {
        Verdict::Delivered => Became::Done,
        Verdict::Unregistered => Became::Unregistered,
        Verdict::Refused { reason } => Became::Dead { reason },
        Verdict::Failed { reason, wait } => {
            if push.age_ms >= GIVE_UP_MS && push.tries + 1 >= FEWEST_TRIES {
                return Became::Dead { reason: format!("given up after {} tries: {reason}", push.tries + 1) };
            }
            let backoff = rand::random_range(Duration::ZERO..=longest_wait(push.tries));
            let wait = backoff.max(wait.unwrap_or_default());
            Became::Again { after_ms: millis(wait), reason, counts: true }
        }
        Verdict::Closed { reason, .. } if push.age_ms >= GIVE_UP_CLOSED_MS => {
            Became::Dead { reason: format!("given up after a day: {reason}") }
        }
        Verdict::Closed { reason, .. } => Became::Again { after_ms: millis(rest), reason, counts: false },
    }
}

/// The most that is waited after so many failures before this one. The wait is anything up to that, so that pushes that
/// failed together do not come back together.
fn longest_wait(failures: u32) -> Duration {
    2_u32.checked_pow(failures).map_or(LONGEST_BACKOFF, |factor| FIRST_WAIT.saturating_mul(factor).min(LONGEST_BACKOFF))
}

/// How it is counted.
pub(super) fn counted(became: &Became) -> Pushed {
    match became {
        Became::Done => Pushed::Sent,
        Became::Again { .. } => Pushed::Retried,
        Became::Dead { .. } => Pushed::Dead,
        Became::Unregistered => Pushed::Unregistered,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::store::PushKind;

    /// A push to alice of what bob wrote.
    pub(crate) fn push() -> Push {
        Push {
            id: 1,
            hold: 1,
            kind: PushKind::Webhook,
            token: String::new(),
            user: "alice".parse().unwrap(),
            room: "team".parse().unwrap(),
            room_name: None,
            seq: 7,
            message: MessageId(7_163_482_910_221_234),
            from: "bob".parse().unwrap(),
            at: 1_767_225_600_000,
            body: "{\"text\":\"hi\",\"n\":1e400}".into(),
            tries: 0,
            age_ms: 0,
            wanted: true,
        }
    }

    #[test]
    fn a_push_in_a_log_shows_neither_its_token_nor_what_the_message_says() {
        let shown = format!("{:?}", Push { token: "device-token".into(), ..push() });
        assert!(shown.contains("alice") && !shown.contains("device-token") && !shown.contains("text"), "{shown}");
    }

    fn failed(wait: Option<Duration>) -> Verdict {
        Verdict::Failed { reason: "503".into(), wait }
    }

    #[test]
    fn waits_double_from_a_second_to_ten_minutes() {
        let waits = [0, 1, 2, 8, 9, 10, 40].map(|failures| longest_wait(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 256, 512, 600, 600]);
    }

    #[test]
    fn a_failure_is_tried_again_by_backoff_and_not_before_the_target_says() {
        let wait = Duration::from_secs(120);
        let again = settle(&push(), failed(Some(wait)), Duration::ZERO);
        assert_eq!(again, Became::Again { after_ms: 120_000, reason: "503".into(), counts: true });
        let Became::Again { after_ms, .. } = settle(&push(), failed(None), Duration::ZERO) else { panic!() };
        assert!(after_ms <= 1_000);
    }

    #[test]
    fn a_push_that_keeps_failing_is_dead_after_an_hour_and_some_tries() {
        let old = |tries| Push { age_ms: GIVE_UP_MS, tries, ..push() };
        assert!(matches!(settle(&old(3), failed(None), Duration::ZERO), Became::Again { .. }));
        let Became::Dead { reason } = settle(&old(4), failed(None), Duration::ZERO) else { panic!() };
        assert_eq!(reason, "given up after 5 tries: 503");
        assert!(matches!(settle(&Push { tries: 40, ..push() }, failed(None), Duration::ZERO), Became::Again { .. }));
    }

    #[test]
    fn a_target_that_takes_nothing_costs_no_try() {
        let closed = Verdict::Closed { reason: "quota".into(), closed: Closed::Unsaid(Duration::ZERO) };
        let old = Push { age_ms: GIVE_UP_MS, tries: 9, ..push() };
        let again = settle(&old, closed.clone(), Duration::from_secs(60));
        assert_eq!(again, Became::Again { after_ms: 60_000, reason: "quota".into(), counts: false });
        let older = Push { age_ms: GIVE_UP_CLOSED_MS, ..push() };
        assert!(matches!(settle(&older, closed, Duration::ZERO), Became::Dead { .. }));
    }

    #[test]
    fn the_rest_is_final() {
        let refused = Verdict::Refused { reason: "400".into() };
        assert_eq!(settle(&push(), Verdict::Delivered, Duration::ZERO), Became::Done);
        assert_eq!(settle(&push(), refused, Duration::ZERO), Became::Dead { reason: "400".into() });
        assert_eq!(settle(&push(), Verdict::Unregistered, Duration::ZERO), Became::Unregistered);
    }
}
