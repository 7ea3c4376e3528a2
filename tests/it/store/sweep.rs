//! Rooms with something undecided: due in time, held by one, settled wholly or not at all.

use std::collections::HashSet;
use std::time::Duration;

use minichat::ids::ServerId;
use minichat::protocol::PushToken;
use minichat::store::{Became, Change, DueRoom, LOOK, OpenRoom, PushKind, PushOutcome, Settled};
use sqlx::migrate::Migrator;

use super::*;
use crate::support::wait::eventually;

on_both!(
    an_entry_makes_its_room_due_a_second_later_and_later_ones_do_not_move_that,
    a_membership_change_makes_its_room_due,
    what_was_there_before_there_were_pushes_is_decided,
    two_servers_that_take_at_once_never_get_the_same_room,
    a_room_whose_holder_went_away_is_given_again_after_the_hold,
    a_room_is_left_to_who_looked_last_until_it_is_late,
    a_room_is_settled_with_its_pushes_and_due_no_more,
    a_room_that_another_has_taken_is_passed_over_wholly,
    a_room_that_cannot_be_settled_does_not_hold_up_the_others,
    what_comes_between_the_look_and_its_end_makes_the_room_due_again,
    nothing_is_pushed_twice,
    what_is_acknowledged_while_it_is_decided_is_not_pushed,
    a_look_shows_what_is_open_and_for_whom,
    a_look_is_bounded,
    a_clock_that_is_set_back_holds_up_neither_rooms_nor_pushes,
    each_device_gets_a_push_of_its_own,
    the_longest_token_of_the_longest_user_is_pushed_to,
    messages_positions_and_looks_at_once_lose_and_double_nothing,
);

pub(super) const HOLD: Duration = Duration::from_secs(600);

pub(super) const WEBHOOK: &[PushKind] = &[PushKind::Webhook];

fn server(name: &str) -> ServerId {
    name.parse().unwrap()
}

async fn take(store: &Store, looker: &str) -> Vec<DueRoom> {
    store.take_due_rooms(&server(looker), 100, HOLD).await.unwrap()
}

/// Takes the one room that is due, once it is.
pub(super) async fn taken(store: &Store, looker: &str) -> DueRoom {
    let mut rooms =
        eventually("a room is due", async || Some(take(store, looker).await).filter(|r| !r.is_empty())).await;
    assert_eq!(rooms.len(), 1, "{rooms:?}");
    rooms.remove(0)
}

/// What is open in a room, with all messages.
async fn open(store: &Store, due: &DueRoom) -> OpenRoom {
    let mut room = store.open_rooms(vec![due.clone()]).await.unwrap().remove(0);
    store.read_open_messages(&mut [&mut room]).await.unwrap();
    room
}

/// All is decided, and these are to be pushed.
pub(super) fn settled(due: &DueRoom, pushes: &[(&str, u64)]) -> Settled {
    let pushes = pushes.iter().map(|(who, seq)| (user(who), *seq)).collect();
    Settled { due: due.clone(), swept: due.upto, again_ms: 0, decided: Vec::new(), pushes }
}

async fn settle(store: &Store, looker: &str, settled: Settled) -> u64 {
    store.settle_rooms(&server(looker), &[settled], WEBHOOK).await.unwrap()
}

/// Where the one room stands: swept, due, and whether someone looks after it.
async fn standing(database: &Database) -> (i64, Option<i64>, bool) {
    let swept = database.number("SELECT swept FROM rooms").await.unwrap();
    let looked_after = database.number("SELECT count(looker) FROM rooms").await;
    (swept, database.number("SELECT due FROM rooms").await, looked_after == Some(1))
}

