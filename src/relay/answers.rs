//! Answers on their way back. One that only says "queued" is in no hurry: all it does is to let the sender forget the
//! item. Sent one by one, such answers would double the messages between two servers that have little to say.

use std::time::Duration;

use tokio::time::Instant;

use crate::wire;

/// How many answers go back as soon as they are there.
const ENOUGH: usize = 256;

/// How many do to a peer that reads no ranges, where each is a message of its own inside the one of the stream.
const ENOUGH_SINGLE: usize = 64;

/// Answers to items of so many bytes go back as soon as they are there: the sender keeps the items until then.
const ENOUGH_BYTES: usize = 256 * 1024;

/// How long an answer may wait for others; far below the age at which a sender gives an item up.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answers of one stream that have not been sent yet.
#[derive(Debug)]
pub(super) struct Answers {
    /// The peer reads ranges.
    in_ranges: bool,
    waiting: wire::RelayResponse,
    /// To how many items.
    count: usize,
    /// Of how many bytes.
    bytes: usize,
    /// Somebody waits for one of them: a server that introduces itself, or one that has to look elsewhere for who was not,
    /// or not only, here.
    is_urgent: bool,
    /// When the first of them has waited for long enough.
    due: Option<Instant>,
}

impl Answers {
    /// For a peer that reads ranges, or does not.
    pub(super) fn new(in_ranges: bool) -> Self {
        Self { in_ranges, waiting: wire::RelayResponse::default(), count: 0, bytes: 0, is_urgent: false, due: None }
    }

    /// Adds the answer to an item of so many bytes.
    pub(super) fn add(&mut self, answer: wire::Answer, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
        self.is_urgent |= sends_elsewhere(&answer);
        if !self.in_ranges || !says_queued(&answer) {
            self.waiting.answers.push(answer);
            return;
        }
        match self.waiting.queued.last_mut() {
            Some(range) if range.first.wrapping_add(range.count.into()) == answer.id => range.count += 1,
            _ => self.waiting.queued.push(wire::Range { first: answer.id, count: 1 }),
        }
    }

    /// Adds the answer to an introduction.
    pub(super) fn add_introduced(&mut self, id: u64) {
        self.is_urgent = true;
        self.waiting.introduced.push(id);
    }

    /// What is to be sent now: all, where there are enough, or where somebody waits for one of them.
    pub(super) fn ready(&mut self) -> Option<wire::RelayResponse> {
        let enough = if self.in_ranges { ENOUGH } else { ENOUGH_SINGLE };
        if self.is_urgent || self.count >= enough || self.bytes >= ENOUGH_BYTES {
            return self.take();
        }
        if self.due.is_none() && self.count > 0 {
            self.due = Some(Instant::now() + PATIENCE);
        }
        None
    }

    /// All that wait, if any do.
    pub(super) fn take(&mut self) -> Option<wire::RelayResponse> {
        let Self { waiting, .. } = std::mem::replace(self, Self::new(self.in_ranges));
        (waiting != wire::RelayResponse::default()).then_some(waiting)
    }

    /// Returns when some have waited for long enough; never while none do. Cancel-safe.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

fn says_queued(answer: &wire::Answer) -> bool {
    !sends_elsewhere(answer) && answer.full.is_empty()
}

fn sends_elsewhere(answer: &wire::Answer) -> bool {
    !answer.not_here.is_empty() || !answer.elsewhere.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds answers that say "queued".
    fn add(answers: &mut Answers, ids: std::ops::Range<u64>) -> Option<wire::RelayResponse> {
        ids.for_each(|id| answers.add(wire::Answer { id, ..wire::Answer::default() }, 1));
        answers.ready()
    }

    fn ids(response: Option<wire::RelayResponse>) -> Vec<u64> {
        let wire::RelayResponse { answers, queued, .. } = response.unwrap_or_default();
        let in_ranges = queued.into_iter().flat_map(|range| range.first..range.first + u64::from(range.count));
        answers.into_iter().map(|answer| answer.id).chain(in_ranges).collect()
    }

    #[test]
    fn answers_wait_until_there_are_enough() {
        for (in_ranges, enough) in [(false, ENOUGH_SINGLE), (true, ENOUGH)] {
            let mut answers = Answers::new(in_ranges);
            assert!(add(&mut answers, 0..enough as u64 - 1).is_none());
            let all = enough as u64 + 1;
            assert_eq!(ids(add(&mut answers, all - 2..all)), (0..all).collect::<Vec<_>>());
            assert!(answers.take().is_none());
            answers.add(wire::Answer::default(), ENOUGH_BYTES);
            assert!(answers.ready().is_some(), "what is large is not kept there for long");
        }
    }

    #[test]
    fn what_somebody_waits_for_is_told_at_once_with_all_that_waited() {
        let mut answers = Answers::new(false);
        for urgent in [
            wire::Answer { id: 2, not_here: vec![0], ..wire::Answer::default() },
            wire::Answer { id: 2, elsewhere: vec![0], ..wire::Answer::default() },
        ] {
            assert!(add(&mut answers, 0..2).is_none());
            answers.add(urgent, 1);
            assert_eq!(ids(answers.ready()), [0, 1, 2]);
        }
        assert!(add(&mut answers, 0..2).is_none());
        answers.add_introduced(7);
        assert_eq!(ids(answers.ready()), [0, 1]);
    }

    #[test]
    fn only_what_was_queued_for_all_is_in_a_range_and_a_gap_begins_another() {
        let mut answers = Answers::new(true);
        assert!(add(&mut answers, 1..4).is_none());
        answers.add(wire::Answer { id: 4, full: vec![0], ..wire::Answer::default() }, 1);
        answers.add(wire::Answer { id: 5, not_here: vec![0], ..wire::Answer::default() }, 1);
        let told = add(&mut answers, 6..7).unwrap();
        let ranges: Vec<_> = told.queued.iter().map(|range| (range.first, range.count)).collect();
        assert_eq!(ranges, [(1, 3), (6, 1)]);
        assert_eq!(told.answers.iter().map(|answer| answer.id).collect::<Vec<_>>(), [4, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_waits_says_when_they_go_and_with_none_nothing_does() {
        let mut answers = Answers::new(true);
        assert!(tokio::time::timeout(Duration::from_secs(60), answers.due()).await.is_err());
        let begin = Instant::now();
        add(&mut answers, 0..1);
        tokio::time::advance(PATIENCE / 2).await;
        add(&mut answers, 1..2);
        answers.due().await;
        assert!(begin.elapsed() < PATIENCE + Duration::from_millis(2));
        assert_eq!(ids(answers.take()), [0, 1]);
    }
}
