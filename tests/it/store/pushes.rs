//! Pushes on their way: tried by one at a time, never lost, and not made where they are not wanted any more.

use std::time::Duration;

use minichat::store::{Became, Change, Push, PushKind, PushOutcome};

use super::sweep::{HOLD, WEBHOOK, settled, taken};
use super::*;
use crate::support::wait::eventually;

on_both!(
    a_push_says_all_about_its_message,
    two_that_take_at_once_never_get_the_same_push,
    a_push_whose_holder_went_away_is_given_again_and_what_that_one_says_is_passed_over,
    a_push_that_is_put_off_comes_again_and_counts_as_a_try_or_not,
    a_push_that_is_given_up_is_shown_and_can_be_replayed,
    old_dead_letters_are_purged,
    the_oldest_come_first_and_only_those_of_the_asked_kind,
    a_push_that_is_acknowledged_or_muted_is_not_wanted,
    a_push_for_who_left_or_came_back_later_is_not_wanted,
    a_token_of_no_more_use_is_forgotten_with_all_its_pushes,
    what_was_sent_to_a_device_is_not_for_its_next_user,
    a_dead_letter_is_not_replayed_to_a_device_that_was_signed_out,
    pushes_taken_and_finished_at_once_never_deadlock,
);

const BOTH: &[PushKind] = &[PushKind::Webhook, PushKind::Fcm];

/// Has `count` messages of `a` in the room `r` pushed to `b`, by both ways.
async fn pushed(store: &Store, count: u64) {
    make(store, "r", &["a", "b"]).await;
    for n in 0..count {
        sent(store, "r", "a", &n.to_string()).await;
    }
    let due = taken(store, "one").await;
    let pushes: Vec<_> = (2..2 + count).map(|seq| ("b", seq)).collect();
    store.settle_rooms(&"one".parse().unwrap(), &[settled(&due, &pushes)], BOTH).await.unwrap();
}

async fn take(store: &Store, kinds: &[PushKind]) -> Vec<Push> {
    store.take_pushes(kinds, 100, HOLD).await.unwrap()
}

/// Takes the one push that is due.
async fn one(store: &Store) -> Push {
    let mut pushes = take(store, BOTH).await;
    assert_eq!(pushes.len(), 1, "{pushes:?}");
    pushes.remove(0)
}

async fn finish(store: &Store, push: &Push, became: Became) {
    store.finish_pushes(&[PushOutcome { id: push.id, hold: push.hold, became }]).await.unwrap();
}

fn again(after_ms: u64, counts: bool) -> Became {
    Became::Again { after_ms, reason: "it \0rained".into(), counts }
}

fn dead() -> Became {
    Became::Dead { reason: "it \0poured".into() }
}

async fn count(database: &Database) -> i64 {
    database.number("SELECT count(*) FROM pushes").await.unwrap()
}

async fn a_push_says_all_about_its_message(database: Database) {
    let store = database.open().await;
    let mut named = new_room("r", "a", &["b"], false);
    named.name = Some("Kitchen".into());
    store.create(&named).await.unwrap();
    let told = message("r", "a", "1", "{\"x\":1e400}");
    let Appended::Stored { at, .. } = store.append(std::slice::from_ref(&told)).await.unwrap()[0] else { panic!() };
    let asked = settled(&taken(&store, "one").await, &[("b", 2)]);
    store.settle_rooms(&"one".parse().unwrap(), &[asked], WEBHOOK).await.unwrap();
    let push = one(&store).await;
    let said = Push {
        id: push.id,
        hold: push.hold,
        kind: PushKind::Webhook,
        token: String::new(),
        user: user("b"),
        room: room("r"),
        room_name: Some("Kitchen".into()),
        seq: 2,
        message: told.id,
        from: user("a"),
        at,
        body: told.body,
        tries: 0,
        age_ms: push.age_ms,
        wanted: true,
    };
    assert_eq!(push, said);
    finish(&store, &push, Became::Done).await;
    assert_eq!(count(&database).await, 0);
}

async fn two_that_take_at_once_never_get_the_same_push(database: Database) {
    let stores = database.open_twice().await;
    pushed(&stores[0], 60).await;
    let takers = stores.clone().map(|store| {
        tokio::spawn(async move {
            let mut all = Vec::new();
            loop {
                let pushes = store.take_pushes(WEBHOOK, 3, HOLD).await.unwrap();
                if pushes.is_empty() {
                    return all;
                }
                all.extend(pushes);
            }
        })
    });
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap());
    }
    // One that found the rest locked by the other has stopped early.
    all.extend(take(&stores[0], WEBHOOK).await);
    let mut seqs: Vec<_> = all.iter().map(|push| push.seq).collect();
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(2..62));
}

