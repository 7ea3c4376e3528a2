//! The group commit.

use std::collections::HashMap;
use std::time::Duration;

use minichat::store::writer::{self, Committed, Done, Full, Job, MAX_QUEUED, MAX_QUEUED_BYTES, Writer};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

/// A writer, what it commits, and its end.
struct Rig {
    writer: Writer<u32>,
    lanes: Vec<Committed<u32>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Rig {
    fn start(store: &Store, lanes: usize) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (writer, lanes) = writer::start(store.clone(), lanes, &tasks, stop.clone());
        Self { writer, lanes, tasks, stop }
    }

    fn submit(&self, append: Append, origin: u32) {
        self.writer.submit(Job { append, origin }).unwrap();
    }

    /// Takes from the first lane until it has `count`: the sizes of the batches, and all that was said.
    async fn take(&mut self, count: usize) -> (Vec<usize>, Vec<Done<u32>>) {
        let (mut sizes, mut all) = (Vec::new(), Vec::new());
        while all.len() < count {
            let batch = self.lanes[0].recv().await.unwrap();
            sizes.push(batch.len());
            all.extend(batch);
        }
        (sizes, all)
    }
}

fn seq(done: &Done<u32>) -> u64 {
    match done.outcome {
        Ok(Appended::Stored { seq, fresh: true, .. }) => seq,
        ref other => panic!("{other:?}"),
    }
}

async fn sqlite() -> (Database, Store) {
    let database = Database::sqlite();
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    (database, store)
}

#[tokio::test]
async fn a_lone_message_is_committed_at_once() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 3);
    rig.lanes.truncate(3);
    rig.submit(message("r", "a", "1", "1"), 7);
    let (done, ..) = futures_util::future::select_all(rig.lanes.iter_mut().map(|lane| Box::pin(lane.recv()))).await;
    let done = done.unwrap();
    assert_eq!((done.len(), done[0].origin, seq(&done[0])), (1, 7, 2));
    assert_eq!(rig.writer.queued_bytes(), 0);
}

#[tokio::test]
async fn what_waits_is_committed_together_and_in_order() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    // This runtime has one thread, so the lane begins when all are queued.
    for n in 0..2_500 {
        rig.submit(message("r", "a", &n.to_string(), "1"), n);
    }
    assert_eq!(rig.writer.queued_bytes(), 2_500);
    let (sizes, done) = rig.take(2_500).await;
    assert_eq!(sizes, [2_048, 452]);
    for (n, done) in done.iter().enumerate() {
        assert_eq!((done.origin, seq(done)), (n as u32, n as u64 + 2));
    }
}

#[tokio::test]
async fn a_repeat_far_behind_in_the_same_commit_is_a_repeat() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    for n in 0..1_000 {
        rig.submit(message("r", "a", &(n % 600).to_string(), "1"), n);
    }
    rig.submit(message("r", "a", "0", "2"), 1_000);
    let (sizes, done) = rig.take(1_001).await;
    assert_eq!(sizes, [1_001]);
    for (n, done) in done[..1_000].iter().enumerate() {
        let expected = (n as u64 % 600 + 2, n < 600);
        let Ok(Appended::Stored { seq, fresh, .. }) = done.outcome else { panic!("{done:?}") };
        assert_eq!((seq, fresh), expected);
    }
    assert!(matches!(done[1_000].outcome, Ok(Appended::CidReused)), "{:?}", done[1_000]);
    assert_eq!(store.range(&room("r"), 0, 1, usize::MAX).await.unwrap().head, 601);
}

#[tokio::test]
async fn what_fails_far_behind_in_a_commit_undoes_all_of_it() {
    let (database, store) = sqlite().await;
    let mut other = SqliteConnection::connect(&database.url).await.unwrap();
    let refuse =
        "CREATE TRIGGER no BEFORE INSERT ON messages WHEN NEW.cid = '900' BEGIN SELECT RAISE(ABORT, 'no'); END";
    sqlx::query(refuse).execute(&mut other).await.unwrap();
    let batch: Vec<_> = (0..1_000).map(|n| message("r", "a", &n.to_string(), "1")).collect();
    store.append(&batch).await.unwrap_err();
    assert_eq!(store.range(&room("r"), 0, 1, usize::MAX).await.unwrap().head, 1);

    sqlx::query("DROP TRIGGER no").execute(&mut other).await.unwrap();
    let outcomes = store.append(&batch).await.unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Appended::Stored { fresh: true, .. })));
}

#[tokio::test]
async fn a_batch_is_bounded_in_rooms() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    // Nobody is in these rooms, which costs nothing but being asked.
    for n in 0..1_500u32 {
        rig.submit(message(&format!("r{}", n % 600), "a", &n.to_string(), "1"), n);
    }
    let (sizes, _) = rig.take(1_500).await;
    assert_eq!(sizes, [512, 512, 476]);
}

#[tokio::test]
async fn a_batch_is_bounded_in_bytes() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    let body = format!("\"{}\"", "x".repeat(400_000));
    for n in 0..5 {
        rig.submit(message("r", "a", &n.to_string(), &body), n);
    }
    let (sizes, done) = rig.take(5).await;
    assert_eq!(sizes, [2, 2, 1]);
    assert!(done.iter().map(seq).eq(2..=6));
}

