//! What was asked for.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};

use crate::dialect::{Dialect, LEAST_PAYLOAD};

/// What is done to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Pairs of users; one of each writes to the other
    Direct,
    /// Rooms whose members write in turn, spread over the servers
    Rooms,
    /// Connections that do nothing: what each costs, and whether it comes back
    Idle,
    /// Many connect at a rate while pairs write to each other
    Storm,
    /// Rooms in which some members stop reading for a while
    Slow,
    /// Pairs that write to each other while the last server, to which others write, is stopped by a signal
    Stopped,
    /// Pairs that write to each other while one room gets many messages at once
    Burst,
}

/// Where the two of a pair are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placing {
    /// On one server
    Same,
    /// On two; every ordered pair of servers in turn
    Cross,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Volatile
    Signal,
    /// Stored, and answered after the commit
    Send,
}

/// Puts load on chat servers and says what it cost.
///
/// Latencies are from when a message was meant to be sent until a recipient has it. With --rate that is by the clock, so
/// a server that stops for a while is not spared what would have been sent meanwhile.
#[derive(Debug, Parser)]
#[command(name = "load")]
pub(crate) struct Args {
    /// What to do
    pub(crate) scenario: Scenario,

    /// Servers, host:port, separated by commas or repeated
    #[arg(long = "server", value_delimiter = ',', default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    #[arg(value_parser = address)]
    pub(crate) servers: Vec<SocketAddr>,
    /// What the servers speak
    #[arg(long, value_enum, default_value_t = Dialect::Minichat)]
    pub(crate) dialect: Dialect,
    /// Token that all connections show (nats)
    #[arg(long, value_name = "TOKEN")]
    pub(crate) auth_token: Option<String>,
    /// Secret to sign tokens with (HS256) [default: none, users say their names]
    #[arg(long, value_name = "SECRET")]
    pub(crate) jwt_secret: Option<String>,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,

    /// What is sent
    #[arg(long, value_enum, default_value_t = Kind::Signal)]
    pub(crate) kind: Kind,
    /// Bytes of each body
    #[arg(long, default_value_t = 128, value_parser = payload)]
    pub(crate) payload: usize,
    /// Open loop: messages per second in all
    #[arg(long, conflicts_with = "window", value_parser = rate, required_if_eq("scenario", "stopped"))]
    pub(crate) rate: Option<f64>,
    /// Closed loop: messages on their way per pair or room
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) window: u32,
    /// Acknowledge what was received, each room at most once per second
    #[arg(long)]
    pub(crate) acks: bool,

    /// Pairs of users (direct, storm, stopped, burst)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
    /// Where the two of a pair are
    #[arg(long, value_enum, default_value_t = Placing::Cross)]
    pub(crate) place: Placing,
    /// Rooms (rooms, slow)
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rooms: u32,
    /// Members of each room
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=5000))]
    pub(crate) room_size: u32,
    /// Members of each room that stop reading, two less than --room-size at most (slow)
    #[arg(long, default_value_t = 1)]
    pub(crate) slow: u32,
    /// The process of the last server (stopped)
    #[arg(long, value_name = "PID", required_if_eq("scenario", "stopped"))]
    pub(crate) stop: Option<u32>,
    /// Messages that come at once (burst)
    #[arg(long, default_value_t = 1_000)]
    pub(crate) burst: u32,
    /// Connections that do nothing (idle, storm)
    #[arg(long, default_value_t = 1_000)]
    pub(crate) connections: u32,
    /// Rooms of --room-size in which each of these is (idle, storm)
    #[arg(long, default_value_t = 0)]
    pub(crate) rooms_each: u32,
    /// These say in hello that they have all of their rooms, as clients that come back do
    #[arg(long)]
    pub(crate) cursors: bool,
    /// How many of these connect per second
    #[arg(long, default_value_t = 500.0, value_parser = rate)]
    pub(crate) connect_rate: f64,

    /// Seconds that are not counted, before those that are
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub(crate) warm_up: Duration,
    /// Seconds that are counted
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// A process to look at, as NAME=PID, its children included; repeated
    ///
    /// Memory that a process shares with its children, as PostgreSQL does, is counted for each of them.
    #[arg(long = "pid", value_name = "NAME=PID", value_parser = process)]
    pub(crate) pids: Vec<(String, u32)>,
    /// Where a server answers /metrics, host:port; repeated
    #[arg(long = "admin", value_delimiter = ',', value_name = "HOST:PORT", value_parser = address)]
    pub(crate) admins: Vec<SocketAddr>,
    /// File to which one line of JSON per counted span is appended
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Something to note in that line, as NAME=VALUE; repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tags: Vec<(String, String)>,
}

