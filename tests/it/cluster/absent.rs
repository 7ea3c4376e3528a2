//! Members who lack a message or have not acknowledged one: their sessions are healed, wherever they are.

use minichat::ids::{Cid, MessageId};
use minichat::store::{Append, Options as StoreOptions, Store};
use serde_json::json;

use crate::support::client::{Client, fresh_cid};
use crate::support::cluster::{Cluster, Options};

/// Stores messages as a server does that dies right after its commit: nobody sends them on, and nobody is told.
async fn store_only(cluster: &Cluster, room: &str, sender: &str, texts: &[&str]) {
    let store = Store::open(&cluster.database, &StoreOptions::default()).await.unwrap();
    for text in texts {
        let cid: Cid = fresh_cid().parse().unwrap();
        let append = Append {
            room: room.parse().unwrap(),
            sender: sender.parse().unwrap(),
            cid,
            id: MessageId(rand::random::<u32>().into()),
            body: json!(text).to_string().into(),
        };
        store.append(&[append]).await.unwrap();
    }
}

#[tokio::test]
async fn what_nobody_sent_on_is_healed_to_sessions_on_any_server_long_before_it_would_be_pushed() {
    let cluster = Cluster::with(Options { flags: vec!["--push-after=1h".into()], ..Options::default() }).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    alice.create("team", &["bob", "carol"]).await;
    bob.expect_message(|frame| frame["event"] == "created").await;
    store_only(&cluster, "team", "carol", &["one", "two"]).await;
    for client in [&mut alice, &mut bob] {
        client.expect_body("two").await;
        client.assert_in_order("team");
    }
}

#[tokio::test]
async fn a_member_of_a_room_that_their_server_never_heard_of_is_healed_into_it() {
    let cluster = Cluster::of(2).await;
    let mut bob = Client::connect(cluster.server(2), "bob").await;
    let store = Store::open(&cluster.database, &StoreOptions::default()).await.unwrap();
    store
        .create(&minichat::store::NewRoom {
            room: "quiet".parse().unwrap(),
            creator: "alice".parse().unwrap(),
            members: vec!["bob".parse().unwrap()],
            name: None,
            open: false,
            id: MessageId(1),
        })
        .await
        .unwrap();
    store_only(&cluster, "quiet", "alice", &["hello"]).await;
    bob.expect_body("hello").await;
    bob.assert_in_order("quiet");
}
