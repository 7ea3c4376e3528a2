//! Whether numbers come each once and in order.

/// What a number is to those that came before it, from best to worst: of two that are said of one message, the greater
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Higher than all.
    Next,
    /// New, and lower than one that came before it.
    Late,
    /// Too far below the highest to say whether it came before.
    Unknown,
    /// It came before.
    Again,
}

/// How far below the highest a number is still known for certain.
const WINDOW: u64 = 64;

/// The numbers that came.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    highest: u64,
    /// Bit `n`: the number `highest - n` came.
    seen: u64,
}

impl Sequence {
    /// Takes a number.
    pub(crate) fn take(&mut self, number: u64) -> Place {
        if self.seen == 0 || number > self.highest {
            let ahead = number - self.highest.min(number);
            self.seen = if ahead >= WINDOW { 1 } else { self.seen << ahead | 1 };
            self.highest = number;
            return Place::Next;
        }
        let below = self.highest - number;
        if below >= WINDOW {
            return Place::Unknown;
        }
        let bit = 1 << below;
        let place = if self.seen & bit == 0 { Place::Late } else { Place::Again };
        self.seen |= bit;
        place
    }

    /// The highest number that came; 0 where none did.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_late_comers_are_told_apart() {
        let mut sequence = Sequence::default();
        let places = [5, 6, 9, 7, 9, 7, 8, 100, 9, 80].map(|number| sequence.take(number));
        use Place::{Again, Late, Next, Unknown};
        assert_eq!(places, [Next, Next, Next, Late, Again, Again, Late, Next, Unknown, Late]);
    }
}
