//! What only a Redis Cluster can do to the registry.

use minichat::registry::redis::Options;
use minichat::registry::{Error, Registry};

use super::{LONG, connect, find, gone, here, patient, texts, user, write};
use crate::support::redis::{Redis, RedisCluster};
use crate::support::wait::eventually;

/// The index of the node that owns a user's key.
fn owner(cluster: &RedisCluster, user_id: &str) -> usize {
    let slot: u16 = slot(cluster, user_id).parse().unwrap();
    usize::from(slot > 5460) + usize::from(slot > 10922)
}

fn slot(cluster: &RedisCluster, user_id: &str) -> String {
    cluster.cli(&["CLUSTER", "KEYSLOT", &format!("ws:user:server:{user_id}")])
}

/// A user whose key is on this node.
fn user_on(cluster: &RedisCluster, node: usize) -> String {
    (0..).map(|index| format!("user{index}")).find(|user_id| owner(cluster, user_id) == node).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_behind_tls_and_a_password_is_used() {
    let cluster = RedisCluster::start_tls();
    let options = Options { ca_file: cluster.nodes[0].ca_file(), ..patient() };
    let one = connect(&cluster.url(), "local1", LONG, &options).await;
    for node in 0..3 {
        let name = user_on(&cluster, node);
        write(&one, here(&name)).await;
        assert_eq!(find(&one, &name).await, ["local1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_takes_one_round_trip_per_master() {
    let cluster = RedisCluster::start();
    let one = connect(&cluster.url(), "local1", LONG, &patient()).await;
    let users: Vec<_> = (0..1000).map(|index| user(&format!("user{index}"))).collect();
    let reads = |node: &Redis| {
        let stats = node.cli(&["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap().trim();
        line.parse::<u64>().unwrap()
    };
    let before: Vec<u64> = cluster.nodes.iter().map(reads).collect();
    one.locate(&users).await.unwrap();
    for (node, before) in cluster.nodes.iter().zip(before) {
        assert!(node.calls("get") > 200);
        // redis-cli itself and the cluster bus are counted as well, and 10 kB come in several reads.
        let after = reads(node) - before;
        assert!(after < 50, "{after} reads");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_master_is_away_alone() {
    let cluster = RedisCluster::start();
    let one = connect(&cluster.url(), "local1", LONG, &Options::default()).await;
    let names = [0, 1, 2].map(|node| user_on(&cluster, node));
    let state = async || {
        let answers = one.write(&names.each_ref().map(|name| here(name))).await;
        <[bool; 3]>::try_from(answers.iter().map(Result::is_ok).collect::<Vec<_>>()).unwrap()
    };
    eventually("all to answer", async || (state().await == [true; 3]).then_some(())).await;
    cluster.nodes[1].pause();
    eventually("one to be away", async || (state().await == [true, false, true]).then_some(())).await;
    assert!(matches!(one.locate(&[user(&names[1])]).await, Err(Error::Away)));
    cluster.nodes[1].resume();
    eventually("all to answer", async || (state().await == [true; 3]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_followed_while_it_moves_and_after() {
    let cluster = RedisCluster::start();
    let one = connect(&cluster.url(), "local1", LONG, &patient()).await;
    let name = user_on(&cluster, 0);
    let moving = slot(&cluster, &name);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let [from_id, to_id] = [from, to].map(|node| node.cli(&["CLUSTER", "MYID"]));

    to.cli(&["CLUSTER", "SETSLOT", &moving, "IMPORTING", &from_id]);
    from.cli(&["CLUSTER", "SETSLOT", &moving, "MIGRATING", &to_id]);
    write(&one, here(&name)).await;
    assert_eq!(to.cli(&["CLUSTER", "COUNTKEYSINSLOT", &moving]), "1", "the key is where the slot goes");
    assert_eq!(find(&one, &name).await, ["local1"]);

    for node in [to, from, &cluster.nodes[2]] {
        node.cli(&["CLUSTER", "SETSLOT", &moving, "NODE", &to_id]);
    }
    assert_eq!(find(&one, &name).await, ["local1"]);
    assert_eq!(write(&one, gone(&name)).await, [""; 0]);
    // Once the new layout is known, nobody is sent on any more.
    eventually("the new layout", async || {
        let before = from.rejected("get");
        find(&one, &name).await;
        (from.rejected("get") == before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_comes_back_empty_changes_the_generation() {
    let mut cluster = RedisCluster::start();
    let one = connect(&cluster.url(), "local1", LONG, &Options::default()).await;
    let before = eventually("a generation", async || one.generation().await.ok()).await;
    let name = user_on(&cluster, 2);
    cluster.nodes[2].restart_empty();
    eventually("another generation", async || one.generation().await.ok().filter(|new| *new != before)).await;
    let others = eventually("a write", async || one.write(&[here(&name)]).await.remove(0).ok()).await;
    assert!(texts(others).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_takes_over_is_found() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.add_replica(0);
    let one = connect(&cluster.url(), "local1", LONG, &Options::default()).await;
    let name = user_on(&cluster, 0);
    eventually("a write", async || one.write(&[here(&name)]).await.remove(0).ok()).await;
    let before = eventually("a generation", async || one.generation().await.ok()).await;

    cluster.nodes[0].kill();
    replica.cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    eventually("a write", async || one.write(&[here(&name)]).await.remove(0).ok()).await;
    let after = eventually("a generation", async || one.generation().await.ok()).await;
    assert_ne!(before, after);
    assert!(after.contains(&replica.addr().to_string()), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_is_no_redis_on_its_own() {
    let cluster = RedisCluster::start();
    let alone = cluster.nodes[0].url();
    let refusal = super::outage::refusal(&alone, &patient()).await;
    assert!(refusal.contains("redis+cluster"), "{refusal}");
    let redis = Redis::start();
    let refusal = super::outage::refusal(&format!("redis+cluster://{}", redis.addr()), &patient()).await;
    assert!(refusal.contains("cluster support disabled"), "{refusal}");
}
