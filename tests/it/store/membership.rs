//! Rooms and their members: who may do what, and what the log says of it.

use minichat::store::{Event, EventKind, MAX_MEMBERS};

use super::*;

on_both!(
    a_room_begins_with_the_entry_that_names_its_members,
    a_room_made_again_by_its_creator_is_left_as_it_is,
    the_creator_adds_and_removes_and_nobody_else_does,
    in_an_open_room_anyone_joins,
    a_closed_room_looks_to_a_stranger_as_if_it_were_not_there,
    anyone_leaves,
    what_is_so_already_makes_no_entry,
    a_room_takes_no_more_than_its_most_members,
    a_pair_has_one_direct_room_also_when_both_make_it_at_once,
    a_direct_room_with_oneself_is_a_room_of_one,
    the_members_of_a_direct_room_are_fixed,
    members_are_listed_in_pages_to_members_only,
    rooms_are_listed_in_pages_by_id,
    heads_name_every_room_of_every_user,
    changes_and_messages_at_once_leave_no_gap,
);

fn event(changed: &Changed) -> (u64, EventKind, Vec<&str>) {
    match changed.entry.as_ref().map(|entry| (entry.seq, &entry.content)) {
        Some((seq, Content::Event(Event { kind, users }))) => (seq, *kind, users.iter().map(UserId::as_str).collect()),
        other => panic!("no event: {other:?}"),
    }
}

async fn members(store: &Store, name: &str) -> Vec<String> {
    let membership = store.membership(&room(name)).await.unwrap().unwrap();
    membership.members.into_iter().map(|(user, _)| user.to_string()).collect()
}

async fn a_room_begins_with_the_entry_that_names_its_members(database: Database) {
    let store = database.open().await;
    let new = NewRoom { name: Some("Team \"1\"".into()), ..new_room("r", "a", &["c", "b", "c"], true) };
    let changed = store.create(&new).await.unwrap();
    assert_eq!(event(&changed), (1, EventKind::Created, vec!["a", "b", "c"]));
    assert_eq!(changed.entry.as_ref().unwrap().id, new.id);
    let page = store.page(&user("b"), &room("r"), 0, 10, usize::MAX).await.unwrap();
    assert_eq!(page.entries, [changed.entry.unwrap()]);
    let view = store.view(&user("b"), &room("r")).await.unwrap();
    assert_eq!((view.name.as_deref(), view.peer, view.open, view.head), (Some("Team \"1\""), None, true, 1));
    assert_eq!((view.since, view.delivered, view.read, view.count), (1, 0, 0, 3));
}

async fn a_room_made_again_by_its_creator_is_left_as_it_is(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let again = store.create(&new_room("r", "a", &["b"], true)).await.unwrap();
    assert_eq!(again, Changed { room: room("r"), entry: None });
    assert_eq!(members(&store, "r").await, ["a"]);
    assert_eq!(refused(store.create(&new_room("r", "b", &[], false)).await), Refusal::Taken);
}

async fn the_creator_adds_and_removes_and_nobody_else_does(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let added = change(&store, "r", "a", Change::Add(users(&["d", "b", "c", "d"]))).await.unwrap();
    assert_eq!(event(&added), (2, EventKind::Joined, vec!["c", "d"]));
    let removed = change(&store, "r", "a", Change::Remove(users(&["x", "d", "b"]))).await.unwrap();
    assert_eq!(event(&removed), (3, EventKind::Left, vec!["b", "d"]));
    assert_eq!(members(&store, "r").await, ["a", "c"]);
    assert_eq!(store.view(&user("c"), &room("r")).await.unwrap().count, 2);
    for change_by_another in [Change::Add(users(&["x"])), Change::Remove(users(&["a"]))] {
        assert_eq!(refused(change(&store, "r", "c", change_by_another.clone()).await), Refusal::Forbidden);
        assert_eq!(refused(change(&store, "r", "b", change_by_another).await), Refusal::NotFound);
    }
}

async fn in_an_open_room_anyone_joins(database: Database) {
    let store = database.open().await;
    store.create(&new_room("r", "a", &[], true)).await.unwrap();
    let joined = change(&store, "r", "b", Change::Join).await.unwrap();
    assert_eq!(event(&joined), (2, EventKind::Joined, vec!["b"]));
    assert_eq!(refused(change(&store, "r", "b", Change::Add(users(&["c"]))).await), Refusal::Forbidden);
    let membership = store.membership(&room("r")).await.unwrap().unwrap();
    assert_eq!((membership.version, membership.members), (2, vec![(user("a"), 1), (user("b"), 2)]));
}

