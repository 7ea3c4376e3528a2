//! A server that was stopped for longer than its lease, and goes on.

use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::server::Signal;
use crate::support::wait::eventually;

#[tokio::test]
async fn no_message_is_missing_on_the_sockets_of_a_server_that_slept_past_its_lease() {
    let cluster = Cluster::of(2).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect(cluster.server(2), "C").await;
    a.create("team", &["C"]).await;
    a.say("team", "before").await;
    c.expect_body("before").await;

    cluster.server(2).signal(Signal::Stop);
    a.say("team", "early").await;
    eventually("the lease to end", async || cluster.row(2).is_empty().then_some(())).await;
    let mut last = 0;
    for number in 0..20 {
        last = a.say("team", number).await["seq"].as_u64().unwrap();
    }
    cluster.server(2).signal(Signal::Cont);

    c.expect_message(|message| message["seq"] == last).await;
    c.assert_in_order("team");
    eventually("the row to be back", async || (!cluster.row(2).is_empty()).then_some(())).await;
    assert_eq!(cluster.places(), [("A".into(), "local1".into()), ("C".into(), "local2".into())]);

    a.say("team", "after").await;
    c.expect_body("after").await;
    c.assert_in_order("team");
}

#[tokio::test]
async fn a_server_that_slept_while_another_run_took_its_id_ends_and_writes_nothing() {
    let cluster = Cluster::of(2).await;
    let mut a = Client::connect(cluster.server(1), "A").await;
    let mut c = Client::connect_as(cluster.server(2), "C", json!({"device": "phone"})).await;
    a.create("team", &["C"]).await;
    c.expect_message(|message| message["seq"] == 1).await;
    c.ack("team", 1).await;

    cluster.server(2).signal(Signal::Stop);
    let next_run = cluster.start_as(2, &[]).await.unwrap();
    let boot = cluster.boot(2);
    cluster.server(2).signal(Signal::Cont);
    c.expect_close(1001).await;
    assert_eq!(cluster.server(2).wait_exit().await, Some(1));
    assert_eq!(cluster.boot(2), boot, "the row is the new run's");

    let mut c = Client::connect_as(&next_run, "C", json!({"cursors": {"team": 1}})).await;
    a.say("team", "to the new run").await;
    c.expect_body("to the new run").await;
    cluster.until_place("C", "local2").await;
}
