//! A TCP proxy that breaks the network on purpose.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where all proxies run: a test that blocks its own threads must not hold the network up.
static ROADS: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));

/// A proxy in front of one address. Dropping it closes all its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    accepting: JoinHandle<()>,
}

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Flow,
    Stall,
    BlackHole,
    Reset,
}

#[derive(Debug, Clone, Copy)]
struct Weather {
    mode: Mode,
    /// How long each chunk is held on its way.
    delay: Duration,
    /// How many times connections were forgotten: one that began before the last time is dead for good.
    holes: u64,
    /// How many times connections were reset.
    resets: u64,
}

impl Proxy {
    /// A proxy on a free port of the loopback that leads to `target`.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = ROADS.spawn(TcpListener::bind("127.0.0.1:0")).await.expect("no panic").expect("a free port");
        let addr = listener.local_addr().expect("a bound address");
        let calm = Weather { mode: Mode::Flow, delay: Duration::ZERO, holes: 0, resets: 0 };
        let (weather, seen) = watch::channel(calm);
        let accepting = ROADS.spawn(accept(listener, target, seen));
        Self { addr, weather, accepting }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Holds all bytes back; [`heal`](Self::heal) lets them go, none is lost.
    pub(crate) fn stall(&self) {
        self.weather.send_modify(|weather| weather.mode = Mode::Stall);
    }

    /// Swallows all bytes, as a firewall does that has forgotten its connections: those that are open now, or are
    /// opened meanwhile, stay open and dead even after [`heal`](Self::heal).
    pub(crate) fn black_hole(&self) {
        self.weather.send_modify(|weather| {
            weather.mode = Mode::BlackHole;
            weather.holes += 1;
        });
    }

    /// Resets all connections, and new ones until [`heal`](Self::heal).
    pub(crate) fn reset(&self) {
        self.weather.send_modify(|weather| {
            weather.mode = Mode::Reset;
            weather.resets += 1;
        });
    }

    /// Holds each chunk for so long on its way.
    pub(crate) fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Ends all trouble.
    pub(crate) fn heal(&self) {
        self.weather.send_modify(|weather| {
            weather.holes += u64::from(weather.mode == Mode::BlackHole);
            weather.mode = Mode::Flow;
            weather.delay = Duration::ZERO;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Connections end when the sender of the weather is gone.
async fn accept(listener: TcpListener, target: SocketAddr, weather: watch::Receiver<Weather>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, target, weather.clone()));
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, mut weather: watch::Receiver<Weather>) {
    let born = *weather.borrow_and_update();
    let reset = born.mode == Mode::Reset || pass(&mut client, target, weather, born).await;
    if reset {
        // Closing sends a reset then, not a polite end.
        let _ = client.set_zero_linger();
    }
}

/// Carries a connection until both ends have closed it, or answers true when it is to be reset.
async fn pass(client: &mut TcpStream, target: SocketAddr, weather: watch::Receiver<Weather>, born: Weather) -> bool {
    let Ok(mut server) = TcpStream::connect(target).await else { return true };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((client_in, client_out), (server_in, server_out)) = (client.split(), server.split());
    let there = pump(client_in, server_out, weather.clone(), born);
    let back = pump(server_in, client_out, weather.clone(), born);
    tokio::select! {
        _ = async { tokio::join!(there, back) } => false,
        () = was_reset(weather, born) => true,
    }
}

/// Carries one direction until it ends, and then ends it on the other side.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut weather: watch::Receiver<Weather>, born: Weather) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Ok(delay) = weather.wait_for(|now| now.mode != Mode::Stall).await.map(|now| now.delay) else { return };
        tokio::time::sleep(delay).await;
        let dead = weather.borrow().holes != born.holes || born.mode == Mode::BlackHole;
        if !dead && to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// Answers when the connection is to be reset, which it also is when the proxy is dropped.
async fn was_reset(mut weather: watch::Receiver<Weather>, born: Weather) {
    let _ = weather.wait_for(|now| now.resets != born.resets).await;
}
