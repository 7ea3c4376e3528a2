//! The other end of a stream: a real gRPC server that notes what it hears and answers as told, and a TCP proxy that can
//! turn into a black hole.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use minichat::ids::{BootId, ServerId};
use minichat::registry::ServerRow;
use minichat::wire::relay_server::{Relay, RelayServer};
use minichat::wire::{Answer, Hello, Item, Range, RelayRequest, RelayResponse, Status as Said};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

pub(crate) const SECRET: &str = "the secret of the tests";

type Policy = Box<dyn FnMut(&Item) -> Vec<Answer> + Send>;

/// A server that answers on a free port until it is dropped.
pub(crate) struct FakeRelay {
    pub(crate) id: ServerId,
    pub(crate) boot: BootId,
    pub(crate) address: SocketAddr,
    ears: Arc<Ears>,
    task: JoinHandle<()>,
}

struct Ears {
    id: ServerId,
    boot: BootId,
    /// The requests of each stream that was accepted.
    streams: Mutex<Vec<Vec<RelayRequest>>>,
    refusals: Mutex<usize>,
    policy: Mutex<Policy>,
    /// Whether what was delivered is said in ranges.
    in_ranges: AtomicBool,
    /// Whether hellos are answered.
    admits: watch::Sender<bool>,
    /// Whether requests are read once the hello was answered.
    reads: watch::Sender<bool>,
    /// Counts up to break all streams.
    cuts: watch::Sender<u32>,
}

impl FakeRelay {
    /// Answers every item as delivered.
    pub(crate) async fn start(id: &str, boot: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (id, boot) = (id.parse::<ServerId>().unwrap(), BootId(boot));
        let ears = Arc::new(Ears {
            id: id.clone(),
            boot,
            streams: Mutex::default(),
            refusals: Mutex::default(),
            policy: Mutex::new(Box::new(|item| vec![delivered(item)])),
            in_ranges: AtomicBool::new(false),
            admits: watch::Sender::new(true),
            reads: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
        });
        let service = RelayServer::new(Service(ears.clone()));
        let incoming = TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
        let task = tokio::spawn(async move { server.await.unwrap() });
        Self { id, boot, address, ears, task }
    }

    pub(crate) fn row(&self) -> ServerRow {
        self.row_at(self.address)
    }

    pub(crate) fn row_at(&self, address: SocketAddr) -> ServerRow {
        let (id, boot) = (self.id.clone(), self.boot);
        ServerRow { id, boot, relay: address.to_string(), draining: false, version: "0".into() }
    }

    /// From now on items are answered like this.
    pub(crate) fn answer(&self, policy: impl FnMut(&Item) -> Vec<Answer> + Send + 'static) {
        *self.ears.policy.lock().unwrap() = Box::new(policy);
    }

    /// From now on what was delivered is said in ranges.
    pub(crate) fn answer_in_ranges(&self) {
        self.ears.in_ranges.store(true, Relaxed);
    }

    /// Whether hellos are answered, or left waiting.
    pub(crate) fn admit(&self, admits: bool) {
        self.ears.admits.send_replace(admits);
    }

    /// Whether requests are read.
    pub(crate) fn read(&self, reads: bool) {
        self.ears.reads.send_replace(reads);
    }

    /// Breaks all streams.
    pub(crate) fn cut(&self) {
        self.ears.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn refusals(&self) -> usize {
        *self.ears.refusals.lock().unwrap()
    }

    /// The requests of each accepted stream, the hello included.
    pub(crate) fn streams(&self) -> Vec<Vec<RelayRequest>> {
        self.ears.streams.lock().unwrap().clone()
    }

    /// The items of all streams, in order.
    pub(crate) fn items(&self) -> Vec<Item> {
        self.streams().into_iter().flatten().flat_map(|request| request.items).collect()
    }

    /// The places in the log of the items of one stream.
    pub(crate) fn seqs(&self, stream: usize) -> Vec<u64> {
        let requests = self.streams().into_iter().nth(stream).unwrap_or_default();
        requests.into_iter().flat_map(|request| request.items).map(|item| item.seq).collect()
    }

    /// The latest status said on one stream.
    pub(crate) fn said(&self, stream: usize) -> Option<Said> {
        self.streams().into_iter().nth(stream)?.into_iter().filter_map(|request| request.status).next_back()
    }
}

impl Drop for FakeRelay {
    fn drop(&mut self) {
        self.cut();
        self.task.abort();
    }
}

pub(crate) fn delivered(item: &Item) -> Answer {
    queued(item.id)
}

fn queued(id: u64) -> Answer {
    Answer { id, ..Answer::default() }
}

/// Ids that follow each other, as ranges.
fn ranges(ids: impl Iterator<Item = u64>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(range) if range.first + u64::from(range.count) == id => range.count += 1,
            _ => ranges.push(Range { first: id, count: 1 }),
        }
    }
    ranges
}

