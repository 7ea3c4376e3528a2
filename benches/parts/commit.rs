//! The group commit: so many messages that wait together, from the queue to the answer of the commit.

use divan::Bencher;
use divan::counter::ItemsCount;
use minichat::ids::{MessageId, RoomId, UserId};
use minichat::store::writer::{self, Committed, Job, Writer};
use minichat::store::{Append, NewRoom, Options, Store};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{body, runtime, sqlite};

const BATCHES: [usize; 3] = [1, 32, 512];

/// The rooms that the messages are for, in turn.
const ROOMS: usize = 32;

#[divan::bench(args = BATCHES, sample_count = 50, sample_size = 1)]
fn to_sqlite(bencher: Bencher<'_, '_>, batch: usize) {
    let runtime = runtime();
    let (store, _home) = sqlite(&runtime);
    commit(bencher, &runtime, store, batch);
}

#[divan::bench(args = BATCHES, sample_count = 50, sample_size = 1, ignore = postgres().is_none())]
fn to_postgres(bencher: Bencher<'_, '_>, batch: usize) {
    let (runtime, url) = (runtime(), postgres().expect("BENCH_POSTGRES names a database"));
    let store = runtime.block_on(Store::open(&url, &Options::default())).expect("the database of BENCH_POSTGRES");
    commit(bencher, &runtime, store, batch);
}

#[expect(clippy::disallowed_methods, reason = "the server's configuration is none of a benchmark's")]
fn postgres() -> Option<String> {
    std::env::var("BENCH_POSTGRES").ok()
}

struct Bench {
    writer: Writer<()>,
    lanes: Vec<Committed<()>>,
    rooms: Vec<RoomId>,
    sender: UserId,
    next: u64,
}

fn commit(bencher: Bencher<'_, '_>, runtime: &Runtime, store: Store, batch: usize) {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut bench = runtime.block_on(Bench::new(&store, &tasks, &stop));
    bencher.counter(ItemsCount::new(batch)).bench_local(|| runtime.block_on(bench.commit(batch)));
    stop.cancel();
    drop(bench);
    tasks.close();
    runtime.block_on(tasks.wait());
}

impl Bench {
    async fn new(store: &Store, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        // A database that is kept has the messages of earlier runs, whose ids must not come again.
        let next = u64::from(rand::random::<u32>());
        let sender: UserId = "writer".parse().expect("a user");
        let mut rooms = Vec::new();
        for number in 0..ROOMS as u64 {
            let room: RoomId = format!("bench-{next}-{number}").parse().expect("a room");
            let id = MessageId((next << 24) + number);
            let members = vec!["reader".parse().expect("a user")];
            let new = NewRoom { room: room.clone(), creator: sender.clone(), members, name: None, open: false, id };
            store.create(&new).await.expect("a room");
            rooms.push(room);
        }
        let (writer, lanes) = writer::start(store.clone(), store.lanes(), tasks, stop.clone());
        Self { writer, lanes, rooms, sender, next: (next << 24) + ROOMS as u64 }
    }

    /// Queues so many messages and waits until all are stored.
    async fn commit(&mut self, batch: usize) {
        for number in 0..batch {
            self.next += 1;
            let append = Append {
                room: self.rooms[number % ROOMS].clone(),
                sender: self.sender.clone(),
                cid: self.next.to_string().parse().expect("a cid"),
                id: MessageId(self.next),
                body: body().into(),
            };
            self.writer.submit(Job { append, origin: () }).expect("room in the queue");
        }
        let mut left = batch;
        while left > 0 {
            let (done, ..) =
                futures_util::future::select_all(self.lanes.iter_mut().map(|lane| Box::pin(lane.recv()))).await;
            for done in done.expect("the lanes run") {
                done.outcome.expect("it is stored");
                left -= 1;
            }
        }
    }
}
