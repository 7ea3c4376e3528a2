//! A real Redis Sentinel, on a free port, killed when dropped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::redis::{Redis, free_port, temp_dir, wait};

/// A Sentinel that alone decides when its master is gone.
#[derive(Debug)]
pub(crate) struct Sentinel {
    child: Child,
    port: u16,
    /// Where it keeps what it knows.
    _home: TempDir,
}

impl Sentinel {
    /// Starts one that watches `master` under `name`, and waits until it knows the replica the master must have.
    pub(crate) fn watch(master: &Redis, name: &str) -> Self {
        let (port, home, at) = (free_port(), temp_dir(), master.addr());
        let file = home.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {name} {} {} 1\n\
             sentinel down-after-milliseconds {name} 5000\nsentinel failover-timeout {name} 5000\n",
            home.path().display(),
            at.ip(),
            at.port()
        );
        std::fs::write(&file, text).expect("a temporary file");
        let sentinel = Self { child: spawn(&file), port, _home: home };
        wait("the Sentinel to know the replica", || sentinel.cli(&["SENTINEL", "replicas", name]).contains("runid"));
        sentinel
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output();
        String::from_utf8(output.expect("redis-cli").stdout).expect("text")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(file: &PathBuf) -> Child {
    let mut command = Command::new("redis-server");
    command.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("install redis-server to run this test ({error})"))
}
