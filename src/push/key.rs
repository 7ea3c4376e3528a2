//! The names under which a push is known outside: the same for each try, whichever server makes it.

use std::fmt::Write;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sha2::{Digest, Sha256};

use crate::store::{Push, PushKind};

/// What does not go into a header as it is, or would make a key ambiguous.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';');

/// The idempotency key: the message, the user, and for a device a mark of its token. Visible ASCII.
pub(super) fn idempotency(push: &Push) -> String {
    let user = utf8_percent_encode(push.user.as_str(), ENCODED);
    match push.kind {
        PushKind::Webhook => format!("{}:{user}", push.message),
        PushKind::Fcm => format!("{}:{user}:{}", push.message, mark(&push.token)),
    }
}

/// What a repeat has in common with the first, on whatever device: at most 37 visible ASCII characters.
pub(super) fn tag(push: &Push) -> String {
    format!("{}-{}", push.message, mark(push.user.as_str()))
}

/// A short hash: enough to tell a user's few devices apart, and of no use to find the token.
fn mark(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into memory does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::push;
    use super::*;

    #[test]
    fn a_key_fits_a_header_and_names_no_token() {
        let mut push = push();
        push.user = "zoë, 100%:a".parse().unwrap();
        assert_eq!(idempotency(&push), "7163482910221234:zo%C3%AB%2C%20100%25:a");
        push.kind = PushKind::Fcm;
        push.token = "device-token".into();
        let key = idempotency(&push);
        assert!(key.starts_with("7163482910221234:zo%C3%AB%2C%20100%25:a:") && !key.contains("token"), "{key}");
        push.token = "another".into();
        assert_ne!(idempotency(&push), key);
    }

    #[test]
    fn a_tag_is_of_message_and_user_and_short_enough_for_apple() {
        let mut push = push();
        push.user = "x".repeat(128).parse().unwrap();
        let tag_of_first = tag(&push);
        assert!(tag_of_first.len() <= 64 && tag_of_first.is_ascii());
        push.token = "another".into();
        assert_eq!(tag(&push), tag_of_first);
        push.user = "bob".parse().unwrap();
        assert_ne!(tag(&push), tag_of_first);
    }
}
