//! Every metric of the server, in one place, in the OpenMetrics text format. Units are in the names.

mod striped;

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use crate::protocol::{Close, Code, TracePath};
use striped::Striped;

/// A count of what happened since the start.
pub type Counter = counter::Counter<u64, Striped>;

/// The metrics of one server. To count what happens costs no lock and no look-up, and hardly ever a wait for another core.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Sockets that are open now.
    pub connections: Gauge,
    /// Sockets that were opened.
    pub connects: Counter,
    /// Messages that were stored for a client of this server.
    pub sends: Counter,
    /// Sends that were known from before.
    pub repeated_sends: Counter,
    /// Signals that were taken from a client of this server.
    pub signals: Counter,
    deliveries: [Counter; 3],
    /// Signals that were queued for a session of this server.
    pub signal_deliveries: Counter,
    /// Writes of positions to the database.
    pub position_writes: Counter,
    /// Receipts that were told from this server.
    pub receipts: Counter,
    /// Receipts that were queued for a session of this server.
    pub receipt_deliveries: Counter,
    /// Items that were queued for other servers.
    pub relay_items_sent: Counter,
    /// Items that were sent once more after a stream broke.
    pub relay_items_resent: Counter,
    /// Stream messages that carried items to other servers.
    pub relay_messages_sent: Counter,
    /// Items that came from other servers.
    pub relay_items_received: Counter,
    /// Items that came for users of whom none was here, the sender having no reason to doubt it.
    pub wasted_relays: Counter,
    /// Items that were queued for servers which the registry does not name, but whose users it may have lost.
    pub degraded_relays: Counter,
    /// Look-ups: round trips to the registry.
    pub lookups: Counter,
    /// Users that were looked up.
    pub looked_up_users: Counter,
    /// Users whose place was known without a look-up.
    pub recalled_users: Counter,
    /// Users who were here while another server that has them did not know it.
    pub late_introductions: Counter,
    /// Look-ups without an answer.
    pub failed_lookups: Counter,
    /// Pushes that were decided: to be made, for people who have not acknowledged.
    pub pushes_decided: Counter,
    /// Users whose place in the registry is not known to be right.
    pub unsettled_claims: Gauge,
    /// Bytes that wait to be stored.
    pub store_queue_bytes: Gauge,
    /// Bytes that wait for other servers, or for their answer.
    pub relay_queue_bytes: Gauge,
    /// Whether this server cannot register its users: 0 or 1.
    pub degraded: Gauge,
    pushes: Family<[(&'static str, &'static str); 2], Counter>,
    drops: [Counter; DROPS.len()],
    closes: [Counter; Close::ALL.len()],
    rejects: [Counter; Code::ALL.len()],
    /// Whose turn it is to raise a counter: two who see the same gap would both close it.
    raising: Mutex<()>,
}

/// Why something was dropped that was on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// A signal or receipt whose recipient does not read fast enough.
    SignalToSlow,
    /// A signal or receipt that took too long on its way here.
    SignalTooOld,
    /// A signal or receipt that waited too long for another server, or was on a stream that broke.
    SignalWaited,
    /// A signal or receipt that found a queue full.
    SignalQueueFull,
    /// A stored message that found the queue to a server full; that server reads it from the store.
    RelayQueueFull,
    /// A stored message that a server did not answer in time; that server reads it from the store.
    RelayTooOld,
    /// A stored message for a server that is not known yet; it reads that from the store when it is.
    RelayToUnknown,
    /// That recipients were not where they were thought to be: too many such answers came at once to look all up again.
    SecondLookup,
}

/// What became of a push, once it was taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The target has it.
    Sent,
    /// It failed, and is tried again.
    Retried,
    /// It was given up.
    Dead,
    /// It was not wanted any more.
    Cancelled,
    /// Its device is not registered any more.
    Unregistered,
}

const PUSHED: [(Pushed, &str); 5] = [
    (Pushed::Sent, "sent"),
    (Pushed::Retried, "retried"),
    (Pushed::Dead, "dead"),
    (Pushed::Cancelled, "cancelled"),
    (Pushed::Unregistered, "unregistered"),
];

/// The counts of the pushes of one kind, by outcome.
#[derive(Debug)]
pub struct PushCounts([Counter; PUSHED.len()]);

impl PushCounts {
    /// Counts a push.
    pub fn count(&self, pushed: Pushed) {
        self.0[pushed as usize].inc();
    }
}

const DROPS: [(Drop, &str); 8] = [
    (Drop::SignalToSlow, "signal_to_slow_client"),
    (Drop::SignalTooOld, "signal_too_old"),
    (Drop::SignalWaited, "signal_waited_too_long"),
    (Drop::SignalQueueFull, "signal_queue_full"),
    (Drop::RelayQueueFull, "relay_queue_full"),
    (Drop::RelayTooOld, "relay_too_old"),
    (Drop::RelayToUnknown, "relay_to_unknown_server"),
    (Drop::SecondLookup, "second_lookup"),
];

