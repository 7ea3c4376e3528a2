//! A server that a test plays: what it says to a real one, and what it is answered.

use minichat::wire::relay_client::RelayClient;
use minichat::wire::{Hello, Item, RelayRequest, RelayResponse};
use tokio_stream::StreamExt;
use tonic::Request;

use super::cluster::{Cluster, SECRET};

/// Says this to `local1`, as a server that reads ranges of answers or does not, and takes what answers it all.
pub(crate) async fn say(cluster: &Cluster, items: Vec<Item>, reads_ranges: bool) -> Vec<RelayResponse> {
    let url = format!("http://{}", cluster.server(1).relay_addr());
    let boot = u64::from_str_radix(&cluster.boot(1).unwrap(), 16).unwrap();
    let (from, to) = ("local9".to_owned(), "local1".to_owned());
    let hello = Hello { from, from_boot: 1, to, to_boot: boot, version: "0".to_owned(), reads_ranges };
    let count = items.len();
    let requests = [
        RelayRequest { hello: Some(hello), ..RelayRequest::default() },
        RelayRequest { items, ..RelayRequest::default() },
    ];
    // The stream stays open until all is answered.
    let said = tokio_stream::iter(requests).chain(tokio_stream::pending());
    let mut request = Request::new(said);
    request.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().unwrap());
    let mut answers = RelayClient::connect(url).await.unwrap().relay_message(request).await.unwrap().into_inner();
    let mut responses = Vec::new();
    while responses.iter().map(answered).sum::<usize>() < count {
        responses.push(answers.message().await.unwrap().unwrap());
    }
    responses
}

/// How many items this answers.
fn answered(response: &RelayResponse) -> usize {
    let in_ranges: u32 = response.queued.iter().map(|range| range.count).sum();
    response.answers.len() + in_ranges as usize
}
