//! What every registry does, one function per behaviour.

use std::time::Duration;

use futures_util::future::join_all;
use minichat::ids::BootId;
use minichat::registry::{Enlisted, Renewed, ServerRow, Truth};

use super::{Backend, LONG, SHORT, find, gone, here, id, row, texts, user, write};
use crate::support::wait::eventually;

/// User ids that would be trouble if they were patterns, tags or separators.
const ODD: [&str; 11] = ["a*", "a?b", "{tag}", "}{", "%7B", "{", "a:b", "server:1", "ü", " ", "a,b"];

/// Holds a registry to the contract; `fresh` makes an empty one.
pub(super) async fn all(fresh: impl Fn() -> Backend) {
    a_server_writes_its_own_id_only(&fresh()).await;
    a_late_release_spares_another_server(&fresh()).await;
    writing_twice_changes_nothing(&fresh()).await;
    ids_are_compared_whole(&fresh()).await;
    odd_user_ids_change_their_own_entry_only(&fresh()).await;
    a_batch_is_answered_in_order(&fresh()).await;
    many_users_are_located_in_order(&fresh()).await;
    when_users_were_last_seen_is_kept_after_they_leave(&fresh()).await;
    servers_that_write_at_once_each_have_the_last_word_on_themselves(&fresh()).await;
    a_held_id_is_refused_until_its_lease_ends(&fresh()).await;
    an_id_is_given_to_its_own_run_again(&fresh()).await;
    of_many_runs_that_want_an_id_one_gets_it(&fresh()).await;
    a_renewal_tells_what_it_found(&fresh()).await;
    a_row_is_withdrawn_by_its_own_run_only(&fresh()).await;
    the_list_of_servers_says_what_their_rows_say(&fresh()).await;
    a_dead_server_leaves_the_list(&fresh()).await;
    the_first_database_is_kept(&fresh()).await;
    the_generation_stays_while_nothing_is_lost(&fresh()).await;
}

async fn a_server_writes_its_own_id_only(backend: &Backend) {
    let (one, two) = (backend.server("local1", LONG).await, backend.server("local2", LONG).await);
    for fresh in [false, true] {
        let here = |text| Truth { fresh, ..here(text) };
        assert_eq!(write(&*one, here("alice")).await, [""; 0]);
        assert_eq!(write(&*two, here("alice")).await, ["local1"]);
        assert_eq!(write(&*one, here("alice")).await, ["local2"]);
        assert_eq!(find(&*one, "alice").await, ["local1", "local2"]);
        assert_eq!(write(&*one, gone("alice")).await, ["local2"]);
        assert_eq!(find(&*one, "alice").await, ["local2"]);
        assert_eq!(write(&*two, gone("alice")).await, [""; 0]);
        assert_eq!(find(&*one, "alice").await, [""; 0]);
    }
}

async fn when_users_were_last_seen_is_kept_after_they_leave(backend: &Backend) {
    let one = backend.server("local1", LONG).await;
    let seen = async |name: &str| one.last_seen(&[user("nobody"), user(name)]).await.unwrap();
    let began = minichat::clock::unix_ms();
    assert_eq!(seen("{alice}").await, [None, None]);
    write(&*one, here("{alice}")).await;
    let [None, Some(came)] = seen("{alice}").await[..] else { panic!("not seen") };
    write(&*one, gone("{alice}")).await;
    let [None, Some(left)] = seen("{alice}").await[..] else { panic!("forgotten") };
    assert!(began <= came && came <= left && left <= minichat::clock::unix_ms());
    // Someone who was not here, and of whom another server was told otherwise.
    write(&*one, Truth { seen: false, ..gone("bob") }).await;
    assert_eq!(seen("bob").await, [None, None]);
}

async fn a_late_release_spares_another_server(backend: &Backend) {
    let (old, new) = (backend.server("local1", LONG).await, backend.server("local2", LONG).await);
    write(&*new, here("alice")).await;
    assert_eq!(write(&*old, gone("alice")).await, ["local2"]);
    assert_eq!(find(&*old, "alice").await, ["local2"]);
}

async fn writing_twice_changes_nothing(backend: &Backend) {
    let one = backend.server("local1", LONG).await;
    for fresh in [true, true, false] {
        assert_eq!(write(&*one, Truth { fresh, ..here("alice") }).await, [""; 0]);
        assert_eq!(find(&*one, "alice").await, ["local1"]);
    }
    for _ in 0..2 {
        assert_eq!(write(&*one, gone("alice")).await, [""; 0]);
        assert_eq!(find(&*one, "alice").await, [""; 0]);
    }
}

