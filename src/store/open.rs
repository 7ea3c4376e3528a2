//! How a database is opened, and the one line that is said when it cannot be.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::MigrateError;

use super::{Inner, Store, postgres, sqlite};

/// How a database is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most connections to PostgreSQL; at least two are made. Default 10.
    pub connections: u32,
    /// How long one statement may take. Default 5 s.
    pub statement_timeout: Duration,
    /// How long a statement may wait for what another transaction holds. Default 2 s.
    pub lock_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 10, statement_timeout: Duration::from_secs(5), lock_timeout: Duration::from_secs(2) }
    }
}

/// Why a database could not be opened. Passwords are masked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL is not understood.
    #[error("the database URL {url} is not understood: {why}")]
    BadUrl {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers there, or not in time.
    #[error("the database {place} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        place: String,
        /// What happened.
        why: String,
    },
    /// It answers, and does not let us in.
    #[error("the database {place} refused: {why}")]
    Refused {
        /// Where.
        place: String,
        /// What it said.
        why: String,
    },
    /// It can be read but not written.
    #[error("the database {place} cannot be written: {why}")]
    NotWritable {
        /// Where.
        place: String,
        /// What happened.
        why: String,
    },
    /// A later version of this program has changed the schema.
    #[error("the database {place} is of a newer version than this program: it has schema {schema}")]
    Newer {
        /// Where.
        place: String,
        /// The first change of the schema that this program does not know.
        schema: i64,
    },
    /// Another process has the SQLite file.
    #[error("the database {path} is in use by another process")]
    Locked {
        /// The file.
        path: String,
    },
}

impl OpenError {
    pub(super) fn bad_url(url: &str, why: &dyn Display) -> Self {
        Self::BadUrl { url: masked(url), why: one_line(why) }
    }
}

/// Why a database could not be made ready, before it is said where.
pub(super) enum Trouble {
    Sql(sqlx::Error),
    Newer(i64),
    Migration(MigrateError),
    Slow,
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<MigrateError> for Trouble {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(schema) => Self::Newer(schema),
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Self::Sql(error),
            error => Self::Migration(error),
        }
    }
}

impl Trouble {
    /// The error to show.
    pub(super) fn at(self, url: &str) -> OpenError {
        let place = masked(url);
        match self {
            Self::Newer(schema) => OpenError::Newer { place, schema },
            Self::Migration(error) => OpenError::Refused { place, why: one_line(&error) },
            Self::Slow => OpenError::Unreachable { place, why: "it does not answer in time".into() },
            Self::Sql(sqlx::Error::Database(error)) => {
                let why = one_line(&error.message());
                match error.code().as_deref() {
                    // PostgreSQL is starting or stopping.
                    Some("57P01" | "57P02" | "57P03") => OpenError::Unreachable { place, why },
                    // PostgreSQL is a standby; SQLite's file or directory is read-only, or cannot be opened.
                    Some("25006" | "8" | "14" | "264" | "520" | "776" | "1032" | "1288" | "1544") => {
                        OpenError::NotWritable { place, why }
                    }
                    _ => OpenError::Refused { place, why },
                }
            }
            Self::Sql(error) => OpenError::Unreachable { place, why: one_line(&error) },
        }
    }
}

impl Store {
    /// Opens `sqlite:PATH`, whose file and directory are made where they are missing, or `postgres://...`, and brings
    /// the schema up to date. Several servers may do so at once.
    ///
    /// # Errors
    /// One line that says what and where.
    pub async fn open(url: &str, options: &Options) -> Result<Self, OpenError> {
        let (pools, database_id, lock) = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => {
                let (pools, id, lock) = sqlite::open(url, options).await?;
                (pools, id, Some(lock))
            }
            Some("postgres" | "postgresql") => {
                let (pools, id) = postgres::open(url, options).await?;
                (pools, id, None)
            }
            _ => return Err(OpenError::bad_url(url, &"it begins with neither sqlite: nor postgres://")),
        };
        let inner = Inner { pools, options: options.clone(), database_id, _lock: lock };
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// A random id for a database.
pub(super) fn fresh_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn one_line(what: &dyn Display) -> String {
    what.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A URL without its password and its parameters, which may hold another.
fn masked(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let Some((login, place)) = rest.rsplit_once('@') else { return url.into() };
    match login.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***@{place}"),
        None => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://chat:s3:cr@et@db:5432/chat?password=x", "postgres://chat:***@db:5432/chat"),
            ("postgres://chat@db/chat", "postgres://chat@db/chat"),
            ("sqlite:/data/chat.db", "sqlite:/data/chat.db"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
