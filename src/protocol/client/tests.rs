use super::*;
use crate::protocol::MAX_BODY_BYTES;

fn frame(text: &str) -> ClientFrame {
    Parsed::read(text).frame.unwrap_or_else(|reject| panic!("{text}: {}", reject.message))
}

fn reject(text: &str) -> Reject {
    Parsed::read(text).frame.expect_err(text)
}

#[test]
fn a_body_stays_the_text_it_was() {
    for body in ["1e400", "{\"b\":1,\"a\":2, \"b\":3}", "\"\\u0000\"", "12345678901234567890123", "null", "[ 1 ]"] {
        let text = format!(r#"{{"type":"signal","to":"b","body":{body}}}"#);
        let ClientFrame::Signal { body: read, .. } = frame(&text) else { panic!("{text}") };
        assert_eq!(&*read.into_text(), body);
    }
}

#[test]
fn a_key_that_comes_twice_is_an_error_however_it_is_spelt() {
    for text in [
        r#"{"type":"send","cid":"1","to":"b","to":"c","body":1}"#,
        r#"{"type":"send","cid":"1","to":"b","\u0074o":"c","body":1}"#,
        r#"{"type":"ping","type":"send"}"#,
    ] {
        assert_eq!(reject(text).code, Code::BadFrame, "{text}");
        assert!(reject(text).message.contains("duplicate field"), "{text}");
    }
}

#[test]
fn fields_of_other_types_and_of_none_are_ignored() {
    assert_eq!(frame(r#"{"type":"ping","room":5,"from":"eve","To":1}"#), ClientFrame::Ping);
    assert_eq!(frame(r#"{"x":1,"x":[{}],"ty\u0070e":"p\u0069ng"}"#), ClientFrame::Ping);
    assert_eq!(reject(r#"{"type":null}"#).code, Code::BadFrame);
}

#[test]
fn a_cursor_that_cannot_be_is_as_if_it_were_not_there() {
    let text = r#"{"type":"hello","cursors":{"a":7,"b":-1,"c":"7","d":1.5,"e f":1,"g":null,"h":99999999999999999999}}"#;
    let ClientFrame::Hello(hello) = frame(text) else { panic!("{text}") };
    assert_eq!(hello.cursors, HashMap::from([("a".parse().unwrap(), 7)]));
    assert_eq!(reject(r#"{"type":"hello","cursors":[7]}"#).code, Code::BadField);
}

#[test]
fn an_error_names_the_field_and_what_would_be_right() {
    for (text, part) in [
        ("", "one JSON object"),
        ("[1]", "one JSON object"),
        ("{", "not JSON"),
        ("{}", "missing field `type`"),
        (r#"{"type":"dance"}"#, "\"dance\" is not a frame"),
        (r#"{"type":"send","to":"b","body":1}"#, "cid: is missing"),
        (r#"{"type":"send","cid":"1","body":1}"#, "either room, or to"),
        (r#"{"type":"send","cid":"1","room":"a b","body":1}"#, "room: room id must be 1 to 64"),
        (r#"{"type":"send","cid":"1","room":"a"}"#, "body: is missing"),
        (r#"{"type":"ack","room":"a","seq":"7"}"#, "seq: invalid type"),
        (r#"{"type":"ack","room":"a","seq":-7}"#, "seq: invalid value"),
        (r#"{"type":"create","room":"42"}"#, "at least one letter"),
        (r#"{"type":"history","room":"a","before":1,"after":2}"#, "not both"),
        (r#"{"type":"rooms","limit":0}"#, "at least 1"),
        (r#"{"type":"settings","room":"a"}"#, "muted: is missing"),
        (r#"{"type":"device_token","token":"x"}"#, "provider: must be \"fcm\""),
        (r#"{"type":"device_token","provider":"apns","token":"x"}"#, "provider: must be \"fcm\""),
        (r#"{"type":"device_token","provider":"fcm"}"#, "token: is missing"),
        (r#"{"type":"device_token","provider":"fcm","token":""}"#, "token: must be 1 to 2048 bytes"),
        (r#"{"type":"device_token","provider":"fcm","token":"a\n"}"#, "without control characters"),
    ] {
        assert!(reject(text).message.contains(part), "{text}: {}", reject(text).message);
    }
}

#[test]
fn an_error_of_a_frame_with_a_cid_carries_it() {
    let parsed = Parsed::read(r#"{"type":"ack","cid":"7"}"#);
    assert_eq!(parsed.cid.map(|cid| cid.to_string()), Some("7".to_owned()));
    assert!(parsed.frame.is_err());
}

#[test]
fn a_body_at_the_limit_passes_and_one_beyond_does_not() {
    let body = |bytes: usize| format!(r#"{{"type":"signal","to":"b","body":"{}"}}"#, "x".repeat(bytes - 2));
    assert!(Parsed::read(&body(MAX_BODY_BYTES)).frame.is_ok());
    assert_eq!(reject(&body(MAX_BODY_BYTES + 1)).code, Code::TooLarge);
}

#[test]
fn a_null_cid_is_none_and_a_number_is_refused() {
    assert_eq!(Parsed::read(r#"{"type":"ping","cid":null}"#).cid, None);
    assert_eq!(reject(r#"{"type":"ping","cid":7}"#).code, Code::BadField);
}

#[test]
fn a_push_token_at_the_limit_passes_and_one_beyond_does_not_and_none_shows_in_logs() {
    let said = |token: &str| format!(r#"{{"type":"device_token","provider":"fcm","token":"{token}","remove":true}}"#);
    let longest = "x".repeat(PushToken::MAX_BYTES);
    let read = frame(&said(&longest));
    assert!(!format!("{read:?}").contains("xx"), "{read:?}");
    let ClientFrame::DeviceToken(DeviceToken { provider: Provider::Fcm, token, remove: true }) = read else { panic!() };
    assert_eq!(token.expose(), longest);
    assert_eq!(reject(&said(&format!("{longest}x"))).code, Code::BadField);
}
