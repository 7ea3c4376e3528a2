//! Positions only grow, stay within the room, and are members' only.

use minichat::store::{Advanced, Change, Comer};

use super::*;

on_both!(
    positions_only_grow_whoever_writes_them_and_in_whatever_order,
    a_position_past_the_head_changes_nothing,
    a_position_of_a_stranger_changes_nothing,
    who_came_further_is_answered_as_they_are_now,
    a_device_has_a_cursor_of_its_own,
    who_comes_back_starts_at_the_join,
    positions_written_at_once_from_two_servers_never_deadlock,
);

async fn with_ten(database: &Database) -> Store {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    for n in 0..9 {
        sent(&store, "r", "a", &n.to_string()).await;
    }
    store
}

/// What a user sees of their one room, and where they would start with a device.
struct Seen {
    since: u64,
    delivered: u64,
    read: u64,
    cursor: Option<u64>,
}

async fn view(store: &Store, who: &str, device: &str) -> Seen {
    let view = store.rooms(&user(who), None, 1).await.unwrap().remove(0);
    let comer = Comer { user: user(who), device: Some(device.parse().unwrap()), after: None };
    let stand = store.stands(&[comer], 1).await.unwrap().remove(0).remove(0);
    assert_eq!((&stand.room, stand.head, stand.since), (&view.room, view.head, view.since));
    assert_eq!(stand.delivered, view.delivered);
    Seen { since: view.since, delivered: view.delivered, read: view.read, cursor: stand.cursor }
}

async fn positions_only_grow_whoever_writes_them_and_in_whatever_order(database: Database) {
    let store = with_ten(&database).await;
    let both = |view: Seen| (view.delivered, view.read);
    store.advance(&[position("b", "r", None, 5, 3)]).await.unwrap();
    assert_eq!(both(view(&store, "b", "d").await), (5, 3));
    store.advance(&[position("b", "r", None, 4, 4)]).await.unwrap();
    assert_eq!(both(view(&store, "b", "d").await), (5, 4));
    store.advance(&[position("b", "r", None, 0, 0)]).await.unwrap();
    store.advance(&[]).await.unwrap();
    let several = [position("b", "r", None, 7, 0), position("b", "r", Some("d"), 6, 6), position("b", "r", None, 0, 5)];
    store.advance(&several).await.unwrap();
    assert_eq!(both(view(&store, "b", "d").await), (7, 6));
    assert_eq!(both(view(&store, "a", "d").await), (0, 0));
}

async fn a_position_past_the_head_changes_nothing(database: Database) {
    let store = with_ten(&database).await;
    store.advance(&[position("b", "r", Some("d"), 11, 4)]).await.unwrap();
    let seen = view(&store, "b", "d").await;
    assert_eq!((seen.delivered, seen.read, seen.cursor), (0, 4, None));
    store.advance(&[position("b", "r", Some("d"), 10, 10)]).await.unwrap();
    let seen = view(&store, "b", "d").await;
    assert_eq!((seen.delivered, seen.read, seen.cursor), (10, 10, Some(10)));
}

async fn a_position_of_a_stranger_changes_nothing(database: Database) {
    let store = with_ten(&database).await;
    let strange = [position("x", "r", Some("d"), 5, 5), position("b", "none", Some("d"), 5, 5)];
    store.advance(&strange).await.unwrap();
    change(&store, "r", "a", Change::Add(users(&["x"]))).await.unwrap();
    let seen = view(&store, "x", "d").await;
    assert_eq!((seen.delivered, seen.cursor), (10, None));
}

async fn who_came_further_is_answered_as_they_are_now(database: Database) {
    let store = with_ten(&database).await;
    let come = |who: &str, delivered, read| Advanced { room: room("r"), user: user(who), delivered, read };
    let several = [
        position("b", "r", Some("d"), 5, 3),
        position("b", "r", Some("e"), 4, 4),
        position("a", "r", None, 11, 0),
        position("x", "r", None, 5, 5),
    ];
    assert_eq!(store.advance(&several).await.unwrap(), [come("b", 5, 4)]);
    assert_eq!(store.advance(&several).await.unwrap(), []);
    assert_eq!(store.advance(&[position("b", "r", Some("e"), 5, 0)]).await.unwrap(), [], "only the device has");
    let mut both = store.advance(&[position("b", "r", None, 0, 9), position("a", "r", None, 1, 0)]).await.unwrap();
    both.sort_by_key(|advanced| advanced.user.clone());
    assert_eq!(both, [come("a", 1, 0), come("b", 5, 9)]);
}

async fn a_device_has_a_cursor_of_its_own(database: Database) {
    let store = with_ten(&database).await;
    store.advance(&[position("b", "r", Some("d"), 3, 0), position("b", "r", Some("e"), 6, 0)]).await.unwrap();
    store.advance(&[position("b", "r", Some("d"), 2, 0), position("b", "r", Some("f"), 0, 4)]).await.unwrap();
    let cursors = [view(&store, "b", "d").await, view(&store, "b", "e").await, view(&store, "b", "f").await];
    assert_eq!(cursors.each_ref().map(|view| view.cursor), [Some(3), Some(6), None]);
    assert_eq!(cursors.each_ref().map(|view| view.delivered), [6, 6, 6]);
}

async fn who_comes_back_starts_at_the_join(database: Database) {
    let store = with_ten(&database).await;
    store.advance(&[position("b", "r", Some("d"), 3, 3)]).await.unwrap();
    change(&store, "r", "a", Change::Remove(users(&["b"]))).await.unwrap();
    change(&store, "r", "a", Change::Add(users(&["b"]))).await.unwrap();
    let seen = view(&store, "b", "d").await;
    assert_eq!((seen.since, seen.delivered, seen.read, seen.cursor), (12, 11, 11, None));
}

async fn positions_written_at_once_from_two_servers_never_deadlock(database: Database) {
    let stores = database.open_twice().await;
    let names: Vec<_> = (0..30).map(|n| format!("u{n}")).collect();
    let members: Vec<_> = names.iter().map(String::as_str).collect();
    make(&stores[0], "r", &members).await;
    make(&stores[0], "s", &members).await;
    for n in 0..20 {
        sent(&stores[0], ["r", "s"][n % 2], "u0", &n.to_string()).await;
    }
    let writers: Vec<_> = stores
        .iter()
        .enumerate()
        .map(|(n, store)| {
            let (store, mut names) = (store.clone(), names.clone());
            if n == 1 {
                names.reverse();
            }
            tokio::spawn(async move {
                for seq in 1..=10 {
                    let positions: Vec<_> = names
                        .iter()
                        .flat_map(|name| ["s", "r"].map(|at| position(name, at, Some("d"), seq, seq)))
                        .collect();
                    store.advance(&positions).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(view(&stores[0], "u29", "d").await.cursor, Some(10));
}
