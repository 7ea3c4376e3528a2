//! All nodes of a registry as one: each command goes to the node that owns its key, in one pipeline per node, side by
//! side. A Redis on its own is a fleet of one.
//!
//! The crate's own Cluster client is not used: it makes one command per slot of an `MGET`, refuses pipelines over
//! slots, and lets all calls wait while it asks for the slots, so that one silent node can hold up the others.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::{Address, Kind, Place};
use super::discover::discover;
use super::layout::Layout;
use super::node::Node;
use super::route::{Errand, Verdict, judge};
use super::{Error, Options};

/// How many commands go into one pipeline at most. At some 5 us each, the last is still answered well in time.
const PIPELINE: usize = 4096;

/// How often a command is sent at most: it may meet a slot that moved, and then a node without the scripts.
const ROUNDS: usize = 3;

/// A command, and the one key it is about, or the first of several in a fleet of one.
pub(super) struct Request {
    slot: u16,
    command: Cmd,
}

impl Request {
    pub(super) fn new(key: &str, command: Cmd) -> Self {
        Self { slot: super::keys::slot(key), command }
    }
}

/// All nodes.
pub(super) struct Fleet {
    pub(super) address: Address,
    pub(super) options: Options,
    connections: Arc<AtomicU64>,
    layout: RwLock<Arc<Layout>>,
    /// Wakes the task that learns the layout anew.
    stale: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Fleet {
    /// Connects to all nodes and starts the tasks that mend the connections until `stop`. The error says what is wrong.
    pub(super) async fn connect(
        address: Address,
        options: Options,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, String> {
        let fleet = Arc::new(Self {
            address,
            options,
            connections: Arc::default(),
            layout: RwLock::default(),
            stale: Notify::new(),
            tasks: tasks.clone(),
            stop,
        });
        fleet.learn().await?;
        if fleet.address.kind != Kind::Alone {
            fleet.keep();
        }
        Ok(fleet)
    }

    /// The masters as they are known now.
    pub(super) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries out commands, each by the node that owns its key, and answers in their order. Commands for one node
    /// keep their order. Takes three response times at most per 4096 commands for one node.
    pub(super) async fn run(&self, requests: &[Request]) -> Vec<Result<Value, Error>> {
        let layout = self.layout();
        let mut outcomes: Vec<Result<Value, Error>> = requests.iter().map(|_| Err(Error::Away)).collect();
        let mut errands = first_round(&layout, requests);
        for _ in 0..ROUNDS {
            let mut again = Vec::new();
            for (errand, reply) in self.round(requests, errands).await {
                match reply.map(|reply| judge(reply, &errand, &layout)) {
                    Ok(Verdict::Done(outcome)) => outcomes[errand.index] = outcome,
                    Ok(Verdict::Again(errand)) => again.push(errand),
                    Err(error) => outcomes[errand.index] = Err(error),
                }
            }
            if again.is_empty() {
                break;
            }
            self.suspect(again.iter().any(|errand| errand.moved));
            errands = again;
        }
        self.suspect(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Away))));
        outcomes
    }

    /// Has the layout learnt anew if what just happened speaks against it.
    fn suspect(&self, stale: bool) {
        if stale {
            self.stale.notify_one();
        }
    }

    /// Sends the errands, all nodes side by side.
    async fn round(&self, requests: &[Request], errands: Vec<Errand>) -> Vec<(Errand, Result<Value, Error>)> {
        let mut groups: Vec<(Arc<Node>, Vec<Errand>)> = Vec::new();
        for errand in errands {
            match groups.iter_mut().find(|(node, _)| Arc::ptr_eq(node, &errand.node)) {
                Some((_, group)) => group.push(errand),
                None => groups.push((Arc::clone(&errand.node), vec![errand])),
            }
        }
        let groups = groups.into_iter().map(|(node, group)| deliver(requests, node, group));
        join_all(groups).await.into_iter().flatten().collect()
    }

    /// Asks for the layout and takes it over: nodes that stay keep their connections.
    async fn learn(&self) -> Result<(), String> {
        let heard = discover(self).await?;
        let old = self.layout();
        let mut new = Vec::new();
        let layout = Layout::of(heard, |place| match old.at(place) {
            Some(node) => Some(Arc::clone(node)),
            None => self.node(place).ok().inspect(|node| new.push(Arc::clone(node))),
        });
        // Those that cannot be reached now are mended like any other.
        let tries = join_all(new.iter().map(|node| node.connect())).await;
        for node in &new {
            node.keep(&self.options, &self.tasks, self.stop.clone());
        }
        let reached = !layout.nodes.iter().all(|node| node.is_away());
        self.set_layout(layout);
        match tries.into_iter().find_map(Result::err) {
            Some(error) if !reached => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Starts the task that learns the layout anew when a key was elsewhere than thought, or a master is away.
    fn keep(self: &Arc<Self>) {
        let (fleet, stop) = (Arc::downgrade(self), self.stop.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(keep_learning(fleet)).await });
    }

    async fn relearn(&self) {
        if let Err(error) = self.learn().await {
            tracing::debug!(%error, "the masters of Redis could not be learnt");
        }
    }

    /// A node that is not connected yet, and is not mended.
    pub(super) fn node(&self, place: &Place) -> Result<Arc<Node>, String> {
        let client = self.address.client(place).map_err(|error| error.to_string())?;
        Ok(Arc::new(Node::new(place.clone(), client, &self.options, Arc::clone(&self.connections))))
    }

    fn set_layout(&self, layout: Layout) {
        *self.layout.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(layout);
    }
}

