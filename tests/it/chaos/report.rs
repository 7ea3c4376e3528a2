//! What a run tells people.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fault::Fault;
use super::run::Size;
use crate::support::checker::{Counts, Pushes};
use crate::support::crowd::SEED;

/// The most faults of the server that are printed.
const MOST: usize = 20;

/// A fault that has happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) fault: Fault,
    /// After the beginning of the run.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    /// How many messages were answered meanwhile.
    pub(super) answered: usize,
    /// It could not be: the server was not up again.
    pub(super) left_out: bool,
}

/// All that is to be told of a run.
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) size: Size,
    pub(super) took: Duration,
    pub(super) done: Vec<Done>,
    pub(super) counts: Counts,
    pub(super) pushes: Pushes,
    /// What is wrong.
    pub(super) faults: Vec<String>,
    /// Where the servers' logs are kept, if something is wrong.
    pub(super) logs: Option<PathBuf>,
}

impl Report {
    /// Prints it, and fails where something is wrong.
    pub(super) fn judge(&self) {
        println!("\n{self}");
        assert!(self.faults.is_empty(), "{} faults, see above", self.faults.len());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { servers, users } = self.size;
        writeln!(
            to,
            "{servers} servers, {users} users, {:.0} s in all, {SEED}={}\n",
            self.took.as_secs_f64(),
            self.seed
        )?;
        writeln!(to, "{:>8} {:>7} {:>9}  what was done", "at", "for", "answered")?;
        for done in &self.done {
            let lasted = done.ended.saturating_sub(done.began);
            let (at, lasted) = (done.began.as_secs_f64(), lasted.as_secs_f64());
            let left_out = if done.left_out { " (left out: it was not up yet)" } else { "" };
            writeln!(to, "{at:6.1} s {lasted:5.1} s {:>9}  {}{left_out}", done.answered, done.fault)?;
        }
        self.fmt_counts(to)?;
        self.fmt_faults(to)
    }
}

impl Report {
    fn fmt_counts(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(to, "\n{:>9}  messages sent", counts.sent)?;
        writeln!(to, "{:>9}  answered", counts.answered)?;
        writeln!(to, "{:>9}  delivered, of which", counts.heard)?;
        writeln!(to, "{:>9}    live, on the sender's server", counts.local)?;
        writeln!(to, "{:>9}    live, from another server", counts.relayed)?;
        writeln!(to, "{:>9}    from the store: caught up or healed", counts.healed)?;
        writeln!(to, "{:>9}  connections", counts.connects)?;
        writeln!(to, "{:>9}  acknowledgements", counts.acks)?;
        writeln!(to, "{:>9}  receipts", counts.receipts)?;
        writeln!(to, "{:>9}  pushed", self.pushes.count())?;
        writeln!(to, "{:>9}  pushed again, under the same key", self.pushes.repeats())
    }

    fn fmt_faults(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults.is_empty() {
            return writeln!(to, "\nNothing lost, doubled or out of order.");
        }
        writeln!(to, "\n{} FAULTS", self.faults.len())?;
        self.faults.iter().take(MOST).try_for_each(|fault| writeln!(to, "  {fault}"))?;
        match &self.logs {
            Some(path) => writeln!(to, "The servers' logs are in {}.", path.display()),
            None => Ok(()),
        }
    }
}

/// Writes the logs of all runs of all servers, and answers where.
pub(super) fn keep_logs(seed: u64, logs: impl Iterator<Item = (String, Vec<String>)>) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
    std::fs::create_dir_all(&directory).expect("a directory for the logs");
    for (index, (name, lines)) in logs.enumerate() {
        std::fs::write(directory.join(format!("{index:03}-{name}.log")), lines.join("\n")).expect("a log is written");
    }
    directory
}
