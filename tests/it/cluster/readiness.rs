//! What a load balancer is told: a server is taken out for what it alone has lost, and for nothing that all have lost.

use serde_json::Value;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::server::Server;
use crate::support::wait::eventually;

async fn readiness(server: &Server) -> (u16, Value) {
    let (status, text) = server.admin("/readyz").await;
    (status, serde_json::from_str(&text).unwrap())
}

async fn until_ready(server: &Server, status: u16, degraded: bool) {
    let fits = async || {
        let (now, said) = readiness(server).await;
        (now == status && said["degraded"] == degraded).then_some(())
    };
    eventually(&format!("readiness {status}, degraded {degraded}"), fits).await;
}

#[tokio::test]
async fn servers_that_have_all_lost_redis_are_degraded_and_ready() {
    let mut cluster = Cluster::of(2).await;
    for server in cluster.servers() {
        until_ready(server, 200, false).await;
    }
    cluster.redis.kill();
    for server in cluster.servers() {
        until_ready(server, 200, true).await;
    }
    for server in cluster.servers() {
        assert_eq!(readiness(server).await.0, 200, "still, now that both have lost it");
    }
    cluster.redis.restart_empty();
    for server in cluster.servers() {
        until_ready(server, 200, false).await;
    }
}

#[tokio::test]
async fn a_server_that_alone_has_lost_redis_is_not_ready_and_its_users_are_reached_all_the_same() {
    let cluster = Cluster::proxied(2).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(cluster.server(2), "C").await;
    a.create("team", &["C"]).await;

    cluster.links(2).redis.black_hole();
    until_ready(cluster.server(2), 503, true).await;
    until_ready(cluster.server(1), 200, false).await;
    let mut late = Client::connect(cluster.server(2), "late").await;
    a.create("later", &["late"]).await;
    a.say("team", "to C").await;
    a.say("later", "to who came meanwhile").await;
    c.expect_body("to C").await;
    late.expect_body("to who came meanwhile").await;
    c.say("team", "from C").await;
    a.expect_body("from C").await;

    cluster.links(2).redis.heal();
    until_ready(cluster.server(2), 200, false).await;
    cluster.until_place("late", "local2").await;
}

#[tokio::test]
async fn a_server_that_has_lost_its_database_is_not_ready() {
    let cluster = Cluster::proxied(2).await;
    cluster.links(2).database.reset();
    until_ready(cluster.server(2), 503, false).await;
    assert_eq!(readiness(cluster.server(1)).await.0, 200);
    cluster.links(2).database.heal();
    until_ready(cluster.server(2), 200, false).await;
}
