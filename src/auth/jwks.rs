//! A set of public keys that is fetched, and kept fresh by one task.
//!
//! It is fetched at the start, every ten minutes, and when a token names a key that is not known: issuers change keys,
//! and a token of a new key may come first. Since anyone can name any key, that last kind happens at most every ten
//! seconds, however many ask.

mod fetch;

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Denied, key::Key};
use crate::config::SecretUrl;
use crate::lifecycle::Lifecycle;

pub use fetch::Failure;

use fetch::{Fetcher, NamedKey};

/// How often the set is fetched unasked, so that a key that was withdrawn ends here too.
const REFRESH: Duration = Duration::from_secs(600);
/// The least time between two fetches because of unknown keys.
const ASKED_APART: Duration = Duration::from_secs(10);
/// Of a name that a stranger chose, this many bytes go to the log.
const MAX_LOGGED_NAME: usize = 64;

/// The keys as they were last had, with a way to ask for fresh ones. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct KeySet {
    state: watch::Receiver<State>,
    ask: Arc<Notify>,
}

#[derive(Debug, Clone)]
struct State {
    keys: Arc<[NamedKey]>,
    /// How many times they were fetched or that was tried.
    tries: u64,
    /// From when on asking is of use.
    open: Instant,
}

impl KeySet {
    /// Fetches the set and leaves a task behind that keeps it fresh.
    pub(super) async fn start(url: &SecretUrl, lifecycle: &Lifecycle) -> Result<Self, Failure> {
        let fetcher = Fetcher::new(url)?;
        let keys: Arc<[NamedKey]> = fetcher.fetch().await?.into();
        tracing::info!(%url, keys = keys.len(), "fetched the keys for tokens");
        let (publish, state) = watch::channel(State { keys, tries: 0, open: Instant::now() });
        let ask = Arc::new(Notify::new());
        let refresher = Refresher { fetcher, publish, ask: ask.clone() };
        let stop = lifecycle.stop.clone();
        lifecycle.spawn("jwks", async move {
            stop.run_until_cancelled(refresher.run()).await;
        });
        Ok(Self { state, ask })
    }

    /// The key of that name for that algorithm. Waits for one fetch if the name is not known and asking is of use.
    pub(super) async fn find(&self, name: Option<&str>, algorithm: Algorithm) -> Result<Arc<Key>, Denied> {
        let state = self.state.borrow().clone();
        match find(&state.keys, name, algorithm) {
            Err(Denied::UnknownKey(_)) if state.open <= Instant::now() => {
                find(&self.fresher_than(state).await.keys, name, algorithm)
            }
            settled => settled,
        }
    }

    /// Asks for a fetch and waits for its outcome, or for that of one already under way.
    async fn fresher_than(&self, old: State) -> State {
        self.ask.notify_one();
        let mut state = self.state.clone();
        let fresh = state.wait_for(|state| state.tries > old.tries).await.map(|fresh| fresh.clone());
        // An error means that the server stops.
        fresh.unwrap_or(old)
    }
}

fn find(keys: &[NamedKey], name: Option<&str>, algorithm: Algorithm) -> Result<Arc<Key>, Denied> {
    let Some(name) = name else {
        let mut fitting = keys.iter().filter(|named| named.key.algorithm() == algorithm);
        return match (fitting.next(), fitting.next()) {
            (Some(only), None) => Ok(only.key.clone()),
            _ => Err(Denied::NoKeyNamed),
        };
    };
    let mut of_name = keys.iter().filter(|named| named.name.as_deref() == Some(name)).peekable();
    if of_name.peek().is_none() {
        return Err(Denied::UnknownKey(shortened(name)));
    }
    let fitting = of_name.find(|named| named.key.algorithm() == algorithm);
    fitting.map(|named| named.key.clone()).ok_or(Denied::Algorithm)
}

fn shortened(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_LOGGED_NAME)].to_owned()
}

/// The task that fetches, one at a time.
struct Refresher {
    fetcher: Fetcher,
    publish: watch::Sender<State>,
    ask: Arc<Notify>,
}

impl Refresher {
    async fn run(self) {
        let mut regular = interval_at(Instant::now() + REFRESH, REFRESH);
        regular.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = regular.tick() => self.refresh(None).await,
                () = self.ask.notified() => self.refresh_when_asked().await,
            }
        }
    }

    /// Whoever asked while a fetch was under way had their answer from it; what is left of their asking comes here.
    async fn refresh_when_asked(&self) {
        let now = Instant::now();
        let open = self.publish.borrow().open;
        if open <= now {
            self.refresh(Some(now + ASKED_APART)).await;
        }
    }

    /// Fetches. The old keys stay when that fails: an issuer that is away must not lock everyone out.
    async fn refresh(&self, open: Option<Instant>) {
        let outcome = self.fetcher.fetch().await;
        if let Err(failure) = &outcome {
            tracing::warn!(%failure, "cannot refresh the keys for tokens, the old ones stay");
        }
        self.publish.send_modify(|state| {
            state.tries += 1;
            state.open = open.unwrap_or(state.open);
            if let Ok(keys) = outcome {
                state.keys = keys.into();
            }
        });
    }
}
