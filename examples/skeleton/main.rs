//! The least that this stack needs to route a message: what a server costs before it checks, stores, finds out or proves
//! anything.
//!
//! It is here to be compared with, as a floor. Each server tells all others who comes to it and who leaves, and which
//! rooms are made, so each knows where everybody is. A signal goes as one item to each server that holds somebody for
//! whom it is, over one stream per ordered pair of servers, together with whatever else has queued for that server.
//! There is no registry, no store, no proof of who somebody is, and no answer to an item; when a stream ends, the
//! process does. It speaks as much of the protocol as the load generator needs for signals, and shares the frames, the
//! directory and the sockets of `examples/broadcast`, so that the two differ in how a message gets to another server.
//!
//! All servers can be given the same list of peers; a server passes over itself.
//!
//! ```text
//! cargo run --release --example skeleton -- --listen 127.0.0.1:8081 --relay-listen 127.0.0.1:9081 \
//!     --peer 127.0.0.1:9081 --peer 127.0.0.1:9082
//! ```

mod bus;
#[path = "../broadcast/directory.rs"]
mod directory;
#[path = "../broadcast/frames.rs"]
#[expect(dead_code, reason = "nothing is stored here")]
mod frames;
mod places;
mod server;
#[path = "../broadcast/sockets.rs"]
mod sockets;
mod streams;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::routing::any;
use axum::serve::ListenerExt;
use clap::Parser;
use minichat::gateway::listener;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::server::Server;

/// How the process ends when it was called wrongly, as shells have it.
const USAGE: u8 = 2;

/// A chat that sends a message to the servers that hold its recipients, and does nothing else.
#[derive(Debug, Parser)]
#[command(name = "skeleton")]
struct Args {
    /// Address and port for clients
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address and port for the other servers, by which they know this one
    #[arg(long, default_value = "127.0.0.1:9080")]
    relay_listen: SocketAddr,
    /// The relay address of another server; repeated
    #[arg(long = "peer", value_name = "PEER")]
    peers: Vec<SocketAddr>,
}

impl Args {
    /// The others, each once.
    fn others(&self) -> Vec<SocketAddr> {
        let mut others: Vec<_> = self.peers.iter().copied().filter(|peer| *peer != self.relay_listen).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => return fail(USAGE, error.to_string().lines().next().unwrap_or_default()),
    };
    match minichat::runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(run(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("{error:#}")),
    }
}

fn fail(code: u8, line: &str) -> ExitCode {
    eprintln!("skeleton: {}", line.trim_start_matches("error: "));
    ExitCode::from(code)
}

/// Runs until one of its parts fails.
async fn run(args: &Args) -> anyhow::Result<()> {
    let (server, waiting) = Server::among(&args.others());
    let server = Arc::new(server);
    // With the options of the server that this is compared with.
    let cannot_listen = |address: SocketAddr| move || format!("cannot listen on {address}");
    let clients = listener::bind(args.listen).with_context(cannot_listen(args.listen))?;
    let relay = TcpListener::bind(args.relay_listen).await.with_context(cannot_listen(args.relay_listen))?;
    println!("listening on {}", args.listen);
    let mut tasks = JoinSet::new();
    tasks.spawn(streams::listen(relay, Arc::clone(&server)));
    for (to, items) in waiting {
        tasks.spawn(streams::speak(args.relay_listen, to, items));
    }
    tasks.spawn(serve(clients, server));
    tasks.join_next().await.context("nothing runs")??
}

async fn serve(listener: TcpListener, server: Arc<Server>) -> anyhow::Result<()> {
    // What cannot be set does not matter: the connection is gone already.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    let routes = Router::new().route("/ws", any(sockets::open)).with_state(server);
    axum::serve(listener, routes).await.context("cannot serve clients")
}
