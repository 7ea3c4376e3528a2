//! What this server knows of its own standing and of the others.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::{BootId, ServerId};
use crate::registry::{ENTRY_TTL, ServerRow};
use crate::wire;

/// How long it is kept in mind that a server is gone: as long as a user's entry may name it.
const KEEP_DEPARTED: Duration = ENTRY_TTL;

#[derive(Debug, Default)]
pub(super) struct View {
    renewed: Option<Instant>,
    generation: String,
    /// The last renewal had no answer.
    pub(super) failing: bool,
    /// Until then, who is absent from the registry may be connected all the same.
    suspect_until: Option<Instant>,
    /// Streams that are open from others, by the run that opened them.
    streams: HashMap<(ServerId, BootId), usize>,
    /// What was last told to the peers.
    pub(super) told: Option<wire::Status>,
    statuses: HashMap<ServerId, (BootId, wire::Status)>,
    boots: HashMap<ServerId, BootId>,
    /// Servers that were there and are gone, since when.
    departed: HashMap<ServerId, Instant>,
}

impl View {
    /// Notes a renewal that was begun at `started`. Whether the registry's generation is another than before.
    pub(super) fn renewed(&mut self, started: Instant, generation: &str) -> bool {
        self.renewed = Some(started);
        self.failing = false;
        let another = self.generation != generation;
        if another {
            self.generation = generation.to_owned();
        }
        another
    }

    /// Whether the last renewal is less than `lease` ago. A server that never joined needs none.
    pub(super) fn has_lease(&self, lease: Duration) -> bool {
        self.renewed.is_none_or(|renewed| renewed.elapsed() < lease)
    }

    pub(super) fn suspect_until(&mut self, end: Instant) {
        self.suspect_until = Some(end);
    }

    /// Whether the time in which that was so is over, since this was last asked: told once.
    pub(super) fn take_end_of_suspicion(&mut self, now: Instant) -> bool {
        self.suspect_until.take_if(|end| now >= *end).is_some()
    }

    /// The registry has lost things so lately that servers may not have noticed yet.
    fn absence_is_unknown(&self, now: Instant) -> bool {
        self.failing || self.suspect_until.is_some_and(|end| now < end)
    }

    /// Who of the others is to be asked about users whom the registry does not place there: those that cannot register
    /// theirs, as they say; all where the registry does not answer, or has lost things. They are listed only where there is
    /// a reason.
    pub(super) fn asked(
        &self,
        registry_answers: bool,
        now: Instant,
        others: impl FnOnce() -> Vec<ServerId>,
    ) -> Vec<ServerId> {
        let all = !registry_answers || self.absence_is_unknown(now);
        if !all && !self.any_is_degraded() {
            return Vec::new();
        }
        others().into_iter().filter(|server| all || self.is_degraded(server)).collect()
    }

    /// Takes what a server says of itself. Whether it has dropped messages for this one since it last said so.
    pub(super) fn heard(&mut self, server: &ServerId, boot: BootId, status: wire::Status) -> bool {
        let dropped = status.dropped;
        let before = self.statuses.insert(server.clone(), (boot, status));
        // Each run counts from 0.
        let before = before.filter(|(run, _)| *run == boot);
        dropped > before.map_or(0, |(_, before)| before.dropped)
    }

    /// Whether a server was there and is gone.
    pub(super) fn has_departed(&self, server: &ServerId) -> bool {
        self.departed.contains_key(server)
    }

    /// Notes that a run of a server has opened a stream.
    pub(super) fn opened(&mut self, server: &ServerId, boot: BootId) {
        *self.streams.entry((server.clone(), boot)).or_default() += 1;
    }

    /// Notes that such a stream has ended.
    pub(super) fn closed(&mut self, server: &ServerId, boot: BootId) {
        let key = (server.clone(), boot);
        if let Some(open) = self.streams.get_mut(&key) {
            *open -= 1;
            if *open == 0 {
                self.streams.remove(&key);
            }
        }
    }

    /// Whether all others can introduce themselves, and say that they do: versions may be mixed.
    pub(super) fn all_introduce(&self, own: &ServerId) -> bool {
        let introduces = |server: &ServerId, boot: BootId| {
            let says = self.statuses.get(server).is_some_and(|(run, status)| *run == boot && status.introduces);
            says && self.streams.contains_key(&(server.clone(), boot))
        };
        self.boots.iter().all(|(server, boot)| server == own || introduces(server, *boot))
    }

    fn any_is_degraded(&self) -> bool {
        self.statuses.values().any(|(_, status)| status.degraded)
    }

    fn is_degraded(&self, server: &ServerId) -> bool {
        self.statuses.get(server).is_some_and(|(_, status)| status.degraded)
    }

    pub(super) fn is_well(&self, server: &ServerId) -> bool {
        self.statuses.get(server).is_some_and(|(_, status)| !status.degraded)
    }

