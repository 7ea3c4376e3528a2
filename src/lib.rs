//! A chat server that scales out: a message goes to exactly the server that holds the recipient.
//!
//! A WebSocket lives in the memory of one server. The sender's server looks up which servers hold the recipients,
//! forwards the message to just those, and each pushes it to its own sessions:
//!
//! ```text
//! socket -> gateway -> router -> store: committed, has its place in the room's log
//!                        |-> feed -> sessions here -> their sockets
//!                        `-> registry: where are the others? -> peers ~~> relay -> feed -> sessions there
//! ```
//!
//! What is not acknowledged is found in the store by [`sweeper`]: it has sessions healed, and puts pushes for those who
//! are not there into the store, from where [`push`] takes them.
//!
//! The modules stand in rows, and each uses only rows before its own; ARCHITECTURE.md has the table and the reasons.
//! Three invariants follow from it:
//!
//! 1. A relayed message is never relayed again: [`relay`] has no router to do it with.
//! 2. Only [`protocol`] knows JSON frames, only [`peers`] and [`relay`] speak gRPC, only [`registry::redis`] knows Redis,
//!    only [`store`] knows SQL, only [`config`] reads the environment.
//! 3. A socket is written by one task; everyone else puts a frame into its outbox.

// In reading order: what things are called, what is said, who is where, what is kept, how a message travels.
pub mod clock;
pub mod config;
pub mod http;
pub mod ids;
pub mod lifecycle;
mod memory;
pub mod metrics;
pub mod runtime;
pub mod tls;
pub mod turns;

pub mod protocol;
pub mod wire;

pub mod auth;
pub mod peers;
pub mod registry;
pub mod sessions;
pub mod store;

pub mod claims;
pub mod push;
pub mod rooms;
pub mod worker;

pub mod cluster;
pub mod feed;

pub mod relay;
pub mod router;

pub mod admin;
pub mod gateway;
pub mod sweeper;

pub mod server;
