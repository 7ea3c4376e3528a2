//! What the relay's port tells to tools: health and reflection, to bearers of the cluster secret.

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

use crate::support::cluster::{Cluster, SECRET};

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
