//! What everything runs on.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::memory;

/// How many tasks have their turn before a thread looks for what has come from outside. Tokio's 61 is for tasks that do
/// little; here a turn may write to a socket, and those who send a word wait behind those who are sent a lot.
const EVENT_INTERVAL: u32 = 16;

/// A runtime with a thread for each core; `TOKIO_WORKER_THREADS` says otherwise. To be made before there are other
/// threads.
///
/// # Errors
/// When the system gives no thread.
pub fn new() -> io::Result<Runtime> {
    memory::give_back_soon();
    Builder::new_multi_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}
