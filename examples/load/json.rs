//! Lines of JSON for machines.

use serde_json::{Value, json};

use crate::args::Kind;
use crate::report::{QUANTILES, faults};
use crate::stats::{Times, Totals};
use crate::view::{Used, View};

/// The counters of the servers that a line has.
const METRICS: [&str; 7] = [
    "lookups",
    "looked_up_users",
    "relay_items_sent",
    "relay_messages_sent",
    "wasted_relays",
    "degraded_relays",
    "drops",
];

impl View<'_> {
    /// Everything about the span, and the faults of the whole run.
    pub(crate) fn json(&self, totals: &Totals) -> Value {
        let (seconds, span, args) = (self.seconds(), self.span, self.args);
        let mut line = json!({
            "scenario": format!("{:?}", args.scenario).to_lowercase(),
            "span": self.measured.name,
            "kind": if args.kind == Kind::Send { "send" } else { "signal" },
            "servers": args.servers.len(),
            "rate": args.rate,
            "window": if args.rate.is_none() { Some(args.window) } else { None },
            "payload": args.payload,
            "seconds": seconds,
            "connected": self.measured.connected,
            "sent_per_s": span.sent as f64 / seconds,
            "delivered": span.delivered,
            "delivered_per_s": span.delivered as f64 / seconds,
            "aside": span.aside,
            "metrics_delivered": self.measured.metrics_delivered,
            "latency_ms": times_json(&span.latency),
            "sent_ms": times_json(&span.commits),
            "connect_ms": times_json(&span.connects),
            "expected": totals.expected,
            "faults": faults(totals),
            "cpu_s": self.cpu_of_named(),
            "loopback_bytes": self.loopback(),
            "processes": self.used().iter().map(|used| self.process_json(used)).collect::<Value>(),
        });
        line["load_share"] = json!(self.share_of_load());
        line["per"] = json!(self.unit());
        line["cpu_us_per"] = json!(self.per().map(|per| self.cpu_of_named() * 1e6 / per));
        line["connect_cpu_us"] = json!(self.cpu_per_connect().map(|cpu| cpu * 1e6));
        line["loopback_bytes_per"] = json!(self.per().map(|per| self.loopback() / per));
        for name in METRICS {
            line[name] = json!(self.metric(&format!("minichat_{name}_total")));
        }
        args.tags.iter().for_each(|(name, value)| line[name] = json!(value));
        line
    }

    fn process_json(&self, used: &Used<'_>) -> Value {
        let growth = (self.measured.connected > 0).then(|| used.growth / self.measured.connected as f64);
        json!({
            "name": used.name,
            "cpu_s": used.cpu_seconds,
            "cpu_us_per": self.per().map(|per| used.cpu_seconds * 1e6 / per),
            "switches": used.switches,
            "switches_per": self.per().map(|per| used.switches / per),
            "rss_bytes": used.rss,
            "peak_rss_bytes": used.peak_rss,
            "rss_growth_bytes": used.growth,
            "rss_growth_bytes_per_connection": growth,
        })
    }
}

fn times_json(times: &Times) -> Value {
    if times.count() == 0 {
        return Value::Null;
    }
    QUANTILES.iter().map(|(label, share)| ((*label).to_owned(), json!(times.quantile_ms(*share)))).collect()
}
