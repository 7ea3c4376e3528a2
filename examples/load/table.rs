//! Tables for people.

use std::fmt::Write;

use crate::report::QUANTILES;
use crate::stats::Times;
use crate::view::View;

impl View<'_> {
    /// Writes everything about the span.
    pub(crate) fn table(&self, text: &mut String) {
        let (seconds, span) = (self.seconds(), self.span);
        let _ = writeln!(
            text,
            "{}: {seconds:.1} s, {:.0} messages/s sent, {:.0}/s delivered, {} connected",
            self.measured.name,
            span.sent as f64 / seconds,
            span.delivered as f64 / seconds,
            self.measured.connected
        );
        times(text, "delivery", &span.latency);
        times(text, "sent", &span.commits);
        times(text, "connect", &span.connects);
        self.processes(text);
        if let Some(cpu) = self.cpu_per_connect() {
            let _ = writeln!(text, "  per connection: {:.0} us CPU beyond that of {:?}", cpu * 1e6, self.first.name);
        }
        let Some(per) = self.per() else { return };
        let _ = writeln!(text, "  per {}: {:.0} loopback bytes", self.unit(), self.loopback() / per);
        if span.aside > 0 {
            let _ = writeln!(text, "  {} deliveries to those who do not count", span.aside);
        }
        if !self.args.admins.is_empty() {
            let per = self.metrics_per().unwrap_or(per);
            let shown = |name: &str, per: f64, digits: usize| {
                self.metric(name).map_or("unknown".to_owned(), |count| format!("{:.digits$}", count / per))
            };
            let _ = writeln!(
                text,
                "  per {}: {} look-ups, {} relay items in {} stream messages; {} wasted relays in all",
                self.unit(),
                shown("minichat_lookups_total", per, 4),
                shown("minichat_relay_items_sent_total", per, 3),
                shown("minichat_relay_messages_sent_total", per, 3),
                shown("minichat_wasted_relays_total", 1.0, 0)
            );
        }
    }

    fn processes(&self, text: &mut String) {
        let per = self.per().unwrap_or(f64::INFINITY);
        let unit = self.unit();
        let _ = writeln!(
            text,
            "  {:12} {:>8} {:>14} {:>16} {:>9} {:>14}",
            "process",
            "cpu s",
            format!("us/{unit}"),
            format!("switches/{unit}"),
            "RSS MiB",
            if self.measured.connected > 0 { "KiB/connection" } else { "growth KiB" }
        );
        for used in self.used() {
            let _ = writeln!(
                text,
                "  {:12} {:8.2} {:14.2} {:16.3} {:9.1} {:14.2}",
                used.name,
                used.cpu_seconds,
                used.cpu_seconds * 1e6 / per,
                used.switches / per,
                used.rss as f64 / f64::from(1 << 20),
                used.growth / 1024.0 / self.measured.connected.max(1) as f64
            );
        }
        let named = self.cpu_of_named();
        let _ = writeln!(text, "  {:12} {named:8.2} {:14.2}", "all but load", named * 1e6 / per);
    }
}

fn times(text: &mut String, name: &str, times: &Times) {
    if times.count() == 0 {
        return;
    }
    let _ = write!(text, "  {name:9}");
    for (label, share) in QUANTILES {
        let _ = write!(text, " {label} {:.3} ms ", times.quantile_ms(share));
    }
    let _ = writeln!(text, "of {}", times.count());
}
