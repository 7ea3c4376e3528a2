//! Connections to PostgreSQL that are kept from one use to the next.
//!
//! The library's own pool asks the database for a sign of life whenever a connection comes back, from a task that it
//! starts for that: a second round trip for every statement. Here it is [`Db`](super::connection::Db) that knows whether
//! a connection is whole; one that is not does not come back.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// A connection that was idle for longer is tried before it is used, since the database may have restarted.
const TRUST_IDLE: Duration = Duration::from_secs(5);

/// One that was not needed for so long is closed when another comes back.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// The longest that a connection is kept: what the database holds for it only grows, and a name may lead elsewhere by now.
const AGE_LIMIT: Duration = Duration::from_secs(1_800);

/// How long to wait where nobody listens, or the database is only starting.
const RETRY: Duration = Duration::from_millis(50);

/// Some connections, made when they are needed. A clone is another handle to the same.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    connect: PgConnectOptions,
    acquire_timeout: Duration,
    places: Arc<Semaphore>,
    /// The last to come back is the first to be used, so that those that are not needed are seen to be.
    idle: Mutex<Vec<Kept>>,
}

struct Kept {
    connection: PgConnection,
    made: Instant,
    back: Instant,
}

/// A connection on loan. Dropped, it is closed: see [`Lent::give_back`].
pub(super) struct Lent {
    connection: PgConnection,
    made: Instant,
    pool: Pool,
    place: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool of at most `most` connections, none of which is made yet. Who waits longer than `acquire_timeout` for one
    /// gets an error.
    pub(super) fn new(connect: PgConnectOptions, most: u32, acquire_timeout: Duration) -> Self {
        let (places, idle) = (Arc::new(Semaphore::new(most as usize)), Mutex::default());
        Self(Arc::new(Inner { connect, acquire_timeout, places, idle }))
    }

    /// A connection that answered not long ago, or a new one.
    ///
    /// # Errors
    /// [`Error::PoolTimedOut`] where there was none in time; else why none can be made.
    pub(super) async fn acquire(&self) -> Result<Lent, Error> {
        timeout(self.0.acquire_timeout, self.lend()).await.unwrap_or(Err(Error::PoolTimedOut))
    }

    async fn lend(&self) -> Result<Lent, Error> {
        let place = Arc::clone(&self.0.places).acquire_owned().await.map_err(|_| Error::PoolClosed)?;
        let (connection, made) = match self.kept().await {
            Some(kept) => (kept.connection, kept.made),
            // Boxed, since it is large and rare.
            None => (Box::pin(self.connect()).await?, Instant::now()),
        };
        Ok(Lent { connection, made, pool: self.clone(), place })
    }

    /// The first that is there and well.
    async fn kept(&self) -> Option<Kept> {
        loop {
            let mut kept = self.idle().pop()?;
            if kept.back.elapsed() < TRUST_IDLE || kept.connection.ping().await.is_ok() {
                return Some(kept);
            }
        }
    }

    /// Connects; where nobody listens or the database is only starting, again and again until the caller gives up.
    async fn connect(&self) -> Result<PgConnection, Error> {
        loop {
            match PgConnection::connect_with(&self.0.connect).await {
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(Error::Database(error)) if error.is_transient_in_connect_phase() => {}
                outcome => return outcome,
            }
            sleep(RETRY).await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    /// Gives it back, to be used again. It must be whole: no statement under way, no transaction open.
    pub(super) fn give_back(self) {
        let Self { connection, made, pool, place } = self;
        if made.elapsed() < AGE_LIMIT {
            let back = Instant::now();
            let mut idle = pool.idle();
            idle.push(Kept { connection, made, back });
            let stale = idle.first().is_some_and(|kept| back - kept.back > IDLE_LIMIT).then(|| idle.remove(0));
            drop(idle);
            drop(stale);
        }
        // Whoever waits for it finds the connection.
        drop(place);
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
