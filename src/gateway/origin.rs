//! Which requests are let near a socket at all, by their `Origin` and `Host`.
//!
//! A browser lets any web page open a WebSocket to any server, so a page of a stranger could talk to a server on
//! someone's own machine. `Origin` says which page asks. A stranger can also point a name of theirs at that machine, so
//! that page and server look like one; where names are believed without a token, `Host` is checked against that.

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, ORIGIN};

use crate::config::{Authority, Origin, Origins};

/// Why a request is refused, with 403. The text is fit for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The page may not connect.
    #[error("this origin is not allowed")]
    Origin,
    /// The header is there twice, or malformed.
    #[error("the Origin header is malformed")]
    MalformedOrigin,
    /// The name of the server is not one that it goes by.
    #[error("this host is not allowed")]
    Host,
    /// The header is missing, there twice, or malformed.
    #[error("the Host header is missing or malformed")]
    MalformedHost,
}

/// Whether the page that asks may connect. What sends no `Origin` is no browser, and may.
///
/// # Errors
///
/// [`Refused`].
pub fn check_origin(headers: &HeaderMap, allowed: &Origins) -> Result<(), Refused> {
    let Some(text) = single(headers, ORIGIN).map_err(|Malformed| Refused::MalformedOrigin)? else {
        return Ok(());
    };
    if *allowed == Origins::Any {
        return Ok(());
    }
    // `null` is what a browser sends for a page that it will not name; it may be anyone's.
    let origin: Origin = text.parse().map_err(|_| Refused::Origin)?;
    let may = match allowed {
        Origins::Any => true,
        Origins::Only(list) => list.contains(&origin),
        Origins::Same => origin.is_of(&host(headers)?),
    };
    if may { Ok(()) } else { Err(Refused::Origin) }
}

/// Whether the request is for a name that this server goes by. A list decides; without one any name is good for tokens,
/// and none where names are `believed`. There, IP addresses and `localhost` are always good, since no stranger can
/// point those elsewhere.
///
/// # Errors
///
/// [`Refused`].
pub fn check_host(headers: &HeaderMap, allowed: &[Authority], believed: bool) -> Result<(), Refused> {
    if allowed.is_empty() && !believed {
        return Ok(());
    }
    let host = host(headers)?;
    let local = believed && (host.ip().is_some() || host.host() == "localhost");
    let may = local || allowed.iter().any(|one| covers(one, &host));
    if may { Ok(()) } else { Err(Refused::Host) }
}

/// Whether an allowed host covers the one asked for: without a port it covers all of them.
fn covers(allowed: &Authority, asked: &Authority) -> bool {
    allowed.host() == asked.host() && (allowed.port().is_none() || allowed.port() == asked.port())
}

fn host(headers: &HeaderMap) -> Result<Authority, Refused> {
    let text = single(headers, HOST).ok().flatten();
    text.and_then(|text| text.parse().ok()).ok_or(Refused::MalformedHost)
}

/// The header is there twice, or is no text.
struct Malformed;

