//! The program itself, in a process and a directory of its own, killed when it is dropped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempDir;

use super::wait::eventually;

/// What a test does not say otherwise. A flag of the same name takes the place of its default.
const DEFAULTS: [(&str, &str); 3] =
    [("--listen", "127.0.0.1:0"), ("--admin-listen", "127.0.0.1:0"), ("--log", "info,minichat=debug")];

/// More than the greeting has.
const GREETING_BYTES: usize = 4096;

/// One running server.
#[derive(Debug)]
pub(crate) struct Server {
    flags: Vec<String>,
    process: Mutex<Child>,
    log: Log,
    greeting: String,
    /// Where its files are; they outlive a [`restart`](Self::restart).
    home: TempDir,
}

/// A server that did not come up.
#[derive(Debug)]
pub(crate) struct FailedStart {
    /// The last line on standard error, without the program's name.
    pub(crate) line: String,
    pub(crate) code: Option<i32>,
    /// All lines on standard error.
    pub(crate) log: Vec<String>,
}

/// The lines of standard error as they come.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

/// The signals that tests send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    Term,
    Int,
    Stop,
    Cont,
    Kill,
}

impl Server {
    /// Starts one on free ports, with a database file of its own unless the flags name another. Flags are written
    /// `--name=value`.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::try_start(flags).await.unwrap_or_else(|failed| panic!("the server did not start: {failed:#?}"))
    }

    /// The same where it may fail.
    pub(crate) async fn try_start(flags: &[&str]) -> Result<Self, FailedStart> {
        Self::launch(flags.iter().map(|&flag| flag.to_owned()).collect(), tempfile::tempdir().expect("a directory"))
            .await
    }

    async fn launch(flags: Vec<String>, home: TempDir) -> Result<Self, FailedStart> {
        let mut process = command(&flags, home.path()).spawn().expect("the program runs");
        let log = Log::of(process.stderr.take().expect("it is piped"));
        let mut stdout = process.stdout.take().expect("it is piped");
        let read = tokio::task::spawn_blocking(move || {
            // The greeting is one write, short enough to come in one piece.
            let mut bytes = [0; GREETING_BYTES];
            let count = stdout.read(&mut bytes).unwrap_or(0);
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        });
        let greeting = read.await.expect("no panic");
        let server = Self { flags, process: Mutex::new(process), log, greeting, home };
        if server.greeting.is_empty() { Err(server.failure().await) } else { Ok(server) }
    }

    async fn failure(&self) -> FailedStart {
        let code = self.wait_exit().await;
        let log = self.log_lines();
        let line = log.last().cloned().unwrap_or_default();
        FailedStart { line: line.strip_prefix("minichat: ").unwrap_or(&line).to_owned(), code, log }
    }

    /// Kills it, if it still runs, and starts it again with the same flags and files; on other ports where the flags
    /// leave them free. The log begins anew.
    pub(crate) async fn restart(self) -> Self {
        let (flags, home) = self.end();
        Self::launch(flags, home).await.unwrap_or_else(|failed| panic!("the server did not start again: {failed:#?}"))
    }

    /// Kills it, and gives what a run like it needs.
    fn end(mut self) -> (Vec<String>, TempDir) {
        self.kill();
        let empty = tempfile::tempdir().expect("a directory");
        (std::mem::take(&mut self.flags), std::mem::replace(&mut self.home, empty))
    }

    /// What it said when it was up.
    pub(crate) fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Where clients connect.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address_after("http://", "open")
    }

    /// Where other servers connect.
    pub(crate) fn relay_addr(&self) -> SocketAddr {
        self.address_after("", "relay")
    }

    /// The URL at which development lets in `user`.
    pub(crate) fn ws_url(&self, user: &str) -> String {
        format!("ws://{}/ws?user={}", self.addr(), utf8_percent_encode(user, NON_ALPHANUMERIC))
    }

    /// What the public port answers to a GET: the status and the text.
    pub(crate) async fn public(&self, path: &str) -> (u16, String) {
        get(self.addr(), path).await
    }

    /// What the admin port answers to a GET: the status and the text.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        get(self.address_after("http://", "health"), path).await
    }

    /// What the admin port answers to a request: the status and the text.
    pub(crate) async fn ask_admin(
        &self,
        request: impl Fn(&reqwest::Client, String) -> reqwest::RequestBuilder,
    ) -> (u16, String) {
        let base = format!("http://{}", self.address_after("http://", "health"));
        let answer = request(&client(), base).send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a text"))
    }

    /// One number of `/metrics`: `minichat_connections`, or with its labels `minichat_drops_total{reason="unsettled"}`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        self.metrics().await.get(name).copied().unwrap_or_else(|| panic!("there is no metric {name}"))
    }

    /// All numbers of `/metrics`.
    pub(crate) async fn metrics(&self) -> BTreeMap<String, u64> {
        let (status, text) = self.admin("/metrics").await;
        assert_eq!(status, 200, "{text}");
        let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        rows.filter_map(|(name, value)| Some((name.to_owned(), value.parse::<f64>().ok()? as u64))).collect()
    }

    /// Waits until a metric is what it should be.
    pub(crate) async fn until_metric(&self, name: &str, fits: impl Fn(u64) -> bool) {
        eventually(&format!("{name} to fit"), async || fits(self.metric(name).await).then_some(())).await;
    }

    /// What it has logged so far.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Whether it has logged a line that has all these parts.
    pub(crate) fn has_logged(&self, parts: &[&str]) -> bool {
        self.count_logged(parts) > 0
    }

    /// How many lines it has logged that have all these parts.
    pub(crate) fn count_logged(&self, parts: &[&str]) -> usize {
        self.log.lines().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    /// Waits until it has logged a line that has all these parts.
    pub(crate) async fn until_logged(&self, parts: &[&str]) {
        eventually(&format!("a log line with {parts:?}"), async || self.has_logged(parts).then_some(())).await;
    }

    /// What it was started with: the value of a flag.
    pub(crate) fn flag(&self, name: &str) -> Option<String> {
        self.flags.iter().find_map(|flag| Some(flag.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    }

    /// Its files.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().expect("no panic").id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Term => "-TERM",
            Signal::Int => "-INT",
            Signal::Stop => "-STOP",
            Signal::Cont => "-CONT",
            Signal::Kill => "-KILL",
        };
        let status = Command::new("kill").args([name, &self.pid().to_string()]).status().expect("kill");
        assert!(status.success(), "kill {name}");
    }

    /// Waits until it has ended, and gives its exit code; none where a signal ended it.
    pub(crate) async fn wait_exit(&self) -> Option<i32> {
        let ended = async || self.process.lock().expect("no panic").try_wait().expect("a child of ours");
        let status = eventually("the server to end", ended).await;
        self.log.until_ended().await;
        status.code()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&self) -> bool {
        self.process.lock().expect("no panic").try_wait().expect("a child of ours").is_none()
    }

    /// Kills it as a crash would, and returns when it is gone.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().expect("no panic");
        // It may have ended by itself.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// The address in the line of the greeting that begins with `word`.
    fn address_after(&self, scheme: &str, word: &str) -> SocketAddr {
        let line = self.greeting.lines().map(str::trim).find_map(|line| line.strip_prefix(word));
        let line = line.unwrap_or_else(|| panic!("the greeting has no {word}: {}", self.greeting));
        let text = line.trim_start().strip_prefix(scheme).expect("a URL");
        let end = text.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(text.len());
        text[..end].parse().expect("an address")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            // The test has failed: why may be here.
            eprintln!(
                "log of {}:\n{}\n",
                self.greeting.lines().next().unwrap_or_default(),
                self.log_lines().join("\n")
            );
        }
    }
}

impl Log {
    fn of(stderr: ChildStderr) -> Self {
        let log = Self::default();
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.0.lock().expect("no panic").push(line);
            }
        });
        log
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    /// Waits until the process has closed its end, and all that it wrote is here: then only this handle is left.
    async fn until_ended(&self) {
        eventually("the end of the log", async || (Arc::strong_count(&self.0) == 1).then_some(())).await;
    }
}

fn command(flags: &[String], home: &Path) -> Command {
    let is_given = |name: &str| flags.iter().any(|flag| flag.split('=').next() == Some(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_minichat"));
    for (name, value) in DEFAULTS.into_iter().filter(|(name, _)| !is_given(name)) {
        command.arg(format!("{name}={value}"));
    }
    // The default database is a file in the working directory.
    command.args(flags).env_clear().current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = client().get(format!("http://{address}{path}")).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a text"))
}

fn client() -> reqwest::Client {
    minichat::tls::install_provider();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}
