//! One living server per id, one database per Redis, one secret.

use crate::support::client::Client;
use crate::support::cluster::{Cluster, Options};
use crate::support::postgres::Postgres;
use crate::support::server::{FailedStart, Server};
use crate::support::wait::eventually;

async fn single() -> Cluster {
    Cluster::of(1).await
}

/// One line for the operator, and the code that says that it did not work.
fn assert_refused(failed: &FailedStart, code: i32, words: &str) {
    assert_eq!(failed.code, Some(code), "{failed:?}");
    assert!(failed.line.contains(words), "{failed:?}");
    let complaints = failed.log.iter().filter(|line| line.starts_with("minichat: "));
    assert_eq!(complaints.count(), 1, "{failed:?}");
}

#[tokio::test]
async fn a_second_server_under_a_living_id_is_refused_and_the_first_goes_on() {
    let cluster = single().await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;

    let failed = cluster.start_as(1, &[]).await.unwrap_err();
    assert_refused(&failed, 1, "a server with the id local1 is alive");
    assert!(failed.log.iter().any(|line| line.contains("the id is held")), "it says that it waits: {failed:?}");

    alice.sync().await;
    assert_eq!(cluster.place("alice"), "local1");
}

#[tokio::test]
async fn after_a_kill_the_same_id_starts_again() {
    let mut cluster = Cluster::of(2).await;
    let mut a = Client::connect(cluster.server(2), "A").await;
    a.create("team", &["C"]).await;
    let mut c = Client::connect(cluster.server(1), "C").await;
    let before = cluster.boot(1);
    cluster.server(1).kill();
    assert_eq!(c.until_closed().await, None);

    cluster.restart(1).await;
    assert_ne!(cluster.boot(1), before);
    let mut c = Client::connect(cluster.server(1), "C").await;
    a.say("team", "to the new run").await;
    c.expect_body("to the new run").await;
    cluster.until_place("C", "local1").await;
}

#[tokio::test]
async fn a_server_whose_id_another_run_has_taken_closes_its_sockets_and_ends() {
    let cluster = single().await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let other = cluster.boot(1).unwrap().chars().rev().collect::<String>();
    // Both at once, or the row might end in between.
    let take = "redis.call('HSET', KEYS[1], 'boot', ARGV[1]) redis.call('PERSIST', KEYS[1])";
    cluster.redis.cli(&["EVAL", take, "1", "ws:server:local1", &other]);

    alice.expect_close(1001).await;
    assert_eq!(cluster.server(1).wait_exit().await, Some(1));
    assert_eq!(cluster.server(1).count_logged(&["ERROR"]), 1);
    let line = cluster.server(1).log_lines().pop().unwrap();
    assert_eq!(line, "minichat: another server has taken the id local1");
    assert_eq!(cluster.boot(1), Some(other), "the row is the other's");
    assert_eq!(cluster.place("alice"), "local1", "what is said of that id now is not this run's to change");
}

#[tokio::test]
async fn several_servers_need_a_secret_and_a_database_to_share() {
    let secret = "--cluster-secret=0123456789abcdef";
    for (flags, words) in [
        (&["--redis=redis://127.0.0.1:1", "--database=postgres://127.0.0.1:1/x"][..], "--cluster-secret"),
        (&["--redis=redis://127.0.0.1:1", secret], "--database postgres://"),
        (&["--redis=redis://127.0.0.1:1", secret, "--database=sqlite:x.db"], "--database postgres://"),
    ] {
        assert_refused(&Server::try_start(flags).await.unwrap_err(), 2, words);
    }
}

#[tokio::test]
async fn the_redis_of_a_cluster_with_another_database_is_refused() {
    let cluster = single().await;
    let other = format!("--database={}", Postgres::shared().fresh_database().await);
    let failed = cluster.start_as(2, &[&other]).await.unwrap_err();
    assert_refused(&failed, 1, "belongs to a cluster with another database");
    assert!(cluster.row(2).is_empty());
}

#[tokio::test]
async fn a_wiped_redis_still_belongs_to_the_cluster_that_uses_it() {
    let cluster = single().await;
    let owner = cluster.redis.cli(&["GET", "ws:cluster"]);
    cluster.redis.cli(&["FLUSHALL"]);
    let look = async || (cluster.redis.cli(&["GET", "ws:cluster"]) == owner).then_some(());
    eventually("the mark to be back", look).await;
}

#[tokio::test]
async fn servers_with_different_secrets_deliver_nothing_to_each_other_and_say_so_once() {
    let cluster = Cluster::with(Options { servers: 1, ..Options::default() }).await;
    let stranger = cluster.start_as(2, &["--cluster-secret=another-secret-of-tests"]).await.unwrap();
    for (server, peer) in [(cluster.server(1), "local2"), (&stranger, "local1")] {
        server.until_logged(&["ERROR", "A peer refuses us", peer]).await;
    }
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(&stranger, "C").await;
    a.create("team", &["C"]).await;
    let sent = a.say("team", "stored all the same").await;

    let stored = eventually("the next try", async || {
        let again = cluster.server(1).has_logged(&["A peer still cannot be reached", "local2"]);
        let page = if again { Some(c.history("team", 0).await) } else { None };
        page.filter(|page| page.len() == 2)
    })
    .await;
    assert_eq!(stored[1]["seq"], sent["seq"]);
    // C may have it all the same: the stranger, too, looks in the store for who has not acknowledged.
    assert_eq!(stranger.metric("minichat_relay_items_received_total").await, 0);
    assert_eq!(cluster.server(1).count_logged(&["A peer refuses us"]), 1);
}
