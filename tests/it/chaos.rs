//! Everything breaks while people write, and in the end nothing is lost, doubled or out of order.
//!
//! `tests/chaos` runs the last of these for as long as one likes.

mod cases;
mod fault;
mod hands;
mod report;
mod run;

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::support::crowd::seed;
use fault::{Fault, at_random, in_turn};
use run::{Run, Size};

/// Variables that `tests/chaos` sets.
const SECONDS: &str = "MINICHAT_CHAOS_SECONDS";
const USERS: &str = "MINICHAT_CHAOS_USERS";
const SERVERS: &str = "MINICHAT_CHAOS_SERVERS";

/// How long a random run lasts where nothing else is said.
const SHORT: Duration = Duration::from_secs(20);

/// How many users there are where nothing else is said.
const USERS_IN_SHORT: usize = 36;

/// One fault after the other, in a cluster of its own.
async fn survives(servers: usize, faults: &[Fault]) {
    let seed = seed();
    let events = in_turn(faults, &mut StdRng::seed_from_u64(seed));
    let mut run = Run::start(seed, Size { servers, users: USERS_IN_SHORT }).await;
    run.in_turn(&events).await;
    run.finish().await.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_to_which_nothing_happens_is_pushed_each_message_once() {
    let mut run = Run::start(seed(), Size { servers: 2, users: USERS_IN_SHORT }).await;
    run.on_time(&[], SHORT / 2).await;
    let report = run.finish().await;
    report.judge();
    assert!(report.pushes.count() > 0, "nobody was pushed");
    assert_eq!(report.pushes.repeats(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_killed_or_stopped_lose_double_and_reorder_nothing() {
    use Fault::{Kill, KillBeforeRelay, Stop};
    survives(3, &[Kill(1), Kill(2), Kill(3), Stop(1), KillBeforeRelay(2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_and_clients_that_break_lose_double_and_reorder_nothing() {
    use Fault::{CutLink, DelayLink, DropClients, HoleLink, LoseDatabase, LoseRedis};
    let faults = [CutLink(1), HoleLink(2), DelayLink(1), DropClients(2), LoseRedis(1), LoseDatabase(2)];
    survives(2, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_or_postgresql_that_fails_loses_doubles_and_reorders_nothing() {
    use Fault::{PostgresFast, PostgresImmediate, RedisFull, RedisPause, RedisRefuses, RedisRestart, RedisWipe};
    let faults = [RedisRestart, RedisPause, RedisRefuses, PostgresFast, RedisWipe, PostgresImmediate, RedisFull];
    survives(2, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_random_loses_doubles_and_reorders_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let length = number(SECONDS).map_or(SHORT, Duration::from_secs);
    let servers = number(SERVERS).map_or(3, |count| count as usize);
    let users = number(USERS).map_or(USERS_IN_SHORT, |count| count as usize);
    let seed = seed();
    let events = at_random(servers, length, &mut StdRng::seed_from_u64(seed));
    let mut run = Run::start(seed, Size { servers, users }).await;
    run.on_time(&events, length).await;
    run.finish().await.judge();
}

#[test]
fn the_same_seed_makes_the_same_schedule_and_a_long_one_has_every_fault() {
    let schedule = |seed| at_random(3, Duration::from_secs(300), &mut StdRng::seed_from_u64(seed));
    assert_eq!(schedule(7), schedule(7));
    assert_ne!(schedule(7), schedule(8));
    let kinds =
        |faults: Vec<Fault>| faults.iter().map(std::mem::discriminant).collect::<std::collections::HashSet<_>>();
    let events = schedule(7);
    assert_eq!(kinds(events.iter().map(|event| event.fault).collect()), kinds(Fault::all(3)));
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
}
