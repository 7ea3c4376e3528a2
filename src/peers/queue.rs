//! What is to be said to one server: items, kicks, heals, introductions, and the status. Plain state, without tasks,
//! streams or timers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Sent;
use super::encode::{Batch, Numbered};
use super::introductions::Introductions;
use super::item::{Item, Returned};
use super::stats::{PeerStats, add};
use crate::clock::{millis, unix_ms};
use crate::ids::UserId;
use crate::turns::Turns;
use crate::wire;

/// Volatile items older than this are of no use to anyone.
const VOLATILE_AGE: Duration = Duration::from_secs(2);

/// The most items, and recipients of them in all unless a single item has more, in one stream message: a bound on how
/// long the receiver is busy with it.
const BATCH_ITEMS: usize = 256;
const BATCH_WORK: usize = 1_024;

/// The most bytes in one stream message, unless a single item is larger.
const BATCH_BYTES: usize = 1 << 20;

/// The most bytes of a single item: gRPC receivers refuse messages above 4 MiB, and kicks and status travel with it.
const ITEM_BYTES: usize = 3 << 20;

/// The most kicks that wait or were sent lately.
const KICKS: usize = 2048;

/// The most heals that wait. Who asks for them asks again.
const HEALS: usize = 256;

/// The most heals in one stream message.
const BATCH_HEALS: usize = 16;

/// What bounds a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The most bytes of items, queued and unanswered.
    pub(super) bytes: usize,
    /// How old a stored item may grow without an answer.
    pub(super) deadline: Duration,
}

/// The queue of one peer. Items of a room, or of no room and of one sender, keep their order; rooms take turns.
#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    stats: Arc<PeerStats>,
    waiting: Turns<Entry>,
    /// Those that went out, by the ids they went out with: one after the other, up to `last_id`. None where the answer
    /// has come.
    unanswered: VecDeque<Option<Entry>>,
    last_id: u64,
    /// What all items here cost.
    bytes: usize,
    /// Stored items for a run of the server that is over.
    homeless: Vec<Arc<Item>>,
    kicks: VecDeque<wire::Kick>,
    /// Kicks have no answer; after a break those of late are said again, which does no harm.
    kicks_sent: VecDeque<(Instant, wire::Kick)>,
    heals: VecDeque<wire::Heal>,
    introductions: Introductions,
    status: wire::Status,
    /// The status has something new for the server.
    status_due: bool,
}

#[derive(Debug)]
struct Entry {
    item: Arc<Item>,
    cost: usize,
    since: Instant,
    /// When it went out, or was queued if it did not yet.
    out: Instant,
    /// It was on a stream that broke.
    again: bool,
}

impl Queue {
    /// An empty one.
    pub(super) fn new(limits: Limits, stats: Arc<PeerStats>) -> Self {
        Self {
            limits,
            stats,
            waiting: Turns::default(),
            unanswered: VecDeque::new(),
            last_id: 0,
            bytes: 0,
            homeless: Vec::new(),
            kicks: VecDeque::new(),
            kicks_sent: VecDeque::new(),
            heals: VecDeque::new(),
            introductions: Introductions::default(),
            status: wire::Status::default(),
            status_due: false,
        }
    }

    /// Adds an item, if there is room for it.
    pub(super) fn push(&mut self, item: Item, now: Instant) -> Sent {
        let cost = item.cost();
        if cost > ITEM_BYTES || self.bytes + cost > self.limits.bytes {
            add(&self.stats.dropped_full, 1);
            if item.is_stored() {
                self.leave_to_the_store();
            }
            return Sent::Full;
        }
        self.bytes += cost;
        let item = Arc::new(item);
        let entry = Entry { item: item.clone(), cost, since: now, out: now, again: false };
        self.waiting.push(item.key(), item.work(), entry);
        Sent::Queued
    }

    /// Adds a kick, if there is room for it.
    pub(super) fn kick(&mut self, kick: wire::Kick) -> Sent {
        if self.kicks.len() + self.kicks_sent.len() >= KICKS {
            return Sent::Full;
        }
        self.kicks.push_back(kick);
        Sent::Queued
    }

    /// Adds a heal, if there is room for it.
    pub(super) fn heal(&mut self, heal: wire::Heal) -> Sent {
        if self.heals.len() >= HEALS {
            return Sent::Full;
        }
        self.heals.push_back(heal);
        Sent::Queued
    }