async fn ids_are_compared_whole(backend: &Backend) {
    let ids = ["local1", "local10", "local-1", "local.1", "local_1", "ocal1", "loca", "l-"];
    let mut servers = Vec::new();
    for own in ids {
        let server = backend.server(own, LONG).await;
        write(&*server, here("alice")).await;
        servers.push(server);
    }
    assert_eq!(find(&*servers[0], "alice").await, ids);
    for (server, own) in servers.iter().zip(ids) {
        let others = write(&**server, gone("alice")).await;
        assert!(!others.iter().any(|other| other == own));
        assert_eq!(find(&**server, "alice").await, others);
    }
    assert_eq!(find(&*servers[0], "alice").await, [""; 0]);
}

async fn odd_user_ids_change_their_own_entry_only(backend: &Backend) {
    let one = backend.server("local1", LONG).await;
    let long = "x".repeat(128);
    let odd = [&ODD[..], &[&long, "ab", "a", "aXb", "tag", "b"]].concat();
    for (index, user_id) in odd.iter().enumerate() {
        write(&*one, here(user_id)).await;
        for (other, other_id) in odd.iter().enumerate() {
            assert_eq!(find(&*one, other_id).await.is_empty(), other > index, "{other_id:?} after {user_id:?}");
        }
    }
    for (index, user_id) in odd.iter().enumerate() {
        write(&*one, gone(user_id)).await;
        for (other, other_id) in odd.iter().enumerate() {
            assert_eq!(find(&*one, other_id).await.is_empty(), other <= index, "{other_id:?} after {user_id:?}");
        }
    }
}

async fn a_batch_is_answered_in_order(backend: &Backend) {
    let (one, two) = (backend.server("local1", LONG).await, backend.server("local2", LONG).await);
    let names: Vec<String> = (0..300).map(|index| format!("user{index}")).collect();
    let odd_ones: Vec<_> = names.iter().skip(1).step_by(2).map(|name| here(name)).collect();
    assert!(two.write(&odd_ones).await.iter().all(Result::is_ok));
    let all: Vec<_> = names.iter().map(|name| here(name)).collect();
    for (index, answer) in one.write(&all).await.into_iter().enumerate() {
        let others = texts(answer.unwrap());
        assert_eq!(others.is_empty(), index % 2 == 0, "user{index}");
    }
    // A batch may speak of one user twice; the last word counts.
    let twice = one.write(&[gone("user0"), here("user0"), gone("user0")]).await;
    assert!(twice.iter().all(Result::is_ok));
    assert_eq!(find(&*one, "user0").await, [""; 0]);
    assert!(one.write(&[]).await.is_empty());
}

async fn many_users_are_located_in_order(backend: &Backend) {
    let one = backend.server("local1", LONG).await;
    // More than one MGET holds.
    let names: Vec<String> = (0..1500).map(|index| format!("user{index}")).collect();
    let present: Vec<_> = names.iter().step_by(3).map(|name| here(name)).collect();
    assert!(one.write(&present).await.iter().all(Result::is_ok));
    let users: Vec<_> = names.iter().map(|name| user(name)).collect();
    let places = one.locate(&users).await.unwrap();
    assert_eq!(places.len(), users.len());
    for (index, place) in places.into_iter().enumerate() {
        assert_eq!(texts(place).is_empty(), index % 3 != 0, "user{index}");
    }
    assert!(one.locate(&[]).await.unwrap().is_empty());
}

async fn servers_that_write_at_once_each_have_the_last_word_on_themselves(backend: &Backend) {
    let names = ["alice", "bob", "carol"];
    let restless = async |own: &str, seed: usize| {
        let server = backend.server(own, LONG).await;
        for step in 0..200 {
            let name = names[(step * 7 + seed) % names.len()];
            let truth = if (step * 5 + seed) % 11 < 6 { here(name) } else { gone(name) };
            write(&*server, truth).await;
        }
        // Who is here in the end: the first everywhere, the second with alice only, the third nowhere.
        for (index, name) in names.iter().enumerate() {
            write(&*server, if index + seed < 2 || seed == 0 { here(name) } else { gone(name) }).await;
        }
    };
    tokio::join!(restless("local1", 0), restless("local2", 1), restless("local3", 2));
    let one = backend.server("local1", LONG).await;
    let mut with_alice = find(&*one, "alice").await;
    with_alice.sort();
    assert_eq!(with_alice, ["local1", "local2"]);
    assert_eq!(find(&*one, "bob").await, ["local1"]);
    assert_eq!(find(&*one, "carol").await, ["local1"]);
}

