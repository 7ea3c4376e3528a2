//! Which users are to be written, which were, and who waits for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::ids::{ServerId, UserId};
use crate::registry::{Error, Truth};

/// When a write that had no answer is repaired once more: later than any copy of it can still be on its way.
const REPAIR_AFTER: Duration = Duration::from_secs(30);

/// How many users are looked for under one lock.
const CHUNK: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Book {
    state: Mutex<State>,
    wake: Notify,
}

/// Bounded by the users who are connected, were a moment ago, or had a write without an answer in the last half minute.
#[derive(Debug, Default)]
struct State {
    claims: HashMap<UserId, Claim, RandomState>,
    /// Those to be written, in the order in which they were marked.
    marked: VecDeque<UserId>,
    /// Those whose write had no answer, with the time of the repair.
    repairs: HashMap<UserId, Instant>,
    /// While all users are asserted: those who are left.
    asserting: HashSet<UserId>,
    /// Nothing is written from then on.
    allowed_until: Option<Instant>,
    /// The last write had no answer.
    failing: bool,
    /// Since it was last asked: users may not have been found here.
    troubled: bool,
}

/// What is known of one user's entry.
#[derive(Debug, Default)]
struct Claim {
    marked: bool,
    /// The registry's last answer was that the user is here.
    confirmed: bool,
    /// Another server said that it has the user, too, since the write under way began.
    introduced: bool,
    /// The other servers that are known to have the user.
    others: Vec<ServerId>,
    /// One of these may not know that they are here.
    unknown: bool,
    waiting: Vec<oneshot::Sender<Vec<ServerId>>>,
}

/// Whether a user is here, as far as the registry has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// They are not, or there is no answer yet.
    Unconfirmed,
    /// They are, and nowhere else.
    Here,
    /// They are, and on other servers, too.
    Shared,
}

/// Someone whom other servers have, too. These may not know, or not any more, that they are here.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) user: UserId,
    pub(super) servers: Vec<ServerId>,
    /// One of the servers was not known to have them, or not to know that they are here.
    pub(super) new: bool,
    /// Those who wait until the servers know.
    pub(super) waiting: Vec<oneshot::Sender<Vec<ServerId>>>,
}

impl Book {
    /// Notes users whose truth is to be written.
    pub(super) fn mark(&self, users: impl IntoIterator<Item = UserId>) {
        let mut state = self.lock();
        let before = state.marked.len();
        users.into_iter().for_each(|user| state.mark(user));
        let more = state.marked.len() > before;
        drop(state);
        if more {
            self.wake.notify_one();
        }
    }

    /// Tells `waiting` when the registry has answered that `user` is here, and where else, and the servers there know of
    /// it. Counts only a write that begins from now on: an older answer may not name a server that the user has gone to since.
    pub(super) fn wait(&self, user: &UserId, waiting: oneshot::Sender<Vec<ServerId>>) {
        let mut state = self.lock();
        let claim = state.claims.entry(user.clone()).or_default();
        // Those who have lost patience.
        claim.waiting.retain(|waiting| !waiting.is_closed());
        claim.waiting.push(waiting);
        state.mark(user.clone());
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until something may have been marked.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes up to `most` users to be written, with what `holds` says of each; none while writes are kept back.
    ///
    /// From here on a user who is about to be written as gone is not confirmed, so that one who comes back meanwhile
    /// waits for the write after it.
    pub(super) fn take_marked(&self, most: usize, holds: impl Fn(&UserId) -> bool) -> Vec<Truth> {
        let mut state = self.lock();
        if state.is_held() {
            return Vec::new();
        }
        let count = most.min(state.marked.len());
        let users: Vec<_> = state.marked.drain(..count).collect();
        let truth = |user: UserId| {
            let (here, claim) = (holds(&user), state.claims.entry(user.clone()).or_default());
            let (seen, fresh) = (here || claim.confirmed, here && !claim.confirmed);
            claim.begin(here);
            Truth { user, here, seen, fresh }
        };
        users.into_iter().map(truth).collect()
    }

    /// Takes the users whose repair is due.
    pub(super) fn take_repairs(&self, now: Instant) -> Vec<UserId> {
        self.lock().repairs.extract_if(|_, due| *due <= now).map(|(user, _)| user).collect()
    }

    /// Notes what the registry answered, and gives back who is to be made known to other servers.
    pub(super) fn settle(&self, truths: Vec<Truth>, answers: Vec<Result<Vec<ServerId>, Error>>) -> Vec<Stranger> {
        let mut state = self.lock();
        state.failing = answers.iter().any(Result::is_err);
        state.troubled |= state.failing;
        let mut strangers = Vec::new();
        for (truth, answer) in truths.into_iter().zip(answers) {
            match answer {
                Ok(others) => strangers.extend(state.written(truth, others)),
                Err(_) => state.failed(truth.user),
            }
        }
        strangers
    }

    /// Notes that `server` has the user, too.
    pub(super) fn introduce(&self, user: &UserId, server: &ServerId) {
        if let Some(claim) = self.lock().claims.get_mut(user) {
            claim.introduced = true;
            claim.add(server.clone());
        }
    }

    /// Notes that messages for users here may have gone elsewhere only.
    pub(super) fn trouble(&self) {
        self.lock().troubled = true;
    }

    /// Has the truth of all users whom `server` has, too, written again: it does not know, or not any more.
    pub(super) fn reintroduce(&self, server: &ServerId) {
        let mut state = self.lock();
        let shared = state.claims.iter_mut().filter(|(_, claim)| claim.others.contains(server));
        let users: Vec<_> = shared
            .map(|(user, claim)| {
                claim.unknown = true;
                user.clone()
            })
            .collect();
        drop(state);
        self.mark(users);
    }

    /// Starts to assert all `users`.
    pub(super) fn assert_all(&self, users: Vec<UserId>) {
        let mut state = self.lock();
        for user in &users {
            state.mark(user.clone());
        }
        state.troubled = true;
        state.asserting = users.into_iter().collect();
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn allow_until(&self, end: Instant) {
        self.lock().allowed_until = Some(end);
        self.wake.notify_one();
    }

    pub(super) fn presence(&self, user: &UserId) -> Presence {
        self.lock().presence(user)
    }

    /// Whom of `users` the registry is known to have here and nowhere else.
    pub(super) fn alone<'a>(&self, users: impl Iterator<Item = &'a UserId>) -> Vec<&'a UserId> {
        let (mut users, mut alone) = (users.peekable(), Vec::new());
        while users.peek().is_some() {
            // Not all under one lock: others wait for it.
            let state = self.lock();
            alone.extend(users.by_ref().take(CHUNK).filter(|user| state.presence(user) == Presence::Here));
        }
        alone
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.lock().is_degraded()
    }