async fn an_entry_makes_its_room_due_a_second_later_and_later_ones_do_not_move_that(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    settle(&store, "one", settled(&taken(&store, "one").await, &[])).await;
    assert_eq!(standing(&database).await, (1, None, false));
    sent(&store, "r", "a", "1").await;
    let at = database.number("SELECT max(at) FROM messages").await.unwrap();
    assert_eq!(standing(&database).await, (1, Some(at + 1_000), false));
    sent(&store, "r", "a", "2").await;
    change(&store, "r", "a", Change::Add(users(&["c"]))).await.unwrap();
    assert_eq!(standing(&database).await, (1, Some(at + 1_000), false));
    let due = taken(&store, "one").await;
    assert_eq!((due.room.as_str(), due.swept, due.upto), ("r", 1, 4));
    // Who holds it is not disturbed either.
    sent(&store, "r", "a", "3").await;
    assert_eq!(standing(&database).await, (1, Some(due.hold), true));
}

async fn a_membership_change_makes_its_room_due(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let due = taken(&store, "one").await;
    assert_eq!((due.swept, due.upto), (0, 1));
    settle(&store, "one", settled(&due, &[])).await;
    change(&store, "r", "a", Change::Remove(users(&["b"]))).await.unwrap();
    let due = taken(&store, "one").await;
    assert_eq!((due.swept, due.upto), (1, 2));
    let open = open(&store, &due).await;
    assert!(open.messages.is_empty());
}

/// Brings an empty database to the first version of the schema, with a room of three entries.
async fn first_version(database: &Database) {
    let kind = if database.directory.is_some() { "sqlite" } else { "postgres" };
    let from = format!("{}/src/store/migrations/{kind}/0001_start.sql", env!("CARGO_MANIFEST_DIR"));
    let only = tempfile::tempdir().unwrap();
    std::fs::copy(from, only.path().join("0001_start.sql")).unwrap();
    let migrator = Migrator::new(only.path()).await.unwrap();
    if database.directory.is_some() {
        let url = format!("{}?mode=rwc", database.url);
        migrator.run(&mut SqliteConnection::connect(&url).await.unwrap()).await.unwrap();
    } else {
        migrator.run(&mut PgConnection::connect(&database.url).await.unwrap()).await.unwrap();
    }
    for sql in [
        "INSERT INTO rooms (id, creator, open, head, version, size) VALUES ('r', 'a', false, 3, 1, 2)",
        "INSERT INTO members (room, user_id, since, delivered, read) VALUES ('r', 'a', 1, 0, 0), ('r', 'b', 1, 0, 0)",
        "INSERT INTO messages (room, seq, id, sender, cid, at, event, body) VALUES
            ('r', 1, 1, 'a', NULL, 1, 'created', '[\"a\",\"b\"]'), ('r', 2, 2, 'a', '2', 1, NULL, '\"hi\"'),
            ('r', 3, 3, 'a', '3', 1, NULL, '\"hi\"')",
    ] {
        database.run(sql).await;
    }
}

async fn what_was_there_before_there_were_pushes_is_decided(database: Database) {
    first_version(&database).await;
    let store = database.open().await;
    assert_eq!(standing(&database).await, (3, None, false));
    assert!(take(&store, "one").await.is_empty());
    assert_eq!(sent(&store, "r", "a", "4").await, 4);
    let open = open(&store, &taken(&store, "one").await).await;
    assert_eq!(open.messages.iter().map(|message| message.seq).collect::<Vec<_>>(), [4]);
    let members: Vec<_> = open.members.iter().map(|m| (m.user.as_str(), m.done, m.muted)).collect();
    assert_eq!(members, [("a", 3, false), ("b", 3, false)]);
}

