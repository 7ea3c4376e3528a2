//! The registry in a real Redis: what one round trip costs, and how much fits into it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::ItemsCount;
use minichat::ids::UserId;
use minichat::registry::redis::{Options, RedisRegistry};
use minichat::registry::{DEFAULT_LEASE, Registry, Truth};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::runtime;

/// How long Redis may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A Redis of our own, ended when it is dropped.
struct Redis {
    process: Child,
    port: u16,
    _home: TempDir,
}

impl Redis {
    fn start() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .current_dir(home.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: install it (on Debian: apt-get install redis-server)");
        let redis = Self { process, port, _home: home };
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        redis
    }

    fn connect(&self, runtime: &Runtime) -> (RedisRegistry, CancellationToken) {
        let (url, stop) = (format!("redis://127.0.0.1:{}", self.port), CancellationToken::new());
        let (own, tasks) = ("local1".parse().expect("an id"), TaskTracker::new());
        let connect = RedisRegistry::connect(&url, own, DEFAULT_LEASE, Options::default(), &tasks, stop.clone());
        (runtime.block_on(connect).expect("a connection"), stop)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn users(count: usize) -> Vec<UserId> {
    (0..count).map(|number| format!("user-{number}").parse().expect("a user")).collect()
}

fn claims(count: usize) -> Vec<Truth> {
    users(count).into_iter().map(|user| Truth { user, here: true, seen: true, fresh: false }).collect()
}

#[divan::bench(args = [1, 20, 200])]
fn claim(bencher: Bencher<'_, '_>, count: usize) {
    let (redis, runtime, truths) = (Redis::start(), runtime(), claims(count));
    let (registry, stop) = redis.connect(&runtime);
    bencher.counter(ItemsCount::new(count)).bench_local(|| runtime.block_on(registry.write(&truths)));
    stop.cancel();
}

#[divan::bench(args = [1, 20, 500])]
fn locate(bencher: Bencher<'_, '_>, count: usize) {
    let (redis, runtime, users) = (Redis::start(), runtime(), users(count));
    let (registry, stop) = redis.connect(&runtime);
    runtime.block_on(registry.write(&claims(count)));
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| runtime.block_on(registry.locate(&users)).expect("an answer"));
    stop.cancel();
}
