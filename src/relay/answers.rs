//! Answers on their way back. One that only says "queued" is in no hurry: all it does is to let the sender forget the
//! item. Sent one by one, such answers would double the messages between two servers that have little to say.

use std::time::Duration;

use tokio::time::Instant;

use crate::wire;

/// How many answers go back as soon as they are there.
const ENOUGH: usize = 64;

/// How long an answer may wait for others; far below the age at which a sender gives an item up.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answers of one stream that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: wire::RelayResponse,
    /// When the first of them has waited for long enough.
    due: Option<Instant>,
}

impl Answers {
    /// Adds answers. Gives back what is to be sent now: all, where there are enough, or where somebody waits for one of
    /// them: a server that introduces itself, or one that has to look elsewhere for who was not, or not only, here.
    pub(super) fn add(&mut self, answers: wire::RelayResponse) -> Option<wire::RelayResponse> {
        let is_urgent = !answers.introduced.is_empty() || answers.answers.iter().any(sends_elsewhere);
        self.waiting.answers.extend(answers.answers);
        self.waiting.introduced.extend(answers.introduced);
        if is_urgent || self.waiting.answers.len() >= ENOUGH {
            return self.take();
        }
        if self.due.is_none() && !self.waiting.answers.is_empty() {
            self.due = Some(Instant::now() + PATIENCE);
        }
        None
    }

    /// All that wait, if any do.
    pub(super) fn take(&mut self) -> Option<wire::RelayResponse> {
        self.due = None;
        let answers = std::mem::take(&mut self.waiting);
        (answers != wire::RelayResponse::default()).then_some(answers)
    }

    /// Returns when some have waited for long enough; never while none do. Cancel-safe.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

fn sends_elsewhere(answer: &wire::Answer) -> bool {
    !answer.not_here.is_empty() || !answer.elsewhere.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(ids: std::ops::Range<u64>) -> wire::RelayResponse {
        let answers = ids.map(|id| wire::Answer { id, ..wire::Answer::default() }).collect();
        wire::RelayResponse { answers, ..wire::RelayResponse::default() }
    }

    fn ids(response: Option<wire::RelayResponse>) -> Vec<u64> {
        response.into_iter().flat_map(|response| response.answers).map(|answer| answer.id).collect()
    }

    #[test]
    fn answers_wait_until_there_are_enough() {
        let mut answers = Answers::default();
        assert!(answers.add(queued(0..ENOUGH as u64 - 1)).is_none());
        assert_eq!(ids(answers.add(queued(63..65))).len(), ENOUGH + 1);
        assert!(answers.take().is_none());
    }

    #[test]
    fn what_somebody_waits_for_is_told_at_once_with_all_that_waited() {
        let mut answers = Answers::default();
        for urgent in [
            wire::Answer { id: 2, not_here: vec![0], ..wire::Answer::default() },
            wire::Answer { id: 2, elsewhere: vec![0], ..wire::Answer::default() },
        ] {
            assert!(answers.add(queued(0..2)).is_none());
            let urgent = wire::RelayResponse { answers: vec![urgent], introduced: Vec::new() };
            assert_eq!(ids(answers.add(urgent)), [0, 1, 2]);
        }
        assert!(answers.add(queued(0..2)).is_none());
        let introduced = wire::RelayResponse { answers: Vec::new(), introduced: vec![7] };
        assert_eq!(ids(answers.add(introduced)), [0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_waits_says_when_they_go_and_with_none_nothing_does() {
        let mut answers = Answers::default();
        assert!(tokio::time::timeout(Duration::from_secs(60), answers.due()).await.is_err());
        let begin = Instant::now();
        answers.add(queued(0..1));
        tokio::time::advance(PATIENCE / 2).await;
        answers.add(queued(1..2));
        answers.due().await;
        assert!(begin.elapsed() < PATIENCE + Duration::from_millis(2));
        assert_eq!(ids(answers.take()), [0, 1]);
    }
}
