//! Streams of consumers: deliveries within credit, settlements with ids, formats.

use serde_json::{Value, json};
use tungstenite::Message;

use crate::stream_ends::{again_at_once, assert_causes};
use crate::support::{Broker, Delivery, Folder, Launch, MSGPACK, Stream};

fn broker() -> Broker {
    again_at_once(Launch::default())
}

fn in_flight(broker: &Broker) -> u64 {
    broker.subscription("s")["in_flight"].as_u64().expect("a number")
}

/// Publishes payloads of 100 bytes.
fn publish(broker: &Broker, count: usize) -> Vec<String> {
    // With its quotes.
    (0..count).map(|_| broker.publish("t", &json!("x".repeat(98)))).collect()
}

fn receipts(deliveries: &[Delivery]) -> Value {
    json!(deliveries.iter().map(|delivery| delivery.receipt.clone()).collect::<Vec<_>>())
}

/// Nothing is leased before there is credit, and no more than it allows; settling gives none back.
#[test]
fn deliveries_come_within_the_credit_in_messages() {
    let broker = broker();
    let ids = publish(&broker, 5);
    let mut stream = Stream::consume(&broker, "s");
    let foreign = json!({ "type": "ack", "id": "first", "receipts": ["r"] });
    stream.ask(&foreign, "acked");
    assert_eq!(in_flight(&broker), 0);
    stream.credit(2);
    let two = stream.deliveries(2);
    assert_eq!([two[0].id(), two[1].id()], [&*ids[0], &*ids[1]]);
    assert!(two.iter().all(|delivery| (delivery.attempt, delivery.redelivered) == (1, false)));
    assert_eq!(in_flight(&broker), 2);
    stream.ask(&json!({ "type": "ack", "id": "a", "receipts": receipts(&two) }), "acked");
    assert_eq!(in_flight(&broker), 0);
    stream.credit(1);
    stream.credit(1);
    let rest: Vec<_> = stream.deliveries(2).iter().map(|delivery| delivery.id().to_owned()).collect();
    assert_eq!(rest, ids[2..4]);
    assert_eq!(in_flight(&broker), 2);
}

/// Bytes are counted in payloads. The last delivery may overdraw them; then the debt is paid first.
#[test]
fn deliveries_come_within_the_credit_in_bytes() {
    let broker = broker();
    publish(&broker, 5);
    let mut stream = Stream::consume(&broker, "s");
    let credit =
        |messages: u32, bytes: u32| json!({ "type": "credit", "messages": messages, "bytes": bytes });
    stream.send(&credit(100, 150));
    stream.deliveries(2);
    stream.send(&credit(0, 50));
    stream.ask(&json!({ "type": "ack", "id": "behind it", "receipts": ["r"] }), "acked");
    assert_eq!(in_flight(&broker), 2);
    stream.send(&credit(0, 1));
    stream.deliveries(1);
    assert_eq!(in_flight(&broker), 3);
    stream.send(&credit(0, 1_000));
    stream.deliveries(2);
}

/// Credit adds up to a bound; what would go beyond is refused and adds nothing.
#[test]
fn credit_is_bounded() {
    let broker = broker();
    let mut stream = Stream::consume(&broker, "s");
    let too_much = [
        json!({ "type": "credit", "id": "m", "messages": 100_001 }),
        json!({ "type": "credit", "id": "m", "messages": u32::MAX }),
        json!({ "type": "credit", "id": "b", "messages": 1, "bytes": 1_073_741_825 }),
        json!({ "type": "credit", "id": "b", "messages": 1, "bytes": u64::MAX }),
    ];
    for frame in too_much {
        assert_eq!(stream.ask(&frame, "error")["error"]["code"], "limit_reached");
    }
    stream.credit(1);
    let frame = json!({ "type": "credit", "id": "m", "messages": 100_000 });
    assert_eq!(stream.ask(&frame, "error")["error"]["code"], "limit_reached");
    publish(&broker, 2);
    stream.deliveries(1);
    assert_eq!(in_flight(&broker), 1);
}

/// Each verb answers with the frame's id and an item for each receipt, as over HTTP.
#[test]
fn every_verb_is_answered_item_by_item() {
    let broker = broker();
    let ids = publish(&broker, 4);
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(4);
    let held = stream.deliveries(4);
    let receipt = |index: usize| &held[index].receipt;

    let acked = stream.ask(&json!({ "type": "ack", "id": "1", "receipts": [receipt(0), "junk"] }), "acked");
    assert_eq!(acked["items"][0], json!({ "receipt": receipt(0), "status": "acked" }));
    assert_eq!(
        (&acked["items"][1]["receipt"], &acked["items"][1]["error"]["code"]),
        (&json!("junk"), &json!("invalid_receipt"))
    );

    let item = json!({ "receipt": receipt(1), "class": "timeout", "detail": "slow", "retry_after": "1s" });
    let nacked = stream.ask(&json!({ "type": "nack", "id": "2", "items": [item] }), "nacked");
    assert_eq!(nacked["items"][0]["decision"]["action"], "retry");
    assert_causes(&broker, &ids[1], &[("nacked", "slow")]);

    let released = stream.ask(&json!({ "type": "release", "id": "3", "receipts": [receipt(2)] }), "released");
    assert_eq!(released["items"][0]["decision"]["decided_by"], "policy");
    assert_causes(&broker, &ids[2], &[("released", "")]);

    let item = json!({ "receipt": receipt(3), "lease": "50m" });
    let extended = stream.ask(&json!({ "type": "extend", "id": "4", "items": [item] }), "extended");
    assert_eq!(extended["items"][0]["lease_until"], broker.delivery_of(&ids[3])["until"]);
    let item = json!({ "receipt": receipt(3), "lease": "2h" });
    let refused = stream.ask(&json!({ "type": "extend", "id": "5", "items": [item] }), "extended");
    assert_eq!(refused["items"][0]["error"]["code"], "max_lease_exceeded");

    // What was settled, here or elsewhere, is stale.
    broker.ack("s", receipt(3));
    let stale = json!([receipt(0), receipt(1), receipt(3)]);
    let acked = stream.ask(&json!({ "type": "ack", "id": "6", "receipts": stale }), "acked");
    let codes: Vec<_> = (0..3).map(|index| acked["items"][index]["error"]["code"].clone()).collect();
    assert_eq!(codes, ["stale_receipt"; 3]);
}