async fn a_closed_room_looks_to_a_stranger_as_if_it_were_not_there(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    for name in ["r", "none"] {
        for attempt in [Change::Join, Change::Leave, Change::Add(users(&["x"])), Change::Remove(users(&["x"]))] {
            assert_eq!(refused(change(&store, name, "x", attempt).await), Refusal::NotFound);
        }
        assert_eq!(refused(store.view(&user("x"), &room(name)).await), Refusal::NotFound);
        assert_eq!(refused(store.page(&user("x"), &room(name), 0, 1, 1).await), Refusal::NotFound);
        assert_eq!(refused(store.page_before(&user("x"), &room(name), 9, 1, 1).await), Refusal::NotFound);
        assert_eq!(refused(store.members_page(&user("x"), &room(name), None, 9).await), Refusal::NotFound);
    }
    assert_eq!(store.membership(&room("none")).await.unwrap(), None);
    assert_eq!(store.head(&room("none")).await.unwrap(), None);
    assert_eq!(refused(store.range(&room("none"), 0, 1, 1).await), Refusal::NotFound);
}

async fn anyone_leaves(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let left = change(&store, "r", "a", Change::Leave).await.unwrap();
    assert_eq!(event(&left), (2, EventKind::Left, vec!["a"]));
    assert_eq!(refused(change(&store, "r", "a", Change::Add(users(&["c"]))).await), Refusal::NotFound);
    change(&store, "r", "b", Change::Leave).await.unwrap();
    let membership = store.membership(&room("r")).await.unwrap().unwrap();
    assert_eq!((membership.version, membership.members.len()), (3, 0));
}

async fn what_is_so_already_makes_no_entry(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    for nothing in [
        Change::Join,
        Change::Add(users(&["b", "a"])),
        Change::Remove(users(&["x"])),
        Change::Add(Vec::new()),
        Change::Remove(Vec::new()),
    ] {
        assert_eq!(change(&store, "r", "a", nothing).await.unwrap(), Changed { room: room("r"), entry: None });
    }
    assert_eq!(store.head(&room("r")).await.unwrap(), Some(1));
}

async fn a_room_takes_no_more_than_its_most_members(database: Database) {
    let store = database.open().await;
    let many: Vec<_> = (0..MAX_MEMBERS).map(|n| user(&format!("m{n}"))).collect();
    let too_many = NewRoom { members: many.clone(), ..new_room("r", "a", &[], true) };
    assert_eq!(refused(store.create(&too_many).await), Refusal::Full);
    make(&store, "s", &["a"]).await;
    change(&store, "s", "a", Change::Add(many[1..].to_vec())).await.unwrap();
    assert_eq!(store.view(&user("m1"), &room("s")).await.unwrap().count, MAX_MEMBERS as u64);
    assert_eq!(refused(change(&store, "s", "a", Change::Add(many[..1].to_vec())).await), Refusal::Full);
    assert_eq!(change(&store, "s", "a", Change::Add(many[1..].to_vec())).await.unwrap().entry, None);
}

async fn a_pair_has_one_direct_room_also_when_both_make_it_at_once(database: Database) {
    let [first, second] = database.open_twice().await;
    for n in 0..10 {
        let (a, b) = (user(&format!("a{n}")), user(&format!("b{n}")));
        let (one, other) = tokio::join!(first.direct(&a, &b, id()), second.direct(&b, &a, id()));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.room, other.room);
        assert_eq!(one.entry.is_some() as u8 + other.entry.is_some() as u8, 1);
        let entry = one.entry.or(other.entry).unwrap();
        assert_eq!(entry.room, RoomId::made(entry.id));
        assert_eq!(
            entry.content,
            Content::Event(Event { kind: EventKind::Created, users: vec![a.clone(), b.clone()] })
        );
        let again = first.direct(&b, &a, id()).await.unwrap();
        assert_eq!(again, Changed { room: entry.room.clone(), entry: None });
        assert_eq!(first.view(&a, &entry.room).await.unwrap().peer, Some(b.clone()));
        assert_eq!(first.view(&b, &entry.room).await.unwrap().peer, Some(a));
    }
}

