//! The Lua scripts. Each touches one key, so that it runs in Redis Cluster as it does in a single Redis, and each says
//! in its head what it takes and answers.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Script};

/// A script as the registry calls it.
pub(super) struct Lua {
    source: &'static str,
    hash: String,
}

/// All scripts.
pub(super) struct Scripts {
    pub(super) claim: Lua,
    pub(super) release: Lua,
    pub(super) enlist: Lua,
    pub(super) renew: Lua,
    pub(super) withdraw: Lua,
    pub(super) mark: Lua,
    pub(super) roster: Lua,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    claim: Lua::new(include_str!("scripts/claim.lua")),
    release: Lua::new(include_str!("scripts/release.lua")),
    enlist: Lua::new(include_str!("scripts/enlist.lua")),
    renew: Lua::new(include_str!("scripts/renew.lua")),
    withdraw: Lua::new(include_str!("scripts/withdraw.lua")),
    mark: Lua::new(include_str!("scripts/mark.lua")),
    roster: Lua::new(include_str!("scripts/roster.lua")),
});

impl Scripts {
    /// Commands that make all scripts known to one Redis.
    pub(super) fn load(&self) -> Pipeline {
        let all = [&self.claim, &self.release, &self.enlist, &self.renew, &self.withdraw, &self.mark, &self.roster];
        let mut pipeline = redis::pipe();
        for script in all {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source).ignore();
        }
        pipeline
    }
}

impl Lua {
    fn new(source: &'static str) -> Self {
        Self { source, hash: Script::new(source).get_hash().to_owned() }
    }

    /// The script on one key; its arguments are added to what this gives.
    pub(super) fn on(&self, key: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(key);
        command
    }
}
