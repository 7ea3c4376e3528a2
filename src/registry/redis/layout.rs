//! Which node owns which slot.

use std::sync::Arc;

use redis::Value;

use super::address::Place;
use super::keys::SLOTS;
use super::node::Node;

/// The masters and their slots, as they were last heard of. A Redis on its own owns all slots.
#[derive(Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Arc<Node>>,
    /// First slot, last slot, index of the owner; sorted, without overlap.
    ranges: Vec<(u16, u16, usize)>,
}

/// A range of slots and its master, as a node of a Cluster tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    master: Place,
}

impl Range {
    /// All slots, for a master on its own.
    pub(super) fn all(master: Place) -> Self {
        Self { first: 0, last: SLOTS - 1, master }
    }
}

impl Layout {
    /// A layout of these ranges; `node` finds or makes the node of a place.
    pub(super) fn of(mut ranges: Vec<Range>, mut node: impl FnMut(&Place) -> Option<Arc<Node>>) -> Self {
        ranges.sort_by_key(|range| range.first);
        let mut layout = Self::default();
        for range in ranges {
            if let Some(owner) = layout.position(&range.master).or_else(|| layout.add(node(&range.master)?)) {
                layout.ranges.push((range.first, range.last, owner));
            }
        }
        layout
    }

    /// The node that owns a slot; none while a Cluster is incomplete.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let index = self.ranges.partition_point(|&(_, last, _)| last < slot);
        let &(first, _, owner) = self.ranges.get(index)?;
        if first <= slot { self.nodes.get(owner) } else { None }
    }

    /// The node at a place.
    pub(super) fn at(&self, place: &Place) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.place == *place)
    }

    /// Whether a master is away.
    pub(super) fn any_away(&self) -> bool {
        self.nodes.iter().any(|node| node.is_away())
    }

    fn position(&self, place: &Place) -> Option<usize> {
        self.nodes.iter().position(|node| node.place == *place)
    }

    fn add(&mut self, node: Arc<Node>) -> Option<usize> {
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }
}

/// Reads the answer of `CLUSTER SLOTS`. A master without a host is the node that was `asked`; one whose host is `?`
/// is unknown, and left out.
pub(super) fn ranges(answer: &Value, asked: &Place) -> Vec<Range> {
    items(answer).iter().filter_map(|item| range(items(item), asked)).collect()
}

fn range(parts: &[Value], asked: &Place) -> Option<Range> {
    let [Value::Int(first), Value::Int(last), master, ..] = parts else { return None };
    let [host, Value::Int(port), ..] = items(master) else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let host = match host {
        "" => asked.host.clone(),
        "?" => return None,
        known => known.to_owned(),
    };
    let master = Place { host, port: u16::try_from(*port).ok()? };
    Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, master })
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        Place { host: "asked".into(), port }
    }

    fn told(first: i64, last: i64, host: &str, port: i64) -> Value {
        let master = Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    #[test]
    fn an_empty_host_is_the_node_that_was_asked() {
        let answer = Value::Array(vec![told(0, 99, "", 7001), told(100, 199, "?", 7002), told(200, 299, "b", 7003)]);
        let heard = ranges(&answer, &place(7000));
        assert_eq!(
            heard,
            [
                Range { first: 0, last: 99, master: place(7001) },
                Range { first: 200, last: 299, master: Place { host: "b".into(), port: 7003 } },
            ]
        );
    }

    #[test]
    fn a_slot_that_nobody_owns_has_no_owner() {
        let node = |place: &Place| {
            let client = redis::Client::open((place.host.as_str(), place.port)).ok()?;
            Some(Arc::new(Node::new(place.clone(), client, &super::super::Options::default(), Arc::default())))
        };
        let heard = vec![
            Range { first: 200, last: 299, master: place(2) },
            Range { first: 0, last: 99, master: place(1) },
            Range { first: 300, last: 300, master: place(1) },
        ];
        let layout = Layout::of(heard, node);
        assert_eq!(layout.nodes.len(), 2);
        let owner = |slot| layout.owner(slot).map(|node| node.place.port);
        assert_eq!(
            [0, 99, 100, 199, 200, 299, 300, 301].map(owner),
            [Some(1), Some(1), None, None, Some(2), Some(2), Some(1), None]
        );
    }
}
