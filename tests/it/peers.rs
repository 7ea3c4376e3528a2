#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
//! The client side of the relay against a real gRPC server that answers as told.

mod fake;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use minichat::ids::{BootId, MessageId, ServerId, UserId};
use minichat::peers::{Heard, Item, Options, PeerStats, Peers, Sent};
use minichat::registry::ServerRow;
use minichat::wire::{Answer, Kick, Status};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use fake::{FakeRelay, Proxy, SECRET, delivered};

/// How long anything here may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The peers of one server, stopped on drop.
struct Client {
    peers: Peers,
    heard: mpsc::Receiver<Heard>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Client {
    fn start(options: Options) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (peers, heard) = Peers::start(options, &tasks, stop.clone());
        Self { peers, heard, tasks, stop }
    }

    /// Starts, and waits until the stream to each of these is up.
    async fn connected(options: Options, relays: &[&FakeRelay]) -> Self {
        let mut client = Self::start(options);
        client.peers.reconcile(&relays.iter().map(|relay| relay.row()).collect::<Vec<_>>());
        for _ in relays {
            assert!(matches!(client.hear().await, Heard::Connected { .. }));
        }
        client
    }

    async fn hear(&mut self) -> Heard {
        timeout(PATIENCE, self.heard.recv()).await.expect("a report in time").expect("the peers run")
    }

    async fn hear_connected(&mut self, relay: &FakeRelay) {
        let heard = self.hear().await;
        assert!(
            matches!(&heard, Heard::Connected { server, boot } if *server == relay.id && *boot == relay.boot),
            "{heard:?}"
        );
    }

    async fn hear_lost(&mut self, relay: &FakeRelay) {
        let heard = self.hear().await;
        assert!(matches!(&heard, Heard::Lost { server } if *server == relay.id), "{heard:?}");
    }

    /// The place in the log, and who was not there.
    async fn hear_not_here(&mut self) -> (u64, Vec<String>) {
        match self.hear().await {
            Heard::NotHere { item, users, .. } => (item.seq, users.iter().map(ToString::to_string).collect()),
            heard => panic!("{heard:?}"),
        }
    }

    fn send(&self, relay: &FakeRelay, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            assert_eq!(self.peers.send(&relay.id, item(seq)), Sent::Queued);
        }
    }

    async fn count(&self, counter: impl Fn(&PeerStats) -> &AtomicU64, least: u64) {
        eventually(|| counter(self.peers.stats()).load(Relaxed) >= least).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn options() -> Options {
    Options::new("local1".parse().unwrap(), BootId(1), "0.1.0", SECRET)
}

fn item(seq: u64) -> Item {
    Item {
        room: Some("team".parse().unwrap()),
        seq,
        id: MessageId(1),
        at: 1,
        ..Item::new("alice".parse().unwrap(), Bytes::from_static(b"{}"), vec![user("bob"), user("carol"), user("dave")])
    }
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

async fn eventually(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("the condition holds in time");
}

#[tokio::test]
async fn items_arrive_in_order_and_as_they_were_given() {
    let relay = FakeRelay::start("local2", 7).await;
    let client = Client::connected(options(), &[&relay]).await;
    for seq in 1..=500 {
        client.send(&relay, [seq]);
        tokio::task::yield_now().await;
    }
    client.count(|stats| &stats.answers, 500).await;
    assert_eq!(relay.seqs(0), (1..=500).collect::<Vec<_>>());
    let first = relay.items().swap_remove(0);
    assert_eq!((first.room.as_str(), first.sender.as_str(), &first.frame[..]), ("team", "alice", &b"{}"[..]));
    assert_eq!(first.recipients, ["bob", "carol", "dave"]);
    assert!(first.sent_at_ms > 0);
    assert_eq!(client.peers.queue_bytes(), 0);
}

#[tokio::test]
async fn the_hello_names_both_ends() {
    let relay = FakeRelay::start("local2", 7).await;
    let _client = Client::connected(options(), &[&relay]).await;
    eventually(|| !relay.streams().is_empty()).await;
    let hello = relay.streams()[0][0].hello.clone().unwrap();
    assert_eq!((hello.from.as_str(), hello.from_boot, hello.version.as_str()), ("local1", 1, "0.1.0"));
    assert_eq!((hello.to.as_str(), hello.to_boot), ("local2", 7));
    assert!(hello.reads_ranges);
}

#[tokio::test]
async fn what_queues_while_the_stream_is_built_goes_out_as_one_message() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.admit(false);
    let mut client = Client::start(options());
    client.peers.reconcile(&[relay.row()]);
    client.send(&relay, 1..=5);
    relay.admit(true);
    client.hear_connected(&relay).await;
    client.count(|stats| &stats.answers, 5).await;
    let streams = relay.streams();
    assert_eq!(streams[0].len(), 2, "the hello and one more: {streams:?}");
    assert!(streams[0][1].status.is_some());
    assert_eq!(streams[0][1].items.len(), 5);
}

#[tokio::test]
async fn who_is_not_there_comes_back_and_nobody_else() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.answer(|item| {
        let not_here = if item.seq == 2 { vec![0, 2] } else { vec![] };
        vec![Answer { not_here, ..delivered(item) }]
    });
    let mut client = Client::connected(options(), &[&relay]).await;
    client.send(&relay, [1, 2, 3]);
    assert_eq!(client.hear_not_here().await, (2, vec!["bob".into(), "dave".into()]));
    client.count(|stats| &stats.answers, 3).await;
    assert!(client.heard.try_recv().is_err());
}

