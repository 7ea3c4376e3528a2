//! What several of them need.

use std::sync::Arc;

use minichat::ids::SessionId;
use minichat::sessions::{Seat, Session, Sessions};
use minichat::store::{Options, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// More than any of them queues.
const QUEUE_BYTES: usize = 1 << 30;

/// A runtime as the server has it.
pub(crate) fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

/// A fresh SQLite database in a directory that must outlive it.
pub(crate) fn sqlite(runtime: &Runtime) -> (Store, TempDir) {
    let home = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", home.path().join("bench.db").display());
    (runtime.block_on(Store::open(&url, &Options::default())).expect("a database"), home)
}

/// So many users with a session each.
pub(crate) fn seats(sessions: &Sessions, count: usize) -> Vec<Seat> {
    let seat = |number: usize| {
        let user = format!("user-{number}").parse().expect("a user");
        let seat = sessions.seat(Session::new(SessionId(number as u64), user, None, false, QUEUE_BYTES));
        seat.entered();
        seat
    };
    (0..count).map(seat).collect()
}

/// Takes what has been queued, as the sessions' tasks do.
pub(crate) fn drain(seats: &[Seat]) {
    seats.iter().map(|seat| Arc::clone(&seat.session)).for_each(|session| drop(session.take()));
}

/// A body of 128 bytes.
pub(crate) fn body() -> String {
    format!("\"{}\"", "x".repeat(126))
}