impl Args {
    /// Refuses what the servers do not have, or what cannot be.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        let of_minichat = [
            ("--kind send", self.is_durable()),
            ("--acks", self.acks),
            ("--cursors", self.cursors),
            ("--jwt-secret", self.jwt_secret.is_some()),
        ];
        let asked = match self.dialect {
            Dialect::Nats => of_minichat.iter().find(|(_, asked)| *asked).map(|(name, _)| *name),
            Dialect::Minichat => self.auth_token.is_some().then_some("--auth-token"),
        };
        let conflict = |text: String| Err(clap::Error::raw(ErrorKind::ArgumentConflict, format!("{text}\n")));
        if let Some(name) = asked {
            return conflict(format!("{name} is not for this --dialect"));
        }
        if self.scenario == Scenario::Stopped && self.servers.len() < 2 {
            return conflict(
                "stopped: name two servers at least; the last one is stopped, and the others are watched".into(),
            );
        }
        // One writes, and one is counted.
        let most = self.room_size.saturating_sub(2);
        if self.scenario == Scenario::Slow && self.slow > most {
            return conflict(format!(
                "--slow: of {} in a room {most} may stop reading, not {}",
                self.room_size, self.slow
            ));
        }
        Ok(())
    }

    /// Whether messages are stored.
    pub(crate) fn is_durable(&self) -> bool {
        self.kind == Kind::Send
    }

    /// Whether some connections do nothing.
    pub(crate) fn has_crowd(&self) -> bool {
        matches!(self.scenario, Scenario::Idle | Scenario::Storm)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = ["ws://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let place = text.split('/').next().unwrap_or(text);
    let found = place.to_socket_addrs().map_err(|error| error.to_string())?.next();
    found.ok_or_else(|| format!("{place} has no address"))
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|rate| (0.01..=1e7).contains(rate)).ok_or_else(|| "a number from 0.01 to 1e7".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    value.map(Duration::from_secs_f64).ok_or_else(|| "seconds, such as 10 or 0.5".into())
}

fn payload(text: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|bytes| (LEAST_PAYLOAD..=16_384).contains(bytes));
    value.ok_or_else(|| format!("bytes, {LEAST_PAYLOAD} to 16384"))
}

fn process(text: &str) -> Result<(String, u32), String> {
    let (name, pid) = tag(text)?;
    Ok((name, pid.parse().map_err(|_| "NAME=PID".to_owned())?))
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dialect_does_not_have_is_refused() {
        let check = |line: &str| Args::parse_from(line.split(' ')).check().map_err(|error| error.to_string());
        let refused = |name| Err(format!("error: {name} is not for this --dialect\n"));
        assert_eq!(check("load direct --dialect nats --auth-token x"), Ok(()));
        assert_eq!(check("load rooms --kind send --acks --jwt-secret x"), Ok(()));
        assert_eq!(check("load direct --dialect nats --kind send"), refused("--kind send"));
        assert_eq!(check("load direct --auth-token x"), refused("--auth-token"));
    }

    #[test]
    fn what_leaves_nobody_to_be_watched_is_refused() {
        let check = |line: &str| Args::parse_from(line.split(' ')).check().map_err(|error| error.to_string());
        assert_eq!(check("load slow --room-size 5 --slow 3"), Ok(()));
        let all = check("load slow --room-size 5 --slow 4").unwrap_err();
        assert_eq!(all, "error: --slow: of 5 in a room 3 may stop reading, not 4\n");
        assert_eq!(check("load stopped --rate 1 --stop 1 --server 127.0.0.1:1,127.0.0.1:2"), Ok(()));
        let alone = check("load stopped --rate 1 --stop 1").unwrap_err();
        assert!(alone.contains("name two servers at least"), "{alone}");
    }
}
