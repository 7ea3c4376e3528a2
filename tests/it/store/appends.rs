//! Messages: each once, in one order without gaps, to the letter.

use std::collections::BTreeSet;

use minichat::store::{Appended, Change};

use super::*;

on_both!(
    seqs_are_contiguous_with_sixteen_senders_on_two_servers,
    a_repeat_gets_the_first_result_on_any_server_and_after_a_reopening,
    a_repeat_within_a_batch_gets_the_result_of_its_leader,
    a_cid_used_for_something_else_stores_nothing,
    one_cid_into_two_rooms_at_once_is_stored_once_and_leaves_no_gap,
    a_stranger_and_a_room_that_is_not_there_look_the_same,
    who_was_removed_sends_no_more_but_may_repeat,
    a_message_says_which_membership_it_was_committed_under,
    a_batch_keeps_the_order_of_each_room,
    a_body_is_kept_to_the_letter,
    a_batch_over_many_rooms_from_two_servers_never_deadlocks,
);

async fn seqs_are_contiguous_with_sixteen_senders_on_two_servers(database: Database) {
    let stores = database.open_twice().await;
    make(&stores[0], "r", &["a"]).await;
    let senders: Vec<_> = (0..16)
        .map(|sender| {
            let store = stores[sender % 2].clone();
            tokio::spawn(async move {
                let mut seqs = Vec::new();
                for n in 0..20 {
                    seqs.push(sent(&store, "r", "a", &format!("{sender}-{n}")).await);
                }
                seqs
            })
        })
        .collect();
    let mut all = BTreeSet::new();
    for sender in senders {
        let seqs = sender.await.unwrap();
        assert!(seqs.is_sorted(), "{seqs:?}");
        all.extend(seqs);
    }
    assert_eq!(all, (2..=321).collect());
    let page = stores[0].range(&room("r"), 0, 1_000, usize::MAX).await.unwrap();
    assert_eq!(seqs(&page.entries), (1..=321).collect::<Vec<_>>());
    assert_eq!(page.head, 321);
}

async fn a_repeat_gets_the_first_result_on_any_server_and_after_a_reopening(database: Database) {
    let [first, second] = database.open_twice().await;
    make(&first, "r", &["a"]).await;
    let Appended::Stored { seq, id, at, members_version, fresh: true } = send(&first, "r", "a", "1", "{}").await else {
        panic!("not stored");
    };
    let repeat = Appended::Stored { seq, id, at, members_version, fresh: false };
    assert_eq!(send(&first, "r", "a", "1", "{}").await, repeat);
    assert_eq!(send(&second, "r", "a", "1", "{}").await, repeat);
    drop((first, second));
    let store = database.open().await;
    assert_eq!(send(&store, "r", "a", "1", "{}").await, repeat);
    assert_eq!(store.head(&room("r")).await.unwrap(), Some(seq));
}

async fn a_repeat_within_a_batch_gets_the_result_of_its_leader(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    make(&store, "s", &["a"]).await;
    let batch = [
        message("nowhere", "a", "1", "1"),
        message("r", "a", "1", "1"),
        message("r", "a", "1", "1"),
        message("r", "a", "1", "2"),
        message("s", "a", "1", "1"),
        message("r", "a", "2", "1"),
    ];
    let outcomes = store.append(&batch).await.unwrap();
    let Appended::Stored { seq: 2, id, at, members_version, fresh: true } = outcomes[1] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(id, batch[1].id);
    assert_eq!(outcomes[0], Appended::NotMember);
    assert_eq!(outcomes[2], Appended::Stored { seq: 2, id, at, members_version, fresh: false });
    assert_eq!(outcomes[3], Appended::CidReused);
    assert_eq!(outcomes[4], Appended::CidReused);
    assert!(matches!(outcomes[5], Appended::Stored { seq: 3, fresh: true, .. }), "{outcomes:?}");
    assert_eq!(store.head(&room("r")).await.unwrap(), Some(3));
    assert_eq!(store.head(&room("s")).await.unwrap(), Some(1));
}

async fn a_cid_used_for_something_else_stores_nothing(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    make(&store, "s", &["a"]).await;
    sent(&store, "r", "a", "1").await;
    assert_eq!(send(&store, "r", "a", "1", "\"other\"").await, Appended::CidReused);
    assert_eq!(send(&store, "s", "a", "1", "\"hi\"").await, Appended::CidReused);
    assert_eq!(store.head(&room("r")).await.unwrap(), Some(2));
    assert_eq!(store.head(&room("s")).await.unwrap(), Some(1));
    // A cid is its sender's own.
    assert_eq!(sent(&store, "r", "b", "1").await, 3);
}

