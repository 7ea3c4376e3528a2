//! How far devices have come, gathered and written about once a second: a thousand acknowledgements in a second are one
//! write per user and room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::receipts::Grown;
use crate::feed::Receipt;
use crate::ids::{DeviceId, RoomId, SessionId, UserId};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::store::{Advanced, Position, Store};

/// How often what has gathered is written.
const EVERY: Duration = Duration::from_secs(1);

/// The most positions that may wait. Past that, clients are told to try again.
const MOST: usize = 100_000;

/// The most positions in one write.
const BATCH: usize = 1_000;

/// Positions that wait to be written. A clone is another handle to the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Positions(Arc<Mutex<HashMap<Whose, Marks>>>);

type Whose = (UserId, RoomId, Option<DeviceId>);

/// How far someone has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Marks {
    delivered: Mark,
    read: Mark,
}

/// A position, and which session has said so; none where several have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    seq: u64,
    by: Option<SessionId>,
}

impl Positions {
    /// Starts the task that writes, and tells `grown` what has grown by each round of writes.
    pub(super) fn start(
        store: Store,
        metrics: Arc<Metrics>,
        grown: mpsc::Sender<Vec<Grown>>,
        lifecycle: &Lifecycle,
    ) -> Self {
        let positions = Self::default();
        let (this, end) = (positions.clone(), lifecycle.end.clone());
        lifecycle.spawn("positions", async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !end.is_cancelled() {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = end.cancelled() => {}
                }
                let news = this.write(&store, &metrics).await;
                if !news.is_empty() {
                    // Where those before are not told yet, these are not: positions do not wait for receipts.
                    let _ = grown.try_send(news);
                }
            }
        });
        positions
    }

    /// Takes a position, as a session says it. False where too many wait.
    pub(super) fn note(&self, position: Position, by: SessionId) -> bool {
        let mut waiting = self.lock();
        let fits = waiting.len() < MOST;
        if fits {
            let Position { user, room, device, delivered, read } = position;
            let mark = |seq| Mark { seq, by: Some(by) };
            let said = Marks { delivered: mark(delivered), read: mark(read) };
            waiting.entry((user, room, device)).or_default().merge(said);
        }
        fits
    }

    /// Writes what has gathered, and answers what has grown by it.
    async fn write(&self, store: &Store, metrics: &Metrics) -> Vec<Grown> {
        let noted: Vec<_> = self.lock().drain().collect();
        let mut advanced = Vec::new();
        for batch in noted.chunks(BATCH) {
            metrics.position_writes.inc();
            let positions: Vec<_> = batch.iter().map(position).collect();
            match store.advance(&positions).await {
                Ok(rows) => advanced.extend(rows),
                Err(error) => {
                    warn!(%error, positions = batch.len(), "cannot note positions yet");
                    self.put_back(batch);
                }
            }
        }
        if !noted.is_empty() {
            debug!(positions = noted.len(), grown = advanced.len(), "noted positions");
        }
        news(&noted, &advanced)
    }

    fn put_back(&self, batch: &[(Whose, Marks)]) {
        let mut waiting = self.lock();
        for (whose, marks) in batch {
            waiting.entry(whose.clone()).or_default().merge(*marks);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, Marks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn position(((user, room, device), marks): &(Whose, Marks)) -> Position {
    let (delivered, read) = (marks.delivered.seq, marks.read.seq);
    Position { user: user.clone(), room: room.clone(), device: device.clone(), delivered, read }
}

/// What the rows that grew have from here: what was noted on another server is told by that one.
fn news(noted: &[(Whose, Marks)], advanced: &[Advanced]) -> Vec<Grown> {
    let mut users: HashMap<_, Marks> = HashMap::new();
    for ((user, room, _), marks) in noted {
        users.entry((user, room)).or_default().merge(*marks);
    }
    advanced.iter().filter_map(|row| users.get(&(&row.user, &row.room))?.grown(row)).collect()
}

impl Marks {
    /// Positions only grow.
    fn merge(&mut self, other: Self) {
        self.delivered.merge(other.delivered);
        self.read.merge(other.read);
    }

    /// What a row that grew has from these.
    fn grown(&self, row: &Advanced) -> Option<Grown> {
        let (delivered, read) = (self.delivered.made(row.delivered), self.read.made(row.read));
        let mut causes = [delivered, read].into_iter().flatten().map(|mark| mark.by);
        let first = causes.next()?;
        let by = first.filter(|_| causes.all(|cause| cause == first));
        let seq = |mark: Option<Mark>| mark.map_or(0, |mark| mark.seq);
        let (room, user) = (row.room.clone(), row.user.clone());
        Some(Grown { receipt: Receipt { room, user, delivered: seq(delivered), read: seq(read) }, by })
    }
}

impl Mark {
    fn merge(&mut self, other: Self) {
        if other.seq > self.seq {
            *self = other;
        } else if other.seq == self.seq && other.by != self.by {
            self.by = None;
        }
    }

    /// Itself, where it is what a row has now.
    fn made(self, seq: u64) -> Option<Self> {
        (seq > 0 && self.seq == seq).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: SessionId = SessionId(1);
    const LAPTOP: SessionId = SessionId(2);

    fn at(device: Option<&str>, delivered: u64, read: u64) -> Position {
        let device = device.map(|device| device.parse().unwrap());
        Position { user: "a".parse().unwrap(), room: "r".parse().unwrap(), device, delivered, read }
    }

    /// What is told after some positions were noted and the row has become this.
    fn told(noted: &[(Position, SessionId)], delivered: u64, read: u64) -> Option<(u64, u64, Option<SessionId>)> {
        let positions = Positions::default();
        for (position, by) in noted {
            assert!(positions.note(position.clone(), *by));
        }
        let row = Advanced { room: "r".parse().unwrap(), user: "a".parse().unwrap(), delivered, read };
        let noted: Vec<_> = positions.lock().drain().collect();
        let grown = news(&noted, &[row]).pop()?;
        Some((grown.receipt.delivered, grown.receipt.read, grown.by))
    }

    #[test]
    fn positions_of_one_device_in_one_room_become_one_and_only_grow() {
        let positions = Positions::default();
        for (delivered, read) in [(7, 0), (0, 5), (3, 0), (0, 4)] {
            assert!(positions.note(at(None, delivered, read), PHONE));
        }
        let waiting: Vec<_> = positions.lock().iter().map(|(whose, marks)| (whose.clone(), *marks)).collect();
        assert_eq!(waiting.iter().map(position).collect::<Vec<_>>(), [at(None, 7, 5)]);
    }

    #[test]
    fn what_is_told_is_what_was_noted_here_and_no_further_elsewhere() {
        assert_eq!(told(&[(at(None, 7, 0), PHONE)], 7, 3), Some((7, 0, Some(PHONE))));
        assert_eq!(told(&[(at(None, 7, 5), PHONE)], 9, 5), Some((0, 5, Some(PHONE))));
        assert_eq!(told(&[(at(None, 7, 0), PHONE)], 9, 3), None);
    }

    #[test]
    fn the_one_session_that_has_caused_it_is_named_and_of_several_none() {
        let (phone, laptop) = (Some("phone"), Some("laptop"));
        let noted = [(at(phone, 7, 0), PHONE), (at(laptop, 5, 0), LAPTOP)];
        assert_eq!(told(&noted, 7, 0), Some((7, 0, Some(PHONE))), "the laptop is to hear of 7");
        let noted = [(at(phone, 7, 0), PHONE), (at(laptop, 7, 0), LAPTOP)];
        assert_eq!(told(&noted, 7, 0), Some((7, 0, None)));
        let noted = [(at(phone, 7, 0), PHONE), (at(laptop, 0, 6), LAPTOP)];
        assert_eq!(told(&noted, 7, 6), Some((7, 6, None)), "each is to hear of the other's");
        let noted = [(at(None, 7, 0), PHONE), (at(None, 8, 8), PHONE)];
        assert_eq!(told(&noted, 8, 8), Some((8, 8, Some(PHONE))));
    }
}
