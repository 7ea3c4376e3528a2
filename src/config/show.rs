//! The effective configuration as text: one flag per line, secrets masked.

use std::fmt::{self, Display};

use super::values::written;
use super::{Auth, Cluster, Config, Database, Gateway, Keys, LogFormat, Logs, Origins, Store};

impl Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gateway.fmt(f)?;
        self.auth.fmt(f)?;
        self.store.fmt(f)?;
        line(f, "server-id", &self.server_id)?;
        match &self.cluster {
            Some(cluster) => cluster.fmt(f)?,
            None => line(f, "redis", "none")?,
        }
        self.push.fmt(f)?;
        line(f, "admin-listen", self.admin_listen.map_or("off".into(), |address| address.to_string()))?;
        self.logs.fmt(f)
    }
}

impl Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "listen", self.listen)?;
        line(f, "allow-origin", &self.origins)?;
        line(f, "allow-host", if self.hosts.is_empty() { "default".into() } else { list(&self.hosts) })?;
        line(f, "max-connections", self.max_connections.map_or("by open files".into(), |most| most.to_string()))?;
        line(f, "ping-interval", written(self.ping_interval))?;
        line(f, "write-timeout", written(self.write_timeout))?;
        line(f, "queue-bytes", self.queue_bytes)?;
        line(f, "trace-frames", self.trace_frames)?;
        line(f, "receipt-members", self.receipt_members)?;
        line(f, "drain", written(self.drain))
    }
}

impl Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same origin"),
            Self::Any => f.write_str("*"),
            Self::Only(origins) => f.write_str(&list(origins)),
        }
    }
}

impl Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "dev-auth", self.dev)?;
        match &self.keys {
            Some(Keys::Secret(secret)) => line(f, "jwt-secret", secret)?,
            Some(Keys::Pem(_)) => line(f, "jwt-key-file", "a public key")?,
            Some(Keys::Jwks(url)) => line(f, "jwt-jwks-url", url)?,
            None => {}
        }
        line(f, "jwt-audience", self.audience.as_deref().unwrap_or("any"))?;
        line(f, "jwt-issuer", self.issuer.as_deref().unwrap_or("any"))
    }
}

impl Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "database", &self.database)?;
        line(f, "database-connections", self.connections)
    }
}

/// As the flag takes it, the password masked.
impl Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "redis", &self.redis)?;
        if let Some(path) = &self.redis_ca_file {
            line(f, "redis-ca-file", path.display())?;
        }
        line(f, "relay-listen", self.relay_listen)?;
        line(f, "relay-advertise", self.relay_advertise.clone().unwrap_or_else(|| self.relay_listen.to_string()))?;
        line(f, "cluster-secret", &self.secret)?;
        line(f, "lease", written(self.lease))
    }
}

impl Display for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "log", &self.filter)?;
        line(f, "log-format", if self.format == LogFormat::Json { "json" } else { "text" })
    }
}

pub(super) fn line(f: &mut fmt::Formatter<'_>, flag: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "{flag} = {value}")
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}
