//! Where a web page comes from, and the host a request is for, in the form in which two of them can be compared.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A host, perhaps with a port, as in a `Host` header. Lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    host: String,
    port: Option<u16>,
}

/// The text is not of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is no host.
    #[error("write a host name or IP address, with a port if need be, such as chat.example or 10.0.0.1:8080")]
    Authority,
    /// It is no origin.
    #[error("write a scheme and a host, such as https://chat.example or http://localhost:3000, or *")]
    Origin,
}

impl Authority {
    /// The host in lower case; an IPv6 address has its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, when it was written.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The host as an IP address, when it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

impl FromStr for Authority {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (host, port) = match text.rfind(':') {
            Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
            _ => (text, None),
        };
        let port = port.map(number).transpose()?;
        if is_host(host) { Ok(Self { host: host.to_ascii_lowercase(), port }) } else { Err(Malformed::Authority) }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Digits only: the standard parser would take `+80`.
fn number(text: &str) -> Result<u16, Malformed> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(Malformed::Authority)
}

fn is_host(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
        None => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            matches!(text.len(), 1..=253) && text.bytes().all(allowed)
        }
    }
}

/// Where a web page comes from. The port is always there, so that `https://a` and `https://a:443` are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    secure: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// Whether this page was served under that host. A host without a port is taken to be at this scheme's own.
    pub fn is_of(&self, host: &Authority) -> bool {
        self.host == host.host && self.port == host.port.unwrap_or(default_port(self.secure))
    }
}

impl FromStr for Origin {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (scheme, rest) = text.split_once("://").ok_or(Malformed::Origin)?;
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(Malformed::Origin);
        }
        let Authority { host, port } = rest.parse().map_err(|_| Malformed::Origin)?;
        Ok(Self { secure, host, port: port.unwrap_or(default_port(secure)) })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == default_port(self.secure) { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// One value of `--allow-origin`.
#[derive(Debug, Clone)]
pub(super) enum AllowedOrigin {
    Any,
    Exactly(Origin),
}

impl FromStr for AllowedOrigin {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text == "*" { Ok(Self::Any) } else { text.parse().map(Self::Exactly) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_same_in_any_case_and_with_its_default_port() {
        let plain: Origin = "https://chat.example".parse().unwrap();
        for same in ["https://chat.example:443", "HTTPS://Chat.Example"] {
            assert_eq!(same.parse(), Ok(plain.clone()), "{same}");
        }
        for other in ["http://chat.example", "https://chat.example:8443", "https://chat.example.evil.com"] {
            assert_ne!(other.parse(), Ok(plain.clone()), "{other}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_nothing_else() {
        for bad in [
            "null",
            "",
            "https://",
            "https://a/",
            "https://a/path",
            "https://u@a",
            "https://a:",
            "https://a:+80",
            "https://a:99999",
            "ftp://a",
            "chat.example",
            "https://a b",
            "https://[::1",
            "https://a:1:2",
        ] {
            assert_eq!(bad.parse::<Origin>(), Err(Malformed::Origin), "{bad:?}");
        }
    }

    #[test]
    fn an_authority_may_be_a_name_or_an_address_with_or_without_port() {
        for (text, host, port) in [
            ("Localhost", "localhost", None),
            ("10.0.0.1:80", "10.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[::1]:8080", "[::1]", Some(8080)),
        ] {
            let authority: Authority = text.parse().unwrap();
            assert_eq!((authority.host(), authority.port()), (host, port));
        }
        assert!("[::1]".parse::<Authority>().unwrap().ip().is_some());
        assert!("::1".parse::<Authority>().is_err());
    }
}
