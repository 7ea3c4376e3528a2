//! The task of one peer: connects, listens to the answers, and tries again.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::backoff::{Backoff, LONGEST};
use super::encode::BatchCodec;
use super::item::Returned;
use super::link::{Attempt, Link, Outgoing};
use super::report::Reports;
use super::stats::PeerStats;
use super::{Heard, Options};
use crate::wire;

/// The method of the service that takes a stream, as gRPC names it.
const RELAY_MESSAGE: &str = "/minichat.relay.v1.Relay/RelayMessage";

/// How often a queue is looked through for what has grown too old.
const SWEEP: Duration = Duration::from_millis(250);

/// How often where it was empty at the last look: with many servers most are, and looking costs.
const SWEEP_EMPTY: Duration = Duration::from_secs(1);

/// How long a stop waits for what is queued to be sent and answered.
const FLUSH: Duration = Duration::from_secs(1);

/// What all peers have in common.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) stats: Arc<PeerStats>,
    pub(super) stop: CancellationToken,
    reports: Reports,
    /// None if the secret cannot be a header; then every server will refuse.
    bearer: Option<MetadataValue<Ascii>>,
}

impl Shared {
    pub(super) fn new(options: Options, reports: mpsc::Sender<Heard>, stop: CancellationToken) -> Self {
        let stats = Arc::new(PeerStats::default());
        let reports = Reports::new(reports, stats.clone(), stop.clone());
        let bearer = bearer(&options.secret);
        Self { options, stats, stop, reports, bearer }
    }
}

