//! What is done to a cluster, as values: the same ones make the same run.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// How much time there is between two faults of one target.
const APART: Duration = Duration::from_millis(500);

/// One thing that goes wrong. A number names a server: 1 is `local1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// kill -9; it is started again at once, under its id.
    Kill(usize),
    /// The same, when it has stored and answered messages that no other server was sent.
    KillBeforeRelay(usize),
    /// SIGSTOP for longer than its lease, then SIGCONT.
    Stop(usize),
    /// Connections from the others to it are reset, and refused for a while.
    CutLink(usize),
    /// What the others send to it vanishes.
    HoleLink(usize),
    /// What the others send to it, and what it answers, takes its time.
    DelayLink(usize),
    /// Some of its clients vanish without a word, and do not know it.
    DropClients(usize),
    /// Redis cannot be reached from it, by connections that stay open.
    LoseRedis(usize),
    /// The database cannot be reached from it, by connections that stay open.
    LoseDatabase(usize),
    /// Redis is killed, and comes back with what it had then.
    RedisRestart,
    /// Redis is killed, and comes back with nothing.
    RedisWipe,
    /// Redis stands still.
    RedisPause,
    /// Redis takes no writes, since it lacks a replica.
    RedisRefuses,
    /// Redis takes no writes, since it is full.
    RedisFull,
    /// PostgreSQL ends as for an operator in a hurry, and comes back.
    PostgresFast,
    /// PostgreSQL ends at once, and has to recover.
    PostgresImmediate,
}

/// What a fault happens to: two of one are not under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Process(usize),
    Link(usize),
    Clients(usize),
    RedisLink(usize),
    DatabaseLink(usize),
    Redis,
    Postgres,
}

/// A fault at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// After the beginning of the run.
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) fault: Fault,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(n) => write!(to, "local{n} is killed, and started again at once"),
            Self::KillBeforeRelay(n) => write!(to, "local{n} is killed between the commit and the relay"),
            Self::Stop(n) => write!(to, "local{n} is stopped for longer than its lease"),
            Self::CutLink(n) => write!(to, "the link to local{n} is cut"),
            Self::HoleLink(n) => write!(to, "the link to local{n} swallows all"),
            Self::DelayLink(n) => write!(to, "the link to local{n} is slow"),
            Self::DropClients(n) => write!(to, "clients of local{n} vanish without a word"),
            Self::LoseRedis(n) => write!(to, "local{n} loses its way to Redis"),
            Self::LoseDatabase(n) => write!(to, "local{n} loses its way to PostgreSQL"),
            Self::RedisRestart => to.write_str("Redis is killed, and comes back with what it had"),
            Self::RedisWipe => to.write_str("Redis is killed, and comes back empty"),
            Self::RedisPause => to.write_str("Redis stands still"),
            Self::RedisRefuses => to.write_str("Redis takes no writes: it lacks a replica"),
            Self::RedisFull => to.write_str("Redis takes no writes: it is full"),
            Self::PostgresFast => to.write_str("PostgreSQL is stopped (fast), and comes back"),
            Self::PostgresImmediate => to.write_str("PostgreSQL is stopped (immediate), and comes back"),
        }
    }
}

impl Fault {
    /// All kinds, each server in turn as the one that it happens to.
    pub(super) fn all(servers: usize) -> Vec<Self> {
        let of_servers = [
            Self::Kill,
            Self::KillBeforeRelay,
            Self::Stop,
            Self::CutLink,
            Self::HoleLink,
            Self::DelayLink,
            Self::DropClients,
            Self::LoseRedis,
            Self::LoseDatabase,
        ];
        let of_services = [
            Self::RedisRestart,
            Self::RedisWipe,
            Self::RedisPause,
            Self::RedisRefuses,
            Self::RedisFull,
            Self::PostgresFast,
            Self::PostgresImmediate,
        ];
        let at = |(index, fault): (usize, fn(usize) -> Self)| fault(index % servers + 1);
        of_servers.into_iter().enumerate().map(at).chain(of_services).collect()
    }

