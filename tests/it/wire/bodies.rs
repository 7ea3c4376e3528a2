//! A body arrives as it was written, to the byte, whichever way it comes.

use super::raw::{Raw, TEXT, frame};
use crate::support::server::Server;

const BODIES: [&str; 16] = [
    "null",
    "-0",
    "1e400",
    "1.0",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    r#"{"b":1,"a":2}"#,
    r#"{"a":1,"a":2}"#,
    "[ 1 ,\t2 , {  } ]",
    r#""\u0000""#,
    r#""\ud800 \/ \u00e9 \n""#,
    "\"\u{2028}\u{2029}\u{feff}\"",
    "\"👩‍👩‍👧 日本 ünïcödé\"",
    r#""<script>&amp;'\"""#,
    r#"{"type":"sent","cid":"x","seq":1,"\u0000":""}"#,
    r#""},\"cid\":\"x""#,
];

fn quoted(body: &str) -> String {
    format!("\"body\":{body}")
}

#[tokio::test]
async fn a_body_is_delivered_to_the_byte_live_in_history_and_after_a_resume() {
    let server = Server::start(&[]).await;
    let mut alice = Raw::session(server.addr(), "alice").await;
    let mut bob = Raw::session(server.addr(), "bob").await;
    alice.write(&frame(TEXT, br#"{"type":"create","room":"team","members":["bob"]}"#)).await;
    alice.text_with("\"type\":\"room\"").await;
    for (index, body) in BODIES.iter().enumerate() {
        let send = format!(r#"{{"type":"send","cid":"{index}","room":"team","body": {body} }}"#);
        alice.write(&frame(TEXT, send.as_bytes())).await;
        alice.text_with("\"type\":\"sent\"").await;
        let live = bob.text_with("\"body\":").await;
        assert!(live.ends_with(&(quoted(body) + "}")), "{live}");
        let signal = format!(r#"{{"type":"signal","to":"bob","body": {body} }}"#);
        alice.write(&frame(TEXT, signal.as_bytes())).await;
        let live = bob.text_with("\"body\":").await;
        assert!(live.ends_with(&(quoted(body) + "}")), "{live}");
    }
    bob.write(&frame(TEXT, br#"{"type":"history","room":"team","after":0}"#)).await;
    let history = bob.text_with("\"type\":\"history\"").await;
    for body in BODIES {
        assert!(history.contains(&(quoted(body) + "}")), "{body}: {history}");
    }
    let hello = r#"{"type":"hello","cursors":{"team":0}}"#;
    let mut again = Raw::open(server.addr()).await.begin(server.addr(), "bob", hello).await;
    for body in BODIES {
        let resumed = again.text_with("\"body\":").await;
        assert!(resumed.ends_with(&(quoted(body) + "}")), "{resumed}");
    }
}
