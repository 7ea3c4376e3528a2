//! The flags as they are written. Each has a variable of the same name, so that containers need no command line.
//!
//! What may hold a secret is plain text here and is checked in `rules`, since clap repeats a bad value in its message.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;

use super::origin::{AllowedOrigin, Authority};
use super::values::{OffOr, address, directive, duration, host_port, lease, push_after};
use crate::ids::ServerId;

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// A chat server that scales out: a message goes to exactly the server that holds the recipient.
///
/// Without any flag it runs on its own, and believes whoever says a name.
///
/// Every flag can be given as a variable too: --ping-interval is MINICHAT_PING_INTERVAL. A DURATION is a whole number and
/// a unit: 500ms, 10s, 2m or 1h.
#[derive(Debug, clap::Parser)]
#[command(name = "minichat", version)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) gateway: GatewayArgs,
    #[command(flatten)]
    pub(super) auth: AuthArgs,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    #[command(flatten)]
    pub(super) push: PushArgs,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(flatten)]
    pub(super) logs: LogArgs,
    /// Check the configuration, print it with secrets masked, and exit
    #[arg(long, env = "MINICHAT_CHECK", value_parser = BoolishValueParser::new())]
    pub(super) check: bool,
    /// In place of serving, ask a URL such as http://127.0.0.1:9600/readyz, and exit with 0 if it answers 200 [default: none]
    #[arg(long, env = "MINICHAT_PROBE", value_name = "URL")]
    pub(super) probe: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct GatewayArgs {
    /// Address and port for clients
    #[arg(long, env = "MINICHAT_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    #[arg(value_parser = address)]
    pub(super) listen: SocketAddr,
    /// Believe ?user=NAME without a token [default: on when no key is given and --listen is loopback]
    #[arg(long, env = "MINICHAT_DEV_AUTH", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) dev_auth: Option<bool>,
    /// Web pages that may connect, or * for any [default: those of the same origin]
    ///
    /// Written like https://chat.example, separated by commas or repeated. A list must name the server's own pages too.
    #[arg(long, env = "MINICHAT_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub(super) allow_origin: Vec<AllowedOrigin>,
    /// Names in the Host header that are taken [default: any; with --dev-auth only localhost and IP addresses]
    ///
    /// Written with or without a port, separated by commas or repeated. With --dev-auth, localhost and IP addresses are
    /// always taken.
    #[arg(long, env = "MINICHAT_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
    pub(super) allow_host: Vec<Authority>,
    /// The most sockets at a time [default: 80% of the limit of open files, 64 set aside]
    #[arg(long, env = "MINICHAT_MAX_CONNECTIONS", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_connections: Option<u32>,
    /// How often a socket is pinged; one that does not answer until the next ping is closed
    #[arg(long, env = "MINICHAT_PING_INTERVAL", value_name = "DURATION", default_value = "25s", value_parser = duration)]
    pub(super) ping_interval: Duration,
    /// How long a write may wait while not one byte leaves
    #[arg(long, env = "MINICHAT_WRITE_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) write_timeout: Duration,
    /// The most bytes that may queue for one session, 65536 to 1073741824
    #[arg(long, env = "MINICHAT_QUEUE_BYTES", value_name = "BYTES", default_value_t = 262_144)]
    #[arg(value_parser = clap::value_parser!(u32).range(65_536..=1_073_741_824))]
    pub(super) queue_bytes: u32,
    /// Let sessions ask how their messages travelled [default: as --dev-auth]
    #[arg(long, env = "MINICHAT_TRACE_FRAMES", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) trace_frames: Option<bool>,
    /// The most members of a room who are told how far the others have come, 0 to 5000; 0 for none
    #[arg(long, env = "MINICHAT_RECEIPT_MEMBERS", value_name = "NUMBER", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=5000))]
    pub(super) receipt_members: u32,
    /// How long a shutdown may take
    #[arg(long, env = "MINICHAT_DRAIN", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) drain: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication (at most one kind of key)")]
pub(super) struct AuthArgs {
    /// File with the key that tokens are checked with [default: none]
    ///
    /// A public key in PEM form (RSA for RS256, P-256 for ES256, Ed25519 for EdDSA), or a secret of at least 32 bytes
    /// for HS256.
    #[arg(long, env = "MINICHAT_JWT_KEY_FILE", value_name = "PATH")]
    pub(super) jwt_key_file: Option<PathBuf>,
    /// Secret for HS256, at least 32 bytes [default: none]
    ///
    /// Better given as a variable: a command line can be seen by everyone on the machine.
    #[arg(long, env = "MINICHAT_JWT_SECRET", value_name = "SECRET")]
    pub(super) jwt_secret: Option<String>,
    /// Where the public keys are fetched from, http or https [default: none]
    #[arg(long, env = "MINICHAT_JWT_JWKS_URL", value_name = "URL")]
    pub(super) jwt_jwks_url: Option<String>,
    /// The aud that a token must have [default: not looked at]
    #[arg(long, env = "MINICHAT_JWT_AUDIENCE", value_name = "TEXT")]
    pub(super) jwt_audience: Option<String>,
    /// The iss that a token must have [default: not looked at]
    #[arg(long, env = "MINICHAT_JWT_ISSUER", value_name = "TEXT")]
    pub(super) jwt_issuer: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreArgs {
    /// The database: sqlite:PATH, or postgres://USER:PASSWORD@HOST/NAME
    #[arg(long, env = "MINICHAT_DATABASE", value_name = "URL", default_value = "sqlite:data/minichat.db")]
    pub(super) database: String,
    /// The most connections to the database, 1 to 1000
    #[arg(long, env = "MINICHAT_DATABASE_CONNECTIONS", value_name = "NUMBER", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) database_connections: u32,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// The Redis of the cluster: redis://, redis+cluster:// or redis+sentinel://, rediss... for TLS [default: none]
    ///
    /// Needs a postgres:// database and a cluster secret.
    #[arg(long, env = "MINICHAT_REDIS", value_name = "URL")]
    pub(super) redis: Option<String>,
    /// CA certificate (PEM) to trust for rediss:// [default: the public ones]
    #[arg(long, env = "MINICHAT_REDIS_CA_FILE", value_name = "PATH")]
    pub(super) redis_ca_file: Option<PathBuf>,
    /// This server's name [default: the host name with --redis, else local1]
    ///
    /// 1 to 63 of A-Z a-z 0-9 . _ -
    #[arg(long, env = "MINICHAT_SERVER_ID", value_name = "NAME")]
    pub(super) server_id: Option<ServerId>,
    /// Address and port for other servers, opened with --redis only [default: 127.0.0.1:9090]
    #[arg(long, env = "MINICHAT_RELAY_LISTEN", value_name = "ADDRESS:PORT", value_parser = address)]
    pub(super) relay_listen: Option<SocketAddr>,
    /// Where other servers reach this one [default: as --relay-listen]
    #[arg(long, env = "MINICHAT_RELAY_ADVERTISE", value_name = "HOST:PORT", value_parser = host_port)]
    pub(super) relay_advertise: Option<String>,
    /// What servers show each other, 16 to 256 characters [default: none]
    ///
    /// Better given as a variable or in a file.
    #[arg(long, env = "MINICHAT_CLUSTER_SECRET", value_name = "SECRET")]
    pub(super) cluster_secret: Option<String>,
    /// File with the cluster secret [default: none]
    #[arg(long, env = "MINICHAT_CLUSTER_SECRET_FILE", value_name = "PATH")]
    pub(super) cluster_secret_file: Option<PathBuf>,
    /// How long a server counts as alive after its last sign of life, 1s to 5m
    #[arg(long, env = "MINICHAT_LEASE", value_name = "DURATION", default_value = "10s", value_parser = lease)]
    pub(super) lease: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Push")]
pub(super) struct PushArgs {
    /// How long a message may go unacknowledged before its recipient is pushed, 1s to 1h
    #[arg(long, env = "MINICHAT_PUSH_AFTER", value_name = "DURATION", default_value = "15s", value_parser = push_after)]
    pub(super) push_after: Duration,
    /// Where pushes are posted, http or https [default: none]
    ///
    /// Needs a secret to sign them with.
    #[arg(long, env = "MINICHAT_PUSH_WEBHOOK", value_name = "URL")]
    pub(super) push_webhook: Option<String>,
    /// What those are signed with, at least 32 bytes [default: none]
    ///
    /// Better given as a variable or in a file.
    #[arg(long, env = "MINICHAT_PUSH_WEBHOOK_SECRET", value_name = "SECRET")]
    pub(super) push_webhook_secret: Option<String>,
    /// File with that secret [default: none]
    #[arg(long, env = "MINICHAT_PUSH_WEBHOOK_SECRET_FILE", value_name = "PATH")]
    pub(super) push_webhook_secret_file: Option<PathBuf>,
    /// Let pushes say what the message says [default: off]
    #[arg(long, env = "MINICHAT_PUSH_PREVIEW", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) push_preview: Option<bool>,
    /// Key of a Google service account (JSON), to push by Firebase Cloud Messaging [default: none]
    #[arg(long, env = "MINICHAT_FCM_KEY_FILE", value_name = "PATH")]
    pub(super) fcm_key_file: Option<PathBuf>,
    /// Where Firebase Cloud Messaging is [default: https://fcm.googleapis.com]
    #[arg(long, env = "MINICHAT_FCM_URL", value_name = "URL")]
    pub(super) fcm_url: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Administration")]
pub(super) struct AdminArgs {
    /// Address and port for health and metrics, or off
    #[arg(long, env = "MINICHAT_ADMIN_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9600")]
    pub(super) admin_listen: OffOr<SocketAddr>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct LogArgs {
    /// What is logged: error, warn, info, debug or trace
    ///
    /// A level is about this server, whose libraries then say warnings only. Or levels per module, as in
    /// warn,minichat=debug,h2=debug.
    #[arg(long, env = "MINICHAT_LOG", value_name = "FILTER", default_value = "info", value_parser = directive)]
    pub(super) log: String,
    /// How a line looks
    #[arg(long, env = "MINICHAT_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
}
