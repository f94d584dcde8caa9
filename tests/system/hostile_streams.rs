//! Frames that are none, and clients that mean harm: each is told, or loses its own connection and nobody else's.

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::{Error, Message};

use crate::support::{Broker, Stream, wait_for};

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker
}

/// Malformed frames with the id and the code of their answers.
fn malformed() -> Vec<(String, Option<&'static str>, &'static str)> {
    let many = json!({ "type": "ack", "id": "n", "receipts": vec!["r"; 1_001] }).to_string();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = json!({ "type": "ack", "id": "x".repeat(129), "receipts": ["r"] }).to_string();
    let given = [
        ("", None, "invalid_body"),
        ("not json", None, "invalid_body"),
        ("[]", None, "invalid_body"),
        ("null", None, "invalid_body"),
        ("{}", None, "invalid_body"),
        (r#"{"id":"n"}"#, None, "invalid_body"),
        (r#"{"type":1}"#, None, "invalid_body"),
        (r#"{"type":"ack","id":1,"receipts":["r"]}"#, None, "invalid_body"),
        (r#"{"type":"ack","id":"n""#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n"}"#, Some("n"), "invalid_body"),
        (r#"{"type":"nope","id":"n"}"#, Some("n"), "invalid_body"),
        (r#"{"id":"n","type":"deliveries","deliveries":[]}"#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n","receipts":"r"}"#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n","receipts":[1]}"#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n","receipts":["r"],"more":1}"#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n","receipts":["r"]} {}"#, Some("n"), "invalid_body"),
        (r#"{"type":"ack","id":"n","receipts":[]}"#, Some("n"), "batch_size"),
        (r#"{"type":"nack","id":"n","items":[{}]}"#, Some("n"), "invalid_body"),
        (r#"{"receipts":["r"],"type":"extend","id":"n"}"#, Some("n"), "invalid_body"),
        (r#"{"type":"credit","id":"n","messages":-1}"#, Some("n"), "invalid_body"),
        (r#"{"type":"credit","id":"n","messages":1e99}"#, Some("n"), "invalid_body"),
        (r#"{"type":"credit","id":"n"}"#, Some("n"), "invalid_body"),
        (&many, Some("n"), "batch_size"),
        (&deep, None, "invalid_body"),
        (&long, None, "invalid_body"),
    ];
    given.into_iter().map(|(text, id, code)| (text.to_owned(), id, code)).collect()
}

/// A malformed frame is answered with what is wrong, under its id where it has one, and closes nothing.
#[test]
fn a_malformed_frame_is_answered_and_closes_nothing() {
    let broker = broker();
    let mut consumer = Stream::consume(&broker, "s");
    for (text, id, code) in malformed() {
        consumer.send_text(&text);
        let error = consumer.expect("error");
        assert_eq!(
            (error.get("id").and_then(Value::as_str), error["error"]["code"].as_str()),
            (id, Some(code)),
            "{text}: {error}"
        );
        assert_eq!(error["error"]["retryable"], false);
    }
    consumer.socket.send(Message::binary(vec![0; 10])).expect("the broker reads");
    assert_eq!(consumer.expect("error")["error"]["code"], "invalid_body");
    broker.publish("t", &json!(1));
    consumer.credit(1);
    consumer.deliveries(1);
    let mut publisher = Stream::publish(&broker, "t");
    for text in ["", "[]", r#"{"type":"ack"}"#, r#"{"type":"publish","messages":[{"body":1}]}"#] {
        publisher.send_text(text);
        assert_eq!(publisher.expect("error")["error"]["code"], "invalid_body", "{text}");
    }
}

/// A frame of a kind that the protocol knows, with any bits.
fn frame(header: FrameHeader, payload: &'static [u8]) -> Message {
    Message::Frame(Frame::from_payload(header, payload.into()))
}

/// What breaks the protocol closes its own connection with a reason; the stream beside it goes on.
#[test]
fn a_broken_protocol_closes_its_own_connection() {
    let broker = broker();
    let mut beside = Stream::consume(&broker, "s");
    let text = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
    let cases = [
        (frame(text.clone(), b"\xff\xfe"), (1007, "invalid_text")),
        (frame(FrameHeader { rsv1: true, ..text.clone() }, b"{}"), (1002, "protocol_error")),
        (
            frame(FrameHeader { opcode: OpCode::Data(Data::Continue), ..text }, b"{}"),
            (1002, "protocol_error"),
        ),
    ];
    for (message, (code, reason)) in cases {
        let mut stream = Stream::consume(&broker, "s");
        stream.socket.send(message).expect("the broker reads");
        assert_eq!(stream.closed(), Some((code, reason.to_owned())));
    }
    beside.ask(&json!({ "type": "ack", "id": "a", "receipts": ["r"] }), "acked");
}

/// A frame that says to be larger than streams take is refused by what it says, before it has come.
#[test]
fn a_frame_that_is_too_large_is_refused_by_its_head() {
    let broker = broker();
    let mut beside = Stream::consume(&broker, "s");
    for length in [2 * 1024 * 1024 + 1, u64::MAX / 2] {
        let mut stream = Stream::consume(&broker, "s");
        let mut head = vec![0x81, 0xff];
        head.extend(length.to_be_bytes());
        head.extend([0; 4]);
        stream.socket.get_mut().write_all(&head).expect("the broker reads");
        assert_eq!(stream.closed(), Some((1009, "frame_too_large".to_owned())), "{length}");
    }
    // Pieces that are small but too large together.
    let mut stream = Stream::consume(&broker, "s");
    let piece = vec![b' '; 1024 * 1024];
    let mut opcode = Data::Text;
    let closed = loop {
        let header = FrameHeader { opcode: OpCode::Data(opcode), is_final: false, ..FrameHeader::default() };
        if stream.socket.send(Message::Frame(Frame::from_payload(header, piece.clone().into()))).is_err() {
            break stream.closed();
        }
        opcode = Data::Continue;
    };
    assert!(closed.is_none_or(|(code, _)| code == 1009));
    beside.ask(&json!({ "type": "ack", "id": "a", "receipts": ["r"] }), "acked");
}

/// A client that sends and never reads is not read from for long; others are served meanwhile, and when it reads after
/// all, every frame has its answer.
#[test]
fn a_flood_without_reading_is_held_back() {
    let broker = broker();
    let before = broker.process().peak_mib();
    let mut stream = Stream::consume(&broker, "s");
    stream.socket.get_mut().set_write_timeout(Some(Duration::from_millis(500))).expect("it can be set");
    // Each is answered with ten times its size.
    let frame = Message::text(json!({ "type": "ack", "receipts": vec![""; 1_000] }).to_string());
    let mut sent = 0;
    loop {
        match stream.socket.send(frame.clone()) {
            Ok(()) => sent += 1,
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100_000, "it is read from for ever");
    }
    let mut beside = Stream::consume(&broker, "s");
    beside.ask(&json!({ "type": "ack", "id": "a", "receipts": ["r"] }), "acked");
    assert!(broker.process().peak_mib() < before + 150, "{} MiB", broker.process().peak_mib());
    for _ in 0..sent {
        assert_eq!(stream.expect("acked")["items"].as_array().map(Vec::len), Some(1_000));
    }
}

/// There can be only so many streams.
#[test]
fn the_number_of_streams_is_bounded() {
    let broker = broker();
    let mut streams: Vec<_> = (0..1_000).map(|_| Stream::consume(&broker, "s")).collect();
    let (refused, _) = Stream::request(&broker, "/v1/topics/t/stream", &[]);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem(), (429, "too_many_streams".to_owned()));
    streams.pop().expect("one").close();
    let path = "/v1/subscriptions/s/stream";
    streams.push(wait_for("there is room again", || Stream::request(&broker, path, &[]).1));
    // As many pulls wait as can. Those of streams that went are not in the way of others.
    for stream in &mut streams {
        stream.credit(1);
        stream.ask(&json!({ "type": "ack", "id": "behind it", "receipts": ["r"] }), "acked");
    }
    drop(streams);
    wait_for("a pull is taken", || {
        Some(broker.post("/v1/subscriptions/s/pull", &json!({}))).filter(|answer| answer.status == 200)
    });
}