#[tokio::test]
async fn what_is_answered_in_ranges_is_done_with_and_who_is_not_there_comes_back() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.answer_in_ranges();
    relay.answer(|item| {
        let not_here = if item.seq == 70 { vec![1] } else { vec![] };
        vec![Answer { not_here, ..delivered(item) }]
    });
    let mut client = Client::connected(options(), &[&relay]).await;
    client.send(&relay, 1..=1_000);
    assert_eq!(client.hear_not_here().await, (70, vec!["carol".into()]));
    client.count(|stats| &stats.answers, 1_000).await;
    assert_eq!(client.peers.queue_bytes(), 0);
    relay.cut();
    client.hear_lost(&relay).await;
    client.hear_connected(&relay).await;
    let stats = client.peers.stats();
    assert_eq!((stats.resent.load(Relaxed), stats.answers_unknown.load(Relaxed)), (0, 0));
}

#[tokio::test]
async fn after_a_break_only_stored_items_without_an_answer_are_sent_again() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.answer(|item| if item.seq == 2 { vec![delivered(item)] } else { vec![] });
    let mut client = Client::connected(options(), &[&relay]).await;
    client.send(&relay, [1, 2, 0, 3]);
    client.count(|stats| &stats.answers, 1).await;
    relay.answer(|item| vec![delivered(item)]);
    relay.cut();
    client.hear_lost(&relay).await;
    client.send(&relay, [4]);
    client.hear_connected(&relay).await;
    client.count(|stats| &stats.answers, 4).await;
    assert_eq!(relay.seqs(1), [1, 3, 4]);
    assert_eq!(client.peers.stats().resent.load(Relaxed), 2);
    assert_eq!(client.peers.queue_bytes(), 0);
}

