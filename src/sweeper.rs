//! What is due from the store: sessions that may lack a message are healed, people who are not there are pushed.
//!
//! Every entry makes its room due a moment later. Whichever server takes the room looks who has not acknowledged, and
//! where they are, and looks again until all is decided. What is decided is written in one step with the pushes it
//! leads to, by one server alone: so a push is decided once, whichever server is lost when.

mod absences;
mod decide;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::ids::{ServerId, UserId};
use crate::lifecycle::Lifecycle;
use crate::router::{Router, Whereabouts};
use crate::store::{Error, OpenRoom, PushKind};
use absences::Absences;
use decide::{Decided, decide, may_push};

/// How often the store is asked for rooms that are due.
const EVERY: Duration = Duration::from_millis(500);

/// How many rooms are looked at together.
const ROOMS: u32 = 64;

/// How long rooms are held for a look. Then another server takes them.
const HOLD: Duration = Duration::from_secs(15);

/// How often it is made sure that nothing waits for a clock that was set back.
const CHECK_CLOCK: Duration = Duration::from_secs(60);

/// The sweeper of one server.
#[derive(Debug)]
pub struct Sweeper {
    router: Router,
    rules: Rules,
    kinds: Vec<PushKind>,
    absences: Absences,
    /// When the clock was looked at last.
    clock_checked: Option<Instant>,
    /// The last round failed.
    failing: bool,
}

/// When what is done about whom.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// How long a message may go unacknowledged before it is pushed to someone who is connected.
    push_after: Duration,
    /// How old a view of the other servers may be: so long a new server may be unknown.
    view_age: Duration,
}

impl Sweeper {
    /// A sweeper that pushes by these ways, if by any: what is not acknowledged is healed all the same. `view_age` is how
    /// long a new server may be unknown to this one.
    pub fn new(router: Router, push_after: Duration, view_age: Duration, kinds: Vec<PushKind>) -> Self {
        let rules = Rules { push_after, view_age };
        Self { router, rules, kinds, absences: Absences::default(), clock_checked: None, failing: false }
    }

    /// Sweeps until the server is to stop. The others go on; where there are none, the next run does.
    pub fn start(mut self, lifecycle: &Lifecycle) {
        let stop = lifecycle.stop.clone();
        lifecycle.spawn("sweeper", async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while stop.run_until_cancelled(ticks.tick()).await.is_some() {
                self.round(&stop).await;
            }
        });
    }

    /// Looks at all rooms that are due.
    async fn round(&mut self, stop: &CancellationToken) {
        self.absences.forget_old(Instant::now());
        self.check_clock().await;
        while !stop.is_cancelled() {
            match self.look().await {
                Ok(rooms) => {
                    self.failing = false;
                    if rooms < ROOMS as usize {
                        return;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(%error, "cannot see to what is not acknowledged yet");
                    }
                    return;
                }
            }
        }
    }

    /// Sees to it, once in a while, that a clock that was set back holds nothing up.
    async fn check_clock(&mut self) {
        if self.clock_checked.is_some_and(|checked| checked.elapsed() < CHECK_CLOCK) {
            return;
        }
        self.clock_checked = Some(Instant::now());
        match self.router.parts().store.make_up_for_clock().await {
            Ok(0) => {}
            Ok(count) => warn!(count, "the database's clock was set back; what was to wait for it is looked at now"),
            // The look that follows says so.
            Err(error) => debug!(%error, "cannot see yet whether the clock was set back"),
        }
    }

    /// Looks at some rooms. Answers how many.
    async fn look(&mut self) -> Result<usize, Error> {
        let parts = self.router.parts();
        let due = parts.store.take_due_rooms(&parts.own, ROOMS, HOLD).await?;
        let count = due.len();
        if count == 0 {
            return Ok(0);
        }
        let mut rooms = parts.store.open_rooms(due).await?;
        if self.kinds.is_empty() {
            // With no way to push there is nothing to be noted of anyone.
            rooms.iter_mut().flat_map(|room| &mut room.members).for_each(|member| member.muted = true);
        }
        let whereabouts = self.router.whereabouts(waiting(&rooms)).await;
        let now = Instant::now();
        self.absences.note(&whereabouts, now);
        let (absences, rules) = (&self.absences, &self.rules);
        let gone = |user: &_| absences.is_settled(user, &whereabouts, rules, now);
        // Mostly the first message that somebody lacks tells enough: that nothing is to be pushed yet.
        let overdue = |room: &&mut OpenRoom| may_push(room, &gone, rules.push_after);
        parts.store.read_open_messages(&mut rooms.iter_mut().filter(overdue).collect::<Vec<_>>()).await?;
        let mut settled = Vec::with_capacity(count);
        for room in rooms {
            let Decided { settled: room, heal } = decide(room, &gone, rules.push_after);
            let heal: Vec<_> = heal.iter().filter_map(|user| connected(user, &whereabouts)).collect();
            self.router.heal(&room.due.room, room.due.upto, &heal);
            settled.push(room);
        }
        let pushes = parts.store.settle_rooms(&parts.own, &settled, &self.kinds).await?;
        parts.metrics.pushes_decided.inc_by(pushes);
        debug!(rooms = count, pushes, "looked at what is not acknowledged");
        Ok(count)
    }
}

/// The users for whom a message is open in any of the rooms.
fn waiting(rooms: &[OpenRoom]) -> Vec<UserId> {
    let users: HashSet<_> = rooms.iter().flat_map(OpenRoom::waiting).collect();
    users.into_iter().cloned().collect()
}

/// A user and the servers they are connected to; none for who is not, as far as is known.
fn connected<'a>(
    user: &'a UserId,
    whereabouts: &'a HashMap<UserId, Whereabouts>,
) -> Option<(&'a UserId, &'a [ServerId])> {
    match whereabouts.get(user) {
        Some(Whereabouts::Connected(servers)) => Some((user, servers)),
        _ => None,
    }
}