async fn keep_learning(fleet: Weak<Fleet>) {
    while let Some(fleet) = Weak::upgrade(&fleet) {
        let every = fleet.options.probe_every;
        tokio::select! {
            () = fleet.stale.notified() => fleet.relearn().await,
            () = tokio::time::sleep(every * 4) => if fleet.layout().any_away() { fleet.relearn().await },
        }
        // A key that moved is told of by every call that meets it; one look answers many.
        tokio::time::sleep(every).await;
    }
}

/// Each request to the owner of its slot. Requests whose slot nobody owns stay unanswered.
fn first_round(layout: &Layout, requests: &[Request]) -> Vec<Errand> {
    let owned = |(index, request): (usize, &Request)| Some(Errand::new(index, Arc::clone(layout.owner(request.slot)?)));
    requests.iter().enumerate().filter_map(owned).collect()
}

/// Sends one node its errands and pairs them with the replies.
async fn deliver(requests: &[Request], node: Arc<Node>, errands: Vec<Errand>) -> Vec<(Errand, Result<Value, Error>)> {
    let mut answered = Vec::with_capacity(errands.len());
    let mut errands = errands.into_iter().peekable();
    while errands.peek().is_some() {
        let chunk: Vec<Errand> = errands.by_ref().take(PIPELINE).collect();
        match node.send(&pipeline(requests, &chunk)).await {
            Ok(replies) => answered.extend(pair(chunk, replies)),
            Err(error) => answered.extend(chunk.into_iter().map(|errand| (errand, Err(error.clone())))),
        }
    }
    if answered.iter().any(|(_, reply)| super::route::wants_scripts(reply)) {
        // Failing that, the next round says so.
        let _ = node.load_scripts().await;
    }
    answered
}

fn pipeline(requests: &[Request], errands: &[Errand]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(errands.len());
    for errand in errands {
        if errand.asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(requests[errand.index].command.clone());
    }
    pipeline
}

fn pair(errands: Vec<Errand>, replies: Vec<Value>) -> impl Iterator<Item = (Errand, Result<Value, Error>)> {
    let mut replies = replies.into_iter();
    errands.into_iter().map(move |errand| {
        if errand.asking {
            replies.next();
        }
        let reply = replies.next().ok_or(Error::Away);
        (errand, reply)
    })
}