/// An answer without an id where the frame had none, and many frames before the first answer is read.
#[test]
fn frames_are_pipelined() {
    let broker = broker();
    publish(&broker, 200);
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(200);
    let held = stream.deliveries(200);
    for (number, delivery) in held.iter().enumerate() {
        stream.send(&json!({ "type": "ack", "id": number.to_string(), "receipts": [delivery.receipt] }));
    }
    let mut answered: Vec<usize> = (0..200)
        .map(|_| {
            let acked = stream.expect("acked");
            assert_eq!(acked["items"][0]["status"], "acked", "{acked}");
            acked["id"].as_str().expect("an id").parse().expect("a number")
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..200).collect::<Vec<_>>());
    assert_eq!(broker.subscription("s")["backlog"], 0);
    stream.send(&json!({ "type": "ack", "receipts": ["r"] }));
    assert_eq!(stream.expect("acked").get("id"), None);
}

/// MessagePack is chosen by the subprotocol, and JSON if none is named; an unknown one is refused.
#[test]
fn the_subprotocol_says_how_frames_are_written() {
    let broker = broker();
    let path = "/v1/subscriptions/s/stream";
    let id = broker.publish("t", &json!({ "order": 7 }));
    let mut packed = Stream::open(&broker, path, Some(MSGPACK));
    packed.credit(1);
    let held = packed.deliveries(1);
    assert_eq!((held[0].id(), &held[0].message["payload"]), (&*id, &json!({ "order": 7 })));
    let items = json!([{ "receipt": held[0].receipt, "class": "timeout" }]);
    let nacked = packed.ask(&json!({ "type": "nack", "id": "n", "items": items }), "nacked");
    assert_eq!(nacked["items"][0]["decision"]["action"], "retry");
    packed.socket.send(Message::text("{}")).expect("the broker reads");
    assert_eq!(packed.expect("error")["error"]["code"], "invalid_body");

    let mut plain = Stream::open(&broker, path, None);
    plain.credit(1);
    let held = plain.deliveries(1);
    assert_eq!((held[0].id(), held[0].attempt), (&*id, 2));

    let refused = Stream::refused(&broker, path, &[("sec-websocket-protocol", "mqtt")]);
    assert_eq!(refused, (400, "invalid_header".to_owned()));
}

/// A payload is given out as bytes where the query asks for it.
#[test]
fn payloads_are_bytes_where_the_query_says_so() {
    let broker = broker();
    broker.publish("t", &json!(1));
    let mut stream = Stream::open(&broker, "/v1/subscriptions/s/stream?payload_as=base64", None);
    stream.credit(1);
    assert_eq!(stream.deliveries(1)[0].message["payload_base64"], "MQ==");
}

/// Before the upgrade a stream is refused like any other request.
#[test]
fn what_cannot_be_streamed_is_refused_as_a_problem() {
    let broker = broker();
    let refused = |path: &str| Stream::refused(&broker, path, &[]);
    assert_eq!(refused("/v1/subscriptions/missing/stream"), (404, "subscription_not_found".to_owned()));
    assert_eq!(refused("/v1/topics/missing/stream"), (404, "topic_not_found".to_owned()));
    assert_eq!(refused("/v1/subscriptions/s/stream?max=1"), (400, "invalid_query".to_owned()));
    let plain = broker.get("/v1/subscriptions/s/stream");
    assert_eq!(plain.header("upgrade"), Some("websocket"));
    assert_eq!(plain.problem(), (426, "upgrade_required".to_owned()));
}

/// A stream needs the token like everything else.
#[test]
fn a_stream_needs_the_token() {
    let broker = Broker::launch(Launch { more: &[], ..Launch::default() });
    let refused = Stream::refused(&broker, "/v1/subscriptions/s/stream", &[]);
    assert_eq!(refused, (401, "unauthorized".to_owned()));
}

/// A browser opens WebSockets for pages of any site; the broker takes those of its own.
#[test]
fn pages_of_other_sites_open_no_streams() {
    let broker = broker();
    let path = "/v1/subscriptions/s/stream";
    for origin in ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:1"] {
        let refused = Stream::refused(&broker, path, &[("origin", origin)]);
        assert_eq!(refused, (400, "invalid_header".to_owned()), "{origin}");
    }
    let own = format!("http://{}", broker.address());
    assert!(Stream::request(&broker, path, &[("origin", &own)]).1.is_some());
}

/// A wait that would never end, or would end every stream at once, is no setting.
#[test]
fn the_wait_for_a_sign_is_bounded() {
    let folder = Folder::new();
    let settings: [&[&str]; 2] =
        [&["--no-auth", "--stream-idle", "0s"], &["--no-auth", "--stream-idle", "2h"]];
    for more in settings {
        let output = Launch { more, ..Launch::default() }.output(&folder.data());
        assert_eq!(output.status.code(), Some(2));
    }
}
