//! A counted span as it is told: what was used, by what it is divided.

use crate::args::Args;
use crate::conductor::Measured;
use crate::readings::Usage;
use crate::stats::Span;

/// A counted span, from inside and from outside.
pub(crate) struct View<'a> {
    pub(crate) args: &'a Args,
    pub(crate) measured: &'a Measured,
    pub(crate) span: &'a Span,
    /// The first span: what the servers do anyway, where others come meanwhile.
    pub(crate) first: &'a Measured,
}

/// What a process used in a span.
pub(crate) struct Used<'a> {
    pub(crate) name: &'a str,
    pub(crate) cpu_seconds: f64,
    pub(crate) switches: f64,
    pub(crate) rss: u64,
    pub(crate) peak_rss: u64,
    pub(crate) growth: f64,
}

impl View<'_> {
    pub(crate) fn seconds(&self) -> f64 {
        seconds(self.measured)
    }

    /// By what costs are divided: what was delivered, or else who connected; none where there was neither.
    pub(crate) fn per(&self) -> Option<f64> {
        let count = if self.span.delivered > 0 { self.span.delivered } else { self.measured.connected as u64 };
        (count > 0).then_some(count as f64)
    }

    pub(crate) fn unit(&self) -> &'static str {
        if self.span.delivered > 0 { "delivery" } else { "connection" }
    }

    pub(crate) fn used(&self) -> Vec<Used<'_>> {
        self.used_in(self.measured)
    }

    pub(crate) fn used_in(&self, measured: &Measured) -> Vec<Used<'_>> {
        let names = self.args.pids.iter().map(|(name, _)| name.as_str()).chain(["load"]);
        let usages = measured.before.processes.iter().zip(&measured.after.processes);
        names.zip(usages).map(|(name, pair)| Used::between(name, pair)).collect()
    }

    /// CPU seconds of all processes that were named, databases too, without the generator.
    pub(crate) fn cpu_of_named(&self) -> f64 {
        without_load(&self.used())
    }

    /// CPU seconds per connection that came, beyond what the servers used before any did.
    pub(crate) fn cpu_per_connect(&self) -> Option<f64> {
        if self.measured.connected == 0 || self.first.connected > 0 {
            return None;
        }
        let anyway = without_load(&self.used_in(self.first)) / seconds(self.first) * self.seconds();
        Some((self.cpu_of_named() - anyway) / self.measured.connected as f64)
    }

    /// How much of the time of its threads the generator used.
    pub(crate) fn share_of_load(&self) -> f64 {
        let cpu: f64 = self.used().iter().filter(|used| used.name == "load").map(|used| used.cpu_seconds).sum();
        cpu / self.seconds() / f64::from(self.args.threads)
    }

    /// By how much a count of the servers has grown; none where they do not show it.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.measured.metrics.get(name).copied()
    }

    /// By what such a count is divided.
    pub(crate) fn metrics_per(&self) -> Option<f64> {
        if self.span.delivered > 0 { Some(self.measured.metrics_delivered.max(1) as f64) } else { self.per() }
    }

    pub(crate) fn loopback(&self) -> f64 {
        self.measured.after.loopback.saturating_sub(self.measured.before.loopback) as f64
    }
}

impl<'a> Used<'a> {
    fn between(name: &'a str, (before, after): (&Usage, &Usage)) -> Self {
        Self {
            name,
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            switches: after.switches.saturating_sub(before.switches) as f64,
            rss: after.rss,
            peak_rss: after.peak_rss,
            growth: after.rss as f64 - before.rss as f64,
        }
    }
}

fn seconds(measured: &Measured) -> f64 {
    (measured.after.at - measured.before.at).as_secs_f64()
}

fn without_load(used: &[Used<'_>]) -> f64 {
    used.iter().filter(|used| used.name != "load").map(|used| used.cpu_seconds).sum()
}
