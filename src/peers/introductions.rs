//! Introductions to one server: it is told which of its users have a session here, too, until it has answered.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;

use crate::ids::UserId;
use crate::wire;

/// The most that wait or are out.
const CAPACITY: usize = 8_192;

/// The most in one stream message.
const BATCH: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Introductions {
    waiting: VecDeque<(u64, Introduction)>,
    /// Those that went out, by their ids.
    out: BTreeMap<u64, Introduction>,
    last_id: u64,
}

#[derive(Debug)]
struct Introduction {
    user: UserId,
    answered: oneshot::Sender<()>,
}

impl Introductions {
    /// Adds one, if there is room for it: what comes back is told when the server has answered, and is closed where it
    /// never will.
    pub(super) fn add(&mut self, user: UserId) -> oneshot::Receiver<()> {
        let (answered, answer) = oneshot::channel();
        if self.waiting.len() + self.out.len() >= CAPACITY {
            self.waiting.retain(|(_, introduction)| !introduction.answered.is_closed());
        }
        if self.waiting.len() + self.out.len() < CAPACITY {
            self.last_id += 1;
            self.waiting.push_back((self.last_id, Introduction { user, answered }));
        }
        answer
    }

    /// Takes what is to go out now.
    pub(super) fn take(&mut self) -> Vec<wire::Introduction> {
        let count = self.waiting.len().min(BATCH);
        let introduce = |(id, introduction): (u64, Introduction)| {
            let user = introduction.user.to_string();
            self.out.insert(id, introduction);
            wire::Introduction { id, user }
        };
        self.waiting.drain(..count).map(introduce).collect()
    }

    /// Takes in answers.
    pub(super) fn answer(&mut self, ids: &[u64]) {
        for introduction in ids.iter().filter_map(|id| self.out.remove(id)) {
            // Whoever waited for it may have gone.
            let _ = introduction.answered.send(());
        }
    }

    /// What went out and has no answer is to go out again.
    pub(super) fn rewind(&mut self) {
        while let Some(last) = self.out.pop_last() {
            self.waiting.push_front(last);
        }
    }

    /// Gives all up.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.out.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(introductions: &mut Introductions) -> Vec<(u64, String)> {
        introductions.take().into_iter().map(|introduction| (introduction.id, introduction.user)).collect()
    }

    #[test]
    fn what_has_no_answer_is_said_again_in_order_and_what_was_given_up_is_closed() {
        let mut introductions = Introductions::default();
        let [mut alice, mut bob] = ["alice", "bob"].map(|name| introductions.add(name.parse().unwrap()));
        let said = [(1, "alice".to_owned()), (2, "bob".to_owned())];
        assert_eq!(names(&mut introductions), said);
        assert!(names(&mut introductions).is_empty());
        introductions.rewind();
        assert_eq!(names(&mut introductions), said);
        introductions.answer(&[2, 7]);
        assert_eq!((alice.try_recv(), bob.try_recv()), (Err(oneshot::error::TryRecvError::Empty), Ok(())));
        introductions.clear();
        assert_eq!(alice.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn there_is_a_bound_past_which_none_is_taken() {
        let mut introductions = Introductions::default();
        let answers: Vec<_> = (0..=CAPACITY).map(|_| introductions.add("alice".parse().unwrap())).collect();
        let closed = |mut answer: oneshot::Receiver<()>| answer.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        assert_eq!(answers.into_iter().map(closed).filter(|closed| *closed).count(), 1);
    }
}
