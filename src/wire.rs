//! The messages between servers, generated from `proto/relay.proto`.
#![allow(missing_docs, unreachable_pub, clippy::all)]

tonic::include_proto!("minichat.relay.v1");

/// The compiled description of the protocol, for gRPC reflection.
pub const DESCRIPTOR: &[u8] = tonic::include_file_descriptor_set!("relay_descriptor");
