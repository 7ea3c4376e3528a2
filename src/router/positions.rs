//! How far devices have come, gathered and written about once a second: a thousand acknowledgements in a second are one
//! write per user and room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use crate::ids::{DeviceId, RoomId, UserId};
use crate::lifecycle::Lifecycle;
use crate::store::{Position, Store};

/// How often what has gathered is written.
const EVERY: Duration = Duration::from_secs(1);

/// The most positions that may wait. Past that, clients are told to try again.
const MOST: usize = 100_000;

/// The most positions in one write.
const BATCH: usize = 1_000;

/// Positions that wait to be written. A clone is another handle to the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Positions(Arc<Mutex<Waiting>>);

type Waiting = HashMap<(UserId, RoomId, Option<DeviceId>), (u64, u64)>;

impl Positions {
    pub(super) fn start(store: Store, lifecycle: &Lifecycle) -> Self {
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
                this.write(&store).await;
            }
        });
        positions
    }

    /// Takes a position. False where too many wait.
    pub(super) fn note(&self, position: Position) -> bool {
        let mut waiting = self.lock();
        let fits = waiting.len() < MOST;
        if fits {
            merge(&mut waiting, position);
        }
        fits
    }

    async fn write(&self, store: &Store) {
        let positions: Vec<_> = self.lock().drain().map(position).collect();
        for batch in positions.chunks(BATCH) {
            if let Err(error) = store.advance(batch).await {
                warn!(%error, positions = batch.len(), "cannot note positions yet");
                let mut waiting = self.lock();
                batch.iter().for_each(|position| merge(&mut waiting, position.clone()));
            }
        }
        if !positions.is_empty() {
            debug!(positions = positions.len(), "noted positions");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Positions only grow.
fn merge(waiting: &mut Waiting, position: Position) {
    let Position { user, room, device, delivered, read } = position;
    let known = waiting.entry((user, room, device)).or_default();
    *known = (known.0.max(delivered), known.1.max(read));
}

fn position(((user, room, device), (delivered, read)): ((UserId, RoomId, Option<DeviceId>), (u64, u64))) -> Position {
    Position { user, room, device, delivered, read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_one_device_in_one_room_become_one_and_only_grow() {
        let positions = Positions::default();
        let at = |delivered, read| Position {
            user: "a".parse().unwrap(),
            room: "r".parse().unwrap(),
            device: None,
            delivered,
            read,
        };
        for (delivered, read) in [(7, 0), (0, 5), (3, 0), (0, 4)] {
            assert!(positions.note(at(delivered, read)));
        }
        let waiting: Vec<_> = positions.lock().drain().map(position).collect();
        assert_eq!(waiting, [at(7, 5)]);
    }
}