    /// Takes the rows of the servers that are alive, and which streams are up. Whether a server has gone or has come
    /// back as another run: what it had committed may not have reached this one.
    pub(super) fn look(&mut self, rows: &[ServerRow], streams: &[(ServerId, bool)]) -> bool {
        let is_up = |server: &ServerId| streams.iter().any(|(peer, up)| *up && peer == server);
        let mut lost = false;
        for row in rows {
            let before = self.boots.insert(row.id.clone(), row.boot);
            lost |= before.is_some_and(|boot| boot != row.boot);
        }
        let gone = |server: &ServerId| !rows.iter().any(|row| row.id == *server) && !is_up(server);
        let leavers: Vec<_> = self.boots.keys().filter(|server| gone(server)).cloned().collect();
        for server in &leavers {
            self.boots.remove(server);
            self.statuses.remove(server);
            self.departed.insert(server.clone(), Instant::now());
        }
        self.departed.retain(|server, since| !self.boots.contains_key(server) && since.elapsed() < KEEP_DEPARTED);
        lost || !leavers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, boot: u64) -> ServerRow {
        let (id, relay) = (id.parse().unwrap(), String::new());
        ServerRow { id, boot: BootId(boot), relay, draining: false, version: String::new() }
    }

    #[test]
    fn a_server_that_came_back_or_is_gone_raises_a_doubt_and_one_whose_stream_answers_is_not_gone() {
        let mut view = View::default();
        assert!(!view.look(&[row("a", 1), row("b", 1)], &[]));
        assert!(view.look(&[row("a", 2), row("b", 1)], &[]));
        assert!(!view.look(&[row("b", 1)], &[("a".parse().unwrap(), true)]));
        assert!(!view.has_departed(&"a".parse().unwrap()));
        assert!(view.look(&[row("b", 1)], &[("a".parse().unwrap(), false)]));
        assert!(view.has_departed(&"a".parse().unwrap()));
        assert!(!view.look(&[row("b", 1)], &[]));
    }

    #[test]
    fn one_that_does_not_introduce_itself_or_cannot_is_enough() {
        let (mut view, own, other) = (View::default(), "a".parse().unwrap(), "b".parse().unwrap());
        view.look(&[row("a", 1), row("b", 2)], &[]);
        view.opened(&other, BootId(2));
        let heard = |view: &mut View, run, introduces| {
            view.heard(&other, BootId(run), wire::Status { introduces, ..wire::Status::default() });
            view.all_introduce(&own)
        };
        assert!(heard(&mut view, 2, true));
        assert!(!heard(&mut view, 1, true), "that was another run");
        assert!(!heard(&mut view, 2, false));
        view.opened(&other, BootId(2));
        view.closed(&other, BootId(2));
        assert!(heard(&mut view, 2, true), "one of the two streams is open");
        view.closed(&other, BootId(2));
        assert!(!heard(&mut view, 2, true));
    }

    #[test]
    fn of_those_that_are_there_the_degraded_are_asked_and_all_where_the_registry_may_have_lost_users() {
        let (mut view, now) = (View::default(), Instant::now());
        let (b, c, gone): (ServerId, ServerId, ServerId) =
            ("b".parse().unwrap(), "c".parse().unwrap(), "gone".parse().unwrap());
        let others = || vec![b.clone(), c.clone()];
        let degraded = wire::Status { degraded: true, ..wire::Status::default() };
        let listed = std::cell::Cell::new(false);
        let noted = || {
            listed.set(true);
            others()
        };
        assert!(view.asked(true, now, noted).is_empty() && !listed.get());
        view.heard(&gone, BootId(1), degraded);
        assert!(view.asked(true, now, others).is_empty(), "it is gone, whatever it still says");
        view.heard(&b, BootId(2), degraded);
        assert_eq!(view.asked(true, now, others), std::slice::from_ref(&b));
        assert_eq!(view.asked(false, now, others), others());
        view.heard(&b, BootId(2), wire::Status::default());
        view.failing = true;
        assert_eq!(view.asked(true, now, others), others());
        view.failing = false;
        view.suspect_until(now + Duration::from_secs(1));
        assert_eq!(view.asked(true, now, others), others());
        assert!(view.asked(true, now + Duration::from_secs(1), others).is_empty());
    }

    #[test]
    fn another_generation_is_noticed_once() {
        let mut view = View::default();
        assert!(view.renewed(Instant::now(), "g1"));
        assert!(!view.renewed(Instant::now(), "g1"));
        assert!(view.renewed(Instant::now(), "g2"));
    }

    #[test]
    fn dropped_messages_are_noticed_when_their_count_grows() {
        let (mut view, server) = (View::default(), "a".parse().unwrap());
        let status = |dropped| wire::Status { dropped, ..wire::Status::default() };
        assert!(!view.heard(&server, BootId(1), status(0)));
        assert!(view.heard(&server, BootId(1), status(2)));
        assert!(!view.heard(&server, BootId(1), status(2)));
        assert!(view.heard(&server, BootId(2), status(1)), "another run counts from 0");
    }
}