async fn a_push_whose_holder_went_away_is_given_again_and_what_that_one_says_is_passed_over(database: Database) {
    let store = database.open().await;
    pushed(&store, 1).await;
    let lost = store.take_pushes(WEBHOOK, 9, Duration::from_millis(1)).await.unwrap().remove(0);
    let push = eventually("the hold is over", async || take(&store, WEBHOOK).await.pop()).await;
    assert_eq!((push.id, push.tries), (lost.id, 0));
    for became in [Became::Done, again(0, true), dead(), Became::Unregistered] {
        finish(&store, &lost, became).await;
    }
    assert!(take(&store, WEBHOOK).await.is_empty());
    assert!(store.dead_pushes(0, 9).await.unwrap().is_empty());
    finish(&store, &push, again(0, true)).await;
    assert_eq!(one(&store).await.tries, 1);
}

async fn a_push_that_is_put_off_comes_again_and_counts_as_a_try_or_not(database: Database) {
    let store = database.open().await;
    pushed(&store, 1).await;
    finish(&store, &one(&store).await, again(0, true)).await;
    let push = one(&store).await;
    assert_eq!(push.tries, 1);
    finish(&store, &push, again(60_000, false)).await;
    assert!(take(&store, BOTH).await.is_empty());
    database.ripen().await;
    assert_eq!(one(&store).await.tries, 1);
}

async fn a_push_that_is_given_up_is_shown_and_can_be_replayed(database: Database) {
    let store = database.open().await;
    pushed(&store, 3).await;
    let pushes = take(&store, BOTH).await;
    for push in &pushes {
        finish(&store, push, dead()).await;
    }
    database.ripen().await;
    assert!(take(&store, BOTH).await.is_empty());

    let letters = store.dead_pushes(0, 2).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.id).collect::<Vec<_>>(), [pushes[0].id, pushes[1].id]);
    let (letter, push) = (&letters[0], &pushes[0]);
    assert_eq!((letter.kind, &letter.user, &letter.room), (PushKind::Webhook, &push.user, &push.room));
    assert_eq!((letter.seq, letter.message, letter.tries), (push.seq, push.message, 1));
    assert_eq!(letter.reason, "it poured");
    assert!(letter.at >= push.at);
    let rest = store.dead_pushes(letters[1].id, 9).await.unwrap();
    assert_eq!(rest.len(), 1);

    assert_eq!(store.replay_pushes(Some(&[letter.id, -1])).await.unwrap(), 1);
    let replayed = one(&store).await;
    assert_eq!((replayed.id, replayed.tries), (letter.id, 0));
    assert_eq!(store.replay_pushes(Some(&[letter.id])).await.unwrap(), 0, "it is alive");
    assert_eq!(store.replay_pushes(None).await.unwrap(), 2);
    assert_eq!(take(&store, BOTH).await.len(), 2);
    assert!(store.dead_pushes(0, 9).await.unwrap().is_empty());
}

