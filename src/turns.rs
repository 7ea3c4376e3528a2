//! A queue in which rooms take turns, so that a burst in one of them does not delay the others by all of it.
//!
//! Stochastic fairness queueing (P. E. McKenney, "Stochastic Fairness Queueing", INFOCOM 1990): a key always falls into
//! the same lane, so that what is of one key keeps its order, and the lanes that have something take turns. Two keys that
//! share a lane, one pair in 256, delay each other; no list of keys has to be kept.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

/// How many lanes there are; a lane is named by one byte.
const LANES: usize = 256;

/// How much work of a lane is done before it is the next one's turn.
const TURN: usize = 64;

/// An empty lane keeps room for so many at most.
const KEPT: usize = 64;

/// A queue in turns. Holds nothing that bounds it: whoever pushes knows how much there may be.
#[derive(Debug)]
pub struct Turns<T> {
    lanes: Box<[VecDeque<Waiting<T>>]>,
    /// The lanes that have something; it is the first one's turn.
    ring: VecDeque<u8>,
    /// How much work is left of that turn.
    left: usize,
    len: usize,
    hasher: RandomState,
}

#[derive(Debug)]
struct Waiting<T> {
    value: T,
    work: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let lanes = (0..LANES).map(|_| VecDeque::new()).collect();
        Self { lanes, ring: VecDeque::new(), left: TURN, len: 0, hasher: RandomState::default() }
    }
}

impl<T> Turns<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds what is to come after all else of its key. `work` is what it costs whoever takes it, such as its recipients.
    pub fn push(&mut self, key: &str, work: usize, value: T) {
        self.lane(key).push_back(Waiting { value, work });
    }

    /// Adds what is to come before all else of its key.
    pub fn push_first(&mut self, key: &str, work: usize, value: T) {
        self.lane(key).push_front(Waiting { value, work });
    }

    /// Takes the next, if it `may` be taken.
    pub fn pop_if(&mut self, may: impl FnOnce(&T) -> bool) -> Option<T> {
        let number = *self.ring.front()?;
        let lane = &mut self.lanes[usize::from(number)];
        let Waiting { value, work } = lane.pop_front_if(|first| may(&first.value))?;
        self.len -= 1;
        self.left = self.left.saturating_sub(work);
        if lane.is_empty() {
            lane.shrink_to(KEPT);
            self.ring.pop_front();
            self.left = TURN;
        } else if self.left == 0 {
            self.ring.rotate_left(1);
            self.left = TURN;
        }
        Some(value)
    }

    /// Takes out all that are `such`; of one key in their order. A lane is looked through only where its first, which has
    /// waited longest, is `due`.
    pub fn extract(&mut self, due: impl Fn(&T) -> bool, such: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| lane.front().is_some_and(|first| due(&first.value))) {
            let (out, stay): (Vec<_>, _) = std::mem::take(lane).into_iter().partition(|waiting| such(&waiting.value));
            *lane = VecDeque::from(stay);
            taken.extend(out.into_iter().map(|waiting| waiting.value));
        }
        self.len -= taken.len();
        self.ring.retain(|&lane| !self.lanes[usize::from(lane)].is_empty());
        taken
    }

    fn lane(&mut self, key: &str) -> &mut VecDeque<Waiting<T>> {
        let number = self.hasher.hash_one(key) as u8;
        let lane = &mut self.lanes[usize::from(number)];
        if lane.is_empty() {
            self.ring.push_back(number);
        }
        self.len += 1;
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(turns: &mut Turns<(&'static str, u32)>) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| turns.pop_if(|_| true)).collect()
    }

    /// Two keys that do not share a lane.
    fn two(turns: &Turns<(&'static str, u32)>) -> (&'static str, &'static str) {
        let lane = |key: &str| turns.hasher.hash_one(key) as u8;
        let other = ["b", "c", "d", "e", "f", "g"].into_iter().find(|other| lane(other) != lane("a"));
        ("a", other.expect("one of six is elsewhere"))
    }

    #[test]
    fn one_waits_for_a_turn_of_another_and_not_for_all_of_it() {
        let mut turns = Turns::default();
        let (busy, quiet) = two(&turns);
        (0..1_000).for_each(|number| turns.push(busy, TURN / 4, (busy, number)));
        turns.push(quiet, 1, (quiet, 0));
        let order = all(&mut turns);
        assert_eq!(order.iter().position(|(key, _)| *key == quiet), Some(4));
        assert_eq!(order.len(), 1_001);
        assert!(turns.is_empty() && turns.ring.is_empty());
    }

    #[test]
    fn what_is_of_one_key_keeps_its_order() {
        let mut turns = Turns::default();
        let (one, other) = two(&turns);
        for number in 0..300 {
            turns.push(one, 3, (one, number));
            turns.push(other, 100, (other, number));
        }
        let order = all(&mut turns);
        for key in [one, other] {
            assert!(order.iter().filter(|(of, _)| *of == key).map(|(_, number)| *number).eq(0..300));
        }
    }

    #[test]
    fn what_may_not_be_taken_stays_and_what_goes_first_comes_first() {
        let mut turns = Turns::default();
        turns.push("a", 1, ("a", 1));
        turns.push_first("a", 1, ("a", 0));
        assert_eq!(turns.pop_if(|_| false), None);
        assert_eq!(turns.len(), 2);
        assert_eq!(all(&mut turns), [("a", 0), ("a", 1)]);
    }

    #[test]
    fn what_is_taken_out_leaves_the_others_in_order_and_no_empty_turn() {
        let mut turns = Turns::default();
        let (one, other) = two(&turns);
        turns.push(other, 1, (other, 1));
        (0..6).for_each(|number| turns.push(one, 1, (one, number)));
        assert_eq!(turns.extract(|_| true, |(_, number)| number % 2 == 1).len(), 4);
        assert_eq!(all(&mut turns), [(one, 0), (one, 2), (one, 4)]);
        turns.push(one, 1, (one, 9));
        assert!(turns.extract(|(_, number)| *number > 9, |_| true).is_empty(), "looked at the first only");
    }
}