/// The value of a header that must not be there twice: two readers could each take another one.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Malformed> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Malformed),
        (Some(_), Some(_)) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, axum::http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn same(origin: &str, host: &str) -> Result<(), Refused> {
        check_origin(&headers(&[(ORIGIN, origin), (HOST, host)]), &Origins::Same)
    }

    fn listed(origin: &str) -> Result<(), Refused> {
        let list = ["https://allowed.example", "http://localhost:3000"].map(|text| text.parse().unwrap());
        check_origin(&headers(&[(ORIGIN, origin), (HOST, "chat.example")]), &Origins::Only(list.to_vec()))
    }

    fn asked(host: &str, allowed: &[&str], believed: bool) -> Result<(), Refused> {
        let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        check_host(&headers(&[(HOST, host)]), &allowed, believed)
    }

    #[test]
    fn what_is_no_browser_sends_no_origin_and_may_connect() {
        let none = headers(&[(HOST, "chat.example")]);
        for allowed in [Origins::Same, Origins::Any, Origins::Only(Vec::new())] {
            assert_eq!(check_origin(&none, &allowed), Ok(()));
        }
    }

    #[test]
    fn a_page_of_the_same_origin_may_connect() {
        for (origin, host) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://localhost:8080", "LOCALHOST:8080"),
            ("HTTP://Chat.Example", "chat.example"),
            ("http://chat.example", "chat.example:80"),
            ("http://chat.example:80", "chat.example"),
            ("https://chat.example", "chat.example"),
            ("https://chat.example:443", "chat.example"),
            ("https://chat.example", "chat.example:443"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(same(origin, host), Ok(()), "{origin} {host}");
        }
    }

    #[test]
    fn a_page_of_another_origin_may_not() {
        for origin in [
            "http://evil.example",
            "http://chat.example:81",
            "https://chat.example:8443",
            "http://chat.example.evil.example",
            "http://evilchat.example",
            "http://chat.example@evil.example",
            "http://chat.example/",
            "ftp://chat.example",
            "chrome-extension://chat.example",
            "null",
            "",
            "chat.example",
        ] {
            assert_eq!(same(origin, "chat.example"), Err(Refused::Origin), "{origin}");
        }
        assert_eq!(same("http://127.0.0.1:3000", "127.0.0.1:8080"), Err(Refused::Origin));
        assert_eq!(same("http://localhost:8080", "127.0.0.1:8080"), Err(Refused::Origin));
    }

    #[test]
    fn the_same_origin_needs_a_host_to_be_the_same_as() {
        let none = headers(&[(ORIGIN, "http://chat.example")]);
        assert_eq!(check_origin(&none, &Origins::Same), Err(Refused::MalformedHost));
        let two = headers(&[(ORIGIN, "http://a"), (HOST, "a"), (HOST, "b")]);
        assert_eq!(check_origin(&two, &Origins::Same), Err(Refused::MalformedHost));
    }

    #[test]
    fn a_list_allows_what_is_in_it_to_the_letter_but_for_case() {
        for good in [
            "https://allowed.example",
            "HTTPS://ALLOWED.example",
            "https://allowed.example:443",
            "http://localhost:3000",
        ] {
            assert_eq!(listed(good), Ok(()), "{good}");
        }
        for bad in [
            "http://allowed.example",
            "https://allowed.example:8443",
            "https://allowed.example.evil.com",
            "https://sub.allowed.example",
            "https://allowed.example.",
            "http://localhost",
            "https://chat.example",
            "null",
        ] {
            assert_eq!(listed(bad), Err(Refused::Origin), "{bad}");
        }
    }

    #[test]
    fn a_star_allows_every_page() {
        for origin in ["https://anyone.example", "null"] {
            assert_eq!(check_origin(&headers(&[(ORIGIN, origin)]), &Origins::Any), Ok(()));
        }
    }

    #[test]
    fn two_origins_are_refused_even_where_any_is_allowed() {
        let two = headers(&[(ORIGIN, "http://a"), (ORIGIN, "http://a"), (HOST, "a")]);
        for allowed in [Origins::Same, Origins::Any] {
            assert_eq!(check_origin(&two, &allowed), Err(Refused::MalformedOrigin));
        }
        let not_text = headers(&[(ORIGIN, "http://\u{fc}")]);
        assert_eq!(check_origin(&not_text, &Origins::Any), Err(Refused::MalformedOrigin));
    }

    #[test]
    fn where_names_are_believed_a_stranger_cannot_lend_this_server_a_name() {
        for good in ["127.0.0.1:8080", "192.168.1.7", "[::1]:8080", "localhost", "LocalHost:8080"] {
            assert_eq!(asked(good, &[], true), Ok(()), "{good}");
        }
        for bad in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3"] {
            assert_eq!(asked(bad, &[], true), Err(Refused::Host), "{bad}");
        }
        assert_eq!(asked("dev.example:8080", &["dev.example"], true), Ok(()));
        assert_eq!(asked("localhost", &["dev.example"], true), Ok(()));
    }

    #[test]
    fn with_tokens_any_host_will_do_unless_there_is_a_list() {
        assert_eq!(asked("anything.example", &[], false), Ok(()));
        assert_eq!(check_host(&HeaderMap::new(), &[], false), Ok(()));
        let list = ["chat.example", "chat.example.org:8443"];
        for good in ["chat.example", "Chat.Example:9000", "chat.example.org:8443"] {
            assert_eq!(asked(good, &list, false), Ok(()), "{good}");
        }
        for bad in ["chat.example.org", "chat.example.org:8444", "localhost", "127.0.0.1", "chat.example.evil.com"] {
            assert_eq!(asked(bad, &list, false), Err(Refused::Host), "{bad}");
        }
    }

    #[test]
    fn a_host_that_is_checked_must_be_there_once() {
        assert_eq!(check_host(&HeaderMap::new(), &[], true), Err(Refused::MalformedHost));
        let two = headers(&[(HOST, "localhost"), (HOST, "evil.example")]);
        assert_eq!(check_host(&two, &[], true), Err(Refused::MalformedHost));
        assert_eq!(asked("local host", &[], true), Err(Refused::MalformedHost));
    }
}
