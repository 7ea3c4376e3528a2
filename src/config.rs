//! What the operator asked for, checked once at the start: flags, `MINICHAT_*` variables, defaults.
//!
//! This is the only module that reads the environment. A [`Config`] that exists is consistent; the rest of the program
//! sees no raw text. Secrets are held in types that print as `********`.

mod args;
mod environment;
mod origin;
mod push;
mod rules;
mod show;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};

use crate::ids::ServerId;

pub use args::LogFormat;
pub use origin::{Authority, Origin};
pub use push::{Fcm, Push, ServiceAccount, Webhook};
pub use values::{RedisUrl, Secret, SecretUrl};

/// The whole configuration of one server.
#[derive(Debug, Clone)]
pub struct Config {
    /// This server's name in the cluster.
    pub server_id: ServerId,
    /// The public WebSocket side.
    pub gateway: Gateway,
    /// How users prove who they are.
    pub auth: Auth,
    /// Where messages are kept.
    pub store: Store,
    /// The other servers; absent for a server on its own.
    pub cluster: Option<Cluster>,
    /// How people are told who are not there.
    pub push: Push,
    /// Where health and metrics answer; absent when switched off.
    pub admin_listen: Option<SocketAddr>,
    /// What is logged.
    pub logs: Logs,
    /// Whether only to check and print the configuration.
    pub check: bool,
    /// A URL to ask in place of serving, for health checks.
    pub probe: Option<SecretUrl>,
}

/// The public WebSocket side.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Which web pages may connect.
    pub origins: Origins,
    /// The `Host` values that are accepted; empty leaves it to the way of authentication.
    pub hosts: Vec<Authority>,
    /// The most sockets at a time; absent means as many as open files allow.
    pub max_connections: Option<u32>,
    /// How often a socket is pinged. One that was silent for a whole interval after a ping is closed.
    pub ping_interval: Duration,
    /// How long a write may wait without a single byte leaving.
    pub write_timeout: Duration,
    /// The most bytes that may queue for one session.
    pub queue_bytes: usize,
    /// Whether sessions may ask how their messages travelled.
    pub trace_frames: bool,
    /// The most members of a room who are told how far the others have come; 0 for none.
    pub receipt_members: usize,
    /// How long a shutdown may take.
    pub drain: Duration,
}

/// Which web pages may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// Those this server itself has served.
    Same,
    /// Any.
    Any,
    /// These and no others, the server's own not excepted.
    Only(Vec<Origin>),
}

/// How users prove who they are. At least one of `dev` and `keys` is there.
#[derive(Debug, Clone)]
pub struct Auth {
    /// Whether `?user=alice` is believed.
    pub dev: bool,
    /// What tokens are checked with.
    pub keys: Option<Keys>,
    /// The `aud` a token must have.
    pub audience: Option<String>,
    /// The `iss` a token must have.
    pub issuer: Option<String>,
}

/// What tokens are checked with.
#[derive(Debug, Clone)]
pub enum Keys {
    /// A shared secret of at least 32 bytes, for HS256.
    Secret(Secret),
    /// A public key in PEM form.
    Pem(String),
    /// A set of public keys that is fetched.
    Jwks(SecretUrl),
}

/// Where messages are kept.
#[derive(Debug, Clone)]
pub struct Store {
    /// The database.
    pub database: Database,
    /// The most connections to it.
    pub connections: u32,
}

/// A database.
#[derive(Debug, Clone)]
pub enum Database {
    /// A file of this server's own.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres(SecretUrl),
}

/// The other servers.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The Redis they share.
    pub redis: RedisUrl,
    /// A CA certificate to trust for it, in PEM form, in place of the public ones.
    pub redis_ca_file: Option<PathBuf>,
    /// The address to listen on for other servers; port 0 takes a free one.
    pub relay_listen: SocketAddr,
    /// The `host:port` under which others reach it; absent means the address it got.
    pub relay_advertise: Option<String>,
    /// What servers show each other: 16 to 256 visible ASCII characters.
    pub secret: Secret,
    /// How long this server counts as alive after its last sign of life.
    pub lease: Duration,
}

/// What is logged.
#[derive(Debug, Clone)]
pub struct Logs {
    /// A level, or a well-formed filter such as `warn,minichat=debug`.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// Why there is no [`Config`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator asked for something that cannot be. One line, without any secret.
    #[error("{0}")]
    Usage(String),
    /// The operator asked for help or for the version. This is the text, for standard output.
    #[error("{0}")]
    Information(String),
}

impl Config {
    /// Reads the command line and the environment of this process.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn from_args() -> Result<Self, Error> {
        let config = Self::parse_from(std::env::args_os())?;
        environment::check(&args::Args::command(), std::env::vars_os().map(|(name, _)| name)).map_err(Error::Usage)?;
        Ok(config)
    }

    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn parse_from<T: Into<OsString> + Clone>(line: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        // The values of variables would show in `--help`, secrets among them.
        let command = args::Args::command().mut_args(|arg| arg.hide_env_values(true));
        let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
        let parsed = command.try_get_matches_from(&line).and_then(|matches| args::Args::from_arg_matches(&matches));
        rules::apply(parsed.map_err(|error| explain(&error, &line))?).map_err(Error::Usage)
    }

    /// A server on its own for a test: free ports, development login, the database file at `database`.
    ///
    /// # Panics
    ///
    /// If a `MINICHAT_*` variable of the process says something that does not fit.
    #[doc(hidden)]
    pub fn for_test(database: &Path) -> Self {
        let database = format!("--database=sqlite:{}", database.display());
        Self::parse_from(["minichat", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", &database])
            .expect("the configuration for tests is well-formed")
    }

    /// What is allowed but deserves a word in the log, one line each.
    pub fn warnings(&self) -> Vec<String> {
        rules::warnings(self)
    }
}

/// Puts clap's paragraphs into one line, and says whether a bad value is in a variable.
fn explain(error: &clap::Error, given: &[OsString]) -> Error {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return Error::Information(text);
    }
    let said = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = said.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let line = said.collect::<Vec<_>>().join("; ");
    let line = line.trim_start_matches("error: ");
    match variable(error, given) {
        Some(name) => Error::Usage(format!("{name}: {line}")),
        None => Error::Usage(line.to_owned()),
    }
}

/// The variable that a value comes from whose flag nobody gave: clap names the flag in either case.
fn variable(error: &clap::Error, given: &[OsString]) -> Option<String> {
    let ContextValue::String(shown) = error.get(ContextKind::InvalidArg)? else { return None };
    let flag = shown.split([' ', '[']).next()?;
    let is_given = given.iter().any(|word| word.to_string_lossy().starts_with(flag));
    let name = flag.strip_prefix("--").filter(|_| !is_given)?;
    Some(format!("MINICHAT_{}", name.replace('-', "_").to_uppercase()))
}

#[cfg(test)]
mod tests;
