//! For how long people have been seen nowhere. A connection that breaks and is back at once is no reason to push.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Rules;
use crate::ids::UserId;
use crate::router::Whereabouts;

/// For how long someone must have been nowhere.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// What was seen longer ago than that says nothing about now.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// Those who were nowhere at the last look that asked for them.
#[derive(Debug, Default)]
pub(super) struct Absences(HashMap<UserId, Absence>);

#[derive(Debug)]
struct Absence {
    since: Instant,
    seen: Instant,
}

impl Absences {
    /// Takes in where people were found `now`.
    pub(super) fn note(&mut self, whereabouts: &HashMap<UserId, Whereabouts>, now: Instant) {
        for (user, place) in whereabouts {
            match place {
                Whereabouts::Nowhere | Whereabouts::Gone | Whereabouts::Astray => {
                    self.0.entry(user.clone()).or_insert(Absence { since: now, seen: now }).seen = now;
                }
                Whereabouts::Connected(_) | Whereabouts::Unknown => _ = self.0.remove(user),
            }
        }
    }

    /// Whether someone who was just noted has been nowhere for long enough.
    pub(super) fn is_settled(
        &self,
        user: &UserId,
        whereabouts: &HashMap<UserId, Whereabouts>,
        rules: &Rules,
        now: Instant,
    ) -> bool {
        let absent_for = match whereabouts.get(user) {
            // The server they are on may be so new that this one does not know it yet.
            Some(Whereabouts::Astray) => ABSENT_FOR.max(rules.view_age),
            Some(Whereabouts::Nowhere) => ABSENT_FOR,
            // They have been, for one lease at least.
            Some(Whereabouts::Gone) => Duration::ZERO,
            _ => return false,
        };
        self.0.get(user).is_some_and(|absence| now.duration_since(absence.since) >= absent_for)
    }

    /// Forgets those who were not asked for lately.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, absence| now.duration_since(absence.seen) < FORGET_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { push_after: Duration::from_secs(15), view_age: Duration::from_secs(4) };

    fn seen(absences: &mut Absences, place: Whereabouts, now: Instant) -> bool {
        let user: UserId = "alice".parse().unwrap();
        let whereabouts = HashMap::from([(user.clone(), place)]);
        absences.forget_old(now);
        absences.note(&whereabouts, now);
        absences.is_settled(&user, &whereabouts, &RULES, now)
    }

    #[test]
    fn who_was_nowhere_at_two_looks_two_seconds_apart_is_away_and_who_was_back_in_between_is_not() {
        let (mut absences, start) = (Absences::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert!(!seen(&mut absences, Whereabouts::Nowhere, after(0)));
        assert!(!seen(&mut absences, Whereabouts::Nowhere, after(1_900)));
        assert!(seen(&mut absences, Whereabouts::Nowhere, after(2_000)));
        assert!(!seen(&mut absences, Whereabouts::Connected(vec!["local1".parse().unwrap()]), after(3_000)));
        assert!(!seen(&mut absences, Whereabouts::Nowhere, after(4_000)));
        assert!(!seen(&mut absences, Whereabouts::Unknown, after(5_000)));
        assert!(!seen(&mut absences, Whereabouts::Nowhere, after(7_000)));
        assert!(seen(&mut absences, Whereabouts::Nowhere, after(9_000)));
        assert!(!seen(&mut absences, Whereabouts::Nowhere, after(30_000)), "what was seen long ago says nothing");
    }

    #[test]
    fn who_is_on_a_server_that_is_not_known_may_be_on_a_new_one() {
        let (mut absences, start) = (Absences::default(), Instant::now());
        assert!(!seen(&mut absences, Whereabouts::Astray, start));
        assert!(!seen(&mut absences, Whereabouts::Astray, start + Duration::from_secs(3)));
        assert!(seen(&mut absences, Whereabouts::Astray, start + Duration::from_secs(4)));
    }
}
