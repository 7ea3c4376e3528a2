//! PostgreSQL goes away and comes back: nothing that was answered is lost, and nothing stays unknown.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use minichat::store::writer::{self, Committed, Done, Job};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::support::wait::{PATIENCE, eventually};

/// What was said of messages, by their cid.
#[derive(Default)]
struct Said {
    stored: HashMap<String, u64>,
    unknown: HashSet<String>,
    unavailable: HashSet<String>,
}

impl Said {
    fn note(&mut self, done: Done<()>) {
        let cid = done.append.cid.to_string();
        match done.outcome {
            Ok(Appended::Stored { seq, .. }) => drop(self.stored.insert(cid, seq)),
            Err(Error::Unknown(_)) => drop(self.unknown.insert(cid)),
            Err(Error::Unavailable(_)) => drop(self.unavailable.insert(cid)),
            other => panic!("{cid}: {other:?}"),
        }
    }
}

fn listen(mut lane: Committed<()>) -> JoinHandle<Said> {
    tokio::spawn(async move {
        let mut said = Said::default();
        while let Some(batch) = lane.recv().await {
            batch.into_iter().for_each(|done| said.note(done));
        }
        said
    })
}

/// The seq of each message that is in a room.
async fn kept(store: &Store, name: &str) -> HashMap<String, u64> {
    let (mut kept, mut after) = (HashMap::new(), 0);
    loop {
        let page = store.range(&room(name), after, 1_000, usize::MAX).await.unwrap();
        let Some(last) = page.entries.last() else { return kept };
        assert!(page.entries.iter().map(|entry| entry.seq).eq(after + 1..=last.seq));
        after = last.seq;
        kept.extend(page.entries.into_iter().filter_map(|entry| Some((entry.cid?.to_string(), entry.seq))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_nothing_that_was_answered_and_leaves_nothing_unknown() {
    let postgres = Postgres::start();
    let store = Store::open(&postgres.url(), &Options::default()).await.unwrap();
    make(&store, "r", &["a"]).await;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let (writer, lanes) = writer::start(store.clone(), 1, &tasks, stop.clone());
    let listeners: Vec<_> = lanes.into_iter().map(listen).collect();
    let load = tokio::spawn({
        let stop = stop.clone();
        async move {
            let mut n = 0;
            while !stop.is_cancelled() {
                let append = message("r", "a", &n.to_string(), "\"load\"");
                n += u32::from(writer.submit(Job { append, origin: () }).is_ok());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    for crash in [false, true] {
        let before = head(&store).await;
        grows(&store, before + 50).await;
        tokio::task::block_in_place(|| {
            if crash {
                postgres.kill();
            }
            postgres.restart();
        });
    }
    let before = head(&store).await;
    grows(&store, before + 50).await;
    // Each settling is a task beside the one lane.
    eventually("all is settled", async || (tasks.len() == 1).then_some(())).await;
    stop.cancel();
    load.await.unwrap();
    tasks.close();
    tasks.wait().await;

    let kept = kept(&store, "r").await;
    for listener in listeners {
        let said = listener.await.unwrap();
        for (cid, seq) in &said.stored {
            assert_eq!(kept.get(cid), Some(seq), "{cid} was answered");
        }
        for cid in &said.unknown {
            assert_eq!(kept.get(cid), said.stored.get(cid), "{cid} was unknown");
        }
        for cid in &said.unavailable {
            assert!(!kept.contains_key(cid), "{cid} was said not to be stored");
        }
        assert_eq!(said.stored.len(), kept.len());
    }
}

async fn said<T>(lane: &mut Committed<T>) -> Vec<Done<T>> {
    tokio::time::timeout(PATIENCE, lane.recv()).await.expect("something is said in time").unwrap()
}

async fn head(store: &Store) -> u64 {
    eventually("the database answers", async || store.head(&room("r")).await.ok().flatten()).await
}

async fn grows(store: &Store, to: u64) {
    eventually("messages are stored", async || (head(store).await >= to).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_makes_outcomes_unknown_which_are_settled_when_it_goes_on() {
    let postgres = Postgres::start();
    // One connection that writes, on which the statement is prepared before the database hangs.
    let options = Options { connections: 1, statement_timeout: Duration::from_millis(500), ..Options::default() };
    let store = Store::open(&postgres.url(), &options).await.unwrap();
    make(&store, "r", &["a"]).await;
    sent(&store, "r", "a", "before").await;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let (writer, mut lanes) = writer::start(store.clone(), 1, &tasks, stop);

    postgres.pause();
    writer.submit(Job { append: message("r", "a", "1", "1"), origin: 1 }).unwrap();
    let first = said(&mut lanes[0]).await;
    assert!(matches!(first[0].outcome, Err(Error::Unknown(_))), "{first:?}");
    assert!(matches!(store.ping().await, Err(Error::Unavailable(_))));

    postgres.resume();
    // The statement was in the database's hands, so it is stored once the database goes on.
    let settled = said(&mut lanes[0]).await;
    assert_eq!(settled[0].origin, 1);
    assert!(matches!(settled[0].outcome, Ok(Appended::Stored { seq: 3, fresh: false, .. })), "{settled:?}");
    sent(&store, "r", "a", "after").await;
}

#[tokio::test]
async fn a_database_that_is_not_there_makes_calls_fail_and_serves_again_when_it_is_back() {
    let postgres = Postgres::start();
    let store = Store::open(&postgres.url(), &Options::default()).await.unwrap();
    make(&store, "r", &["a"]).await;
    postgres.kill();
    // A connection of before may be found broken in the midst of the call.
    eventually("it is known to be away", async || {
        matches!(store.append(&[message("r", "a", "1", "1")]).await, Err(Error::Unavailable(_))).then_some(())
    })
    .await;
    assert!(matches!(store.ping().await, Err(Error::Unavailable(_))));
    assert!(matches!(store.view(&user("a"), &room("r")).await, Err(Error::Unavailable(_))));
    postgres.restart();
    eventually("it is back", async || store.ping().await.ok()).await;
    assert_eq!(sent(&store, "r", "a", "1").await, 2);
}

/// A server that is stopped by a signal looks to the database like a call that nobody polls any more.
#[tokio::test]
async fn a_server_that_stops_in_the_midst_of_a_change_holds_no_room_for_long() {
    let database = Database::postgres().await;
    let [stopped, other] = database.open_twice().await;
    make(&stopped, "r", &["a", "b"]).await;
    let mut holder = PgConnection::connect(&database.url).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM members FOR UPDATE").execute(&mut *held).await.unwrap();

    let mut change = pin!(change(&stopped, "r", "a", Change::Remove(users(&["b"]))));
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
        AND (database IS NULL OR database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    eventually("the change has the room and waits for a member", async || {
        tokio::time::timeout(Duration::from_millis(10), &mut change).await.unwrap_err();
        let (waiting,): (i64,) = sqlx::query_as(waiting).fetch_one(&mut *held).await.unwrap();
        (waiting > 0).then_some(())
    })
    .await;
    held.rollback().await.unwrap();

    eventually("the room is free", async || other.append(&[message("r", "b", "1", "1")]).await.ok()).await;
    assert!(matches!(change.await, Err(Error::Unavailable(_))));
    assert_eq!(other.head(&room("r")).await.unwrap(), Some(2));
}