    /// Adds an introduction; see [`Introductions::add`].
    pub(super) fn introduce(&mut self, user: UserId) -> oneshot::Receiver<()> {
        self.introductions.add(user)
    }

    /// Gives up all introductions.
    pub(super) fn forget_introductions(&mut self) {
        self.introductions.clear();
    }

    /// How long the longest unanswered item has been out.
    pub(super) fn longest_out(&self, now: Instant) -> Duration {
        let oldest = self.unanswered.iter().flatten().next();
        oldest.map_or(Duration::ZERO, |entry| now.saturating_duration_since(entry.out))
    }

    /// Replaces what the server is told of this one; `dropped` stays what it is.
    pub(super) fn say(&mut self, status: wire::Status) {
        self.status = wire::Status { dropped: self.status.dropped, ..status };
        self.status_due = true;
    }

    /// Counts messages as dropped that were so before this queue was there.
    pub(super) fn owe(&mut self, dropped: u64) {
        self.status.dropped += dropped;
    }

    /// How many stored messages were left to the store, as the server is told.
    pub(super) fn dropped(&self) -> u64 {
        self.status.dropped
    }

    /// Takes what is to go out now, at most one stream message of it.
    pub(super) fn next_batch(&mut self, now: Instant) -> Option<Batch> {
        let mut head = wire::RelayRequest {
            kicks: self.take_kicks(now),
            heals: self.heals.drain(..self.heals.len().min(BATCH_HEALS)).collect(),
            introductions: self.introductions.take(),
            ..wire::RelayRequest::default()
        };
        let mut items = Vec::with_capacity(self.waiting.len().min(BATCH_ITEMS));
        let (mut bytes, mut work) = (0, 0);
        let now_ms = unix_ms();
        let fits = |entry: &Entry, bytes, work| {
            bytes == 0 || bytes + entry.cost <= BATCH_BYTES && work + entry.item.work() <= BATCH_WORK
        };
        while items.len() < BATCH_ITEMS
            && let Some(mut entry) = self.waiting.pop_if(|entry| fits(entry, bytes, work))
        {
            if entry.is_late(now, self.limits.deadline) {
                self.give_up(&entry);
                continue;
            }
            bytes += entry.cost;
            work += entry.item.work();
            add(&self.stats.resent, usize::from(entry.again));
            self.last_id += 1;
            let sent_at_ms = now_ms.saturating_sub(millis(entry.age(now)));
            items.push(Numbered { id: self.last_id, sent_at_ms, item: entry.item.clone() });
            entry.out = now;
            self.unanswered.push_back(Some(entry));
        }
        // Last, since what was found late above is part of it.
        head.status = std::mem::take(&mut self.status_due).then_some(self.status);
        self.count(Batch { head, items })
    }

    /// Takes in answers, and gives back whose place was another, or not the only one; and what is done with, so that it is
    /// freed where nobody waits for that.
    pub(super) fn answer(&mut self, response: wire::RelayResponse, now: Instant) -> (Vec<Returned>, Vec<Arc<Item>>) {
        self.introductions.answer(&response.introduced);
        let (mut returned, mut done) = (Vec::new(), Vec::new());
        for range in response.queued {
            self.answer_range(range, &mut done);
        }
        for answer in response.answers {
            let Some(entry) = self.take_unanswered(answer.id) else {
                add(&self.stats.answers_unknown, 1);
                continue;
            };
            self.release(&entry);
            add(&self.stats.answers, 1);
            let absent = entry.item.named(answer.not_here);
            add(&self.stats.not_here, absent.len());
            if entry.item.is_stored() || entry.age(now) < VOLATILE_AGE {
                let shared = entry.item.named(answer.elsewhere);
                let told = [(absent, false), (shared, true)].into_iter().filter(|(users, _)| !users.is_empty());
                returned.extend(told.map(|(users, here)| Returned { item: Arc::clone(&entry.item), users, here }));
            }
            done.push(entry.item);
        }
        (returned, done)
    }

    /// Takes in that items were queued for all their recipients. What of the range never went out is passed over at once.
    fn answer_range(&mut self, range: wire::Range, done: &mut Vec<Arc<Item>>) {
        let end = range.first.saturating_add(range.count.into()).min(self.last_id + 1);
        let (mut known, mut bytes) = (0, 0);
        for entry in (range.first.max(self.first_id())..end).filter_map(|id| self.take_unanswered(id)) {
            known += 1;
            bytes += entry.cost;
            done.push(entry.item);
        }
        self.bytes -= bytes;
        add(&self.stats.answers, known);
        add(&self.stats.answers_unknown, range.count as usize - known);
    }