async fn two_servers_that_take_at_once_never_get_the_same_room(database: Database) {
    let stores = database.open_twice().await;
    for n in 0..60 {
        make(&stores[0], &format!("r{n}"), &["a"]).await;
    }
    database.ripen().await;
    let takers: Vec<_> = stores
        .clone()
        .into_iter()
        .zip(["one", "two"])
        .map(|(store, looker)| {
            tokio::spawn(async move {
                let mut all = Vec::new();
                loop {
                    let rooms = store.take_due_rooms(&server(looker), 3, HOLD).await.unwrap();
                    assert!(rooms.len() <= 3);
                    if rooms.is_empty() {
                        return all;
                    }
                    all.extend(rooms.into_iter().map(|due| due.room));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap());
    }
    // One that found all the rest locked may have stopped early.
    all.extend(take(&stores[0], "one").await.into_iter().map(|due| due.room));
    assert_eq!(all.len(), 60);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 60);
}

async fn a_room_whose_holder_went_away_is_given_again_after_the_hold(database: Database) {
    let [first, second] = database.open_twice().await;
    make(&first, "r", &["a", "b"]).await;
    sent(&first, "r", "a", "1").await;
    database.ripen().await;
    let short = Duration::from_millis(1);
    let lost = first.take_due_rooms(&server("gone"), 1, short).await.unwrap().remove(0);
    let due = taken(&second, "two").await;
    assert_eq!((&due.room, due.swept, due.upto), (&lost.room, lost.swept, lost.upto));
    assert!(due.hold > lost.hold);
    assert_eq!(settle(&first, "gone", settled(&lost, &[("b", 2)])).await, 0);
    assert_eq!(settle(&second, "two", settled(&due, &[("b", 2)])).await, 1);
}

async fn a_room_is_left_to_who_looked_last_until_it_is_late(database: Database) {
    let [first, second] = database.open_twice().await;
    make(&first, "r", &["a", "b"]).await;
    let due = taken(&first, "one").await;
    let open = Settled { swept: 0, ..settled(&due, &[]) };
    settle(&first, "one", open.clone()).await;
    let (_, Some(was_due), true) = standing(&database).await else { panic!("nobody looks after it") };
    let late = taken(&second, "two").await;
    assert!(late.hold - HOLD.as_millis() as i64 - was_due >= 1_500);

    settle(&second, "two", Settled { due: late, ..open }).await;
    taken(&second, "two").await;
}

async fn a_room_is_settled_with_its_pushes_and_due_no_more(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b", "c"]).await;
    sent(&store, "r", "a", "1").await;
    sent(&store, "r", "a", "2").await;
    let due = taken(&store, "one").await;
    // A membership change is not pushed, nor is anything to a stranger.
    let asked = settled(&due, &[("b", 2), ("b", 3), ("c", 3), ("b", 1), ("x", 2), ("c", 4)]);
    assert_eq!(settle(&store, "one", asked.clone()).await, 3);
    assert_eq!(standing(&database).await, (3, None, false));
    assert_eq!(settle(&store, "one", asked).await, 0);
    assert_eq!(database.number("SELECT count(*) FROM pushes").await, Some(3));
}

async fn a_room_that_another_has_taken_is_passed_over_wholly(database: Database) {
    let store = database.open().await;
    for name in ["r", "s"] {
        make(&store, name, &["a", "b"]).await;
        sent(&store, name, "a", name).await;
    }
    database.ripen().await;
    let mut rooms = take(&store, "one").await;
    rooms.sort_by_key(|due| due.room.clone());
    database.run("UPDATE rooms SET due = due - 9000000 WHERE id = 'r'").await;
    let again = taken(&store, "two").await;
    assert_eq!(again.room, rooms[0].room);

    let decided: Vec<_> =
        rooms.iter().map(|due| Settled { decided: vec![(user("b"), 2)], ..settled(due, &[("b", 2)]) }).collect();
    assert_eq!(store.settle_rooms(&server("one"), &decided, WEBHOOK).await.unwrap(), 1);
    assert_eq!(database.number("SELECT count(*) FROM pushes WHERE room = 's'").await, Some(1));
    assert_eq!(database.number("SELECT swept FROM rooms WHERE id = 'r'").await, Some(0));
    assert_eq!(database.number("SELECT due FROM rooms WHERE id = 'r'").await, Some(again.hold));
    assert_eq!(database.number("SELECT pushed FROM members WHERE room = 'r' AND user_id = 'b'").await, Some(0));
}

async fn a_room_that_cannot_be_settled_does_not_hold_up_the_others(database: Database) {
    let store = database.open().await;
    for room in ["r", "s", "t"] {
        make(&store, room, &["a", "b"]).await;
        sent(&store, room, "a", room).await;
    }
    let mut rooms = Vec::new();
    eventually("three rooms are due", async || {
        rooms.extend(take(&store, "one").await);
        (rooms.len() == 3).then_some(())
    })
    .await;
    // No database has a place of this number. One of them says so.
    let asked: Vec<_> = rooms.iter().zip([2, u64::MAX, 2]).map(|(due, seq)| settled(due, &[("b", seq)])).collect();
    let _ = store.settle_rooms(&server("one"), &asked, WEBHOOK).await;
    assert_eq!(database.number("SELECT count(*) FROM pushes").await, Some(2));
}

async fn what_comes_between_the_look_and_its_end_makes_the_room_due_again(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let due = taken(&store, "one").await;
    sent(&store, "r", "a", "1").await;
    settle(&store, "one", Settled { again_ms: 400, ..settled(&due, &[]) }).await;
    let (1, Some(_), true) = standing(&database).await else { panic!("{:?}", standing(&database).await) };
    let due = taken(&store, "one").await;
    assert_eq!((due.swept, due.upto), (1, 2));
    assert_eq!(open(&store, &due).await.messages.len(), 1);
}

async fn nothing_is_pushed_twice(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b", "c"]).await;
    sent(&store, "r", "a", "1").await;
    sent(&store, "r", "a", "2").await;
    let due = taken(&store, "one").await;
    // Nothing is swept, so the next look brings the same.
    let undecided = Settled { swept: 0, ..settled(&due, &[("b", 2), ("c", 2)]) };
    let first = Settled { decided: vec![(user("b"), 2)], ..undecided.clone() };
    assert_eq!(settle(&store, "one", first).await, 2);
    let made = store.take_pushes(WEBHOOK, 9, HOLD).await.unwrap();
    let done = |push: &minichat::store::Push| PushOutcome { id: push.id, hold: push.hold, became: Became::Done };
    let b = made.iter().find(|push| push.user == user("b")).unwrap();
    store.finish_pushes(&[done(b)]).await.unwrap();

    let second = Settled { due: taken(&store, "one").await, ..undecided };
    assert_eq!(settle(&store, "one", second).await, 0, "the one is decided, the other on its way");
    let third = settled(&taken(&store, "one").await, &[("b", 2), ("b", 3), ("c", 2)]);
    assert_eq!(settle(&store, "one", third).await, 1);
    assert_eq!(database.number("SELECT count(*) FROM pushes").await, Some(2));
}

async fn what_is_acknowledged_while_it_is_decided_is_not_pushed(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b", "c", "d"]).await;
    sent(&store, "r", "a", "1").await;
    let due = taken(&store, "one").await;
    store.advance(&[position("b", "r", None, 2, 0), position("c", "r", None, 0, 2)]).await.unwrap();
    assert_eq!(settle(&store, "one", settled(&due, &[("b", 2), ("c", 2), ("d", 2)])).await, 1);
    assert_eq!(database.number("SELECT count(*) FROM pushes WHERE user_id = 'd'").await, Some(1));
}

async fn a_look_shows_what_is_open_and_for_whom(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "delivered", "read", "half", "decided", "gone", "quiet", "silent"]).await;
    for n in 0..9 {
        sent(&store, "r", "a", &n.to_string()).await;
    }
    change(&store, "r", "a", Change::Remove(users(&["gone"]))).await.unwrap();
    change(&store, "r", "a", Change::Add(users(&["new"]))).await.unwrap();
    let ahead = Settled { swept: 3, decided: vec![(user("decided"), 6)], ..settled(&taken(&store, "one").await, &[]) };
    settle(&store, "one", ahead).await;
    let positions = [
        position("delivered", "r", None, 12, 0),
        position("read", "r", None, 0, 12),
        position("half", "r", None, 5, 4),
        position("a", "r", None, 2, 0),
    ];
    store.advance(&positions).await.unwrap();
    store.mute_room(&user("quiet"), &room("r"), true).await.unwrap();
    store.mute_all(&user("silent"), true).await.unwrap();

    let due = taken(&store, "one").await;
    let firsts = store.open_rooms(vec![due.clone()]).await.unwrap().remove(0);
    let open = open(&store, &due).await;
    assert_eq!((open.due.swept, open.due.upto), (3, 12));
    // Nobody lacks a message of their own, and `new` lacks a membership change only.
    assert_eq!(firsts.members, open.members);
    assert!(firsts.messages.iter().map(|message| message.seq).eq([4, 6, 7]));
    assert!(firsts.messages.iter().all(|first| open.messages.iter().any(|message| message.id == first.id)));
    assert!(open.messages.iter().map(|message| message.seq).eq(4..=10));
    assert!(open.messages.iter().all(|message| message.sender == user("a")));
    let members: Vec<_> = open.members.iter().map(|m| (m.user.as_str(), m.done, m.muted)).collect();
    assert_eq!(
        members,
        [
            ("a", 3, false),
            ("decided", 6, false),
            ("half", 5, false),
            ("new", 11, false),
            ("quiet", 3, true),
            ("silent", 3, true),
        ]
    );
    assert!(store.open_rooms(Vec::new()).await.unwrap().is_empty());
}

