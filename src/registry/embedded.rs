//! In this process, for one server; or for several in one process, in tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use quick_cache::unsync::Cache;
use tokio::time::Instant;

use super::{ENTRY_TTL, Enlisted, Error, Registry, Renewed, ServerRow, Truth};
use crate::clock::unix_ms;
use crate::ids::{BootId, ServerId, UserId};

/// Of how many users it is kept when they were last seen.
const SEEN: usize = 100_000;

/// A registry in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Embedded {
    /// A std lock, since it is never held over an await.
    state: Arc<Mutex<State>>,
}

/// An embedded registry as one server sees it.
#[derive(Debug, Clone)]
pub struct EmbeddedRegistry {
    shared: Embedded,
    own: ServerId,
    lease: Duration,
}

#[derive(Debug)]
struct State {
    users: HashMap<UserId, Entry>,
    seen: Cache<UserId, u64>,
    servers: HashMap<ServerId, Leased>,
    database: Option<String>,
    /// When entries that ended were last cleared away.
    swept: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        let (users, servers) = (HashMap::new(), HashMap::new());
        Self { users, seen: Cache::new(SEEN), servers, database: None, swept: None }
    }
}

/// The servers that hold a session of one user.
#[derive(Debug)]
struct Entry {
    ids: Vec<ServerId>,
    ends: Instant,
}

/// A server's row and when its lease ends.
#[derive(Debug)]
struct Leased {
    row: ServerRow,
    ends: Instant,
}

impl Embedded {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The registry as the server `own` sees it, whose rows live for one `lease` at a time.
    pub fn for_server(&self, own: ServerId, lease: Duration) -> EmbeddedRegistry {
        EmbeddedRegistry { shared: self.clone(), own, lease }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, own: &ServerId, truth: &Truth, now: Instant) -> Vec<ServerId> {
        let mut others = self.find(&truth.user, now).to_vec();
        let mine = others.iter().position(|id| id == own);
        let mut ids = others.clone();
        match (truth.here, mine) {
            (true, None) => ids.push(own.clone()),
            (false, Some(index)) => drop(ids.remove(index)),
            _ => {}
        }
        others.retain(|id| id != own);
        if truth.seen {
            self.seen.insert(truth.user.clone(), unix_ms());
        }
        if ids.is_empty() {
            self.users.remove(&truth.user);
        } else if truth.here {
            self.users.insert(truth.user.clone(), Entry { ids, ends: now + ENTRY_TTL });
        } else if let Some(entry) = self.users.get_mut(&truth.user) {
            entry.ids = ids;
        }
        others
    }

    fn find(&self, user: &UserId, now: Instant) -> &[ServerId] {
        match self.users.get(user) {
            Some(entry) if entry.ends > now => &entry.ids,
            _ => &[],
        }
    }

    /// The lease of a server, if it has not ended.
    fn lease(&self, id: &ServerId, now: Instant) -> Option<&Leased> {
        self.servers.get(id).filter(|leased| leased.ends > now)
    }

    fn put(&mut self, row: &ServerRow, ends: Instant) {
        self.servers.insert(row.id.clone(), Leased { row: row.clone(), ends });
    }

    /// Clears away what ended, seldom: it looks at every user.
    fn sweep(&mut self, now: Instant) {
        self.servers.retain(|_, leased| leased.ends > now);
        if now - *self.swept.get_or_insert(now) >= ENTRY_TTL {
            self.swept = Some(now);
            self.users.retain(|_, entry| entry.ends > now);
        }
    }
}

#[async_trait]
impl Registry for EmbeddedRegistry {
    async fn write(&self, truths: &[Truth]) -> Vec<Result<Vec<ServerId>, Error>> {
        let (mut state, now) = (self.shared.state(), Instant::now());
        truths.iter().map(|truth| Ok(state.write(&self.own, truth, now))).collect()
    }

    async fn locate(&self, users: &[UserId]) -> Result<Vec<Vec<ServerId>>, Error> {
        let (state, now) = (self.shared.state(), Instant::now());
        Ok(users.iter().map(|user| state.find(user, now).to_vec()).collect())
    }

    async fn last_seen(&self, users: &[UserId]) -> Result<Vec<Option<u64>>, Error> {
        let state = self.shared.state();
        Ok(users.iter().map(|user| state.seen.get(user).copied()).collect())
    }

    async fn enlist(&self, row: &ServerRow) -> Result<Enlisted, Error> {
        let (mut state, now) = (self.shared.state(), Instant::now());
        if let Some(held) = state.lease(&row.id, now).filter(|held| held.row.boot != row.boot) {
            return Ok(Enlisted::Held { boot: held.row.boot, left: held.ends - now });
        }
        state.put(row, now + self.lease);
        Ok(Enlisted::Ours)
    }

    async fn renew(&self, row: &ServerRow) -> Result<Renewed, Error> {
        let (mut state, now) = (self.shared.state(), Instant::now());
        let renewed = match state.lease(&row.id, now) {
            Some(held) if held.row.boot != row.boot => return Ok(Renewed::Usurped(held.row.boot)),
            Some(_) => Renewed::Kept,
            None => Renewed::Restored,
        };
        state.put(row, now + self.lease);
        Ok(renewed)
    }

    async fn withdraw(&self, id: &ServerId, boot: BootId) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.servers.get(id).is_some_and(|leased| leased.row.boot == boot) {
            state.servers.remove(id);
        }
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<ServerRow>, Error> {
        let mut state = self.shared.state();
        state.sweep(Instant::now());
        Ok(state.servers.values().map(|leased| leased.row.clone()).collect())
    }

    /// Memory loses nothing while the process lives.
    async fn generation(&self) -> Result<String, Error> {
        Ok("embedded".into())
    }

    async fn bind_database(&self, id: &str) -> Result<String, Error> {
        Ok(self.shared.state().database.get_or_insert_with(|| id.to_owned()).clone())
    }
}