async fn a_held_id_is_refused_until_its_lease_ends(backend: &Backend) {
    let server = backend.server("local1", SHORT).await;
    assert_eq!(server.enlist(&row("local1", 1)).await.unwrap(), Enlisted::Ours);
    match server.enlist(&row("local1", 2)).await.unwrap() {
        Enlisted::Held { boot, left } => {
            assert_eq!(boot, BootId(1));
            assert!(left <= SHORT && left > Duration::ZERO, "{left:?}");
        }
        Enlisted::Ours => panic!("the lease has not ended"),
    }
    eventually("the lease to end", async || {
        (server.enlist(&row("local1", 2)).await.unwrap() == Enlisted::Ours).then_some(())
    })
    .await;
    assert_eq!(server.servers().await.unwrap(), [row("local1", 2)]);
}

async fn an_id_is_given_to_its_own_run_again(backend: &Backend) {
    let server = backend.server("local1", LONG).await;
    for _ in 0..2 {
        assert_eq!(server.enlist(&row("local1", 1)).await.unwrap(), Enlisted::Ours);
    }
}

async fn of_many_runs_that_want_an_id_one_gets_it(backend: &Backend) {
    let server = backend.server("local1", LONG).await;
    let rows: Vec<ServerRow> = (1..=20).map(|boot| row("local1", boot)).collect();
    let outcomes = join_all(rows.iter().map(|row| server.enlist(row))).await;
    let winners: Vec<BootId> = rows
        .iter()
        .zip(outcomes)
        .filter_map(|(row, outcome)| (outcome.unwrap() == Enlisted::Ours).then_some(row.boot))
        .collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(server.servers().await.unwrap()[0].boot, winners[0]);
}

async fn a_renewal_tells_what_it_found(backend: &Backend) {
    let server = backend.server("local1", LONG).await;
    assert_eq!(server.renew(&row("local1", 1)).await.unwrap(), Renewed::Restored);
    assert_eq!(server.renew(&row("local1", 1)).await.unwrap(), Renewed::Kept);
    assert_eq!(server.renew(&row("local1", 2)).await.unwrap(), Renewed::Usurped(BootId(1)));
    assert_eq!(server.servers().await.unwrap(), [row("local1", 1)]);
}

async fn a_row_is_withdrawn_by_its_own_run_only(backend: &Backend) {
    let server = backend.server("local1", LONG).await;
    server.enlist(&row("local1", 1)).await.unwrap();
    server.withdraw(&id("local1"), BootId(2)).await.unwrap();
    assert_eq!(server.servers().await.unwrap(), [row("local1", 1)]);
    for _ in 0..2 {
        server.withdraw(&id("local1"), BootId(1)).await.unwrap();
        assert_eq!(server.servers().await.unwrap(), []);
    }
    assert_eq!(server.enlist(&row("local1", 2)).await.unwrap(), Enlisted::Ours);
}

async fn the_list_of_servers_says_what_their_rows_say(backend: &Backend) {
    let server = backend.server("local1", LONG).await;
    for own in ["local1", "local2", "local.3"] {
        server.enlist(&row(own, 7)).await.unwrap();
    }
    let leaving = ServerRow { draining: true, ..row("local2", 7) };
    assert_eq!(server.renew(&leaving).await.unwrap(), Renewed::Kept);
    let mut rows = server.servers().await.unwrap();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(rows, [row("local.3", 7), row("local1", 7), leaving]);
}

async fn a_dead_server_leaves_the_list(backend: &Backend) {
    let (mortal, other) = (backend.server("local1", SHORT).await, backend.server("local2", LONG).await);
    mortal.enlist(&row("local1", 1)).await.unwrap();
    other.enlist(&row("local2", 2)).await.unwrap();
    eventually("the dead server to leave", async || {
        (other.servers().await.unwrap() == [row("local2", 2)]).then_some(())
    })
    .await;
    assert_eq!(mortal.renew(&row("local1", 1)).await.unwrap(), Renewed::Restored);
}

async fn the_first_database_is_kept(backend: &Backend) {
    let (one, two) = (backend.server("local1", LONG).await, backend.server("local2", LONG).await);
    assert_eq!(one.bind_database("first").await.unwrap(), "first");
    assert_eq!(two.bind_database("second").await.unwrap(), "first");
    assert_eq!(one.bind_database("first").await.unwrap(), "first");
}

async fn the_generation_stays_while_nothing_is_lost(backend: &Backend) {
    let one = backend.server("local1", LONG).await;
    let before = one.generation().await.unwrap();
    write(&*one, here("alice")).await;
    assert_eq!(one.generation().await.unwrap(), before);
}
