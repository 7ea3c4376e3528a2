//! A private PostgreSQL in a directory of its own, gone when it is dropped or when the test process ends.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

/// Runs the server and stays with it: at the end of its input, which comes with the end of the test process however
/// that ends, it stops the server and removes the directory; at a line of input it stops the server by the signal
/// that the line names.
const KEEPER: &str = r#"
dir=$1; shift
"$@" >"$dir/log" 2>&1 </dev/null &
server=$!
if read -r signal; then kill -"$signal" $server 2>/dev/null; wait $server; exit; fi
kill -CONT $server 2>/dev/null
kill -QUIT $server 2>/dev/null
wait $server
rm -rf "$dir"
"#;

/// How long PostgreSQL may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// One running PostgreSQL.
pub(crate) struct Postgres {
    dir: PathBuf,
    bin: PathBuf,
    port: u16,
    keeper: Mutex<Option<Keeper>>,
    databases: AtomicU32,
}

struct Keeper {
    process: Child,
    input: ChildStdin,
}

impl Postgres {
    /// The one that all tests share that do not break theirs.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
        &SHARED
    }

    /// Starts one.
    pub(crate) fn start() -> Self {
        let bin = binaries();
        let dir = tempfile::tempdir().expect("a directory").keep();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&dir));
        }
        run(as_user(&bin.join("initdb"))
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(dir.join("data")));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let postgres = Self { dir, bin, port, keeper: Mutex::new(None), databases: AtomicU32::new(0) };
        postgres.run();
        postgres
    }

    /// The URL of its first database.
    pub(crate) fn url(&self) -> String {
        self.database("postgres")
    }

    /// Makes an empty database, and answers its URL.
    pub(crate) async fn fresh_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.url()).await.expect("a connection to PostgreSQL");
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut connection).await.expect("a fresh database");
        self.database(&name)
    }

    /// Stops all its processes where they are.
    pub(crate) fn pause(&self) {
        self.signal_all("STOP");
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) {
        self.signal_all("CONT");
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&self) {
        self.stop("KILL");
    }

    /// Ends it, if it runs, as an operator in a hurry would, and starts it again at the same place.
    pub(crate) fn restart(&self) {
        self.stop_fast();
        self.start_again();
    }

    /// Ends it as an operator in a hurry would: what is under way is undone.
    pub(crate) fn stop_fast(&self) {
        self.stop("INT");
    }

    /// Ends it without its cleaning up, so that it has to recover.
    pub(crate) fn stop_immediately(&self) {
        self.stop("QUIT");
    }

    /// Starts it again at the same place.
    pub(crate) fn start_again(&self) {
        self.run();
    }

    fn database(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Starts the server, and again where it finds the processes of a killed one that have not noticed yet.
    fn run(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.try_run(deadline) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Starts the server and waits until it takes connections; false where it ends instead.
    fn try_run(&self, deadline: Instant) -> bool {
        // The log of the run before says that it was ready, until the new one has begun it anew.
        let _ = std::fs::remove_file(self.dir.join("log"));
        let mut keeper = self.keep(&self.server());
        while !self.log().contains("ready to accept connections") {
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", self.log());
            if self.log().contains("is still in use") || self.log().contains("already exists") {
                keeper.stop("QUIT");
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        *self.keeper.lock().expect("no panic") = Some(keeper);
        true
    }

    /// The server's command.
    fn server(&self) -> Command {
        let mut server = as_user(&self.bin.join("postgres"));
        server.arg("-D").arg(self.dir.join("data")).arg("-k").arg(&self.dir).args(["-p", &self.port.to_string()]);
        // A process that is killed loses nothing without fsync; only a machine that loses power does.
        for setting in ["listen_addresses=127.0.0.1", "max_connections=200", "fsync=off", "deadlock_timeout=200ms"] {
            server.args(["-c", setting]);
        }
        server
    }

    fn keep(&self, server: &Command) -> Keeper {
        let mut process = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&self.dir)
            .arg(server.get_program())
            .args(server.get_args())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            // A Ctrl-C on the terminal is for the tests; the keeper has its cleaning up to do.
            .process_group(0)
            .spawn()
            .expect("a shell");
        let input = process.stdin.take().expect("its input");
        Keeper { process, input }
    }

    fn stop(&self, signal: &str) {
        if let Some(mut keeper) = self.keeper.lock().expect("no panic").take() {
            keeper.stop(signal);
        }
    }

    fn signal_all(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).expect("PostgreSQL runs");
        let pid = pid.lines().next().expect("a number");
        let children = Command::new("pgrep").args(["-P", pid]).output().expect("pgrep").stdout;
        let children = String::from_utf8(children).expect("numbers");
        run(Command::new("kill").arg(format!("-{signal}")).arg(pid).args(children.split_whitespace()));
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Keeper {
    fn stop(&mut self, signal: &str) {
        writeln!(self.input, "{signal}").expect("the keeper listens");
        self.process.wait().expect("the keeper ends");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(Keeper { mut process, input }) = self.keeper.lock().expect("no panic").take() else {
            std::fs::remove_dir_all(&self.dir).ok();
            return;
        };
        drop(input);
        process.wait().ok();
    }
}

/// Where the programs of PostgreSQL are: on the PATH, or where Debian keeps the newest.
fn binaries() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut debian: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    debian.sort();
    std::env::split_paths(&path)
        .chain(debian.into_iter().rev())
        .find(|dir| dir.join("initdb").exists() && dir.join("postgres").exists())
        .expect("this test needs PostgreSQL: install it (on Debian: apt-get install postgresql)")
}

/// A command as a user that PostgreSQL agrees to run as, which root is not.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn run(command: &mut Command) {
    let output = command.current_dir("/").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