fn bearer(secret: &str) -> Option<MetadataValue<Ascii>> {
    let Ok(mut value) = MetadataValue::try_from(format!("Bearer {secret}")) else {
        tracing::error!("the cluster secret has characters that no header can carry; no server will accept this one");
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

/// How an attempt ended.
enum End {
    /// The server is another run now, or has another address.
    Superseded,
    /// It was refused, never came up, or broke.
    Failed(Status),
}

/// What a peer remembers from one attempt to the next.
#[derive(Default)]
struct Past {
    backoff: Backoff,
    /// What was logged last, so that a lasting failure is logged once.
    logged: Option<Code>,
    /// The reader of the reports knows that the server is lost.
    lost: bool,
}

impl Past {
    /// A stream was up since then. One that broke at once is no reason to try again soon.
    fn was_up(&mut self, since: Instant) {
        (self.lost, self.logged) = (false, None);
        if since.elapsed() > LONGEST {
            self.backoff.reset();
        }
    }
}

/// The task of one peer.
pub(super) struct Task {
    link: Arc<Link>,
    shared: Arc<Shared>,
}

impl Task {
    pub(super) fn new(link: Arc<Link>, shared: Arc<Shared>) -> Self {
        Self { link, shared }
    }

    /// Runs until the server is gone from the cluster or all stops.
    pub(super) async fn run(self) {
        let mut streams = pin!(self.keep_a_stream());
        tokio::select! {
            biased;
            // The stop first, so that no attempt is begun after it but the last.
            () = self.shared.stop.cancelled() => {
                self.link.finish();
                // What is not sent by then is in the store.
                let _ = timeout(FLUSH, streams).await;
            }
            // Before the streams: what is too old should not be sent.
            never = self.sweep() => match never {},
            () = &mut streams => {}
        }
    }

    async fn sweep(&self) -> Infallible {
        loop {
            let is_empty = self.link.expire();
            sleep(if is_empty { SWEEP_EMPTY } else { SWEEP }).await;
        }
    }

    /// Ends when the server is gone, or when all stops: with nothing left to send, or at the first failure.
    async fn keep_a_stream(&self) {
        let mut past = Past::default();
        loop {
            // Asked before the items are returned, so that the last of them are, too.
            let over = self.link.is_over();
            self.return_homeless().await;
            if over {
                return;
            }
            match self.attempt(&mut past).await {
                End::Superseded => past.backoff.reset(),
                End::Failed(_) if self.link.is_finishing() => return,
                End::Failed(status) => self.pause(&mut past, status.code()).await,
            }
        }
    }

    async fn return_homeless(&self) {
        let homeless = self.link.take_homeless().into_iter();
        let returned = homeless.map(|item| Returned { users: item.recipients.clone(), item, here: false }).collect();
        self.shared.reports.returned(&self.link.server, returned).await;
    }

    async fn attempt(&self, past: &mut Past) -> End {
        let attempt = self.link.begin();
        let mut up = None;
        let end = tokio::select! {
            biased;
            // First, so that not one more answer is taken from a server that is not meant any more.
            () = self.link.superseded(attempt.stream) => End::Superseded,
            status = self.converse(&attempt, &mut up) => End::Failed(status),
        };
        self.link.broke(attempt.stream);
        if let Some(since) = up {
            past.was_up(since);
        }
        if let End::Failed(status) = &end
            && !self.link.is_finishing()
        {
            self.log(&attempt, status, up.is_some(), past);
        }
        let refused = matches!(&end, End::Failed(status) if status.code() == Code::FailedPrecondition);
        if (up.is_some() || refused) && !past.lost {
            past.lost = true;
            self.shared.reports.certainly(Heard::Lost { server: self.link.server.clone() }).await;
        }
        end
    }

    async fn pause(&self, past: &mut Past, code: Code) {
        if matches!(code, Code::FailedPrecondition | Code::Unauthenticated) {
            past.backoff.slow_down();
        }
        // Either will do; a newer view of the cluster cuts the wait short.
        tokio::select! {
            () = self.link.changed() => past.backoff.reset(),
            () = sleep(past.backoff.next()) => {}
        }
    }

    /// Talks until the stream ends, and says why it did.
    async fn converse(&self, attempt: &Attempt, up: &mut Option<Instant>) -> Status {
        let hello = timeout(2 * self.shared.options.connect_timeout, self.connect(attempt)).await;
        // The client is kept for as long as its stream.
        let (_client, mut answers) = match hello {
            Err(_) => return Status::deadline_exceeded("it does not answer"),
            Ok(Err(status)) => return status,
            Ok(Ok(opened)) => opened,
        };
        if !self.link.open(attempt.stream) {
            return Status::cancelled("it is not meant any more");
        }
        *up = Some(Instant::now());
        tracing::info!(server = %self.link.server, boot = %attempt.target.boot, "Connected to a peer");
        let connected = Heard::Connected { server: self.link.server.clone(), boot: attempt.target.boot };
        self.shared.reports.certainly(connected).await;
        loop {
            match answers.message().await {
                Ok(Some(response)) => self.hear(response).await,
                Ok(None) => return Status::unavailable("it ended the stream"),
                Err(status) => return status,
            }
        }
    }

    /// Opens a stream on a channel of its own, so that a changed DNS answer is seen.
    async fn connect(&self, attempt: &Attempt) -> Result<(Grpc<Channel>, Streaming<wire::RelayResponse>), Status> {
        let endpoint = self.endpoint(&attempt.target.address).map_err(unavailable)?;
        let mut client = Grpc::new(endpoint.connect().await.map_err(unavailable)?);
        client.ready().await.map_err(unavailable)?;
        let hello = Some(self.hello(attempt));
        let mut request = Request::new(Outgoing { link: self.link.clone(), stream: attempt.stream, hello });
        if let Some(bearer) = &self.shared.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        let method = PathAndQuery::from_static(RELAY_MESSAGE);
        let answers = client.streaming(request, method, BatchCodec).await?.into_inner();
        Ok((client, answers))
    }

    fn endpoint(&self, address: &str) -> Result<Endpoint, tonic::transport::Error> {
        let options = &self.shared.options;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(options.keep_alive)
            .keep_alive_timeout(options.keep_alive_timeout)
            .keep_alive_while_idle(true);
        Ok(endpoint)
    }

    fn hello(&self, attempt: &Attempt) -> wire::Hello {
        let options = &self.shared.options;
        wire::Hello {
            from: options.own.to_string(),
            from_boot: options.boot.0,
            to: self.link.server.to_string(),
            to_boot: attempt.target.boot.0,
            version: options.version.clone(),
            reads_ranges: true,
        }
    }

    async fn hear(&self, response: wire::RelayResponse) {
        let returned = self.link.answer(response);
        self.shared.reports.returned(&self.link.server, returned).await;
    }

    fn log(&self, attempt: &Attempt, status: &Status, up: bool, past: &mut Past) {
        let (server, address) = (&self.link.server, &attempt.target.address);
        let why = status.message();
        let repeated = past.logged.replace(status.code()) == Some(status.code());
        match status.code() {
            _ if repeated => tracing::debug!(%server, address, why, "A peer still cannot be reached"),
            Code::Unauthenticated => tracing::error!(%server, address, "A peer refuses us: the cluster secrets differ"),
            Code::FailedPrecondition => tracing::warn!(%server, address, why, "Another server answers for a peer"),
            _ if up => tracing::warn!(%server, address, why, "The stream to a peer broke"),
            _ => tracing::warn!(%server, address, why, "A peer cannot be reached"),
        }
    }
}

/// A transport error with its causes, which its own text leaves out.
fn unavailable(error: tonic::transport::Error) -> Status {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Status::unavailable(text)
}
