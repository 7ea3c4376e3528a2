//! How the registry in Redis bears trouble.

use std::time::Duration;

use futures_util::future::join_all;
use minichat::registry::redis::{Options, RedisRegistry};
use minichat::registry::{Error, Registry, Renewed};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{LONG, brisk, connect, find, gone, here, id, patient, row, user, write};
use crate::support::proxy::Proxy;
use crate::support::redis::{PASSWORD, Redis};
use crate::support::sentinel::Sentinel;
use crate::support::wait::{PATIENCE, eventually};

async fn server(url: &str, own: &str, options: &Options) -> RedisRegistry {
    connect(url, own, LONG, options).await
}

/// Asks where alice is, with a deadline that only a call that hangs for ever would meet.
async fn ask(registry: &RedisRegistry) -> Result<Vec<Vec<minichat::ids::ServerId>>, Error> {
    timeout(PATIENCE, registry.locate(&[user("alice")])).await.expect("a call that ends")
}

async fn until_it_answers(registry: &RedisRegistry) {
    eventually("the registry to answer", async || ask(registry).await.ok()).await;
}

async fn until_it_is_away(registry: &RedisRegistry) {
    eventually("the registry to be away", async || matches!(ask(registry).await, Err(Error::Away)).then_some(())).await;
}

async fn until_the_generation_is_not(old: &str, registry: &RedisRegistry) {
    eventually("another generation", async || registry.generation().await.ok().filter(|new| new != old)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_redis_has_lost_are_loaded_again() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(write(&one, here("alice")).await, [""; 0]);
    redis.cli(&["SCRIPT", "FLUSH"]);
    let batch: Vec<_> = (0..100).map(|index| here(&format!("user{index}"))).collect();
    assert!(one.write(&batch).await.iter().all(Result::is_ok));
    assert_eq!(find(&one, "user99").await, ["local1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_empty_is_noticed_and_used_again() {
    let mut redis = Redis::start();
    let one = server(&redis.url(), "local1", &brisk()).await;
    write(&one, here("alice")).await;
    assert_eq!(one.renew(&row("local1", 1)).await.unwrap(), Renewed::Restored);
    let before = one.generation().await.unwrap();

    redis.kill();
    until_it_is_away(&one).await;
    redis.restart_empty();
    until_it_answers(&one).await;

    until_the_generation_is_not(&before, &one).await;
    let renewed = eventually("a renewal", async || one.renew(&row("local1", 1)).await.ok()).await;
    assert_eq!(renewed, Renewed::Restored);
    assert_eq!(find(&one, "alice").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_call_waits_for_a_redis_that_is_silent() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &brisk()).await;
    write(&one, here("alice")).await;
    until_it_answers(&one).await;
    let before = redis.calls("mget");

    redis.pause();
    until_it_is_away(&one).await;
    let asked = join_all((0..500).map(|_| ask(&one))).await;
    assert!(asked.iter().all(|answer| matches!(answer, Err(Error::Away))));
    assert!(matches!(one.write(&[gone("alice")]).await[..], [Err(Error::Away)]));
    assert!(matches!(one.generation().await, Err(Error::Away)));
    redis.resume();
    until_it_answers(&one).await;

    assert_eq!(find(&one, "alice").await, ["local1"]);
    // Those 500 never got as far as Redis; a busy machine may have cost a few tries before and after.
    let sent = redis.calls("mget") - before;
    assert!(sent < 50, "{sent} look-ups were sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_leads_nowhere_is_replaced() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.addr()).await;
    let one = server(&redis.url_at(proxy.addr()), "local1", &brisk()).await;
    write(&one, here("alice")).await;
    let before = one.generation().await.unwrap();

    proxy.black_hole();
    until_it_is_away(&one).await;
    proxy.heal();
    until_it_answers(&one).await;

    assert_eq!(find(&one, "alice").await, ["local1"]);
    until_the_generation_is_not(&before, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_reset_is_replaced() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.addr()).await;
    let one = server(&redis.url_at(proxy.addr()), "local1", &brisk()).await;
    let before = one.generation().await.unwrap();

    proxy.reset();
    until_it_is_away(&one).await;
    proxy.heal();
    until_it_answers(&one).await;
    until_the_generation_is_not(&before, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stalled_serves_again() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.addr()).await;
    let one = server(&redis.url_at(proxy.addr()), "local1", &brisk()).await;

    proxy.stall();
    until_it_is_away(&one).await;
    proxy.heal();
    until_it_answers(&one).await;
    // Late answers of the stalled calls must not be taken for those of later calls.
    let written = eventually("a write", async || one.write(&[here("alice")]).await.remove(0).ok()).await;
    assert_eq!(written, []);
    assert_eq!(find(&one, "alice").await, ["local1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_redis_is_not_away() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.addr()).await;
    let one = server(&redis.url_at(proxy.addr()), "local1", &patient()).await;
    proxy.delay(Duration::from_millis(50));
    assert_eq!(write(&one, here("alice")).await, [""; 0]);
    assert_eq!(find(&one, "alice").await, ["local1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_became_a_replica_is_away_until_it_is_a_master_again() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &brisk()).await;
    let before = one.generation().await.unwrap();

    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(matches!(one.write(&[here("alice")]).await[..], [Err(Error::Away)]));
    // What a replica holds may be old, so it is not read either.
    assert!(matches!(ask(&one).await, Err(Error::Away)));
    let refused = refusal(&redis.url(), &patient()).await;
    assert!(refused.contains("it is a replica"), "{refused}");

    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually("a write", async || one.write(&[here("alice")]).await.remove(0).ok()).await;
    until_the_generation_is_not(&before, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_role_is_noticed_even_when_nothing_was_refused_meanwhile() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    let before = one.generation().await.unwrap();
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_ne!(one.generation().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_users_error_is_not_anothers() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    redis.cli(&["LPUSH", "ws:user:server:bob", "no entry"]);
    let answers = one.write(&[here("alice"), here("bob"), here("carol")]).await;
    assert!(matches!(answers[..], [Ok(_), Err(Error::Refused(_)), Ok(_)]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_plain_text_that_expires() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    let two = server(&redis.url(), "local2", &patient()).await;
    let key = "ws:user:server:alice";
    let left = || redis.cli(&["TTL", key]).parse::<u64>().unwrap();

    write(&one, here("alice")).await;
    assert_eq!(redis.cli(&["GET", key]), "local1");
    assert!((3500..=3600).contains(&left()));
    write(&two, here("alice")).await;
    assert_eq!(redis.cli(&["GET", key]), "local1,local2");

    redis.cli(&["EXPIRE", key, "1000"]);
    write(&one, here("alice")).await;
    assert!(left() > 3500, "to be here extends the entry");
    redis.cli(&["EXPIRE", key, "1000"]);
    write(&two, gone("alice")).await;
    assert!(left() <= 1000, "to be gone does not");
    write(&one, gone("alice")).await;
    assert_eq!(redis.cli(&["EXISTS", key]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_id_names_its_own_key_only() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    for user_id in ["*", "{tag}", "%7Btag%7D", "../x", "a b"] {
        write(&one, here(user_id)).await;
    }
    let mut keys: Vec<String> = redis.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    keys.sort();
    let ids = ["%257Btag%257D", "%7Btag%7D", "*", "../x", "a b"];
    let named = |beginning: &str| ids.map(|user_id| format!("ws:user:{beginning}:{user_id}"));
    assert_eq!(keys, [named("seen"), named("server")].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ended_a_minute_ago_is_dropped() {
    let redis = Redis::start();
    let one = server(&redis.url(), "local1", &patient()).await;
    one.enlist(&row("local1", 1)).await.unwrap();
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    for (own, ago) in [("recent", 30), ("old", 61)] {
        redis.cli(&["ZADD", "ws:servers", &((now - ago) * 1000).to_string(), own]);
    }
    assert_eq!(one.servers().await.unwrap(), [row("local1", 1)]);
    assert_eq!(redis.cli(&["ZRANGE", "ws:servers", "0", "-1"]), "recent\nlocal1");
    let ends: f64 = redis.cli(&["ZSCORE", "ws:servers", "local1"]).parse().unwrap();
    assert!(ends / 1000.0 > now as f64 + 500.0, "a lease of ten minutes ends in ten minutes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_where_and_never_the_password() {
    let redis = Redis::start_tls();
    let wrong = format!("rediss://:not-{PASSWORD}@{}", redis.addr());
    let trusting = Options { ca_file: redis.ca_file(), ..patient() };
    let refused = refusal(&wrong, &trusting).await;
    assert!(refused.contains(&redis.addr().to_string()), "{refused}");
    let nameless = refusal(&format!("rediss://{}", redis.addr()), &trusting).await;
    assert_eq!(nameless.matches("NOAUTH").count(), 1, "{nameless}");
    let untrusted = refusal(&redis.url(), &patient()).await;
    assert!(untrusted.contains("certificate"), "{untrusted}");
    let nobody = refusal(&format!("redis://:{PASSWORD}@127.0.0.1:1"), &patient()).await;
    assert!(nobody.contains("127.0.0.1:1"), "{nobody}");
    let malformed = refusal(&format!("redis://:{PASSWORD}@a,b"), &patient()).await;

    let one = server(&redis.url(), "local1", &trusting).await;
    for text in [refused, nameless, untrusted, nobody, malformed, format!("{one:?}")] {
        assert!(!text.contains(PASSWORD), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

pub(super) async fn refusal(url: &str, options: &Options) -> String {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let outcome = RedisRegistry::connect(url, id("local1"), LONG, options.clone(), &tasks, stop).await;
    outcome.expect_err("a URL that does not work").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_of_a_registry_end_with_it() {
    let redis = Redis::start();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let url = redis.url();
    let connect = || RedisRegistry::connect(&url, id("local1"), LONG, patient(), &tasks, stop.clone());
    let (dropped, stopped) = (connect().await.unwrap(), connect().await.unwrap());
    tasks.close();
    drop(dropped);
    eventually("the tasks of the first", async || (tasks.len() == 1).then_some(())).await;
    stop.cancel();
    timeout(PATIENCE, tasks.wait()).await.expect("tasks that end when told");
    drop(stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_sentinels_choose_is_used() {
    let (mut master, replica) = (Redis::start(), Redis::start());
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.addr().port().to_string()]);
    let sentinel = Sentinel::watch(&master, "the-master");
    let url = format!("redis+sentinel://127.0.0.1:1,{}/the-master", sentinel.addr());
    let one = server(&url, "local1", &brisk()).await;
    write(&one, here("alice")).await;
    let before = one.generation().await.unwrap();
    eventually("the replica", async || (replica.cli(&["EXISTS", "ws:user:server:alice"]) == "1").then_some(())).await;

    master.kill();
    eventually("a write", async || one.write(&[here("bob")]).await.remove(0).ok()).await;
    assert_eq!(find(&one, "alice").await, ["local1"]);
    until_the_generation_is_not(&before, &one).await;

    let unknown = refusal(&format!("redis+sentinel://{}/other", sentinel.addr()), &patient()).await;
    assert!(unknown.contains("knows no master other"), "{unknown}");
}
