//! Member lists as a server keeps them: read once for all who look for one, and never older than what is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use minichat::rooms::Rooms;

use super::*;

on_both!(
    who_look_for_a_list_at_the_same_time_share_one_read,
    a_list_is_as_new_as_the_change_it_is_asked_for_whoever_else_reads_it,
    a_list_that_cannot_be_read_is_refused_to_all_who_look_for_it,
    who_gives_up_reading_leaves_it_to_those_who_wait,
    a_change_that_was_heard_of_is_in_the_list_also_for_who_asks_for_any,
);

async fn who_look_for_a_list_at_the_same_time_share_one_read(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let lists = Rooms::new(store);
    let r = room("r");
    let found = join_all((0..200).map(|_| lists.members(&r, 0))).await;
    let lists: BTreeSet<_> = found.iter().map(|list| Arc::as_ptr(list.as_ref().unwrap())).collect();
    assert_eq!(lists.len(), 1, "each read would have made a list of its own");
}

async fn a_list_is_as_new_as_the_change_it_is_asked_for_whoever_else_reads_it(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    for number in 0..50 {
        let lists = Rooms::new(store.clone());
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let lists = lists.clone();
                tokio::spawn(async move { lists.members(&room("r"), 0).await.map(drop) })
            })
            .collect();
        let changed = change(&store, "r", "a", Change::Add(vec![user(&format!("u{number}"))])).await.unwrap();
        let version = changed.entry.unwrap().seq;
        assert!(lists.members(&room("r"), version).await.unwrap().version >= version);
        for reader in readers {
            reader.await.unwrap().unwrap();
        }
    }
}

async fn a_list_that_cannot_be_read_is_refused_to_all_who_look_for_it(database: Database) {
    let lists = Rooms::new(database.open().await);
    let none = room("none");
    for found in join_all((0..20).map(|_| lists.members(&none, 0))).await {
        assert!(matches!(found, Err(Error::Refused(Refusal::NotFound))), "{found:?}");
    }
}

async fn who_gives_up_reading_leaves_it_to_those_who_wait(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let lists = Rooms::new(store);
    let r = room("r");
    let mut reads = Box::pin(lists.members(&r, 0));
    let mut waits = Box::pin(lists.members(&r, 0));
    assert!(futures_util::poll!(&mut reads).is_pending() && futures_util::poll!(&mut waits).is_pending());
    drop(reads);
    assert_eq!(waits.await.unwrap().version, 1);
}

async fn a_change_that_was_heard_of_is_in_the_list_also_for_who_asks_for_any(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let lists = Rooms::new(store.clone());
    let r = room("r");
    let mut reads = Box::pin(lists.members(&r, 0));
    assert!(futures_util::poll!(&mut reads).is_pending());
    let version = change(&store, "r", "a", Change::Add(users(&["b"]))).await.unwrap().entry.unwrap().seq;
    lists.changed(&r, version);
    let (_, found) = tokio::join!(reads, lists.members(&r, 0));
    assert!(found.unwrap().has(&user("b")));
}