async fn a_look_is_bounded(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let many: Vec<_> = (0..LOOK + 3).map(|n| message("r", "a", &n.to_string(), "1")).collect();
    store.append(&many).await.unwrap();
    let due = taken(&store, "one").await;
    assert_eq!((due.swept, due.upto), (0, LOOK.into()));
    settle(&store, "one", settled(&due, &[])).await;
    let due = taken(&store, "one").await;
    assert_eq!((due.swept, due.upto), (LOOK.into(), u64::from(LOOK) + 4));
}

async fn a_clock_that_is_set_back_holds_up_neither_rooms_nor_pushes(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    sent(&store, "r", "a", "1").await;
    let due = taken(&store, "one").await;
    assert_eq!(store.settle_rooms(&server("one"), &[settled(&due, &[("b", 2)])], WEBHOOK).await.unwrap(), 1);
    sent(&store, "r", "a", "2").await;
    assert_eq!(store.make_up_for_clock().await.unwrap(), 0, "nothing waits for long");
    database.run("UPDATE rooms SET due = due + 86400000").await;
    database.run("UPDATE pushes SET due = due + 86400000").await;
    assert_eq!(store.make_up_for_clock().await.unwrap(), 2);
    assert_eq!(take(&store, "one").await.len(), 1);
    assert_eq!(store.take_pushes(WEBHOOK, 9, HOLD).await.unwrap().len(), 1);
}