async fn one_cid_into_two_rooms_at_once_is_stored_once_and_leaves_no_gap(database: Database) {
    let [first, second] = database.open_twice().await;
    make(&first, "r", &["a"]).await;
    make(&first, "s", &["a"]).await;
    for n in 0..40 {
        let cid = n.to_string();
        let (one, other) =
            tokio::join!(send(&first, "r", "a", &cid, "\"hi\""), send(&second, "s", "a", &cid, "\"hi\""));
        let fresh =
            [&one, &other].iter().filter(|outcome| matches!(outcome, Appended::Stored { fresh: true, .. })).count();
        assert_eq!(fresh, 1, "{one:?} {other:?}");
        assert!([one, other].contains(&Appended::CidReused));
    }
    let mut total = 0;
    for name in ["r", "s"] {
        let page = first.range(&room(name), 0, 1_000, usize::MAX).await.unwrap();
        assert_eq!(seqs(&page.entries), (1..=page.head).collect::<Vec<_>>());
        total += page.head - 1;
    }
    assert_eq!(total, 40);
}

async fn a_stranger_and_a_room_that_is_not_there_look_the_same(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    assert_eq!(send(&store, "r", "b", "1", "1").await, Appended::NotMember);
    assert_eq!(send(&store, "none", "b", "1", "1").await, Appended::NotMember);
    assert_eq!(store.head(&room("r")).await.unwrap(), Some(1));
}

async fn who_was_removed_sends_no_more_but_may_repeat(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a", "b"]).await;
    let seq = sent(&store, "r", "b", "1").await;
    change(&store, "r", "a", Change::Remove(users(&["b"]))).await.unwrap();
    assert_eq!(send(&store, "r", "b", "2", "\"hi\"").await, Appended::NotMember);
    let repeat = send(&store, "r", "b", "1", "\"hi\"").await;
    assert!(matches!(repeat, Appended::Stored { seq: again, fresh: false, .. } if again == seq), "{repeat:?}");
}

async fn a_message_says_which_membership_it_was_committed_under(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    sent(&store, "r", "a", "1").await;
    change(&store, "r", "a", Change::Add(users(&["b"]))).await.unwrap();
    let outcome = send(&store, "r", "a", "2", "1").await;
    assert!(matches!(outcome, Appended::Stored { seq: 4, members_version: 3, .. }), "{outcome:?}");
    assert_eq!(store.membership(&room("r")).await.unwrap().unwrap().version, 3);
}

async fn a_batch_keeps_the_order_of_each_room(database: Database) {
    let store = database.open().await;
    for name in ["r", "s"] {
        make(&store, name, &["a", "b"]).await;
    }
    let batch: Vec<_> = (0..50)
        .map(|n| message(["r", "s"][n % 2], ["b", "a"][n / 2 % 2], &format!("{}", 99 - n), &n.to_string()))
        .collect();
    let outcomes = store.append(&batch).await.unwrap();
    for (n, outcome) in outcomes.iter().enumerate() {
        assert!(matches!(outcome, Appended::Stored { seq, .. } if *seq == n as u64 / 2 + 2), "{n}: {outcome:?}");
    }
    let page = store.range(&room("s"), 1, 1_000, usize::MAX).await.unwrap();
    let bodies: Vec<_> = page.entries.iter().map(|entry| body(entry).parse::<usize>().unwrap()).collect();
    assert_eq!(bodies, (0..25).map(|n| 2 * n + 1).collect::<Vec<_>>());
}

async fn a_body_is_kept_to_the_letter(database: Database) {
    let store = database.open().await;
    make(&store, "r", &["a"]).await;
    let bodies = [
        r#"{"z":1,"a":2,"z":3}"#,
        "12345678901234567890123456789",
        "1e400",
        r#""\u0000 \ud83d\ude00 \/ \\u0000""#,
        "\"😀 ü \u{2028} ' $1 %s\"",
        " [ 1 ,  2 ]\n",
        "0.10000000000000000000000000000000001",
    ];
    for (n, text) in bodies.iter().enumerate() {
        let cid = n.to_string();
        assert!(matches!(send(&store, "r", "a", &cid, text).await, Appended::Stored { fresh: true, .. }));
        assert!(matches!(send(&store, "r", "a", &cid, text).await, Appended::Stored { fresh: false, .. }));
    }
    let page = store.page(&user("a"), &room("r"), 1, 100, usize::MAX).await.unwrap();
    assert_eq!(page.entries.iter().map(body).collect::<Vec<_>>(), bodies);
    let found = store.find(&user("a"), &"3".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(body(&found), bodies[3]);
}

async fn a_batch_over_many_rooms_from_two_servers_never_deadlocks(database: Database) {
    let stores = database.open_twice().await;
    let names: Vec<_> = (0..8).map(|n| format!("r{n}")).collect();
    for name in &names {
        make(&stores[0], name, &["a"]).await;
    }
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let (store, mut names) = (stores[task % 2].clone(), names.clone());
            if task % 3 == 0 {
                names.reverse();
            }
            tokio::spawn(async move {
                for n in 0..10 {
                    // The cids of one sender meet in other orders too, as repeats of each other.
                    let batch: Vec<_> =
                        names.iter().map(|name| message(name, "a", &format!("{name}-{}-{n}", task / 2), "1")).collect();
                    store.append(&batch).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for name in &names {
        assert_eq!(stores[0].head(&room(name)).await.unwrap(), Some(31));
    }
}