#[tokio::test]
async fn a_stuck_peer_fills_its_own_queue_and_delays_nobody_else() {
    const BOUND: usize = 64 << 10;
    let (stuck, other) = (FakeRelay::start("local2", 7).await, FakeRelay::start("local3", 8).await);
    stuck.read(false);
    let client = Client::connected(Options { queue_bytes: BOUND, ..options() }, &[&stuck, &other]).await;
    let frame = Bytes::from(vec![b'x'; 1 << 10]);
    let queued = (1..=1_000)
        .take_while(|seq| client.peers.send(&stuck.id, Item { frame: frame.clone(), ..item(*seq) }) == Sent::Queued);
    assert!((32..=64).contains(&queued.count()));
    assert!(client.peers.queue_bytes() <= BOUND);
    client.send(&other, 1..=100);
    client.count(|stats| &stats.answers, 100).await;
    assert_eq!(other.items().len(), 100);
    stuck.read(true);
    eventually(|| stuck.said(0).is_some_and(|status| status.dropped == 1)).await;
}

#[tokio::test]
async fn another_run_of_a_server_gets_nothing_of_what_was_meant_for_the_one_before() {
    let relay = FakeRelay::start("local2", 8).await;
    let mut client = Client::start(options());
    client.peers.reconcile(&[ServerRow { boot: BootId(7), ..relay.row() }]);
    client.send(&relay, [1, 0, 2]);
    client.hear_lost(&relay).await;
    eventually(|| relay.refusals() > 0).await;
    assert!(!client.peers.is_up(&relay.id));
    client.peers.reconcile(&[relay.row()]);
    let everyone = ["bob", "carol", "dave"].map(String::from).to_vec();
    assert_eq!(client.hear_not_here().await, (1, everyone.clone()));
    assert_eq!(client.hear_not_here().await, (2, everyone));
    client.hear_connected(&relay).await;
    client.send(&relay, [3]);
    client.count(|stats| &stats.answers, 1).await;
    assert_eq!(relay.items().iter().map(|item| item.seq).collect::<Vec<_>>(), [3]);
}

#[tokio::test]
async fn a_restart_returns_what_had_no_answer_before_the_new_run_is_connected() {
    let (old, new) = (FakeRelay::start("local2", 7).await, FakeRelay::start("local2", 8).await);
    old.answer(|_| vec![]);
    let mut client = Client::connected(options(), &[&old]).await;
    client.send(&old, [1, 0]);
    eventually(|| old.items().len() == 2).await;
    client.peers.reconcile(&[new.row()]);
    assert!(!client.peers.is_up(&new.id));
    client.hear_lost(&old).await;
    assert_eq!(client.hear_not_here().await.0, 1);
    client.hear_connected(&new).await;
    assert!(new.items().is_empty());
}

#[tokio::test]
async fn a_server_that_moved_gets_what_had_no_answer_at_its_new_address() {
    let (before, after) = (FakeRelay::start("local2", 7).await, FakeRelay::start("local2", 7).await);
    before.answer(|_| vec![]);
    let mut client = Client::connected(options(), &[&before]).await;
    client.send(&before, [1, 2]);
    eventually(|| before.items().len() == 2).await;
    client.peers.reconcile(&[after.row()]);
    client.hear_lost(&before).await;
    client.hear_connected(&after).await;
    client.count(|stats| &stats.answers, 2).await;
    assert_eq!(after.seqs(0), [1, 2]);
}

#[tokio::test]
async fn a_wrong_secret_delivers_nothing() {
    let relay = FakeRelay::start("local2", 7).await;
    let client = Client::start(Options { secret: "another".into(), ..options() });
    client.peers.reconcile(&[relay.row()]);
    client.send(&relay, [1]);
    eventually(|| relay.refusals() > 1).await;
    assert!(!client.peers.is_up(&relay.id));
    assert_eq!(relay.streams().len(), 0);
}