struct Service(Arc<Ears>);

#[tonic::async_trait]
impl Relay for Service {
    type RelayMessageStream = ReceiverStream<Result<RelayResponse, Status>>;

    async fn relay_message(
        &self,
        request: Request<Streaming<RelayRequest>>,
    ) -> Result<Response<Self::RelayMessageStream>, Status> {
        let bearer = request.metadata().get("authorization").cloned();
        if bearer.is_none_or(|bearer| bearer != format!("Bearer {SECRET}")) {
            *self.0.refusals.lock().unwrap() += 1;
            return Err(Status::unauthenticated("wrong secret"));
        }
        let mut requests = request.into_inner();
        let first = requests.message().await?.unwrap_or_default();
        self.0.check(&first)?;
        self.0.admits.subscribe().wait_for(|admits| *admits).await.unwrap();
        let (answers, stream) = mpsc::channel(16);
        tokio::spawn(self.0.clone().listen(first, requests, answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Ears {
    fn check(&self, first: &RelayRequest) -> Result<(), Status> {
        let alone = RelayRequest { hello: first.hello.clone(), ..Default::default() };
        assert_eq!(first, &alone, "the hello comes alone");
        let Some(Hello { to, to_boot, .. }) = &first.hello else { panic!("the hello comes first") };
        if to != self.id.as_str() || *to_boot != self.boot.0 {
            *self.refusals.lock().unwrap() += 1;
            return Err(Status::failed_precondition("another server"));
        }
        Ok(())
    }

    async fn listen(
        self: Arc<Self>,
        first: RelayRequest,
        mut requests: Streaming<RelayRequest>,
        answers: mpsc::Sender<Result<RelayResponse, Status>>,
    ) {
        let stream = {
            let mut streams = self.streams.lock().unwrap();
            streams.push(vec![first]);
            streams.len() - 1
        };
        let (mut cuts, mut reads) = (self.cuts.subscribe(), self.reads.subscribe());
        loop {
            tokio::select! {
                _ = cuts.changed() => {
                    let _ = answers.send(Err(Status::unavailable("cut"))).await;
                    return;
                }
                request = async { let _ = reads.wait_for(|reads| *reads).await; requests.message().await } => {
                    let Ok(Some(request)) = request else { return };
                    let response = self.hear(stream, request);
                    if response != RelayResponse::default() {
                        let _ = answers.send(Ok(response)).await;
                    }
                }
            }
        }
    }

    fn hear(&self, stream: usize, request: RelayRequest) -> RelayResponse {
        let mut policy = self.policy.lock().unwrap();
        let answers: Vec<_> = request.items.iter().flat_map(&mut **policy).collect();
        self.streams.lock().unwrap()[stream].push(request);
        let in_ranges = self.in_ranges.load(Relaxed);
        let (queued, answers): (Vec<_>, _) =
            answers.into_iter().partition(|answer| in_ranges && *answer == queued(answer.id));
        RelayResponse { answers, queued: ranges(queued.iter().map(|answer| answer.id)), ..RelayResponse::default() }
    }
}

/// A way to a server that can swallow all that is sent, both ways, without closing anything.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = watch::Sender::new(true);
        let task = tokio::spawn(Self::accept(listener, upstream, open.clone()));
        Self { address, open, task }
    }

    /// Whether bytes pass.
    pub(crate) fn pass(&self, open: bool) {
        self.open.send_replace(open);
    }

    async fn accept(listener: TcpListener, upstream: SocketAddr, open: watch::Sender<bool>) {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(upstream).await.unwrap();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::spawn(Self::pump(from_client, to_server, open.subscribe()));
            tokio::spawn(Self::pump(from_server, to_client, open.subscribe()));
        }
    }

    async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if open.wait_for(|open| *open).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
