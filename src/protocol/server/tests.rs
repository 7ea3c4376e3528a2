use super::*;

#[test]
fn a_message_keeps_its_body_to_the_letter_and_takes_the_senders_mark() {
    let (room, from) = ("team".parse().unwrap(), "alice".parse().unwrap());
    let view = MessageView {
        room: &room,
        id: MessageId(9_007_199_254_740_993),
        seq: 3,
        from: &from,
        at: 5,
        body: Some("{\"b\":1e400, \"a\":\"\\u0000\"}"),
        event: None,
        users: &[],
        cid: None,
    };
    let frame = ServerFrame::Message(view).encode();
    let plain = r#"{"type":"message","room":"team","id":"9007199254740993","seq":3,"from":"alice","at":5,"body":{"b":1e400, "a":"\u0000"}}"#;
    assert_eq!(frame.as_str(), plain);
    let marked = frame.with_cid(&"a\"b".parse().unwrap());
    assert_eq!(marked.as_str(), format!("{},\"cid\":\"a\\\"b\"}}", plain.strip_suffix('}').unwrap()));
}

#[test]
fn a_frame_from_another_server_that_is_not_utf8_is_refused() {
    assert!(Frame::from_relay(Bytes::from_static(&[b'"', 0xff, b'"'])).is_err());
}

#[test]
fn a_frame_shows_no_content_in_logs() {
    assert_eq!(format!("{:?}", ServerFrame::Pong { cid: None }.encode()), "Frame(15 bytes)");
}
