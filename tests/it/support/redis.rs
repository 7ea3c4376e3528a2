//! Real Redis: a process of its own on a free port, without persistence, killed when dropped.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use tempfile::TempDir;

/// How long a Redis may take to start.
const STARTING: Duration = Duration::from_secs(20);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often another port is tried when the first was taken meanwhile.
const TRIES: usize = 50;

/// The password of a Redis that has one.
pub(crate) const PASSWORD: &str = "sesame-open";

/// One Redis on its own.
#[derive(Debug)]
pub(crate) struct Redis {
    program: String,
    child: Child,
    port: u16,
    extra: Vec<String>,
    tls: Option<Tls>,
    /// Where it would write, and where its certificates are.
    home: TempDir,
}

/// The certificates of a Redis that speaks TLS.
#[derive(Debug, Clone)]
struct Tls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Redis {
    /// Starts a plain one, without password. The variable `TEST_REDIS_SERVER` names another program that speaks the
    /// same, such as `valkey-server`.
    pub(crate) fn start() -> Self {
        let program = std::env::var("TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        Self::start_with(&program, Vec::new(), None, temp_dir())
    }

    /// Starts one that speaks TLS only and asks for [`PASSWORD`]; its CA is at [`ca_file`](Self::ca_file).
    pub(crate) fn start_tls() -> Self {
        let home = temp_dir();
        let tls = Tls::make(home.path());
        let extra = ["--requirepass", PASSWORD].map(str::to_owned).to_vec();
        Self::start_with("redis-server", extra, Some(tls), home)
    }

    fn start_with(program: &str, extra: Vec<String>, tls: Option<Tls>, home: TempDir) -> Self {
        let port = free_port();
        let child = spawn(program, port, &extra, tls.as_ref(), home.path());
        let mut redis = Self { program: program.to_owned(), child, port, extra, tls, home };
        for _ in 0..TRIES {
            if redis.comes_up() {
                return redis;
            }
            redis.port = free_port();
            redis.spawn_again();
        }
        panic!("{program} did not start on any of {TRIES} ports");
    }

    /// The URL of it, with the password.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// The URL to reach it by another address, such as that of a proxy.
    pub(crate) fn url_at(&self, addr: SocketAddr) -> String {
        match self.tls {
            Some(_) => format!("rediss://:{PASSWORD}@{addr}"),
            None => format!("redis://{addr}"),
        }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The certificates to trust, if it speaks TLS.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        self.tls.as_ref().map(|tls| tls.ca.clone())
    }

    /// What `redis-cli` answers, without the last line end. Blocks, for ever if the Redis is paused.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some(tls) = &self.tls {
            command.args(["--no-auth-warning", "-a", PASSWORD, "--tls", "--cacert"]).arg(&tls.ca);
        }
        let Output { stdout, .. } = run(command.args(arguments));
        String::from_utf8(stdout).expect("text").trim_end_matches('\n').to_owned()
    }

    /// How many calls of a command it has answered since it started.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.stat(command, "calls")
    }

    /// How many calls of a command it has turned away, such as those for keys of another node.
    pub(crate) fn rejected(&self, command: &str) -> u64 {
        self.stat(command, "rejected_calls")
    }

    fn stat(&self, command: &str, field: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let found =
            line.and_then(|line| line.trim().split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('=')));
        found.map_or(0, |count| count.parse().expect("a number"))
    }

    /// Stops it in its tracks; connections stay open and silent.
    pub(crate) fn pause(&self) {
        signal(&self.child, "-STOP");
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        signal(&self.child, "-CONT");
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Has it write down what is in it; a later [`start_again`](Self::start_again) begins with that.
    pub(crate) fn save(&self) {
        assert_eq!(self.cli(&["SAVE"]), "OK");
    }

    /// Starts it again at the same address, with nothing in it.
    pub(crate) fn restart_empty(&mut self) {
        // There is a file only where it was asked to save.
        let _ = std::fs::remove_file(self.home.path().join("dump.rdb"));
        self.start_again();
    }

    /// Starts it again at the same address, with what it had when it saved last.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        for _ in 0..TRIES {
            self.spawn_again();
            if self.comes_up() {
                return;
            }
            // Someone has the port for a moment, as the near end of a connection.
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("{} did not start again on port {}", self.program, self.port);
    }

    /// Makes this node of a Cluster and another known to each other.
    fn meet(&self, other: &Self) {
        let (port, bus) = (other.port.to_string(), &other.extra[1]);
        assert_eq!(self.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]), "OK");
    }

    fn spawn_again(&mut self) {
        self.child = spawn(&self.program, self.port, &self.extra, self.tls.as_ref(), self.home.path());
    }

    /// Waits until it answers, and it is the one that answers; false when it has ended instead, as it does when its
    /// port is taken.
    fn comes_up(&mut self) -> bool {
        let pid = format!("process_id:{}", self.child.id());
        let mut ended = false;
        wait("Redis to start", || {
            ended = self.child.try_wait().expect("a child of ours").is_some();
            ended || self.cli(&["INFO", "server"]).contains(&pid)
        });
        !ended
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Redis Cluster of three masters.
#[derive(Debug)]
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<Redis>,
    /// Certificates that all nodes share.
    certificates: Option<TempDir>,
}