    /// The same, on another server.
    fn on(self, number: usize) -> Self {
        match self {
            Self::Kill(_) => Self::Kill(number),
            Self::KillBeforeRelay(_) => Self::KillBeforeRelay(number),
            Self::Stop(_) => Self::Stop(number),
            Self::CutLink(_) => Self::CutLink(number),
            Self::HoleLink(_) => Self::HoleLink(number),
            Self::DelayLink(_) => Self::DelayLink(number),
            Self::DropClients(_) => Self::DropClients(number),
            Self::LoseRedis(_) => Self::LoseRedis(number),
            Self::LoseDatabase(_) => Self::LoseDatabase(number),
            other => other,
        }
    }

    /// What it happens to, in a cluster of so many.
    pub(super) fn targets(self, servers: usize) -> Vec<Target> {
        match self {
            Self::Kill(n) | Self::Stop(n) => vec![Target::Process(n)],
            Self::KillBeforeRelay(n) => (1..=servers).map(Target::Link).chain([Target::Process(n)]).collect(),
            Self::CutLink(n) | Self::HoleLink(n) | Self::DelayLink(n) => vec![Target::Link(n)],
            Self::DropClients(n) => vec![Target::Clients(n)],
            Self::LoseRedis(n) => vec![Target::RedisLink(n)],
            Self::LoseDatabase(n) => vec![Target::DatabaseLink(n)],
            Self::RedisRestart | Self::RedisWipe | Self::RedisPause | Self::RedisRefuses | Self::RedisFull => {
                vec![Target::Redis]
            }
            Self::PostgresFast | Self::PostgresImmediate => vec![Target::Postgres],
        }
    }

    /// How long it lasts, in ms: from, to. A lease is two seconds.
    fn lasts_ms(self) -> std::ops::Range<u64> {
        match self {
            Self::Kill(_) => 0..1,
            Self::KillBeforeRelay(_) => 200..600,
            Self::Stop(_) => 2_500..5_000,
            Self::DropClients(_) => 100..2_000,
            _ => 500..4_000,
        }
    }

    /// This fault, lasting as long as is usual.
    pub(super) fn at(self, at: Duration, random: &mut StdRng) -> Event {
        Event { at, lasts: Duration::from_millis(random.random_range(self.lasts_ms())), fault: self }
    }
}

/// Faults one after the other, in this order.
pub(super) fn in_turn(faults: &[Fault], random: &mut StdRng) -> Vec<Event> {
    let mut at = Duration::ZERO;
    let next = |fault: &Fault| {
        let event = fault.at(at, random);
        at += event.lasts;
        event
    };
    faults.iter().map(next).collect()
}

/// Faults at random for so long, several at a time too. All kinds come before one comes again.
pub(super) fn at_random(servers: usize, length: Duration, random: &mut StdRng) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let (mut deck, mut at) = (Vec::new(), Duration::ZERO);
    loop {
        at += Duration::from_millis(random.random_range(200..4_000));
        if deck.is_empty() {
            deck = Fault::all(servers);
            deck.shuffle(random);
        }
        let event = deck.pop().expect("it was filled").on(random.random_range(1..=servers)).at(at, random);
        let event = free(event, &events, servers);
        if event.at + event.lasts > length {
            return events;
        }
        at = event.at;
        events.push(event);
    }
}

/// The event, later if what it happens to is busy.
fn free(mut event: Event, others: &[Event], servers: usize) -> Event {
    let targets = event.fault.targets(servers);
    let same = others.iter().filter(|other| other.fault.targets(servers).iter().any(|target| targets.contains(target)));
    let over = same.map(|other| other.at + other.lasts + APART).max().unwrap_or_default();
    event.at = event.at.max(over);
    event
}
