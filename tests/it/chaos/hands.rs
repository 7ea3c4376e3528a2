//! How each fault is brought about, and how it ends.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::fault::Fault;
use super::run::Run;
use crate::support::server::{Server, Signal};

/// How long a killed server is started again and again: what it needs may be away.
pub(super) const STARTING: Duration = Duration::from_secs(60);

/// How long what goes to a server takes when its link is slow.
const DELAY: Duration = Duration::from_millis(150);

impl Run {
    /// Lets a fault begin.
    pub(super) fn injure(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(n) => self.kill(n),
            Fault::KillBeforeRelay(n) => self.others(n).for_each(|m| self.cluster.links(m).relay.black_hole()),
            Fault::Stop(n) => self.cluster.server(n).signal(Signal::Stop),
            Fault::CutLink(n) => self.cluster.links(n).relay.reset(),
            Fault::HoleLink(n) => self.cluster.links(n).relay.black_hole(),
            Fault::DelayLink(n) => self.cluster.links(n).relay.delay(DELAY),
            Fault::DropClients(n) => self.cluster.links(n).clients.black_hole(),
            Fault::LoseRedis(n) => self.cluster.links(n).redis.black_hole(),
            Fault::LoseDatabase(n) => self.cluster.links(n).database.black_hole(),
            Fault::RedisRestart => {
                self.cluster.redis.save();
                self.cluster.redis.kill();
            }
            Fault::RedisWipe => self.cluster.redis.kill(),
            Fault::RedisPause => self.cluster.redis.pause(),
            Fault::RedisRefuses => self.set_redis("min-replicas-to-write", "1"),
            Fault::RedisFull => self.set_redis("maxmemory", "1"),
            Fault::PostgresFast => self.postgres.stop_fast(),
            Fault::PostgresImmediate => self.postgres.stop_immediately(),
        }
    }

    /// Lets it end.
    pub(super) fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(_) => {}
            Fault::KillBeforeRelay(n) => {
                self.kill(n);
                self.others(n).for_each(|m| self.cluster.links(m).relay.heal());
            }
            Fault::Stop(n) => self.cluster.server(n).signal(Signal::Cont),
            Fault::CutLink(n) | Fault::HoleLink(n) | Fault::DelayLink(n) => self.cluster.links(n).relay.heal(),
            Fault::DropClients(n) => self.cluster.links(n).clients.heal(),
            Fault::LoseRedis(n) => self.cluster.links(n).redis.heal(),
            Fault::LoseDatabase(n) => self.cluster.links(n).database.heal(),
            Fault::RedisRestart => self.cluster.redis.start_again(),
            Fault::RedisWipe => self.cluster.redis.restart_empty(),
            Fault::RedisPause => self.cluster.redis.resume(),
            Fault::RedisRefuses => self.set_redis("min-replicas-to-write", "0"),
            Fault::RedisFull => self.set_redis("maxmemory", "0"),
            Fault::PostgresFast | Fault::PostgresImmediate => self.postgres.start_again(),
        }
    }

    fn set_redis(&self, name: &str, value: &str) {
        assert_eq!(self.cluster.redis.cli(&["CONFIG", "SET", name, value]), "OK");
    }

    /// The servers besides this one.
    fn others(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        (1..=self.size.servers).filter(move |other| *other != number)
    }

    /// Kills a server, and starts it again under its id until it comes up.
    fn kill(&mut self, number: usize) {
        self.cluster.server(number).kill();
        let flags = self.cluster.flags(number);
        let runtime = Handle::current();
        self.starting.spawn_blocking(move || (number, runtime.block_on(start(&flags))));
    }
}

/// Starts a server, again and again until it comes up.
async fn start(flags: &[String]) -> Server {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let deadline = Instant::now() + STARTING;
    loop {
        match Server::try_start(&flags).await {
            Ok(server) => return server,
            Err(failed) => assert!(Instant::now() < deadline, "it does not start: {failed:#?}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
}
