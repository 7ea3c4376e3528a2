//! The public listener: bounded connections, bounded time to say what one wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::link::Link;
use crate::lifecycle::Lifecycle;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// How much the system buffers for one client. A client that does not read costs no more than that, and a slow one shows
/// its progress soon.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// How much of that may be waiting to be sent for the first time. What is on its way to a client counts apart, so this
/// does not slow a fast link; on a slow one it is what a pong may have to wait behind.
const UNSENT_BYTES: u32 = 16 * 1024;

/// How long a client may take to send its request, also after an earlier one on the same connection.
const HEADER_LIMIT: Duration = Duration::from_secs(10);

/// How long to wait when the system gives no connection: it has run out of something that others must give back.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Opens a listener. Up to 4,096 connections wait to be accepted; of what is written to one that was accepted the system
/// buffers up to 64 KiB, of which 16 KiB may be waiting to be sent for the first time.
///
/// # Errors
/// When the address cannot be had.
///
/// # Panics
/// Outside of a Tokio runtime.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves `routes` until the server must stop. At most `requests` connections are at their HTTP request at a time, and
/// the others wait to be accepted; a socket no longer counts.
pub async fn serve(listener: TcpListener, routes: Router, requests: usize, lifecycle: Lifecycle) {
    let requests = Arc::new(Semaphore::new(requests));
    let accept = async {
        loop {
            // The semaphore is never closed.
            let place = Arc::clone(&requests).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Boxed, or all of it would be moved some times on its way to the task.
                    let request = Box::pin(answer(stream, routes.clone(), lifecycle.clone()));
                    lifecycle.spawn("request", async move {
                        request.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection yet");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = lifecycle.stop.cancelled() => {}
    }
}

/// Answers the requests of one connection, up to its upgrade or its end.
async fn answer(stream: TcpStream, routes: Router, lifecycle: Lifecycle) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection was gone at once");
        return;
    }
    let (link, stream) = Link::new(stream);
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(link.clone());
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = lifecycle.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended with a fault");
    }
}
