//! Who is to be dialled, and when.

use std::collections::VecDeque;

/// The most connections that are being made at once by a thread.
const MOST_AT_ONCE: usize = 256;

/// Where there is no rate: what a server takes well.
const AT_ONCE: usize = 32;

/// Connections that wait to be made.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    waiting: VecDeque<usize>,
    under_way: usize,
    /// When the next is due, and the time between two, in ns; none dials as soon as others are done.
    clock: Option<(f64, f64)>,
}

impl Dialer {
    /// Dials these, the next as soon as others are done.
    pub(crate) fn dial(&mut self, sockets: impl Iterator<Item = usize>) {
        self.clock = None;
        self.waiting.extend(sockets);
    }

    /// Dials these, one each `period` ns.
    pub(crate) fn dial_by_clock(&mut self, sockets: impl Iterator<Item = usize>, now: u64, period: f64) {
        self.clock = Some((now as f64, period));
        self.waiting.extend(sockets);
    }

    /// Whether someone waits.
    pub(crate) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next to be dialled now, with the time it was meant for.
    pub(crate) fn next(&mut self, now: u64) -> Option<(usize, u64)> {
        let most = if self.clock.is_some() { MOST_AT_ONCE } else { AT_ONCE };
        if self.under_way >= most || self.waiting.is_empty() {
            return None;
        }
        let at = match &mut self.clock {
            Some((due, _)) if *due > now as f64 => return None,
            Some((due, period)) => std::mem::replace(due, *due + *period) as u64,
            None => now,
        };
        self.under_way += 1;
        self.waiting.pop_front().map(|socket| (socket, at))
    }

    /// One that was dialled is open, or has failed.
    pub(crate) fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}
