//! The parts of a message's way, each on its own.
//!
//! ```text
//! cargo bench                                     all of them
//! cargo bench -- feed                             those whose name has it
//! BENCH_POSTGRES=postgres://postgres@127.0.0.1/bench cargo bench -- commit
//! ```
//!
//! `registry` starts a redis-server of its own. `commit::postgres` writes into the database that is named, and is left
//! out where none is. What whole servers cost is measured by `benches/measure.py`.

mod codec;
mod commit;
mod fanout;
mod feed;
mod registry;
mod relay;
mod support;

fn main() {
    divan::main();
}
