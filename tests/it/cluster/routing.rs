//! To the server that holds the recipient, and to no other.

use crate::support::client::Client;
use crate::support::cluster::{Cluster, Options};
use crate::support::redis::{Redis, RedisCluster};

#[tokio::test]
async fn a_message_goes_to_the_servers_that_hold_its_recipients_and_no_other() {
    let cluster = Cluster::of(3).await;
    let (local1, local2, local3) = (cluster.server(1), cluster.server(2), cluster.server(3));
    let mut a = Client::connect(local1, "A").await;
    let mut b = Client::connect(local1, "B").await;
    let mut c = Client::connect(local2, "C").await;
    let _others = (Client::connect(local3, "D").await, Client::connect(local3, "E").await);
    a.create("abc", &["B", "C"]).await;
    for client in [&mut b, &mut c] {
        client.expect_message(|message| message["event"] == "created").await;
    }
    let relayed = local1.metric("minichat_relay_items_sent_total").await;

    let sent = a.say("abc", "hello").await;
    for client in [&mut b, &mut c] {
        let message = client.expect_body("hello").await;
        assert_eq!((&message["seq"], &message["id"]), (&sent["seq"], &sent["id"]));
    }

    let seq = format!("seq={}", sent["seq"]);
    local1.until_logged(&["DEBUG", "Local delivery succeeded", "recipient=B", &seq]).await;
    local1.until_logged(&["DEBUG", "Forwarding message via gRPC", "recipient=C", "target=local2", &seq]).await;
    local2.until_logged(&["DEBUG", "Received gRPC relay request", "sender=A", &seq]).await;
    local2.until_logged(&["DEBUG", "WebSocket relay succeeded", "recipient=C", &seq]).await;
    assert!(!local1.has_logged(&["Forwarding message via gRPC", "recipient=B"]), "B is local");

    assert_eq!(local1.metric("minichat_relay_items_sent_total").await, relayed + 1, "one item, for C");
    assert_eq!(local2.metric("minichat_relay_items_received_total").await, relayed + 1);
    assert_eq!(local3.metric("minichat_relay_items_received_total").await, 0);
    assert!(!local3.has_logged(&["gRPC relay request"]));
    for server in cluster.servers() {
        assert_eq!(server.metric("minichat_wasted_relays_total").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_find_each_others_users_in_a_redis_cluster() {
    let redis = RedisCluster::start();
    assert_routes(&[&format!("--redis={}", redis.url())]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_find_each_others_users_in_a_redis_behind_tls_and_a_password() {
    let redis = Redis::start_tls();
    let ca = redis.ca_file().expect("it speaks TLS");
    assert_routes(&[&format!("--redis={}", redis.url()), &format!("--redis-ca-file={}", ca.display())]).await;
}

/// Two servers with these flags bring a message from one to the other, and it arrives by relay.
async fn assert_routes(flags: &[&str]) {
    let cluster = Cluster::with(Options { servers: 0, ..Options::default() }).await;
    let local1 = cluster.start_as(1, flags).await.unwrap();
    let local2 = cluster.start_as(2, flags).await.unwrap();
    let mut alice = Client::connect(&local1, "alice").await;
    let mut bob = Client::connect(&local2, "{bob}").await;
    alice.create("team", &["{bob}"]).await;
    bob.expect_message(|message| message["event"] == "created").await;
    local1.until_metric("minichat_relay_messages_sent_total", |sent| sent > 0).await;
    alice.say("team", "hello").await;
    bob.expect_body("hello").await;
    assert_eq!(local1.metric("minichat_wasted_relays_total").await, 0);
    assert_eq!(local2.metric("minichat_wasted_relays_total").await, 0);
}
