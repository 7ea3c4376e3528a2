//! What people write in place of routing: every message is published to all servers over Redis, and each server picks
//! what is for its own sockets.
//!
//! It is here to be compared with, so it is written as well as such a thing can be: small read buffers, one task per
//! socket and none per message, one connection that publishes what has gathered in one pipeline, messages encoded once.
//! It keeps nothing: no log, no members that outlive it, no proof of who somebody is. It speaks as much of the protocol
//! as the load generator needs.
//!
//! ```text
//! cargo run --release --example broadcast -- --listen 127.0.0.1:8081 --redis redis://127.0.0.1:6379
//! ```

mod bus;
mod directory;
mod frames;
mod sockets;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::routing::any;
use axum::serve::ListenerExt;
use clap::Parser;
use minichat::gateway::listener;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bus::{Post, Target};
use crate::directory::{Directory, Session};
use crate::frames::{Said, Says};

/// How long Redis may take to answer. The default is short for a machine that is being loaded on purpose.
const REDIS_LIMIT: Duration = Duration::from_secs(10);

/// A chat that sends every message to every server.
#[derive(Debug, Parser)]
struct Args {
    /// Address and port for clients
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The Redis of all servers
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    redis: String,
}

#[derive(Debug)]
struct Server {
    directory: Mutex<Directory>,
    posts: mpsc::Sender<Post>,
    next_id: AtomicU64,
}

impl Server {
    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Takes a socket in. Nobody else has to know, so there is nothing to wait for, here and when it leaves.
    async fn enter(&self, session: &Session) {
        self.directory().enter(session);
    }

    async fn leave(&self, session: &Session) {
        self.directory().leave(session);
    }

    /// Takes a frame. Answers what goes back at once.
    async fn accept(&self, session: &Session, text: &str) -> Option<String> {
        let refuse = |code, message| Some(Says::Error { code, message }.encode());
        let Ok(said) = serde_json::from_str::<Said<'_>>(text) else { return refuse("bad_frame", "not a frame") };
        let post = match (&*said.kind, said.body, said.cid, said.room, said.to) {
            ("hello", ..) => return Some(Says::Welcome { user: &session.user }.encode()),
            ("signal", Some(body), _, room, to) => {
                let frame = Says::Signal { room: room.as_deref(), from: &session.user, body }.encode();
                let Some(target) = target(room, to) else { return refuse("bad_field", "to whom?") };
                Post::Ready(target.envelope(&session.user, frame.into()))
            }
            ("send", Some(body), Some(cid), room, to) => {
                let Some(target) = target(room, to) else { return refuse("bad_field", "to whom?") };
                let room = bus::room_of(&target, &session.user);
                Post::Numbered { target, room, cid: cid.into(), body: body.to_owned(), from: session.clone() }
            }
            ("create", _, _, Some(room), _) => {
                let mut members = said.members.unwrap_or_default();
                members.push(session.user.to_string());
                Post::Create { room: room.into(), members, from: session.clone() }
            }
            _ => return refuse("unknown_type", "not here"),
        };
        // The publisher ends with the process.
        let _ = self.posts.send(post).await;
        None
    }
}

fn target(room: Option<Cow<'_, str>>, to: Option<Cow<'_, str>>) -> Option<Target> {
    // Lengths travel as one byte.
    let short = |name: &Cow<'_, str>| name.len() <= 255;
    match (room.filter(short), to.filter(short)) {
        (Some(room), None) => Some(Target::Room(room.into())),
        (None, Some(user)) => Some(Target::User(user.into())),
        _ => None,
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    minichat::runtime::new()?.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<()> {
    let tcp = TcpSettings::default().set_nodelay(true);
    let redis = redis::Client::open(args.redis.as_str().into_connection_info()?.set_tcp_settings(tcp))?;
    let mut messages = redis.get_async_pubsub().await.context("cannot reach Redis")?;
    messages.subscribe(bus::CHANNEL).await?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(REDIS_LIMIT));
    let publisher = redis.get_multiplexed_async_connection_with_config(&patient).await?;
    let (posts, posted) = mpsc::channel(bus::QUEUE);
    let server = Arc::new(Server { directory: Mutex::default(), posts, next_id: AtomicU64::new(0) });
    // With the options of the server that this is compared with.
    let listener = listener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    println!("listening on {}", listener.local_addr()?);
    // What cannot be set does not matter: the connection is gone already.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    let routes = Router::new().route("/ws", any(sockets::open)).with_state(Arc::clone(&server));
    let mut tasks = JoinSet::new();
    tasks.spawn(bus::publish(publisher, posted));
    tasks.spawn(bus::hear(messages, server));
    tasks.spawn(async move { axum::serve(listener, routes).await.context("cannot serve") });
    tasks.join_next().await.context("nothing runs")??
}
