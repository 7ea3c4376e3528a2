//! What a reply means for the request: an outcome, or another try elsewhere.

use std::sync::Arc;

use redis::{ServerError, ServerErrorKind as Kind, Value};

use super::address::Place;
use super::layout::Layout;
use super::node::Node;
use super::{Error, reply};

/// A request on its way to a node.
pub(super) struct Errand {
    /// Which request.
    pub(super) index: usize,
    pub(super) node: Arc<Node>,
    /// Whether the node is asked for a slot that it is only about to own.
    pub(super) asking: bool,
    /// Whether the slot was elsewhere than thought.
    pub(super) moved: bool,
}

impl Errand {
    pub(super) fn new(index: usize, node: Arc<Node>) -> Self {
        Self { index, node, asking: false, moved: false }
    }
}

/// What to do after a reply.
pub(super) enum Verdict {
    /// This is the outcome.
    Done(Result<Value, Error>),
    /// Try once more, like this.
    Again(Errand),
}

/// Whether the node has lost the scripts.
pub(super) fn wants_scripts(reply: &Result<Value, Error>) -> bool {
    matches!(reply, Ok(Value::ServerError(error)) if error.kind() == Some(Kind::NoScript))
}

/// Judges a reply.
pub(super) fn judge(reply: Value, errand: &Errand, layout: &Layout) -> Verdict {
    let Value::ServerError(error) = reply else { return Verdict::Done(Ok(reply)) };
    match error.kind() {
        Some(Kind::NoScript) => Verdict::Again(Errand::new(errand.index, Arc::clone(&errand.node))),
        Some(kind @ (Kind::Moved | Kind::Ask)) => match target(&error, &errand.node, layout) {
            Some(node) => {
                let asking = kind == Kind::Ask;
                Verdict::Again(Errand { index: errand.index, node, asking, moved: !asking })
            }
            // A node that joined since the layout was learnt, which it is now.
            None => Verdict::Done(Err(Error::Away)),
        },
        Some(kind) if is_passing(kind) => {
            note(kind, &errand.node);
            Verdict::Done(Err(Error::Away))
        }
        _ => Verdict::Done(Err(Error::Refused(reply::refusal(&error)))),
    }
}

/// Errors of a Redis that starts, fails over or is moved: they pass, and mean no more than silence does.
fn is_passing(kind: Kind) -> bool {
    matches!(kind, Kind::BusyLoading | Kind::MasterDown | Kind::ReadOnly | Kind::ClusterDown | Kind::TryAgain)
}

fn note(kind: Kind, node: &Node) {
    match kind {
        Kind::BusyLoading | Kind::MasterDown => node.mark_away(),
        // It was a master when we connected. Its name may lead to another by now.
        Kind::ReadOnly => node.disconnect(),
        _ => {}
    }
}

/// The node that a redirection names: `<slot> <host>:<port>`, the host empty for the one that answered.
fn target(error: &ServerError, answered: &Node, layout: &Layout) -> Option<Arc<Node>> {
    let (host, port) = error.details()?.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
    let host = if host.is_empty() { &answered.place.host } else { host };
    layout.at(&Place { host: host.to_owned(), port: port.parse().ok()? }).cloned()
}