#[tokio::test]
async fn a_full_queue_gives_the_job_back_and_takes_jobs_again_later() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    for n in 0..MAX_QUEUED as u32 {
        rig.submit(message("r", "a", &n.to_string(), "1"), n);
    }
    let Full(job) = rig.writer.submit(Job { append: message("r", "a", "late", "1"), origin: 9 }).unwrap_err();
    assert_eq!((job.origin, job.append.cid.as_str()), (9, "late"));
    rig.take(MAX_QUEUED).await;
    rig.writer.submit(job).unwrap();
    rig.take(1).await;

    let half = format!("\"{}\"", "x".repeat(MAX_QUEUED_BYTES / 2));
    rig.submit(message("r", "a", "large", &half), 1);
    assert!(rig.writer.submit(Job { append: message("r", "a", "too large", &half), origin: 2 }).is_err());
    rig.submit(message("r", "a", "small", "1"), 3);
    rig.take(2).await;
    assert_eq!(rig.writer.queued_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_room_keeps_its_order_over_several_lanes() {
    let database = Database::postgres().await;
    let store = database.open().await;
    let names: Vec<_> = (0..7).map(|n| format!("r{n}")).collect();
    for name in &names {
        make(&store, name, &["a"]).await;
    }
    let mut rig = Rig::start(&store, 3);
    for n in 0..700u32 {
        rig.submit(message(&names[n as usize % 7], "a", &n.to_string(), "1"), n);
    }
    rig.stop.cancel();
    let mut rooms: HashMap<RoomId, Vec<(u32, u64)>> = HashMap::new();
    for lane in &mut rig.lanes {
        while let Some(batch) = lane.recv().await {
            for done in batch {
                rooms.entry(done.append.room.clone()).or_default().push((done.origin, seq(&done)));
            }
        }
    }
    assert_eq!(rooms.len(), 7);
    for (room, done) in rooms {
        assert!(done.iter().map(|(_, seq)| *seq).eq(2..=101), "{room}: {done:?}");
        assert!(done.is_sorted(), "{room}: {done:?}");
    }
}

#[tokio::test]
async fn who_is_asked_to_stop_finishes_what_is_queued_and_takes_nothing_new() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    for n in 0..300 {
        rig.submit(message("r", "a", &n.to_string(), "1"), n);
    }
    rig.stop.cancel();
    let (_, done) = rig.take(300).await;
    assert!(done.iter().map(seq).eq(2..=301));
    assert!(rig.lanes[0].recv().await.is_none());
    rig.tasks.close();
    rig.tasks.wait().await;
    assert!(rig.writer.submit(Job { append: message("r", "a", "late", "1"), origin: 0 }).is_err());
}

#[tokio::test]
async fn refusals_are_answered_one_by_one() {
    let (_database, store) = sqlite().await;
    let mut rig = Rig::start(&store, 1);
    for (n, append) in [
        message("r", "a", "1", "1"),
        message("r", "x", "1", "1"),
        message("r", "a", "1", "2"),
        message("r", "a", "2", "2"),
    ]
    .into_iter()
    .enumerate()
    {
        rig.submit(append, n as u32);
    }
    let (sizes, done) = rig.take(4).await;
    assert_eq!(sizes, [4]);
    assert_eq!((seq(&done[0]), seq(&done[3])), (2, 3));
    assert!(matches!(done[1].outcome, Ok(Appended::NotMember)));
    assert!(matches!(done[2].outcome, Ok(Appended::CidReused)));
}

#[tokio::test]
async fn a_message_that_the_database_rejects_fails_alone() {
    let database = Database::postgres().await;
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let mut rig = Rig::start(&store, 1);
    for n in 0..20 {
        // PostgreSQL has no text with a NUL in it.
        rig.submit(message("r", "a", &n.to_string(), if n == 11 { "\"\0\"" } else { "1" }), n);
    }
    let (_, done) = rig.take(20).await;
    let (good, bad): (Vec<_>, Vec<_>) = done.iter().partition(|done| done.outcome.is_ok());
    assert_eq!(bad.iter().map(|done| done.origin).collect::<Vec<_>>(), [11]);
    assert!(good.iter().map(|done| seq(done)).eq(2..=20));
    assert!(good.is_sorted_by_key(|done| done.origin));
}

#[tokio::test]
async fn a_locked_room_fails_alone() {
    let database = Database::postgres().await;
    let options = Options { lock_timeout: Duration::from_millis(300), ..Options::default() };
    let store = Store::open(&database.url, &options).await.unwrap();
    for name in ["a", "locked", "z"] {
        make(&store, name, &["a"]).await;
    }
    let mut holder = PgConnection::connect(&database.url).await.unwrap();
    let mut transaction = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM rooms WHERE id = 'locked' FOR UPDATE").execute(&mut *transaction).await.unwrap();

    let mut rig = Rig::start(&store, 1);
    for n in 0..30 {
        rig.submit(message(["a", "locked", "z"][n as usize % 3], "a", &n.to_string(), "1"), n);
    }
    let (_, done) = rig.take(30).await;
    for done in &done {
        match done.append.room.as_str() {
            "locked" => assert!(matches!(done.outcome, Err(Error::Unavailable(_))), "{done:?}"),
            _ => assert_eq!(seq(done), u64::from(done.origin / 3) + 2),
        }
    }
    // The others did not wait for it.
    assert!(done[20..].iter().all(|done| done.append.room.as_str() == "locked"));

    transaction.rollback().await.unwrap();
    rig.submit(message("locked", "a", "1", "1"), 1);
    let (_, done) = rig.take(1).await;
    assert_eq!(seq(&done[0]), 2);
}
