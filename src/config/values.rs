//! Single values: how they are read, and how secret ones are kept from being shown.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use url::Url;

/// What is shown in place of a secret.
pub(super) const MASK: &str = "********";

/// A secret. It prints as `********`; only [`expose`](Self::expose) gives it away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps what must not be shown.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// A URL that may hold a password. It prints with the password masked.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(Url);

impl SecretUrl {
    /// Wraps a URL.
    pub fn new(url: Url) -> Self {
        Self(url)
    }

    /// The URL with its password.
    pub fn expose(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.clone();
        if shown.password().is_some() && shown.set_password(Some(MASK)).is_err() {
            return f.write_str(MASK);
        }
        // PostgreSQL takes a password as a parameter too.
        let secret =
            |name: &str| ["password", "secret", "token", "key", "auth", "sig"].iter().any(|word| name.contains(word));
        if self.0.query_pairs().any(|(name, _)| secret(&name)) {
            let mut pairs = shown.query_pairs_mut();
            pairs.clear();
            for (name, value) in self.0.query_pairs() {
                pairs.append_pair(&name, if secret(&name) { MASK } else { &value });
            }
        }
        shown.fmt(f)
    }
}

/// The URL of a Redis. It may name several nodes, which other URLs do not. It prints with the password masked.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// Takes a URL of one of the schemes that name a Redis.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let plain = scheme.replacen("rediss", "redis", 1);
        let known = matches!(&*plain, "redis" | "redis+cluster" | "redis+sentinel");
        (known && !rest.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The URL with its password.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or_default();
        let masked =
            rest.rsplit_once('@').map(|(login, place)| (login.split_once(':').map_or(login, |(user, _)| user), place));
        match masked {
            Some((user, place)) => write!(f, "{scheme}://{user}:{MASK}@{place}"),
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Something, or `off`.
#[derive(Debug, Clone)]
pub(super) struct OffOr<T>(pub(super) Option<T>);

impl FromStr for OffOr<SocketAddr> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") { Ok(Self(None)) } else { address(text).map(|it| Self(Some(it))) }
    }
}

/// Reads an address with a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".into())
}

/// Reads `host:port`, where others can really connect to.
pub(super) fn host_port(text: &str) -> Result<String, String> {
    let rule = || "write a host or IP address and a port, such as chat1.internal:9090".to_owned();
    let authority: super::Authority = text.parse().map_err(|_| rule())?;
    match (authority.ip(), authority.port()) {
        (Some(ip), _) if ip.is_unspecified() => Err(format!("{ip} is no address one can connect to")),
        (_, None | Some(0)) => Err(rule()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads a duration of 1 ms to 24 h.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let rule = "write a whole number and a unit, such as 500ms, 10s, 2m or 1h, up to 24h";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(rule.into()),
    };
    let millis = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    millis.filter(|millis| matches!(millis, 1..=86_400_000)).map(Duration::from_millis).ok_or_else(|| rule.into())
}

/// Reads a lease. A shorter one would be lost to a pause of the process, a longer one would keep messages waiting.
pub(super) fn lease(text: &str) -> Result<Duration, String> {
    from_one_second(text, "5m")
}

/// Reads how long an acknowledgement may take. Sooner would push to who is there, on a slow network.
pub(super) fn push_after(text: &str) -> Result<Duration, String> {
    from_one_second(text, "1h")
}

fn from_one_second(text: &str, most: &str) -> Result<Duration, String> {
    let read = duration(text)?;
    let fits = (Duration::from_secs(1)..=duration(most)?).contains(&read);
    if fits { Ok(read) } else { Err(format!("write a duration from 1s to {most}")) }
}

/// Reads what is to be logged.
pub(super) fn directive(text: &str) -> Result<String, String> {
    // A word that is no level would be taken for the name of a module, and silence all others.
    let is_clear = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    match EnvFilter::try_new(text) {
        Ok(_) if text.split(',').all(|part| is_clear(part.trim())) => Ok(text.to_owned()),
        _ => Err("write a level, such as info, or levels per module, such as warn,minichat=debug".into()),
    }
}

/// Writes a duration the way [`duration`] reads it.
pub(super) fn written(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis % 60_000 == 0 => format!("{}m", millis / 60_000),
        millis if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "10", "s", "1.5s", "-1s", "0s", "25h", "10 s", "10sec", "99999999999999999999s", "1ü"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for text in ["1ms", "1500ms", "10s", "2m", "90s"] {
            assert_eq!(written(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn a_lease_has_bounds() {
        assert!(lease("1s").is_ok() && lease("5m").is_ok());
        assert!(lease("999ms").is_err() && lease("301s").is_err());
    }

    #[test]
    fn the_time_to_a_push_has_bounds() {
        assert!(push_after("1s").is_ok() && push_after("1h").is_ok());
        assert_eq!(push_after("999ms"), Err("write a duration from 1s to 1h".into()));
        assert!(push_after("61m").is_err());
    }

    #[test]
    fn an_advertised_address_is_one_that_others_can_connect_to() {
        for good in ["chat1:9090", "10.0.0.1:9090", "[fd00::1]:9090"] {
            assert_eq!(host_port(good).as_deref(), Ok(good));
        }
        for bad in ["chat1", "0.0.0.0:9090", "[::]:9090", "chat1:0", ":9090", "http://chat1:9090", "a b:1"] {
            assert!(host_port(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        let shown = |text: &str| SecretUrl::new(text.parse().unwrap()).to_string();
        assert_eq!(shown("postgres://me:hunter2@db/chat"), "postgres://me:********@db/chat");
        assert_eq!(shown("redis://:hunter2@127.0.0.1:6379/1"), "redis://:********@127.0.0.1:6379/1");
        assert_eq!(shown("postgres:///chat?password=hunter2&x=1"), "postgres:///chat?password=********&x=1");
        assert_eq!(shown("https://id.example/keys?a=b"), "https://id.example/keys?a=b");
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "******** ********");
    }
}