const PATHS: [TracePath; 3] = [TracePath::Local, TracePath::Relay, TracePath::Healed];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("minichat");
        let r = &mut registry;
        Self {
            connections: one(r, "connections", "Sockets that are open"),
            connects: one(r, "connects", "Sockets that were opened"),
            sends: one(r, "sends", "Messages that were stored for clients of this server"),
            repeated_sends: one(r, "repeated_sends", "Sends that were known from before"),
            signals: one(r, "signals", "Signals that were taken from clients of this server"),
            deliveries: each(
                r,
                "path",
                PATHS.map(TracePath::name),
                "deliveries",
                "Messages queued for a session, by way",
            ),
            signal_deliveries: one(r, "signal_deliveries", "Signals that were queued for a session"),
            position_writes: one(r, "position_writes", "Writes of positions to the database"),
            receipts: one(r, "receipts", "Receipts that were told from this server"),
            receipt_deliveries: one(r, "receipt_deliveries", "Receipts that were queued for a session"),
            relay_items_sent: one(r, "relay_items_sent", "Items that were queued for other servers"),
            relay_items_resent: one(r, "relay_items_resent", "Items that were sent once more after a stream broke"),
            relay_messages_sent: one(r, "relay_messages_sent", "Stream messages that carried items to other servers"),
            relay_items_received: one(r, "relay_items_received", "Items that came from other servers"),
            wasted_relays: one(r, "wasted_relays", "Items that came for users of whom none was here"),
            degraded_relays: one(r, "degraded_relays", "Items for servers whose users the registry may not know"),
            lookups: one(r, "lookups", "Round trips to the registry to find users"),
            looked_up_users: one(r, "looked_up_users", "Users that were looked up"),
            recalled_users: one(r, "recalled_users", "Users whose place was known without a look-up"),
            late_introductions: one(
                r,
                "late_introductions",
                "Users who were here while another server that has them did not know it",
            ),
            failed_lookups: one(r, "failed_lookups", "Look-ups without an answer"),
            pushes_decided: one(r, "pushes_decided", "Pushes to be made, for people who have not acknowledged"),
            unsettled_claims: one(r, "unsettled_claims", "Users whose registry entry is not known to be right"),
            store_queue_bytes: one(r, "store_queue_bytes", "Bytes that wait to be stored"),
            relay_queue_bytes: one(r, "relay_queue_bytes", "Bytes that wait for other servers"),
            degraded: one(r, "degraded", "Whether this server cannot register its users"),
            pushes: one(r, "pushes", "What became of pushes, by kind and outcome"),
            drops: each(r, "reason", DROPS.map(|(_, name)| name), "drops", "What was dropped on its way, by reason"),
            closes: each(
                r,
                "reason",
                Close::ALL.map(Close::reason),
                "closes",
                "Sockets that the server ended, by reason",
            ),
            rejects: each(r, "code", Code::ALL.map(Code::name), "rejects", "Error frames, by code"),
            raising: Mutex::default(),
            registry,
        }
    }
}

impl Metrics {
    /// Counts messages that were queued for sessions.
    pub fn delivered(&self, path: TracePath, sessions: u64) {
        self.deliveries[path as usize].inc_by(sessions);
    }

    /// Counts something that was dropped.
    pub fn dropped(&self, reason: Drop) {
        self.drops[reason as usize].inc();
    }

    /// Brings a count that is kept elsewhere, as a total, up to date. Meant for reasons that are counted in one place.
    pub fn dropped_in_all(&self, reason: Drop, total: u64) {
        self.raise(&self.drops[reason as usize], total);
    }

    /// Brings a counter to a total that is counted elsewhere.
    pub fn raise(&self, counter: &Counter, total: u64) {
        let _turn = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        counter.inc_by(total.saturating_sub(counter.get()));
    }

    /// Counts a connection that the server ended.
    pub fn closed(&self, close: Close) {
        self.closes[close as usize].inc();
    }

    /// Counts an error frame.
    pub fn rejected(&self, code: Code) {
        self.rejects[code as usize].inc();
    }

    /// The counts of the pushes of one kind.
    pub fn pushes(&self, kind: &'static str) -> PushCounts {
        PushCounts(
            PUSHED.map(|(_, outcome)| self.pushes.get_or_create(&[("kind", kind), ("outcome", outcome)]).clone()),
        )
    }

    /// All of them as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            // Writing into memory does not fail; should it, the scraper sees an incomplete page, not an old one.
            let _ = writeln!(text, "# incomplete");
        }
        text
    }
}

fn one<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// One counter per value of a label. They are taken out of their family once, so that counting needs no look-up.
fn each<const N: usize>(
    registry: &mut Registry,
    label: &'static str,
    values: [&'static str; N],
    name: &str,
    help: &str,
) -> [Counter; N] {
    let family: Family<[(&str, &str); 1], Counter> = one(registry, name, help);
    values.map(|value| family.get_or_create(&[(label, value)]).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_row_of_its_own() {
        let metrics = Metrics::default();
        for (index, (reason, _)) in DROPS.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            metrics.dropped(reason);
        }
        for (index, (pushed, _)) in PUSHED.into_iter().enumerate() {
            assert_eq!(pushed as usize, index);
        }
        metrics.delivered(TracePath::Relay, 3);
        metrics.closed(Close::Slow);
        metrics.pushes("fcm").count(Pushed::Unregistered);
        let text = metrics.text();
        for row in [
            "minichat_drops_total{reason=\"relay_too_old\"} 1",
            "minichat_deliveries_total{path=\"relay\"} 3",
            "minichat_pushes_total{kind=\"fcm\",outcome=\"unregistered\"} 1",
            "minichat_closes_total{reason=\"slow\"} 1",
        ] {
            assert!(text.contains(row), "{row} in {text}");
        }
    }
}
