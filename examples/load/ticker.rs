//! A timer that a poll can wait for, finer than the whole milliseconds that a poll itself knows.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Ticks from when it is set.
#[derive(Debug)]
pub(crate) struct Ticker(OwnedFd);

impl Ticker {
    /// One that does not tick yet, and wakes the poll of `registry` when it does.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Ticks each `period` from now on; zero stops it.
    pub(crate) fn set(&self, period: Duration) -> io::Result<()> {
        let period = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: period.subsec_nanos().into() };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: period, it_value: period })?;
        Ok(())
    }

    /// Takes the ticks that have come.
    pub(crate) fn take(&self) {
        // None has come: then there is nothing to take.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}