impl RedisCluster {
    /// Starts one, and waits until it serves all slots.
    pub(crate) fn start() -> Self {
        Self { nodes: (0..3).map(|_| Self::node(None)).collect(), certificates: None }.joined()
    }

    /// Starts one that speaks TLS only, among its nodes as well, and asks for [`PASSWORD`].
    pub(crate) fn start_tls() -> Self {
        let home = temp_dir();
        let tls = Tls::make(home.path());
        let nodes = (0..3).map(|_| Self::node(Some(tls.clone()))).collect();
        Self { nodes, certificates: Some(home) }.joined()
    }

    /// The URL of it: all its nodes.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        match self.certificates {
            Some(_) => format!("rediss+cluster://:{PASSWORD}@{}", nodes.join(",")),
            None => format!("redis+cluster://{}", nodes.join(",")),
        }
    }

    /// Adds a replica of a master, and waits until it has caught up.
    pub(crate) fn add_replica(&self, master: usize) -> Redis {
        let (replica, master) = (Self::node(None), &self.nodes[master]);
        master.meet(&replica);
        let id = master.cli(&["CLUSTER", "MYID"]);
        wait("a replica", || replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK");
        wait("the replica to catch up", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
        replica
    }

    /// What `redis-cli` answers when it follows redirections.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        self.nodes[0].cli(&[&["-c"], arguments].concat())
    }

    fn node(tls: Option<Tls>) -> Redis {
        let bus = free_port().to_string();
        // A node must not stop serving because the machine is busy.
        let mut extra = vec!["--cluster-port", &bus, "--cluster-enabled", "yes", "--cluster-node-timeout", "15000"];
        if tls.is_some() {
            extra.extend(["--tls-cluster", "yes", "--requirepass", PASSWORD]);
        }
        let extra = extra.into_iter().map(str::to_owned).collect();
        Redis::start_with("redis-server", extra, tls, temp_dir())
    }

    /// Shares out the slots and makes the nodes known to each other.
    fn joined(self) -> Self {
        for (node, (first, last)) in self.nodes.iter().zip([(0, 5460), (5461, 10922), (10923, 16383)]) {
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for node in &self.nodes[1..] {
            node.meet(&self.nodes[0]);
        }
        let whole = |node: &Redis| {
            let info = node.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        wait("the Redis Cluster to come together", || self.nodes.iter().all(whole));
        self
    }
}

impl Tls {
    /// A CA of its own and a certificate for the loopback, in files.
    fn make(home: &Path) -> Self {
        let ca_key = rcgen::KeyPair::generate().expect("a key");
        let mut ca = rcgen::CertificateParams::new([]).expect("parameters");
        // Without a name of its own, OpenSSL takes the certificate for one that signed itself.
        ca.distinguished_name.push(rcgen::DnType::CommonName, "CA of a test");
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).expect("a CA").pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let cert = rcgen::CertificateParams::new(names).expect("parameters").signed_by(&key, &issuer).expect("signed");
        let tls = Self { ca: home.join("ca.pem"), cert: home.join("cert.pem"), key: home.join("key.pem") };
        let files = [(&tls.ca, ca_pem), (&tls.cert, cert.pem()), (&tls.key, key.serialize_pem())];
        for (path, text) in files {
            std::fs::write(path, text).expect("a temporary file");
        }
        tls
    }
}

fn spawn(program: &str, port: u16, extra: &[String], tls: Option<&Tls>, home: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(home).args(extra);
    match tls {
        Some(Tls { ca, cert, key }) => {
            command.args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
            command.arg("--tls-ca-cert-file").arg(ca).arg("--tls-cert-file").arg(cert).arg("--tls-key-file").arg(key);
        }
        None => {
            command.args(["--port", &port.to_string()]);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("install {program} to run this test ({error})"))
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("install redis-cli to run this test ({error})"))
}

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(status.success(), "kill {signal}");
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

/// A port nobody listens on, below those that the kernel gives to outgoing connections.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::rng().random_range(10_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn temp_dir() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + STARTING;
    while !done() {
        assert!(Instant::now() < deadline, "gave up waiting for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
