//! What a message costs, counted: look-ups, round trips to Redis, items to other servers.

use std::time::Instant;

use crate::support::client::Client;
use crate::support::cluster::Cluster;

const SERVERS: usize = 3;
const MEMBERS: usize = 30;
const BURST: u64 = 300;
const FOLLOWING: u64 = 40;

const LOOKUPS: &str = "minichat_lookups_total";
const ITEMS: &str = "minichat_relay_items_sent_total";

/// A room with members on all servers; the first is on `local1`.
async fn hall(cluster: &Cluster) -> Vec<Client> {
    let names: Vec<_> = (0..MEMBERS).map(|number| format!("user-{number}")).collect();
    let mut members = Vec::new();
    for (number, name) in names.iter().enumerate() {
        members.push(Client::connect(cluster.server(number % SERVERS + 1), name).await);
    }
    let others: Vec<_> = names[1..].iter().map(String::as_str).collect();
    members[0].create("hall", &others).await;
    for member in &mut members[1..] {
        member.expect_message(|message| message["event"] == "created").await;
    }
    members
}

#[tokio::test]
async fn a_message_costs_one_look_up_and_one_item_per_server_whatever_the_rooms_size() {
    let cluster = Cluster::of(SERVERS).await;
    let mut members = hall(&cluster).await;
    let local2 = cluster.server(2);
    let items = local2.metric(ITEMS).await;
    let (lookups, calls) = lookups_and_calls(&cluster).await;
    let began = Instant::now();

    // The second is on `local2`, which has sent nobody anything yet.
    members[1].say("hall", "hello").await;
    for member in [0].into_iter().chain(2..MEMBERS) {
        members[member].expect_body("hello").await;
    }

    let (lookups_now, calls_now) = lookups_and_calls(&cluster).await;
    assert_eq!(calls_now - calls, lookups_now - lookups, "one round trip for all {MEMBERS}");
    // One for the message, unless the server has just looked where those are who have not acknowledged that the room was
    // made; and one for that, which may also be another server's, every two seconds.
    let most = 2 + began.elapsed().as_secs();
    assert!(lookups_now - lookups <= most, "{} look-ups", lookups_now - lookups);
    // One each for local1 and local3.
    local2.until_metric(ITEMS, |sent| sent == items + 2).await;
}

/// Who is on two servers is looked up for each message, and neither of these has to correct the sender.
#[tokio::test]
async fn a_member_on_two_servers_costs_one_look_up_for_each_message_and_no_introductions() {
    let cluster = Cluster::of(SERVERS).await;
    let mut members = hall(&cluster).await;
    let mut second = Client::connect(cluster.server(3), "user-1").await;
    let local1 = cluster.server(1);
    let calls = || cluster.redis.calls("evalsha");
    let (lookups, claims, began) = (local1.metric(LOOKUPS).await, calls(), Instant::now());

    for number in 0..FOLLOWING {
        members[0].say("hall", number).await;
        members[1].expect_body(number).await;
        second.expect_body(number).await;
    }

    let lookups = local1.metric(LOOKUPS).await - lookups;
    assert!(lookups <= FOLLOWING + FOLLOWING / 2, "{lookups} look-ups for {FOLLOWING} messages");
    // The servers renew their leases by scripts, too: three each, one and a half times a second.
    let (scripts, renewals) = (calls() - claims, 20 * (1 + began.elapsed().as_secs()));
    assert!(scripts <= renewals + FOLLOWING / 2, "{scripts} scripts for {FOLLOWING} messages");
}

#[tokio::test]
async fn messages_that_follow_cost_no_look_up() {
    let cluster = Cluster::of(SERVERS).await;
    let mut members = hall(&cluster).await;
    let local1 = cluster.server(1);
    let (lookups, items) = (local1.metric(LOOKUPS).await, local1.metric(ITEMS).await);
    let began = Instant::now();

    for number in 0..FOLLOWING {
        members[0].say("hall", number).await;
        for member in [1, 2] {
            members[member].expect_body(number).await;
        }
    }

    local1.until_metric(ITEMS, |sent| sent == items + 2 * FOLLOWING).await;
    // Those who have not acknowledged are looked for every two seconds, and places are forgotten after ten.
    let lookups = local1.metric(LOOKUPS).await - lookups;
    assert!(lookups <= 4 + began.elapsed().as_secs(), "{lookups} look-ups for {FOLLOWING} messages");
    println!("{FOLLOWING} messages, one after the other: {lookups} look-ups");
}

/// The look-ups of all servers, since any of them may look at the room for who has not acknowledged, and what Redis
/// counted; both while none is under way.
async fn lookups_and_calls(cluster: &Cluster) -> (u64, u64) {
    let look = async || (lookups_of_all(cluster).await, cluster.redis.calls("mget"));
    loop {
        let seen = look().await;
        if look().await == seen {
            return seen;
        }
    }
}

async fn lookups_of_all(cluster: &Cluster) -> u64 {
    let mut all = 0;
    for server in cluster.servers() {
        all += server.metric(LOOKUPS).await;
    }
    all
}

#[tokio::test]
async fn the_messages_of_a_burst_share_look_ups_and_each_is_one_item_per_server() {
    let cluster = Cluster::of(SERVERS).await;
    let mut members = hall(&cluster).await;
    let local1 = cluster.server(1);
    let (lookups, items) = (local1.metric(LOOKUPS).await, local1.metric(ITEMS).await);
    let (all, calls) = lookups_and_calls(&cluster).await;

    let mut last = String::new();
    for number in 0..BURST {
        last = members[0].send("hall", number).await;
    }
    members[0].expect_sent(&last).await;
    for member in &mut members[1..] {
        member.expect_body(BURST - 1).await;
        member.assert_in_order("hall");
    }

    local1.until_metric(ITEMS, |sent| sent == items + 2 * BURST).await;
    let shared = local1.metric(LOOKUPS).await - lookups;
    assert!(shared <= BURST, "{shared} look-ups for {BURST} messages");
    let (all_now, calls_now) = lookups_and_calls(&cluster).await;
    assert_eq!(calls_now - calls, all_now - all, "a look-up is one round trip");
    println!("{BURST} messages shared {shared} look-ups");
    for server in cluster.servers() {
        assert_eq!(server.metric("minichat_wasted_relays_total").await, 0);
    }
}