    /// The stream broke: what was stored and has no answer is to be sent again, before all else of its room. The status
    /// is due on every new stream.
    pub(super) fn rewind(&mut self) {
        for mut entry in std::mem::take(&mut self.unanswered).into_iter().rev().flatten() {
            if entry.item.is_stored() {
                entry.again = true;
                let item = entry.item.clone();
                self.waiting.push_first(item.key(), item.work(), entry);
            } else {
                self.give_up(&entry);
            }
        }
        for (_, kick) in self.kicks_sent.drain(..).rev() {
            self.kicks.push_front(kick);
        }
        self.introductions.rewind();
        self.status_due = true;
    }

    /// The run of the server that all this was meant for is over.
    pub(super) fn abandon(&mut self) {
        self.rewind();
        for entry in self.waiting.extract(|_| true, |_| true) {
            self.release(&entry);
            if entry.item.is_stored() {
                self.homeless.push(entry.item);
            } else {
                add(&self.stats.dropped_old, 1);
            }
        }
        self.kicks.clear();
        self.heals.clear();
        self.introductions.clear();
        self.status.dropped = 0;
    }

    /// Takes the items that were abandoned.
    pub(super) fn take_homeless(&mut self) -> Vec<Arc<Item>> {
        std::mem::take(&mut self.homeless)
    }

    /// Gives up what has grown too old, sent or not. Says whether the server should hear of it.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let deadline = self.limits.deadline;
        let soonest = deadline.min(VOLATILE_AGE);
        let mut late = self.waiting.extract(|entry| entry.age(now) >= soonest, |entry| entry.is_late(now, deadline));
        // Each has waited its own time for its turn, so the first that went out need not be the oldest.
        let out = self.unanswered.iter_mut();
        late.extend(out.filter_map(|entry| entry.take_if(|entry| entry.age(now) >= deadline)));
        self.forget_answered();
        late.iter().for_each(|entry| self.give_up(entry));
        self.status_due
    }

    /// What the items cost that wait or are out, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no item waits or is out.
    pub(super) fn holds_nothing(&self) -> bool {
        self.bytes == 0
    }

    /// Whether there is nothing left that a new stream would be worth building for.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.kicks.is_empty()
    }

    /// The id of the first that is unanswered, or of the next that goes out.
    fn first_id(&self) -> u64 {
        self.last_id + 1 - self.unanswered.len() as u64
    }

    fn take_unanswered(&mut self, id: u64) -> Option<Entry> {
        let place = usize::try_from(id.checked_sub(self.first_id())?).ok()?;
        let entry = self.unanswered.get_mut(place)?.take();
        self.forget_answered();
        entry
    }

    fn forget_answered(&mut self) {
        while self.unanswered.pop_front_if(|oldest| oldest.is_none()).is_some() {}
    }

    fn take_kicks(&mut self, now: Instant) -> Vec<wire::Kick> {
        let deadline = self.limits.deadline;
        while self.kicks_sent.pop_front_if(|(sent, _)| now.duration_since(*sent) >= deadline).is_some() {}
        self.kicks_sent.extend(self.kicks.iter().map(|kick| (now, kick.clone())));
        self.kicks.drain(..).collect()
    }

    fn count(&self, batch: Batch) -> Option<Batch> {
        if batch.is_empty() {
            return None;
        }
        add(&self.stats.stream_messages_sent, 1);
        add(&self.stats.items_sent, batch.items.len());
        Some(batch)
    }

    fn give_up(&mut self, entry: &Entry) {
        self.release(entry);
        if entry.item.is_stored() {
            add(&self.stats.dropped_deadline, 1);
            self.leave_to_the_store();
        } else {
            add(&self.stats.dropped_old, 1);
        }
    }

    /// Counts a stored message that is not going to be sent: the server will compare its rooms with the store.
    pub(super) fn leave_to_the_store(&mut self) {
        self.status.dropped += 1;
        self.status_due = true;
    }

    fn release(&mut self, entry: &Entry) {
        self.bytes -= entry.cost;
    }
}

impl Entry {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_late(&self, now: Instant, deadline: Duration) -> bool {
        self.age(now) >= if self.item.is_stored() { deadline } else { VOLATILE_AGE }
    }
}

#[cfg(test)]
mod tests;
