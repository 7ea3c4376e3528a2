//! A load generator for minichat, for anything that speaks as much of its protocol as `broadcast` does, and for NATS.
//!
//! ```text
//! cargo run --release --example load -- direct --server 127.0.0.1:8081,127.0.0.1:8082 --pid local1=PID --pid local2=PID
//! ```
//!
//! One main thread says what happens when (`conductor`); a few others each poll their sockets (`worker`). A pair or a
//! room belongs to one thread, so that no thread waits for another. The generator's own cost is shown beside the
//! servers', as the process `load`.

// In reading order: what was asked for, what is planned, what is said on the wire, who does it, what is counted, how it is told.
mod args;
mod plan;

mod dialect;
mod mark;
mod ws;

mod control;
mod dialer;
mod receipts;
mod sequence;
mod serve;
mod socket;
mod ticker;
mod traffic;
mod worker;

mod conductor;
mod readings;
mod stats;

mod json;
mod report;
mod table;
mod view;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let args = args::Args::parse();
    args.check().unwrap_or_else(|error| error.exit());
    // Where fewer are allowed than are needed, connecting says so.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let outcome = conductor::run(&args)?;
    report::report(&args, outcome)
}