#[tokio::test]
async fn a_black_hole_is_found_and_what_it_swallowed_is_sent_again() {
    let relay = FakeRelay::start("local2", 7).await;
    let proxy = Proxy::start(relay.address).await;
    let short = Duration::from_millis(200);
    let mut client = Client::start(Options {
        connect_timeout: short,
        keep_alive: short,
        keep_alive_timeout: short,
        item_deadline: PATIENCE,
        ..options()
    });
    client.peers.reconcile(&[relay.row_at(proxy.address)]);
    client.hear_connected(&relay).await;
    proxy.pass(false);
    client.send(&relay, [1, 2]);
    client.hear_lost(&relay).await;
    proxy.pass(true);
    client.hear_connected(&relay).await;
    client.count(|stats| &stats.answers, 2).await;
    // What was swallowed may come out late, on the stream before or as a hello that nobody stands behind any more.
    assert!((1..relay.streams().len()).any(|stream| relay.seqs(stream) == [1, 2]));
}

#[tokio::test]
async fn what_has_no_answer_by_its_deadline_is_left_to_the_store_and_said_on_the_next_stream_too() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.answer(|_| vec![]);
    let mut client =
        Client::connected(Options { item_deadline: Duration::from_millis(300), ..options() }, &[&relay]).await;
    client.send(&relay, [1, 2]);
    client.count(|stats| &stats.dropped_deadline, 2).await;
    eventually(|| relay.said(0).is_some_and(|status| status.dropped == 2)).await;
    relay.cut();
    client.hear_lost(&relay).await;
    client.hear_connected(&relay).await;
    eventually(|| relay.said(1).is_some_and(|status| status.dropped == 2)).await;
    assert!(relay.seqs(1).is_empty());
}

#[tokio::test]
async fn the_latest_status_reaches_all_peers_and_those_to_come() {
    let (first, second) = (FakeRelay::start("local2", 7).await, FakeRelay::start("local3", 8).await);
    let mut client = Client::connected(options(), &[&first]).await;
    client.peers.say(Status { degraded: true, ..Default::default() });
    eventually(|| first.said(0).is_some_and(|status| status.degraded)).await;
    client.peers.say(Status { draining: true, ..Default::default() });
    client.peers.reconcile(&[first.row(), second.row()]);
    client.hear_connected(&second).await;
    let latest = Some(Status { draining: true, ..Default::default() });
    eventually(|| first.said(0) == latest && second.said(0) == latest).await;
}

#[tokio::test]
async fn a_kick_arrives() {
    let relay = FakeRelay::start("local2", 7).await;
    let client = Client::connected(options(), &[&relay]).await;
    let kick = Kick { user: "alice".into(), device: "phone".into(), newer_than: 5 };
    assert_eq!(client.peers.kick(&relay.id, kick.clone()), Sent::Queued);
    let kicks = || relay.streams().into_iter().flatten().flat_map(|request| request.kicks).collect::<Vec<_>>();
    eventually(|| !kicks().is_empty()).await;
    assert_eq!(kicks(), [kick]);
}

#[tokio::test]
async fn a_server_without_a_row_is_kept_while_it_answers_and_forgotten_after() {
    let relay = FakeRelay::start("local2", 7).await;
    let mut client = Client::connected(options(), &[&relay]).await;
    let id = relay.id.clone();
    client.peers.reconcile(&[]);
    assert_eq!(client.peers.servers(), [(id.clone(), true)]);
    relay.admit(false);
    relay.cut();
    client.hear_lost(&relay).await;
    client.send(&relay, [1, 0]);
    client.peers.reconcile(&[]);
    assert_eq!(client.peers.send(&id, item(2)), Sent::NoSuchPeer);
    assert_eq!(client.hear_not_here().await.0, 1);
    client.tasks.close();
    timeout(PATIENCE, client.tasks.wait()).await.expect("the task of a forgotten peer ends");
}

#[tokio::test]
async fn the_own_row_is_no_peer() {
    let relay = FakeRelay::start("local1", 1).await;
    let client = Client::start(options());
    client.peers.reconcile(&[relay.row()]);
    assert!(client.peers.servers().is_empty());
    assert_eq!(client.peers.send(&relay.id, item(1)), Sent::NoSuchPeer);
}