    /// Whether there was trouble since the last time that it is over.
    pub(super) fn take_trouble(&self) -> bool {
        let mut state = self.lock();
        !state.is_degraded() && std::mem::take(&mut state.troubled)
    }

    /// How many users' entries are not known to be right.
    pub(super) fn unsettled(&self) -> usize {
        self.lock().marked.len()
    }

    /// Nothing is left to be written.
    pub(super) fn is_settled(&self) -> bool {
        self.lock().marked.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    fn begin(&mut self, here: bool) {
        (self.marked, self.introduced) = (false, false);
        self.confirmed &= here;
    }

    fn add(&mut self, server: ServerId) {
        if !self.others.contains(&server) {
            self.others.push(server);
        }
    }

    /// Takes in who else has the user, as a write was answered. Says whether one of them was not known to.
    fn learn(&mut self, others: &[ServerId]) -> bool {
        let new = others.iter().any(|server| !self.others.contains(server));
        if !self.introduced {
            // Who is not named any more has left.
            self.others.clear();
        }
        others.iter().for_each(|server| self.add(server.clone()));
        new
    }
}

impl State {
    fn is_degraded(&self) -> bool {
        self.is_held() || self.failing || !self.asserting.is_empty()
    }

    fn is_held(&self) -> bool {
        self.allowed_until.is_some_and(|end| Instant::now() >= end)
    }

    fn mark(&mut self, user: UserId) {
        let claim = self.claims.entry(user.clone()).or_default();
        if !std::mem::replace(&mut claim.marked, true) {
            self.marked.push_back(user);
        }
    }

    fn presence(&self, user: &UserId) -> Presence {
        match self.claims.get(user) {
            Some(claim) if !claim.confirmed => Presence::Unconfirmed,
            Some(claim) if claim.others.is_empty() => Presence::Here,
            Some(_) => Presence::Shared,
            None => Presence::Unconfirmed,
        }
    }

    fn written(&mut self, truth: Truth, others: Vec<ServerId>) -> Option<Stranger> {
        let claim = self.claims.get_mut(&truth.user)?;
        claim.confirmed = truth.here;
        let new = claim.learn(&others) | std::mem::take(&mut claim.unknown);
        // Where there was reason for another write since this one began, that one's answer is what is waited for.
        let waiting = if claim.marked { Vec::new() } else { std::mem::take(&mut claim.waiting) };
        if !claim.marked {
            self.asserting.remove(&truth.user);
            if !truth.here {
                self.claims.remove(&truth.user);
            }
        }
        if !truth.here {
            return None;
        }
        if others.is_empty() {
            tell(waiting, &others);
            return None;
        }
        // Each time: to know of another says nothing of what it knows, which is not more than its last write was answered.
        Some(Stranger { user: truth.user, servers: others, new, waiting })
    }

    fn failed(&mut self, user: UserId) {
        self.repairs.insert(user.clone(), Instant::now() + REPAIR_AFTER);
        self.mark(user);
    }
}

/// Tells those who wait where else the user is.
pub(super) fn tell(waiting: Vec<oneshot::Sender<Vec<ServerId>>>, others: &[ServerId]) {
    for waiting in waiting {
        // A waiter that has gone needs no answer.
        let _ = waiting.send(others.to_vec());
    }
}

#[cfg(test)]
mod tests;
