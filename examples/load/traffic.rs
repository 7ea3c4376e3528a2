//! Who sends when: a closed loop keeps so many messages on their way, an open loop goes by the clock.

use std::ops::Range;

use crate::plan::{Flow, Group};

/// How long a closed loop waits without any progress before it takes what is on its way for lost, in ns.
const PATIENCE_NS: u64 = 3_000_000_000;

/// The pace of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// So many messages on their way per group.
    Window(u32),
    /// One message each so many ns, the groups taking turns.
    Every(f64),
}

/// A message to be sent now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) flow: u32,
    /// Counts the messages of the flow, from 1.
    pub(crate) number: u32,
    /// For how many it is.
    pub(crate) recipients: u32,
    /// When it was meant to be sent.
    pub(crate) at: u64,
}

/// The groups of a thread.
#[derive(Debug)]
pub(crate) struct Traffic {
    groups: Vec<Turns>,
    /// Those that write by themselves come before those that wait for a burst.
    steady: usize,
    flows: Vec<Numbered>,
    pace: Pace,
    /// When sending began; none while nothing is sent.
    began: Option<u64>,
    /// How many were sent by the clock.
    ticks: u64,
}

#[derive(Debug)]
struct Numbered {
    flow: Flow,
    group: u32,
    sent: u32,
}

#[derive(Debug)]
struct Turns {
    first: u32,
    flows: u32,
    turn: u32,
    recipients: u32,
    members: Range<usize>,
    /// Deliveries that are on their way.
    outstanding: u32,
    /// When something last came of it.
    progress: u64,
}

impl Traffic {
    /// Groups at a pace; nothing is sent yet.
    pub(crate) fn new(groups: Vec<Group>, pace: Pace) -> Self {
        let mut traffic = Self { groups: Vec::new(), steady: 0, flows: Vec::new(), pace, began: None, ticks: 0 };
        let (bursting, steady): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.burst);
        traffic.steady = steady.len();
        for group in steady.into_iter().chain(bursting) {
            let (first, flows) = (traffic.flows.len() as u32, group.flows.len() as u32);
            let Group { recipients, members, .. } = group;
            let turns = Turns { first, flows, turn: 0, recipients, members, outstanding: 0, progress: 0 };
            let number = traffic.groups.len() as u32;
            traffic.flows.extend(group.flows.into_iter().map(|flow| Numbered { flow, group: number, sent: 0 }));
            traffic.groups.push(turns);
        }
        traffic
    }

    /// Begins to send.
    pub(crate) fn start(&mut self, now: u64) {
        (self.began, self.ticks) = (Some(now), 0);
        self.groups.iter_mut().for_each(|group| group.progress = now);
    }

    /// Sends nothing more.
    pub(crate) fn stop(&mut self) {
        self.began = None;
    }

    /// The flow of that number: its user and its target.
    pub(crate) fn flow(&self, flow: u32) -> Option<&Flow> {
        self.flows.get(flow as usize).map(|numbered| &numbered.flow)
    }

    /// Whether what comes of this flow is for that user: for all of its group but the one who writes.
    pub(crate) fn is_for(&self, flow: u32, user: usize) -> bool {
        let Some(numbered) = self.flows.get(flow as usize) else { return false };
        numbered.flow.from != user && self.groups[numbered.group as usize].members.contains(&user)
    }

    /// How many groups write by themselves; they come first.
    pub(crate) fn steady(&self) -> usize {
        self.steady
    }

    /// The next message of each group that waits for a burst.
    pub(crate) fn burst(&mut self, now: u64) -> Vec<Due> {
        (self.steady..self.groups.len()).map(|group| self.take(group, now)).collect()
    }

    /// What the clock says is due: the next of it.
    pub(crate) fn due_by_clock(&mut self, now: u64) -> Option<Due> {
        let (Pace::Every(period), Some(began)) = (self.pace, self.began) else { return None };
        let at = began + (self.ticks as f64 * period) as u64;
        if at > now || self.steady == 0 {
            return None;
        }
        let group = self.ticks as usize % self.steady;
        self.ticks += 1;
        Some(self.take(group, at))
    }

    /// What a group may send by its window: the next of it.
    pub(crate) fn due_by_window(&mut self, group: usize, now: u64) -> Option<Due> {
        let (Pace::Window(window), Some(_)) = (self.pace, self.began) else { return None };
        let turns = &self.groups[group];
        (turns.outstanding <= (window - 1) * turns.recipients).then(|| self.take(group, now))
    }

    fn take(&mut self, group: usize, at: u64) -> Due {
        let turns = &mut self.groups[group];
        let flow = turns.first + turns.turn;
        turns.turn = (turns.turn + 1) % turns.flows;
        turns.outstanding += turns.recipients;
        let numbered = &mut self.flows[flow as usize];
        numbered.sent += 1;
        Due { flow, number: numbered.sent, recipients: turns.recipients, at }
    }

    /// Notes that a message of this flow reached one of those it was for. Answers the group.
    pub(crate) fn arrived(&mut self, flow: u32, now: u64) -> Option<usize> {
        let group = self.flows.get(flow as usize)?.group as usize;
        let turns = &mut self.groups[group];
        turns.outstanding = turns.outstanding.saturating_sub(1);
        turns.progress = now;
        Some(group)
    }

    /// Gives up what groups have waited for too long. Answers how many groups did.
    pub(crate) fn give_up(&mut self, now: u64) -> u64 {
        let (Pace::Window(_), Some(_)) = (self.pace, self.began) else { return 0 };
        let mut count = 0;
        for turns in &mut self.groups {
            if turns.outstanding > 0 && now.saturating_sub(turns.progress) > PATIENCE_NS {
                (turns.outstanding, turns.progress) = (0, now);
                count += 1;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(pace: Pace) -> Traffic {
        let flows = (0..3).map(|from| Flow { from, target: String::new() }).collect();
        Traffic::new(vec![Group { flows, members: 0..3, recipients: 2, burst: false }], pace)
    }

    #[test]
    fn a_window_is_refilled_when_a_whole_message_has_arrived() {
        let mut traffic = traffic(Pace::Window(2));
        assert!(traffic.due_by_window(0, 5).is_none(), "before it starts");
        traffic.start(5);
        let flows: Vec<u32> = std::iter::from_fn(|| traffic.due_by_window(0, 5)).map(|due| due.flow).collect();
        assert_eq!(flows, [0, 1]);
        traffic.arrived(0, 6);
        assert!(traffic.due_by_window(0, 6).is_none());
        traffic.arrived(0, 6);
        assert!(traffic.due_by_window(0, 6).is_some_and(|due| due.flow == 2 && due.number == 1));
    }

    #[test]
    fn what_comes_of_a_flow_is_for_all_of_its_group_but_its_writer() {
        let traffic = traffic(Pace::Window(1));
        assert_eq!([0, 1, 2, 3].map(|user| traffic.is_for(1, user)), [true, false, true, false]);
        assert!(!traffic.is_for(3, 0), "there is no such flow");
    }

    #[test]
    fn what_the_clock_says_is_meant_for_its_time_however_late_it_is_asked() {
        let mut traffic = traffic(Pace::Every(10.0));
        traffic.start(100);
        let times: Vec<u64> = std::iter::from_fn(|| traffic.due_by_clock(125)).map(|due| due.at).collect();
        assert_eq!(times, [100, 110, 120]);
    }
}