async fn each_device_gets_a_push_of_its_own(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b", "c"]).await;
    sent(&store, "r", "a", "1").await;
    for token in ["t", "u"] {
        store.register_token(&user("b"), None, "fcm", token).await.unwrap();
    }
    let due = taken(&store, "one").await;
    let (both, asked) = ([PushKind::Webhook, PushKind::Fcm], [settled(&due, &[("b", 2), ("c", 2)])]);
    assert_eq!(store.settle_rooms(&server("one"), &asked, &both).await.unwrap(), 4);
    let pushes = store.take_pushes(&[PushKind::Fcm], 9, HOLD).await.unwrap();
    let tokens: HashSet<_> = pushes.iter().map(|push| (push.user.as_str(), push.token.as_str())).collect();
    assert_eq!(tokens, HashSet::from([("b", "t"), ("b", "u")]));
}

async fn the_longest_token_of_the_longest_user_is_pushed_to(database: Database) {
    let store = database.open().await;
    let name = "x".repeat(128);
    make(&store, "r", &["a", &name]).await;
    sent(&store, "r", "a", "1").await;
    // An index would shorten what repeats itself.
    let token: String = (0..PushToken::MAX_BYTES).map(|_| rand::random_range('!'..='~')).collect();
    store.register_token(&user(&name), None, "fcm", &token).await.unwrap();
    let asked = [settled(&taken(&store, "one").await, &[(&name, 2)])];
    assert_eq!(store.settle_rooms(&server("one"), &asked, &[PushKind::Fcm]).await.unwrap(), 1);
}

