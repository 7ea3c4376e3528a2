//! The end of the process, asked for and waited for: one token to stop by, one tracker to count what still runs.

use std::future::Future;
use std::io;

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How a process ends that was interrupted twice: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// What every part of the server holds to know that it must stop, and to be waited for. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    /// Cancelled when the server must stop: nobody new is taken, and those who are connected are sent away.
    pub stop: CancellationToken,
    /// Cancelled once they are gone: what serves them finishes what it has and ends.
    pub end: CancellationToken,
    /// Everything that runs.
    pub tasks: TaskTracker,
}

impl Lifecycle {
    /// A server that runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task of that name, which must end soon after `stop` or, where others still need it, `end` is cancelled.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let end = End(name);
        // An `async` block around it would hold it twice: as captured, and as awaited.
        self.tasks.spawn(future.map(move |()| drop(end)));
    }

    /// Stops on the first SIGTERM or Ctrl-C. The second one ends the process at once, for a person who will not wait.
    ///
    /// # Errors
    ///
    /// When the system does not let the process listen for signals.
    pub fn stop_on_signals(&self) -> io::Result<()> {
        let mut signals =
            Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        let stop = self.stop.clone();
        // Not counted among the tasks: it has to outlast the wait for them.
        #[expect(clippy::disallowed_methods, reason = "this task lives as long as the process")]
        tokio::spawn(async move {
            let name = signals.next().await;
            tracing::info!(signal = name, "stopping");
            stop.cancel();
            let name = signals.next().await;
            tracing::warn!(signal = name, "a second signal, ending at once");
            std::process::exit(INTERRUPTED);
        });
        Ok(())
    }
}

/// The two signals that ask for the end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Tells of the end of a task, whichever way it ends.
struct End(&'static str);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.0, "task panicked");
        } else {
            tracing::trace!(task = self.0, "task ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_waited_for_and_end_by_the_token() {
        let lifecycle = Lifecycle::new();
        let stop = lifecycle.stop.clone();
        lifecycle.spawn("until stop", async move { stop.cancelled().await });
        assert_eq!(lifecycle.tasks.len(), 1);
        lifecycle.stop.cancel();
        lifecycle.tasks.close();
        lifecycle.tasks.wait().await;
    }

    #[tokio::test]
    async fn a_task_that_panics_does_not_hold_the_end() {
        let lifecycle = Lifecycle::new();
        lifecycle.spawn("panics", async { panic!("on purpose") });
        lifecycle.tasks.close();
        lifecycle.tasks.wait().await;
    }
}
