//! Pages of a room's log: what a member may see, and how much at once.

use minichat::store::Change;

use super::*;

on_both!(
    a_view_begins_at_the_last_join,
    a_page_is_bounded_in_rows_and_bytes_and_never_empty_before_the_head,
    a_page_before_ends_just_before_it,
    numbers_beyond_all_bounds_are_no_error,
    who_has_left_finds_their_own_departure_and_only_that,
);

async fn a_view_begins_at_the_last_join(database: Database) {
    let store = database.open().await;
    store.create(&new_room("r", "a", &["b"], true)).await.unwrap();
    sent(&store, "r", "a", "1").await;
    change(&store, "r", "b", Change::Leave).await.unwrap();
    sent(&store, "r", "a", "2").await;
    change(&store, "r", "b", Change::Join).await.unwrap();
    sent(&store, "r", "a", "3").await;
    let (b, r) = (user("b"), room("r"));
    let forward = store.page(&b, &r, 0, 100, usize::MAX).await.unwrap();
    assert_eq!((seqs(&forward.entries), forward.head), (vec![5, 6], 6));
    let backward = store.page_before(&b, &r, 7, 100, usize::MAX).await.unwrap();
    assert_eq!((seqs(&backward.entries), backward.head), (vec![5, 6], 6));
    assert!(store.page_before(&b, &r, 5, 100, usize::MAX).await.unwrap().entries.is_empty());
    assert_eq!(seqs(&store.page(&user("a"), &r, 0, 100, usize::MAX).await.unwrap().entries), [1, 2, 3, 4, 5, 6]);
    let view = store.view(&b, &r).await.unwrap();
    assert_eq!((view.since, view.delivered, view.read), (5, 4, 4));
}

/// A room with `created` at 1 and bodies of 10 bytes at 2 to 11.
async fn ten_by_ten(store: &Store) {
    make(store, "r", &["a"]).await;
    for n in 0..10 {
        send(store, "r", "a", &n.to_string(), &format!("\"{n:08}\"")).await;
    }
}

async fn a_page_is_bounded_in_rows_and_bytes_and_never_empty_before_the_head(database: Database) {
    let store = database.open().await;
    ten_by_ten(&store).await;
    let page = async |after, rows, bytes| {
        let page = store.page(&user("a"), &room("r"), after, rows, bytes).await.unwrap();
        let range = store.range(&room("r"), after, rows, bytes).await.unwrap();
        assert_eq!(page, range);
        assert_eq!(page.head, 11);
        seqs(&page.entries)
    };
    assert_eq!(page(1, 3, usize::MAX).await, [2, 3, 4]);
    assert_eq!(page(1, 100, 30).await, [2, 3, 4]);
    assert_eq!(page(1, 100, 39).await, [2, 3, 4]);
    assert_eq!(page(1, 100, 0).await, [2]);
    assert_eq!(page(10, 100, 5).await, [11]);
    assert_eq!(page(11, 100, 5).await, [0; 0]);
    assert_eq!(page(50, 100, 5).await, [0; 0]);
}

async fn a_page_before_ends_just_before_it(database: Database) {
    let store = database.open().await;
    ten_by_ten(&store).await;
    let page = async |before, rows, bytes| {
        let page = store.page_before(&user("a"), &room("r"), before, rows, bytes).await.unwrap();
        assert_eq!(page.head, 11);
        seqs(&page.entries)
    };
    assert_eq!(page(12, 3, usize::MAX).await, [9, 10, 11]);
    assert_eq!(page(u64::MAX, 3, usize::MAX).await, [9, 10, 11]);
    assert_eq!(page(9, 100, 20).await, [7, 8]);
    assert_eq!(page(9, 100, 0).await, [8]);
    assert_eq!(page(1, 100, 5).await, [0; 0]);
    assert_eq!(page(0, 100, 5).await, [0; 0]);
}

async fn numbers_beyond_all_bounds_are_no_error(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let page = store.page(&user("a"), &room("r"), u64::MAX, u32::MAX, usize::MAX).await.unwrap();
    assert!(page.entries.is_empty());
    assert!(store.range(&room("r"), u64::MAX, u32::MAX, usize::MAX).await.unwrap().entries.is_empty());
}

async fn who_has_left_finds_their_own_departure_and_only_that(database: Database) {
    let store = database.open().await;
    store.create(&new_room("r", "a", &["b", "c"], true)).await.unwrap();
    change(&store, "r", "b", Change::Leave).await.unwrap();
    change(&store, "r", "b", Change::Join).await.unwrap();
    change(&store, "r", "a", Change::Remove(users(&["b"]))).await.unwrap();
    change(&store, "r", "c", Change::Leave).await.unwrap();
    sent(&store, "r", "a", "1").await;
    let departure = async |who: &str, name: &str, after| {
        store.departure(&user(who), &room(name), after).await.unwrap().map(|entry| entry.seq)
    };
    assert_eq!(departure("b", "r", 0).await, Some(4), "the latest");
    assert_eq!(departure("c", "r", 0).await, Some(5));
    assert_eq!(departure("b", "r", 4).await, None, "they have it");
    assert_eq!(departure("x", "r", 0).await, None);
    assert_eq!(departure("b", "none", 0).await, None);
}
