//! What a database's error says about what was done.

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::{Error, Refusal};

/// Why a piece of work on the database came to nothing, or may have.
#[derive(Debug)]
pub(super) enum Failure {
    /// By our own rules.
    Refused(Refusal),
    /// Another transaction held something for longer than the lock timeout. Nothing was done.
    Locked(String),
    /// Two pieces of work were in each other's way. Nothing was done, and at once again it should succeed.
    Conflict(String),
    /// The database does not take what was given to it. Nothing was done.
    Rejected(String),
    /// The database is in trouble. Nothing was done.
    Away(String),
    /// A statement was sent and its answer is missing: it may have taken effect.
    Lost(String),
}

impl Failure {
    /// The same where a missing answer does no harm: before a commit, and for all that only reads.
    pub(super) fn before_commit(self) -> Self {
        match self {
            Self::Lost(why) => Self::Away(why),
            other => other,
        }
    }

    /// Whether it is about what was asked for, so that a part of it may succeed.
    pub(super) fn is_of_what_was_asked(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Locked(_) | Self::Conflict(_) | Self::Rejected(_))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::Lost(why) => Self::Unknown(why),
            Failure::Locked(why) | Failure::Conflict(why) | Failure::Rejected(why) | Failure::Away(why) => {
                Self::Unavailable(why)
            }
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let why = error.to_string();
        match &error {
            sqlx::Error::Database(database) => match database.try_downcast_ref::<PgDatabaseError>() {
                Some(error) => postgres(error, why),
                None => sqlite(&**database, why),
            },
            sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => Self::Rejected(why),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Self::Away(why),
            _ => Self::Lost(why),
        }
    }
}

/// An ordinary error undoes its transaction. A fatal one ends the connection, which can happen between the commit and
/// its answer.
fn postgres(error: &PgDatabaseError, why: String) -> Failure {
    if matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic) {
        return Failure::Lost(why);
    }
    let code = error.code();
    match code {
        "55P03" => Failure::Locked(why),
        // A unique violation, a deadlock, a serialization failure.
        "23505" | "40P01" | "40001" => Failure::Conflict(why),
        _ if ["22", "23", "54"].iter().any(|class| code.starts_with(class)) => Failure::Rejected(why),
        _ => Failure::Away(why),
    }
}

/// A failed write or sync of the file leaves open what a restart will find in it; all else undoes the transaction.
fn sqlite(error: &dyn DatabaseError, why: String) -> Failure {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const IO: i32 = 10;
    const TOO_BIG: i32 = 18;
    if error.is_unique_violation() {
        return Failure::Conflict(why);
    }
    let extended = error.code().and_then(|code| code.parse::<i32>().ok());
    match extended.unwrap_or_default() & 0xff {
        BUSY | LOCKED => Failure::Locked(why),
        IO => Failure::Lost(why),
        TOO_BIG => Failure::Rejected(why),
        _ if !matches!(error.kind(), ErrorKind::Other) => Failure::Rejected(why),
        _ => Failure::Away(why),
    }
}
