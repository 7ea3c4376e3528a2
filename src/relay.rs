//! The server side of the relay: takes what other servers have for users here, and answers for each of them.
//!
//! It can push to local sessions only. It has no router, so what was relayed is never relayed again.

mod age;
mod answers;
mod inbox;
mod probe;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use crate::ids::{BootId, ServerId};
use crate::lifecycle::Lifecycle;
use crate::wire;
use crate::wire::relay_server::{Relay, RelayServer};
use age::Ages;
use answers::Answers;
pub use inbox::Inbox;
pub use probe::Probe;

/// How many batches of answers may wait for a peer that does not read them. Then its items wait, too.
const ANSWER_QUEUE: usize = 64;

/// After so many recipients other tasks have their turn.
const STRETCH: usize = 256;

/// How long a server may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(5);

/// How often a silent connection is probed, and how long the probe may take.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What the service needs to know of this server.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its id.
    pub id: ServerId,
    /// The run of it.
    pub boot: BootId,
    /// What all servers of the cluster share.
    pub secret: Arc<str>,
}

#[derive(Debug)]
struct Service {
    identity: Identity,
    inbox: Inbox,
    lifecycle: Lifecycle,
}

/// Serves the relay, gRPC health and reflection until `end`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    identity: Identity,
    inbox: Inbox,
    lifecycle: Lifecycle,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<RelayServer<Service>>().await;
    let secret = Secret::new(&identity.secret);
    let end = lifecycle.end.clone();
    let relay = RelayServer::new(Service { identity, inbox, lifecycle });
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .add_service(InterceptedService::new(relay, secret.clone()))
        .add_service(InterceptedService::new(health_service, secret.clone()))
        .add_service(InterceptedService::new(reflection, secret))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), end.cancelled_owned())
        .await?;
    Ok(())
}

#[tonic::async_trait]
impl Relay for Service {
    type RelayMessageStream = ReceiverStream<Result<wire::RelayResponse, Status>>;

    async fn relay_message(
        &self,
        request: Request<Streaming<wire::RelayRequest>>,
    ) -> Result<Response<Self::RelayMessageStream>, Status> {
        let mut requests = request.into_inner();
        let peer = self.greet(&mut requests).await?;
        let (answers, stream) = mpsc::channel(ANSWER_QUEUE);
        let inbox = self.inbox.clone();
        let open = inbox.cluster.opened(&peer.id, peer.boot);
        let end = self.lifecycle.end.clone();
        self.lifecycle.spawn("relay stream", async move {
            let _open = open;
            tokio::select! {
                () = take_all(&inbox, &peer, requests, answers) => info!(server = %peer.id, "a server's stream has ended"),
                () = end.cancelled() => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// The server at the other end of a stream.
#[derive(Debug)]
struct Peer {
    id: ServerId,
    boot: BootId,
    /// It reads ranges of answers.
    reads_ranges: bool,
}

impl Service {
    /// Takes the hello that every stream begins with. Whoever means another server, or another run of this one, is
    /// refused: what it has is for users who may be elsewhere now.
    async fn greet(&self, requests: &mut Streaming<wire::RelayRequest>) -> Result<Peer, Status> {
        let first = tokio::time::timeout(HELLO_LIMIT, requests.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no hello in time"))??;
        let hello = first.and_then(|request| request.hello).ok_or_else(|| Status::invalid_argument("hello first"))?;
        let own = &self.identity;
        if hello.to != own.id.as_str() || BootId(hello.to_boot) != own.boot {
            let text = format!("this is {} in its run {}", own.id, own.boot);
            return Err(Status::failed_precondition(text));
        }
        let id = hello.from.parse().map_err(|error| Status::invalid_argument(format!("from: {error}")))?;
        info!(server = %id, version = hello.version, "a server has opened its stream");
        Ok(Peer { id, boot: BootId(hello.from_boot), reads_ranges: hello.reads_ranges })
    }
}

/// Takes what comes on one stream, in order, until it ends.
async fn take_all(
    inbox: &Inbox,
    peer: &Peer,
    mut requests: Streaming<wire::RelayRequest>,
    to_peer: mpsc::Sender<Result<wire::RelayResponse, Status>>,
) {
    let (mut ages, mut answers) = (Ages::default(), Answers::new(peer.reads_ranges));
    let mut ended = false;
    while !ended {
        let ready = tokio::select! {
            request = requests.message() => match request {
                Ok(Some(request)) => {
                    let recipients: usize = request.items.iter().map(|item| item.recipients.len()).sum();
                    inbox.take(peer, request, &mut ages, &mut answers);
                    if recipients > STRETCH {
                        yield_now().await;
                    }
                    answers.ready()
                }
                Ok(None) => {
                    ended = true;
                    answers.take()
                }
                Err(status) => {
                    warn!(server = %peer.id, why = status.message(), "a server's stream broke");
                    return;
                }
            },
            () = answers.due() => answers.take(),
        };
        if let Some(response) = ready
            && to_peer.send(Ok(response)).await.is_err()
        {
            return;
        }
    }
}

/// Lets bearers of the cluster secret in, and nobody else.
#[derive(Debug, Clone)]
struct Secret(Arc<str>);

impl Secret {
    fn new(secret: &str) -> Self {
        Self(format!("Bearer {secret}").into())
    }
}

impl Interceptor for Secret {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let shown = request.metadata().get("authorization").map(MetadataValue::as_bytes).unwrap_or_default();
        if same(shown, self.0.as_bytes()) {
            Ok(request)
        } else {
            Err(Status::unauthenticated("the cluster secret is missing or another"))
        }
    }
}

/// Compares in a time that does not tell how much was right.
fn same(shown: &[u8], secret: &[u8]) -> bool {
    let differences = shown.iter().zip(secret).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == secret.len() && std::hint::black_box(differences) == 0
}
