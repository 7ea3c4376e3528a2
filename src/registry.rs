//! Who is connected anywhere: for each user the servers that hold a session of theirs, and for each server its lease.
//!
//! Two implementations, Redis for a cluster and an embedded one for a server on its own, answer to one contract, the
//! docs of [`Registry`], and to one test suite. All that is in here can be rebuilt from the servers' session maps;
//! nothing in here is the only copy of anything.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use async_trait::async_trait;

use crate::ids::{BootId, ServerId, UserId};

/// How long a user's entry lives without being asserted again. Owners do that about every five minutes, so that some
/// ten assertions in a row must be lost before a connected user is taken for absent.
pub const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// How long a server counts as alive after its last sign of life, unless it is told otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// What a server says of one user: whether it holds a session of theirs. It describes state, so it may be written twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// Whom it is about.
    pub user: UserId,
    /// Whether this server holds a session of theirs now.
    pub here: bool,
    /// Whether they are connected to it, or were until now: then it is noted that they were seen.
    pub seen: bool,
    /// Whether they have just come, so that most likely there is no entry yet. What is written does not depend on it.
    pub fresh: bool,
}

/// What a server tells the others about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRow {
    /// Its id.
    pub id: ServerId,
    /// The run of it.
    pub boot: BootId,
    /// Where its relay answers, `host:port`.
    pub relay: String,
    /// Whether it is about to leave.
    pub draining: bool,
    /// Its version, such as `0.1.0`.
    pub version: String,
}

/// The outcome of asking for one's own id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enlisted {
    /// The id is ours, for one lease.
    Ours,
    /// Another run holds it, and its lease still lasts this long.
    Held {
        /// That run.
        boot: BootId,
        /// What is left of its lease.
        left: Duration,
    },
}

/// The outcome of renewing one's own lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The row was there and ours.
    Kept,
    /// The row was missing, and was written again: the registry has lost things, so all users must be asserted again.
    Restored,
    /// The row is another run's now. Nothing was changed.
    Usurped(BootId),
}

/// Why the registry gave no answer. What was to be written may have been written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It did not answer in time, is starting or failing over, or was found away by an earlier call and has not answered
    /// a probe since. It passes: try again.
    #[error("the registry does not answer")]
    Away,
    /// It answered with an error that does not pass by itself, such as a missing permission.
    #[error("the registry refused: {0}")]
    Refused(String),
}

/// The contract. Every call has a deadline of its own and never hangs; every call may be repeated.
///
/// A server writes its own id only. Ids are compared as whole tokens: `local1` is not in `local10`.
#[async_trait]
pub trait Registry: Send + Sync + std::fmt::Debug + 'static {
    /// Writes one truth per user under this server's id: here adds the id if it is absent and extends the entry;
    /// not here takes the id out and deletes an entry that becomes empty. Answers for each user, in order, the ids of
    /// the *other* servers in the entry. One user's error is not another's.
    async fn write(&self, truths: &[Truth]) -> Vec<Result<Vec<ServerId>, Error>>;

    /// The servers that hold a session of each user, in order; empty for who is nowhere. One round trip for any number
    /// of users (in chunks; in Redis Cluster one per master, side by side). Never answered from a cache.
    async fn locate(&self, users: &[UserId]) -> Result<Vec<Vec<ServerId>>, Error>;

    /// When each user was last known to be connected, in order, in ms since 1970; none where that is not known (any
    /// more). Noted by [`write`](Self::write): when they leave and, should a server die, when it last asserted them.
    async fn last_seen(&self, users: &[UserId]) -> Result<Vec<Option<u64>>, Error>;

    /// Asks for the id in `row` for one lease. The own boot id, an absent row and a row whose lease has ended are all
    /// taken over.
    async fn enlist(&self, row: &ServerRow) -> Result<Enlisted, Error>;

    /// Renews the lease of `row.id` if the row is of `row.boot` or missing, and writes what `row` says.
    async fn renew(&self, row: &ServerRow) -> Result<Renewed, Error>;

    /// Takes the row away if it is of this boot.
    async fn withdraw(&self, id: &ServerId, boot: BootId) -> Result<(), Error>;

    /// All servers whose lease has not ended. Entries that ended a minute ago are dropped on the way.
    async fn servers(&self) -> Result<Vec<ServerRow>, Error>;

    /// A mark that changes whenever something may have been lost: another run of Redis, a node whose role changed, a
    /// connection that was replaced. Who sees it change asserts everything again.
    async fn generation(&self) -> Result<String, Error>;

    /// Ties the registry to one database: the first id to come is kept; answers the id that is kept.
    async fn bind_database(&self, id: &str) -> Result<String, Error>;
}
