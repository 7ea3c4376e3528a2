//! What waits for a look-up before it goes to other servers. Bounded, and rooms take turns: a burst in one must not
//! delay the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::forward::Publication;
use crate::turns::Turns;

/// How many publications may wait or be under way before senders wait for it.
const PLACES: usize = 8_192;

/// The most publications that share one look-up.
const BATCH: usize = 1_024;

/// The most recipients that these have together, unless a single one has more.
const BATCH_WORK: usize = 4_096;

/// Publications that wait for a look-up, with one who takes them.
#[derive(Debug)]
pub(super) struct Gathering {
    waiting: Mutex<Turns<Publication>>,
    places: Semaphore,
    wake: Notify,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { waiting: Mutex::default(), places: Semaphore::new(PLACES), wake: Notify::new() }
    }
}

impl Gathering {
    /// Adds a publication where there is room for it; says whether there was.
    pub(super) fn try_put(&self, publication: Publication) -> bool {
        let place = self.places.try_acquire();
        let taken = place.is_ok();
        if let Ok(place) = place {
            place.forget();
            self.add(publication);
        }
        taken
    }

    /// Adds a publication, as soon as there is room for it; says whether there was, before the taker ended.
    pub(super) async fn put(&self, publication: Publication) -> bool {
        let place = self.places.acquire().await;
        let taken = place.is_ok();
        if let Ok(place) = place {
            place.forget();
            self.add(publication);
        }
        taken
    }

    /// Whether nothing waits or is under way, so that what is sent now overtakes nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.places.available_permits() == PLACES
    }

    fn add(&self, publication: Publication) {
        let work = 1 + publication.audience_size();
        // Cloned, since the name is needed while the publication moves in.
        let (room, sender) = (publication.room.clone(), publication.sender.clone());
        let key = room.as_ref().map_or(sender.as_str(), |room| room.as_str());
        self.lock().push(key, work, publication);
        self.wake.notify_one();
    }

    /// The right to take. When it is given up, however that comes, nobody waits for room any more.
    pub(super) fn taker(&self) -> Taker<'_> {
        Taker(self)
    }

    fn take_now(&self, batch: &mut Vec<Publication>) -> bool {
        let (before, mut work) = (batch.len(), 0);
        let mut waiting = self.lock();
        while batch.len() < BATCH
            && let Some(next) = waiting.pop_if(|next| work == 0 || work + next.audience_size() < BATCH_WORK)
        {
            work += 1 + next.audience_size();
            batch.push(next);
        }
        batch.len() > before
    }

    fn lock(&self) -> MutexGuard<'_, Turns<Publication>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes what has gathered.
pub(super) struct Taker<'a>(&'a Gathering);

impl Taker<'_> {
    /// So many that were taken have been forwarded.
    pub(super) fn done(&self, count: usize) {
        self.0.places.add_permits(count);
    }

    /// Waits for publications and moves what has gathered, in turns and up to a bound, into `batch`. Cancel-safe.
    pub(super) async fn take(&self, batch: &mut Vec<Publication>) {
        while !self.0.take_now(batch) {
            self.0.wake.notified().await;
        }
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.places.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::UserId;
    use crate::protocol::ServerFrame;

    fn publication(room: &str, audience: usize) -> Publication {
        let user = |number| format!("user-{number}").parse::<UserId>().unwrap();
        let frame = ServerFrame::Pong { cid: None }.encode();
        Publication::volatile(room.parse().ok(), user(0), frame, (0..audience).map(user).collect())
    }

    #[tokio::test]
    async fn what_has_gathered_is_taken_together_up_to_a_bound() {
        let gathering = Gathering::default();
        let taker = gathering.taker();
        let mut batch = Vec::new();
        for _ in 0..BATCH + 1 {
            assert!(gathering.put(publication("r", 1)).await);
        }
        taker.take(&mut batch).await;
        assert_eq!(batch.len(), BATCH);
        batch.clear();
        taker.take(&mut batch).await;
        assert_eq!(batch.len(), 1);
        batch.clear();
        for _ in 0..3 {
            assert!(gathering.put(publication("r", BATCH_WORK / 2)).await);
        }
        taker.take(&mut batch).await;
        assert_eq!(batch.len(), 1, "two of them have more recipients than go together");
    }

    #[tokio::test]
    async fn what_finds_no_place_waits_or_is_refused_and_none_waits_once_nobody_takes() {
        let gathering = Gathering::default();
        let taker = gathering.taker();
        while gathering.try_put(publication("r", 1)) {}
        let taken = async {
            tokio::task::yield_now().await;
            let mut batch = Vec::new();
            taker.take(&mut batch).await;
            assert!(!gathering.is_idle());
            taker.done(batch.len());
        };
        assert!(tokio::join!(gathering.put(publication("r", 1)), taken).0);
        while gathering.try_put(publication("r", 1)) {}
        let ended = async { drop(taker) };
        assert!(!tokio::join!(gathering.put(publication("r", 1)), ended).0);
        assert!(!gathering.try_put(publication("r", 1)));
    }
}
