//! The tokens of devices, and who wants no pushes.

use minichat::store::MAX_TOKENS;

use super::*;

on_both!(
    a_token_belongs_to_who_registered_it_last,
    a_new_token_of_a_device_replaces_its_old_one,
    a_user_has_so_many_tokens_with_a_provider_and_the_oldest_goes,
    tokens_registered_at_once_stay_within_the_bound,
    a_token_is_forgotten_by_its_user_only,
    a_room_is_muted_by_its_members_only_and_shows_it,
    who_comes_back_is_not_muted,
);

async fn register(store: &Store, who: &str, device: Option<&str>, token: &str) {
    let device = device.map(|device| device.parse().unwrap());
    store.register_token(&user(who), device.as_ref(), "fcm", token).await.unwrap();
}

async fn tokens(database: &Database) -> Option<i64> {
    database.number("SELECT count(*) FROM device_tokens").await
}

async fn a_token_belongs_to_who_registered_it_last(database: Database) {
    let store = database.open().await;
    register(&store, "a", Some("d"), "t").await;
    register(&store, "a", Some("d"), "t").await;
    register(&store, "b", Some("e"), "t").await;
    assert_eq!(tokens(&database).await, Some(1));
    let theirs = "SELECT count(*) FROM device_tokens WHERE user_id = 'b' AND device = 'e'";
    assert_eq!(database.number(theirs).await, Some(1));
}

async fn a_new_token_of_a_device_replaces_its_old_one(database: Database) {
    let store = database.open().await;
    register(&store, "a", Some("d"), "t").await;
    register(&store, "a", Some("e"), "u").await;
    register(&store, "b", Some("d"), "v").await;
    register(&store, "a", None, "w").await;
    register(&store, "a", None, "x").await;
    store.register_token(&user("a"), Some(&"d".parse().unwrap()), "other", "y").await.unwrap();
    assert_eq!(tokens(&database).await, Some(6));
    register(&store, "a", Some("d"), "new").await;
    assert_eq!(tokens(&database).await, Some(6));
    assert_eq!(database.number("SELECT count(*) FROM device_tokens WHERE token = 't'").await, Some(0));
}

async fn a_user_has_so_many_tokens_with_a_provider_and_the_oldest_goes(database: Database) {
    let store = database.open().await;
    register(&store, "b", None, "another's").await;
    register(&store, "a", None, "oldest").await;
    database.run("UPDATE device_tokens SET at = at - 1000").await;
    for n in 1..MAX_TOKENS {
        register(&store, "a", None, &n.to_string()).await;
    }
    assert_eq!(tokens(&database).await, Some(MAX_TOKENS as i64 + 1));
    register(&store, "a", None, "newest").await;
    assert_eq!(tokens(&database).await, Some(MAX_TOKENS as i64 + 1));
    let gone = "SELECT count(*) FROM device_tokens WHERE token = 'oldest'";
    assert_eq!(database.number(gone).await, Some(0));
    let there = "SELECT count(*) FROM device_tokens WHERE token = 'newest'";
    assert_eq!(database.number(there).await, Some(1));
}

async fn tokens_registered_at_once_stay_within_the_bound(database: Database) {
    let stores = database.open_twice().await;
    let mut work = tokio::task::JoinSet::new();
    for n in 0..4 {
        let store = stores[n % 2].clone();
        work.spawn(async move {
            for token in 0..8 {
                register(&store, ["a", "b"][n / 2], None, &token.to_string()).await;
                register(&store, "c", Some(&(token % 5).to_string()), &format!("{n}-{token}")).await;
                register(&store, "d", None, &format!("d{n}-{token}")).await;
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    for (theirs, count) in [
        ("SELECT count(*) FROM device_tokens WHERE user_id IN ('a', 'b')", 8),
        ("SELECT count(*) FROM device_tokens WHERE user_id = 'c'", 5),
        ("SELECT count(*) FROM device_tokens WHERE user_id = 'd'", MAX_TOKENS as i64),
    ] {
        assert_eq!(database.number(theirs).await, Some(count), "{theirs}");
    }
}

async fn a_token_is_forgotten_by_its_user_only(database: Database) {
    let store = database.open().await;
    register(&store, "a", None, "t").await;
    store.forget_token(&user("b"), "fcm", "t").await.unwrap();
    store.forget_token(&user("a"), "other", "t").await.unwrap();
    assert_eq!(tokens(&database).await, Some(1));
    store.forget_token(&user("a"), "fcm", "t").await.unwrap();
    assert_eq!(tokens(&database).await, Some(0));
}

async fn a_room_is_muted_by_its_members_only_and_shows_it(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    store.mute_room(&user("a"), &room("r"), true).await.unwrap();
    store.mute_all(&user("b"), true).await.unwrap();
    let muted = async |who: &str| store.view(&user(who), &room("r")).await.unwrap().muted;
    assert!(muted("a").await);
    assert!(!muted("b").await, "the room is not, whatever else is");
    store.mute_room(&user("a"), &room("r"), false).await.unwrap();
    assert!(!muted("a").await);
    assert_eq!(refused(store.mute_room(&user("x"), &room("r"), true).await), Refusal::NotFound);
    assert_eq!(refused(store.mute_room(&user("a"), &room("none"), true).await), Refusal::NotFound);
}

async fn who_comes_back_is_not_muted(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    store.mute_room(&user("b"), &room("r"), true).await.unwrap();
    for step in [Change::Remove(users(&["b"])), Change::Add(users(&["b"]))] {
        change(&store, "r", "a", step).await.unwrap();
    }
    assert!(!store.view(&user("b"), &room("r")).await.unwrap().muted);
}