async fn a_direct_room_with_oneself_is_a_room_of_one(database: Database) {
    let store = database.open().await;
    let made = store.direct(&user("a"), &user("a"), id()).await.unwrap();
    assert_eq!(event(&made), (1, EventKind::Created, vec!["a"]));
    let view = store.view(&user("a"), &made.room).await.unwrap();
    assert_eq!((view.peer, view.count), (Some(user("a")), 1));
    assert_eq!(store.direct(&user("a"), &user("a"), id()).await.unwrap().room, made.room);
}

async fn the_members_of_a_direct_room_are_fixed(database: Database) {
    let store = database.open().await;
    let direct = store.direct(&user("a"), &user("b"), id()).await.unwrap().room;
    for attempt in [Change::Leave, Change::Add(users(&["c"])), Change::Remove(users(&["b"]))] {
        assert_eq!(refused(change(&store, direct.as_str(), "a", attempt).await), Refusal::Direct);
    }
    assert_eq!(change(&store, direct.as_str(), "a", Change::Join).await.unwrap().entry, None);
    assert_eq!(refused(change(&store, direct.as_str(), "c", Change::Join).await), Refusal::NotFound);
}

async fn members_are_listed_in_pages_to_members_only(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["b", "B", "ä", "a", "_"]).await;
    store.advance(&[position("a", "r", None, 1, 0), position("_", "r", None, 1, 1)]).await.unwrap();
    let page = async |after: Option<&UserId>| {
        let members = store.members_page(&user("a"), &room("r"), after, 3).await.unwrap();
        members.into_iter().map(|m| (m.user, m.delivered, m.read)).collect::<Vec<_>>()
    };
    let first = page(None).await;
    assert_eq!(first, [(user("B"), 0, 0), (user("_"), 1, 1), (user("a"), 1, 0)]);
    assert_eq!(page(first.last().map(|(user, ..)| user)).await, [(user("b"), 0, 0), (user("ä"), 0, 0)]);
}

async fn rooms_are_listed_in_pages_by_id(database: Database) {
    let store = database.open().await;
    for name in ["b", "B", "a-1", "a.1", "c"] {
        make(&store, name, &["a"]).await;
    }
    make(&store, "other", &["b"]).await;
    let names = |views: &[minichat::store::RoomView]| -> Vec<String> {
        views.iter().map(|view| view.room.to_string()).collect()
    };
    let first = store.rooms(&user("a"), None, 3).await.unwrap();
    assert_eq!(names(&first), ["B", "a-1", "a.1"]);
    let rest = store.rooms(&user("a"), Some(&first[2].room), 3).await.unwrap();
    assert_eq!(names(&rest), ["b", "c"]);
    assert_eq!(rest[0], store.view(&user("a"), &room("b")).await.unwrap());
}

async fn heads_name_every_room_of_every_user(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    make(&store, "s", &["a"]).await;
    sent(&store, "s", "a", "1").await;
    change(&store, "s", "a", Change::Add(users(&["b"]))).await.unwrap();
    let mut heads = store.heads(&users(&["a", "b", "nobody"])).await.unwrap();
    heads.sort_by_key(|head| (head.user.clone(), head.room.clone()));
    let heads: Vec<_> = heads.iter().map(|h| (h.user.as_str(), h.room.as_str(), h.head, h.since)).collect();
    assert_eq!(heads, [("a", "r", 1, 1), ("a", "s", 3, 1), ("b", "r", 1, 1), ("b", "s", 3, 3)]);
    assert!(store.heads(&[]).await.unwrap().is_empty());
}

async fn changes_and_messages_at_once_leave_no_gap(database: Database) {
    let [first, second] = database.open_twice().await;
    first.create(&new_room("r", "a", &[], true)).await.unwrap();
    let joiner = tokio::spawn(async move {
        for n in 0..20 {
            let who = format!("u{}", n % 4);
            change(&second, "r", &who, Change::Join).await.unwrap();
            send(&second, "r", &who, &n.to_string(), "1").await;
            change(&second, "r", &who, Change::Leave).await.unwrap();
        }
    });
    for n in 0..40 {
        sent(&first, "r", "a", &n.to_string()).await;
    }
    joiner.await.unwrap();
    let page = first.range(&room("r"), 0, 1_000, usize::MAX).await.unwrap();
    assert_eq!(page.head, 101);
    assert_eq!(seqs(&page.entries), (1..=101).collect::<Vec<_>>());
    assert_eq!(first.view(&user("a"), &room("r")).await.unwrap().count, 1);
}
