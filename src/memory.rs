//! The allocator: jemalloc, since what an idle connection costs is mostly memory, and since it gives free memory back.

use tikv_jemalloc_ctl::{Access, AsName};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How long memory that is free is kept for the next to use it, in ms.
const KEPT_MS: isize = 1_000;

/// For how long arenas keep free memory: those to come, and the one that there is.
const SETTINGS: [&[u8]; 2] = [b"arenas.dirty_decay_ms\0", b"arena.0.dirty_decay_ms\0"];

/// Has memory that is free for a second given back to the system, by a thread of the allocator. To be called before
/// there are other threads, since an arena takes the setting when it is made.
pub(crate) fn give_back_soon() {
    for setting in SETTINGS {
        if let Err(error) = setting.name().write(KEPT_MS) {
            tracing::warn!(%error, "free memory is given back late");
        }
    }
}
