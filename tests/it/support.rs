//! What tests stand on: real servers, real Redis, real PostgreSQL, and a client that is a small model of one.
#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod crowd;
pub(crate) mod google;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod target;
pub(crate) mod wait;