async fn old_dead_letters_are_purged(database: Database) {
    let store = database.open().await;
    pushed(&store, 3).await;
    let pushes = take(&store, BOTH).await;
    for push in &pushes[..2] {
        finish(&store, push, dead()).await;
    }
    assert_eq!(store.purge_dead_pushes(Duration::from_secs(3_600)).await.unwrap(), 0);
    database.run("UPDATE pushes SET died = died - 7200000 WHERE seq = 2").await;
    assert_eq!(store.purge_dead_pushes(Duration::from_secs(3_600)).await.unwrap(), 1);
    assert_eq!(store.purge_dead_pushes(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(count(&database).await, 1);
}

async fn the_oldest_come_first_and_only_those_of_the_asked_kind(database: Database) {
    let store = database.open().await;
    store.register_token(&user("b"), None, "fcm", "t").await.unwrap();
    pushed(&store, 3).await;
    assert!(take(&store, &[]).await.is_empty());
    let first = store.take_pushes(&[PushKind::Fcm], 2, HOLD).await.unwrap();
    assert_eq!(first.iter().map(|push| (push.seq, push.token.as_str())).collect::<Vec<_>>(), [(2, "t"), (3, "t")]);
    let rest = take(&store, BOTH).await;
    assert_eq!(rest.iter().filter(|push| push.kind == PushKind::Webhook).count(), 3);
    assert_eq!(rest.len(), 4);
}

async fn a_push_that_is_acknowledged_or_muted_is_not_wanted(database: Database) {
    let store = database.open().await;
    pushed(&store, 4).await;
    let wanted = async || {
        database.ripen().await;
        take(&store, BOTH).await.iter().filter(|push| push.wanted).map(|push| push.seq).collect::<Vec<_>>()
    };
    assert_eq!(wanted().await, [2, 3, 4, 5]);
    store.mute_room(&user("b"), &room("r"), true).await.unwrap();
    assert!(wanted().await.is_empty());
    store.mute_room(&user("b"), &room("r"), false).await.unwrap();
    store.mute_all(&user("b"), true).await.unwrap();
    assert!(wanted().await.is_empty());
    store.mute_all(&user("b"), false).await.unwrap();
    store.advance(&[position("b", "r", None, 2, 3)]).await.unwrap();
    assert_eq!(wanted().await, [4, 5]);
    store.advance(&[position("b", "r", None, 5, 0)]).await.unwrap();
    assert!(wanted().await.is_empty());
}

async fn a_push_for_who_left_or_came_back_later_is_not_wanted(database: Database) {
    let store = database.open().await;
    pushed(&store, 1).await;
    for step in [Change::Remove(users(&["b"])), Change::Add(users(&["b"]))] {
        change(&store, "r", "a", step).await.unwrap();
        let push = one(&store).await;
        assert!(!push.wanted);
        finish(&store, &push, again(0, false)).await;
    }
}

async fn a_token_of_no_more_use_is_forgotten_with_all_its_pushes(database: Database) {
    let store = database.open().await;
    for token in ["t", "u"] {
        store.register_token(&user("b"), None, "fcm", token).await.unwrap();
    }
    pushed(&store, 3).await;
    let all = take(&store, &[PushKind::Fcm]).await;
    let to: Vec<_> = all.iter().filter(|push| push.token == "t").collect();
    finish(&store, to[0], dead()).await;
    finish(&store, to[1], Became::Unregistered).await;
    let left = "SELECT count(*) FROM pushes WHERE token = 't'";
    assert_eq!(database.number(left).await, Some(1), "the dead letter");
    assert_eq!(count(&database).await, 3 + 3 + 1);
    assert_eq!(database.number("SELECT count(*) FROM device_tokens").await, Some(1));
}

async fn what_was_sent_to_a_device_is_not_for_its_next_user(database: Database) {
    let store = database.open().await;
    for token in ["t", "u"] {
        store.register_token(&user("b"), None, "fcm", token).await.unwrap();
    }
    pushed(&store, 1).await;
    store.register_token(&user("c"), None, "fcm", "t").await.unwrap();
    let pushes = take(&store, &[PushKind::Fcm]).await;
    let mut wanted: Vec<_> = pushes.iter().map(|push| (push.token.as_str(), push.wanted)).collect();
    wanted.sort_unstable();
    assert_eq!(wanted, [("t", false), ("u", true)]);
    store.forget_token(&user("c"), "fcm", "u").await.unwrap();
    assert_eq!(count(&database).await, 3, "it is not theirs");
    store.forget_token(&user("b"), "fcm", "u").await.unwrap();
    assert_eq!(count(&database).await, 2);
}

async fn a_dead_letter_is_not_replayed_to_a_device_that_was_signed_out(database: Database) {
    let store = database.open().await;
    store.register_token(&user("b"), None, "fcm", "t").await.unwrap();
    pushed(&store, 1).await;
    let push = take(&store, &[PushKind::Fcm]).await.remove(0);
    assert!(push.wanted);
    finish(&store, &push, dead()).await;
    store.forget_token(&user("b"), "fcm", "t").await.unwrap();
    assert_eq!(store.replay_pushes(None).await.unwrap(), 1);
    assert!(!take(&store, &[PushKind::Fcm]).await.remove(0).wanted);
}

async fn pushes_taken_and_finished_at_once_never_deadlock(database: Database) {
    let stores = database.open_twice().await;
    for token in ["t", "u", "v"] {
        stores[0].register_token(&user("b"), None, "fcm", token).await.unwrap();
    }
    pushed(&stores[0], 40).await;
    let workers = stores.clone().map(|store| {
        tokio::spawn(async move {
            loop {
                let pushes = store.take_pushes(BOTH, 7, HOLD).await.unwrap();
                if pushes.is_empty() {
                    return;
                }
                let outcomes = pushes.iter().map(|push| PushOutcome {
                    id: push.id,
                    hold: push.hold,
                    became: match push.seq % 4 {
                        0 if push.token == "t" => Became::Unregistered,
                        1 => again(0, true),
                        _ => Became::Done,
                    },
                });
                // Put off for no more than a few times.
                let outcomes = outcomes.zip(&pushes).map(|(outcome, push)| match push.tries {
                    3.. => PushOutcome { became: Became::Done, ..outcome },
                    _ => outcome,
                });
                store.finish_pushes(&outcomes.rev().collect::<Vec<_>>()).await.unwrap();
            }
        })
    });
    for worker in workers {
        worker.await.unwrap();
    }
    eventually("all are done", async || {
        for push in take(&stores[0], BOTH).await {
            finish(&stores[0], &push, Became::Done).await;
        }
        (count(&database).await == 0).then_some(())
    })
    .await;
    assert_eq!(database.number("SELECT count(*) FROM device_tokens").await, Some(2));
}
