//! What the relay's port tells to tools: health and reflection, to bearers of the cluster secret; and how it answers the
//! servers of this version and of the one before.

use minichat::clock::unix_ms;
use minichat::wire::{Answer, Item, Range};
use serde_json::json;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::client::Client;
use crate::support::cluster::{Cluster, SECRET};
use crate::support::relay;

const RELAY: &str = "minichat.relay.v1.Relay";

async fn relay_of(cluster: &Cluster) -> Channel {
    let url = format!("http://{}", cluster.server(1).relay_addr());
    Endpoint::from_shared(url).unwrap().connect().await.unwrap()
}

fn trusted<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().unwrap());
    request
}

#[tokio::test]
async fn health_answers_who_shows_the_cluster_secret_and_nobody_else() {
    let cluster = Cluster::of(1).await;
    let mut health = HealthClient::new(relay_of(&cluster).await);
    let asked = HealthCheckRequest { service: RELAY.into() };
    let answer = health.check(trusted(asked.clone())).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    let refused = health.check(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn reflection_names_the_relay() {
    let cluster = Cluster::of(1).await;
    let mut reflection = ServerReflectionClient::new(relay_of(&cluster).await);
    let asked = MessageRequest::ListServices(String::new());
    let asked = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let mut answers = reflection.server_reflection_info(trusted(tokio_stream::once(asked))).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&RELAY), "{names:?}");
}

/// A signal of bob's, as another server relays it.
fn signal(id: u64, to: &str) -> Item {
    let frame = json!({"type": "signal", "from": "bob", "body": id}).to_string().into_bytes().into();
    let recipients = vec![to.to_owned()];
    Item { id, sender: "bob".to_owned(), frame, recipients, sent_at_ms: unix_ms(), ..Item::default() }
}

#[tokio::test]
async fn items_are_answered_in_ranges_to_who_reads_them_and_one_by_one_to_who_does_not() {
    let cluster = Cluster::of(1).await;
    let mut alice = Client::connect(cluster.server(1), "alice").await;
    for reads_ranges in [false, true] {
        let to = ["alice", "alice", "nobody", "alice", "nobody"];
        let items = (1..).zip(to).map(|(id, to)| signal(id, to)).collect();
        let responses = relay::say(&cluster, items, reads_ranges).await;
        let ranges: Vec<_> = responses.iter().flat_map(|response| response.queued.clone()).collect();
        let answers: Vec<_> = responses.into_iter().flat_map(|response| response.answers).collect();
        let queued = |id| Answer { id, ..Answer::default() };
        let not_here = |id| Answer { id, not_here: vec![0], ..Answer::default() };
        if reads_ranges {
            assert_eq!(ranges, [Range { first: 1, count: 2 }, Range { first: 4, count: 1 }]);
            assert_eq!(answers, [not_here(3), not_here(5)]);
        } else {
            assert_eq!(ranges, []);
            assert_eq!(answers, [queued(1), queued(2), not_here(3), queued(4), not_here(5)]);
        }
        for id in [1, 2, 4] {
            assert_eq!(alice.expect("signal").await["body"], id);
        }
    }
}