#[tokio::test]
async fn a_stop_sends_what_has_queued_and_ends() {
    let relay = FakeRelay::start("local2", 7).await;
    let client = Client::connected(options(), &[&relay]).await;
    client.send(&relay, 1..=1_000);
    client.stop.cancel();
    client.tasks.close();
    timeout(PATIENCE, client.tasks.wait()).await.expect("the tasks end");
    assert_eq!(relay.seqs(0), (1..=1_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_peer_that_never_answers() {
    let (stuck, silent) = (FakeRelay::start("local2", 7).await, FakeRelay::start("local3", 8).await);
    stuck.admit(false);
    silent.answer(|_| vec![]);
    let client = Client::start(options());
    client.peers.reconcile(&[stuck.row(), silent.row()]);
    client.send(&stuck, [1]);
    client.send(&silent, [1]);
    client.stop.cancel();
    client.tasks.close();
    timeout(PATIENCE, client.tasks.wait()).await.expect("the tasks end");
}

#[tokio::test]
async fn garbage_answers_are_survived() {
    let relay = FakeRelay::start("local2", 7).await;
    relay.answer(|item| {
        let unknown = [0, item.id + 1_000, u64::MAX].map(|id| Answer {
            id,
            not_here: vec![0],
            full: vec![0],
            elsewhere: vec![0],
        });
        let odd = Answer { id: item.id, not_here: vec![3, u32::MAX, 1, 1], full: vec![9], elsewhere: vec![9] };
        unknown.into_iter().chain([odd, delivered(item)]).collect()
    });
    let mut client = Client::connected(options(), &[&relay]).await;
    client.send(&relay, [1, 2]);
    assert_eq!(client.hear_not_here().await, (1, vec!["carol".into()]));
    assert_eq!(client.hear_not_here().await, (2, vec!["carol".into()]));
    client.count(|stats| &stats.answers_unknown, 8).await;
    assert!(client.peers.is_up(&relay.id));
}

#[tokio::test]
async fn an_address_that_is_none_is_survived() {
    let relay = FakeRelay::start("local2", 7).await;
    let mut client = Client::start(options());
    client.peers.reconcile(&[ServerRow { relay: "not an address".into(), ..relay.row() }]);
    client.send(&relay, [1]);
    client.peers.reconcile(&[relay.row()]);
    client.hear_connected(&relay).await;
    client.count(|stats| &stats.answers, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_items_from_sixteen_threads_are_each_answered_once() {
    let relay = FakeRelay::start("local2", 7).await;
    let client = Client::connected(options(), &[&relay]).await;
    let senders = (0..16).map(|thread| {
        let (peers, server) = (client.peers.clone(), relay.id.clone());
        std::thread::spawn(move || send_many(&peers, &server, thread))
    });
    for sender in senders.collect::<Vec<_>>() {
        tokio::task::spawn_blocking(move || sender.join().unwrap()).await.unwrap();
    }
    client.count(|stats| &stats.answers, 10_000).await;
    let items = relay.items();
    assert_eq!(items.len(), 10_000);
    assert_eq!(items.iter().map(|item| item.id).collect::<HashSet<_>>().len(), 10_000);
    for thread in 0..16 {
        let seqs: Vec<_> =
            items.iter().filter(|item| item.room == format!("room-{thread}")).map(|item| item.seq).collect();
        assert_eq!(seqs, (1..=625).collect::<Vec<_>>());
    }
    let stats: &Arc<PeerStats> = client.peers.stats();
    assert_eq!((stats.answers.load(Relaxed), stats.resent.load(Relaxed), client.peers.queue_bytes()), (10_000, 0, 0));
}

fn send_many(peers: &Peers, server: &ServerId, thread: usize) {
    let room = Some(format!("room-{thread}").parse().unwrap());
    for seq in 1..=625 {
        assert_eq!(peers.send(server, Item { room: room.clone(), ..item(seq) }), Sent::Queued);
    }
}