/// Two servers look while two others' messages and positions come in; in the end each message has one push for the
/// member who never acknowledges, and at most one for the other.
async fn messages_positions_and_looks_at_once_lose_and_double_nothing(database: Database) {
    const ROOMS: usize = 6;
    const MESSAGES: usize = 30;
    let stores = database.open_twice().await;
    let names: Vec<_> = (0..ROOMS).map(|n| format!("r{n}")).collect();
    for name in &names {
        make(&stores[0], name, &["a", "away", "here"]).await;
    }
    let mut work = tokio::task::JoinSet::new();
    for (n, store) in stores.iter().enumerate() {
        let (store, names) = (store.clone(), names.clone());
        work.spawn(async move {
            for m in 0..MESSAGES {
                let mut batch: Vec<_> =
                    names.iter().map(|name| message(name, "a", &format!("{name}-{n}-{m}"), "1")).collect();
                if n == 1 {
                    batch.reverse();
                }
                store.append(&batch).await.unwrap();
                let seq = m as u64 + 1;
                let positions: Vec<_> = names.iter().map(|name| position("here", name, Some("d"), seq, 0)).collect();
                store.advance(&positions).await.unwrap();
            }
        });
    }
    while !work.is_empty() {
        tokio::join!(look(&stores[0], "one"), look(&stores[1], "two"));
        while let Some(done) = work.try_join_next() {
            done.unwrap();
        }
    }
    eventually("no room is due", async || {
        database.ripen().await;
        look(&stores[0], "one").await;
        (database.number("SELECT count(due) FROM rooms").await == Some(0)).then_some(())
    })
    .await;
    let away = "SELECT count(DISTINCT message) FROM pushes WHERE user_id = 'away'";
    assert_eq!(database.number(away).await, Some((ROOMS * 2 * MESSAGES) as i64));
    let doubled = "SELECT count(*) - count(DISTINCT message) FROM pushes WHERE user_id = 'away'";
    assert_eq!(database.number(doubled).await, Some(0));
    assert_eq!(database.number("SELECT count(*) FROM pushes WHERE user_id = 'a'").await, Some(0));
    if database.directory.is_none() {
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(database.number(deadlocks).await, Some(0));
    }
}

/// One look, as a server does it: everything that is open for anyone but its sender is pushed.
async fn look(store: &Store, looker: &str) {
    let due = store.take_due_rooms(&server(looker), 4, HOLD).await.unwrap();
    let mut rooms = store.open_rooms(due).await.unwrap();
    store.read_open_messages(&mut rooms.iter_mut().collect::<Vec<_>>()).await.unwrap();
    let settled: Vec<_> = rooms
        .into_iter()
        .map(|open| {
            let pushes = open.members.iter().flat_map(|member| {
                let theirs = open.messages.iter().filter(|m| m.sender != member.user && m.seq > member.done);
                theirs.map(|message| (member.user.clone(), message.seq))
            });
            let pushes = pushes.collect();
            Settled { swept: open.due.upto, again_ms: 0, decided: Vec::new(), pushes, due: open.due }
        })
        .collect();
    store.settle_rooms(&server(looker), &settled, WEBHOOK).await.unwrap();
}

/// A server on which nothing happens leaves the database alone.
#[tokio::test]
async fn nothing_is_written_where_nothing_is_due() {
    let database = Database::sqlite();
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    settle(&store, "one", settled(&taken(&store, "one").await, &[])).await;
    let mut holder = SqliteConnection::connect(&database.url).await.unwrap();
    let held = holder.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert!(take(&store, "one").await.is_empty());
    assert!(store.take_pushes(WEBHOOK, 9, HOLD).await.unwrap().is_empty());
    held.rollback().await.unwrap();
}

/// An append to a room that is due already changes nothing that is indexed, and so costs no entry in any index.
#[tokio::test]
async fn messages_to_a_room_that_is_due_touch_no_index() {
    let database = Database::postgres().await;
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    for n in 0..20 {
        sent(&store, "r", "a", &n.to_string()).await;
    }
    drop(store);
    let all = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'rooms'";
    eventually("the updates are counted", async || database.number(all).await.filter(|count| *count == 20)).await;
    let in_place = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'rooms'";
    assert_eq!(database.number(in_place).await, Some(20));
}
