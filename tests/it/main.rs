//! All integration tests, in one binary so that they link once.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "the bans are for the server")]

mod auth;
mod chaos;
mod cluster;
mod config;
mod peers;
mod protocol_doc;
mod push;
mod races;
mod registry;
mod store;
mod support;
mod wire;
