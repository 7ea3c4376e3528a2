//! One stream to each other server, and one from each.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Once, Stream};
use minichat::wire::relay_client::RelayClient;
use minichat::wire::relay_server::{Relay, RelayServer};
use minichat::wire::{Hello, Item, RelayRequest, RelayResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::server::Server;
use crate::sockets::MESSAGE_LIMIT;

/// The most items that travel as one message.
const BATCH: usize = 256;

/// The longest message of a stream, in bytes: as many of the longest frames, and what is around them.
const LONGEST: usize = BATCH * 2 * MESSAGE_LIMIT;

/// How long another server may take to be there, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Tells another server what queues for it. Ends only with an error: when it cannot be reached, or its stream has ended.
pub(crate) async fn speak(own: SocketAddr, to: SocketAddr, items: mpsc::Receiver<Item>) -> anyhow::Result<()> {
    let mut client = RelayClient::new(reach(to).await?);
    let hello = Some(Hello { from: own.to_string(), to: to.to_string(), ..Hello::default() });
    let response = client.relay_message(Outgoing { hello, items }).await;
    let mut answers = response.map_err(|status| anyhow!("{to} refuses the stream: {}", status.message()))?.into_inner();
    println!("Connected to a peer: {to}");
    // Nothing comes back. What is waited for is the end.
    let _ = answers.message().await;
    bail!("the stream to {to} has ended")
}

async fn reach(to: SocketAddr) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{to}"))?.connect_timeout(PATIENCE).tcp_nodelay(true);
    let begin = Instant::now();
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) if begin.elapsed() > PATIENCE => {
                return Err(error).with_context(|| format!("cannot reach {to}"));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// The hello, then whatever has queued.
struct Outgoing {
    hello: Option<Hello>,
    items: mpsc::Receiver<Item>,
}

impl Stream for Outgoing {
    type Item = RelayRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RelayRequest>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(RelayRequest { hello: Some(hello), ..RelayRequest::default() }));
        }
        let mut items = Vec::with_capacity(self.items.len().min(BATCH));
        let count = ready!(self.items.poll_recv_many(context, &mut items, BATCH));
        Poll::Ready((count > 0).then_some(RelayRequest { items, ..RelayRequest::default() }))
    }
}

/// Takes the streams of the other servers.
pub(crate) async fn listen(listener: TcpListener, server: Arc<Server>) -> anyhow::Result<()> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let relay = RelayServer::new(Ears { server }).max_decoding_message_size(LONGEST);
    let serving = tonic::transport::Server::builder().add_service(relay).serve_with_incoming(incoming);
    serving.await.context("cannot serve the other servers")
}

#[derive(Debug)]
struct Ears {
    server: Arc<Server>,
}

#[tonic::async_trait]
impl Relay for Ears {
    /// Nothing is answered: it is there for its end, and has the stream of the other server read meanwhile.
    type RelayMessageStream = Once<BoxFuture<'static, Result<RelayResponse, Status>>>;

    async fn relay_message(
        &self,
        request: Request<Streaming<RelayRequest>>,
    ) -> Result<Response<Self::RelayMessageStream>, Status> {
        let mut requests = request.into_inner();
        let hello = requests.message().await?.and_then(|request| request.hello);
        let from = hello.ok_or_else(|| Status::invalid_argument("hello first"))?.from;
        let peer = self.server.peer_at(&from);
        let peer = peer.ok_or_else(|| Status::failed_precondition(format!("{from} is none of its peers")))?;
        let taking = take_all(Arc::clone(&self.server), peer, requests);
        Ok(Response::new(stream::once(Box::pin(taking))))
    }
}

async fn take_all(
    server: Arc<Server>,
    peer: usize,
    mut requests: Streaming<RelayRequest>,
) -> Result<RelayResponse, Status> {
    while let Some(request) = requests.message().await? {
        request.items.iter().for_each(|item| server.take(peer, item));
    }
    Ok(RelayResponse::default())
}
