//! One person, as those are told who watch them. Plain state.

use std::time::{Duration, Instant};

use crate::router::Whereabouts;

/// How long someone must be nowhere before they are said to be offline, and how long it must be impossible to tell before
/// that is said: a connection that breaks and a deploy show nothing.
const AFTER: Duration = Duration::from_secs(10);

/// How someone is said to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shown {
    /// It cannot be told.
    #[default]
    Unknown,
    Online,
    Offline {
        /// In ms since 1970, if it is known.
        last_seen: Option<u64>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Person {
    shown: Shown,
    /// Since when they were found nowhere.
    absent: Option<Instant>,
    /// Since when it could not be told.
    untold: Option<Instant>,
    /// When they were last found connected, in ms since 1970.
    connected_ms: Option<u64>,
}

impl Person {
    pub(super) fn shown(&self) -> Shown {
        self.shown
    }

    /// Whether they can turn offline: if not, it is of no use to ask when they were last seen.
    pub(super) fn may_turn(&self) -> bool {
        !matches!(self.shown, Shown::Offline { .. })
    }

    /// Takes in where they were found, and when they were last seen, if they were found nowhere. Whether that changes how
    /// they are shown.
    pub(super) fn found(&mut self, place: &Whereabouts, seen_ms: Option<u64>, now: Instant, now_ms: u64) -> bool {
        let before = self.shown;
        match place {
            Whereabouts::Connected(_) => {
                *self = Self { shown: Shown::Online, connected_ms: Some(now_ms), ..Self::default() }
            }
            Whereabouts::Unknown => {
                if now.duration_since(*self.untold.get_or_insert(now)) >= AFTER {
                    self.shown = Shown::Unknown;
                }
            }
            Whereabouts::Gone => self.leaves(seen_ms),
            Whereabouts::Nowhere | Whereabouts::Astray => {
                self.untold = None;
                let absent = *self.absent.get_or_insert_with(|| since(seen_ms, now, now_ms));
                if now.duration_since(absent) >= AFTER {
                    self.leaves(seen_ms);
                } else if self.may_turn() {
                    self.shown = Shown::Online;
                }
            }
        }
        self.shown != before
    }

    fn leaves(&mut self, seen_ms: Option<u64>) {
        self.untold = None;
        if self.may_turn() {
            self.shown = Shown::Offline { last_seen: seen_ms.max(self.connected_ms) };
        }
    }
}

/// Since when someone is absent who was last seen then.
fn since(seen_ms: Option<u64>, now: Instant, now_ms: u64) -> Instant {
    // Not seen: for longer than anyone remembers.
    let ago = seen_ms.map_or(AFTER, |seen_ms| Duration::from_millis(now_ms.saturating_sub(seen_ms)));
    now.checked_sub(ago).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        person: Person,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            // Well after the machine's own beginning, before which there is no instant.
            Self { person: Person::default(), start: Instant::now() + Duration::from_secs(3_600) }
        }

        /// What is shown once they were found there, so many ms after the start.
        fn at(&mut self, ms: u64, place: Whereabouts, seen_ms: Option<u64>) -> Shown {
            let (now, now_ms) = (self.start + Duration::from_millis(ms), 1_000_000 + ms);
            let before = self.person.shown();
            let changed = self.person.found(&place, seen_ms, now, now_ms);
            assert_eq!(changed, before != self.person.shown());
            self.person.shown()
        }
    }

    fn connected() -> Whereabouts {
        Whereabouts::Connected(vec!["local1".parse().unwrap()])
    }

    #[test]
    fn who_comes_back_within_ten_seconds_is_online_throughout_and_who_does_not_was_last_seen_when_they_left() {
        let mut scene = Scene::new();
        assert_eq!(scene.at(0, connected(), None), Shown::Online);
        assert_eq!(scene.at(2_000, Whereabouts::Nowhere, Some(1_001_500)), Shown::Online);
        assert_eq!(scene.at(10_000, Whereabouts::Nowhere, Some(1_001_500)), Shown::Online);
        assert_eq!(scene.at(11_000, connected(), None), Shown::Online);
        assert_eq!(scene.at(12_000, Whereabouts::Nowhere, Some(1_011_700)), Shown::Online);
        let away = Shown::Offline { last_seen: Some(1_011_700) };
        assert_eq!(scene.at(21_800, Whereabouts::Nowhere, Some(1_011_700)), away);
        assert_eq!(scene.at(40_000, Whereabouts::Nowhere, None), away);
        assert_eq!(scene.at(41_000, connected(), None), Shown::Online);
    }

    #[test]
    fn who_is_asked_for_first_is_away_unless_they_left_a_moment_ago() {
        assert_eq!(Scene::new().at(0, Whereabouts::Nowhere, None), Shown::Offline { last_seen: None });
        assert_eq!(Scene::new().at(0, Whereabouts::Nowhere, Some(5)), Shown::Offline { last_seen: Some(5) });
        let mut scene = Scene::new();
        assert_eq!(scene.at(0, Whereabouts::Nowhere, Some(997_000)), Shown::Online);
        assert_eq!(scene.at(7_000, Whereabouts::Nowhere, Some(997_000)), Shown::Offline { last_seen: Some(997_000) });
    }

    #[test]
    fn whose_server_is_gone_is_away_at_once_since_it_was_for_a_lease_already() {
        let mut scene = Scene::new();
        scene.at(0, connected(), None);
        assert_eq!(scene.at(12_000, Whereabouts::Gone, Some(900_000)), Shown::Offline { last_seen: Some(1_000_000) });
    }

    #[test]
    fn that_it_cannot_be_told_is_said_only_when_it_lasts() {
        let mut scene = Scene::new();
        assert_eq!(scene.at(0, Whereabouts::Unknown, None), Shown::Unknown);
        assert_eq!(scene.at(1_000, connected(), None), Shown::Online);
        assert_eq!(scene.at(2_000, Whereabouts::Unknown, None), Shown::Online);
        assert_eq!(scene.at(4_000, connected(), None), Shown::Online);
        assert_eq!(scene.at(6_000, Whereabouts::Unknown, None), Shown::Online);
        assert_eq!(scene.at(16_000, Whereabouts::Unknown, None), Shown::Unknown);
    }
}
