//! What is published: data at its limits, and batches beyond theirs.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::support::{Answer, Broker};

const MESSAGES: &str = "/v1/topics/t/messages";
const LARGEST: usize = 512 * 1024;

fn broker() -> Broker {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": LARGEST })).expect(201);
    broker.subscribe("s", "t", json!({ "retry": { "max_attempts": 1 } }));
    broker
}

fn next_sequence(broker: &Broker) -> Value {
    broker.get("/v1/topics/t").expect(200)["next_sequence"].clone()
}

fn numbered(count: usize, value: &str) -> Value {
    Value::Object((0..count).map(|n| (format!("a{n:03}"), json!(value))).collect::<Map<_, _>>())
}

/// What must be the same wherever a message is shown.
fn data(message: &Value) -> [Value; 4] {
    ["payload_base64", "attributes", "key", "content_type"].map(|field| message[field].clone())
}

fn letter_of(broker: &Broker, id: &str) -> String {
    broker.delivery_of(id)["dead_letter"]["id"].as_str().expect("a dead letter").to_owned()
}

/// Payloads of every byte value, of none and of the largest size, with attributes in UTF-8, empty, of 8 KiB, with line
/// breaks and NUL, and as many and as much as there can be, all at once: the same when pulled, shown, dead-lettered,
/// replayed and dead-lettered again, also after a kill. What the broker adds to a dead letter stands beside the message,
/// never among its attributes: they stay as full as they were.
#[test]
fn s52_what_is_accepted_comes_back_exactly() {
    let mut broker = broker();
    let all: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..LARGEST).map(|at| (at * 7 + at / 256) as u8).collect();
    let special =
        json!({ "名前": "héllo 🦀", "empty": "", "lines": "a\r\nb\u{0}c", "long": "v".repeat(8 * 1024) });
    let full = numbered(64, &"v".repeat(32 * 1024 / 64 - 4));
    for (payload, attributes) in [(all, special), (Vec::new(), json!({})), (large, full)] {
        let payload = BASE64.encode(payload);
        let message = json!({
            "payload_base64": payload, "attributes": attributes, "key": "k".repeat(256), "content_type": "x/é",
        });
        let id = broker.publish_with("t", message.clone());
        for _ in 0..2 {
            broker.kill_and_start_again();
            let delivery = broker.next("s");
            assert_eq!(delivery.id(), id);
            assert!(data(&delivery.message) == data(&message), "pulled: {attributes}");
            assert!(data(&broker.message(&id)) == data(&message), "shown: {attributes}");
            broker.nack("s", &delivery.receipt, "fatal");
            let letter = letter_of(&broker, &id);
            assert!(data(&broker.dead_letter(&letter)["message"]) == data(&message), "buried: {attributes}");
            broker.post(&format!("/v1/dead-letters/{letter}/replay"), &Value::Null).expect(200);
        }
        let delivery = broker.next("s");
        assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
    }
}

/// The same through the headers of a raw body, as far as HTTP carries it.
#[test]
fn s52_headers_of_a_raw_body_are_exact() {
    let broker = broker();
    let all: Vec<u8> = (0..=255).collect();
    let long = "v".repeat(8 * 1024);
    let given = [("utf", "héllo 🦀"), ("empty", ""), ("long", &long), ("inner", "a  b\tc")];
    let mut request = broker.request("POST", MESSAGES).header("content-type", "application/octet-stream");
    for (name, value) in given {
        request = request.header(format!("Broker-Attribute-{name}"), value.as_bytes());
    }
    broker.send(request.body(all.clone())).expect(201);
    let message = broker.next("s").message;
    let expected: Map<_, _> =
        given.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    assert_eq!(message["attributes"], json!(expected));
    assert_eq!(message["payload_base64"], BASE64.encode(all));
}

/// Beyond the limits a message is refused when it is published, whole, with a code that says why: names that differ in
/// case alone, 65 and 1,000 attributes, values and sums that are too long, control characters in names, a payload of one
/// byte too much. Nothing is stored, and nothing is left out to make it fit.
#[test]
fn s52_what_is_not_taken_is_refused_whole() {
    let broker = broker();
    let attribute = |attributes: Value| json!({ "payload": 1, "attributes": attributes });
    let refused = [
        (attribute(json!({ "Tenant": "a", "tenant": "b" })), "invalid_attribute"),
        (attribute(json!({ "É": "a", "é": "b" })), "invalid_attribute"),
        (attribute(numbered(65, "")), "invalid_attribute"),
        (attribute(numbered(1_000, "v")), "invalid_attribute"),
        (attribute(json!({ "long": "v".repeat(8 * 1024 + 1) })), "invalid_attribute"),
        (attribute(numbered(5, &"v".repeat(7 * 1024))), "invalid_attribute"),
        (attribute(json!({ "a\r\nb": "v" })), "invalid_attribute"),
        (attribute(json!({ "a\u{0}": "v" })), "invalid_attribute"),
        (json!({ "payload": 1, "key": "k".repeat(257) }), "invalid_message"),
        (json!({ "payload_base64": BASE64.encode(vec![0; LARGEST + 1]) }), "message_too_large"),
    ];
    for (message, code) in refused {
        let answer = broker.post(MESSAGES, &json!({ "messages": [message] }));
        assert_eq!((answer.status, &answer.json()["items"][0]["error"]["code"]), (422, &json!(code)));
    }
    let raw = |headers: &[(&str, &str)], body: Vec<u8>| {
        let request = broker.request("POST", MESSAGES).header("content-type", "application/octet-stream");
        broker.send(
            headers.iter().fold(request.body(body), |request, (name, value)| request.header(*name, *value)),
        )
    };
    assert_eq!(raw(&[], vec![0; LARGEST + 1]).problem(), (413, "message_too_large".to_owned()));
    let twice = raw(&[("broker-attribute-a", "1"), ("Broker-Attribute-A", "2")], Vec::new());
    assert_eq!(twice.problem(), (400, "invalid_attribute".to_owned()));
    assert_eq!(next_sequence(&broker), 1);
    assert_eq!(broker.poll("s"), None);
}

fn batch(broker: &Broker, messages: &[Value]) -> Answer {
    broker.post(MESSAGES, &json!({ "messages": messages }))
}

/// A batch that is empty, has one item too many, or is too heavy though each of its items is light, is refused as a whole:
/// nothing is stored, and the ids of its items are free.
#[test]
fn s53_a_refused_batch_stores_nothing() {
    let broker = broker();
    let items = |count: usize, size: usize| -> Vec<_> {
        (0..count).map(|n| json!({ "payload": "x".repeat(size), "dedup_id": format!("{n}") })).collect()
    };
    for messages in [items(0, 0), items(1_001, 1), items(100, 8 * 1024)] {
        assert_eq!(batch(&broker, &messages).problem(), (400, "batch_size".to_owned()), "{}", messages.len());
    }
    assert_eq!(next_sequence(&broker), 1);
    let answer = batch(&broker, &items(1_000, 1)).expect(201);
    let stored = answer["items"].as_array().expect("a list");
    assert!(
        stored.iter().all(|item| item.get("duplicate").is_none() && item.get("error").is_none()),
        "{answer}"
    );
    assert_eq!(broker.pull("s", 1_000, Duration::ZERO).len(), 1_000);
}

/// One item that is too large has an error in its place, and the others are stored in their order.
#[test]
fn s53_an_oversize_item_fails_alone() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": 10 })).expect(201);
    broker.subscribe("s", "t", json!({}));
    let messages: Vec<_> = (0..9)
        .map(|n| if n == 4 { json!({ "payload": "x".repeat(10) }) } else { json!({ "payload": n }) })
        .collect();
    let answer = batch(&broker, &messages).expect(201);
    let codes: Vec<_> = (0..9).map(|at| answer["items"][at]["error"]["code"].as_str()).collect();
    let expected: Vec<_> = (0..9).map(|at| (at == 4).then_some("message_too_large")).collect();
    assert_eq!(codes, expected);
    let pulled = broker.pull("s", 10, Duration::ZERO);
    let payloads: Vec<_> = pulled.iter().map(|delivery| delivery.message["payload"].clone()).collect();
    assert_eq!(payloads, [0, 1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(next_sequence(&broker), 9);
}

/// The same id twice in one batch: the second is a duplicate of the first, or, with another payload, an error; each
/// answer stands where its item stood. The same batch again stores nothing.
#[test]
fn s53_ids_that_come_twice_are_told_apart() {
    let broker = broker();
    let messages = [
        json!({ "payload": 1, "dedup_id": "a" }),
        json!({ "payload": 2 }),
        json!({ "payload": 1, "dedup_id": "a" }),
        json!({ "payload": 3, "dedup_id": "a" }),
        json!({ "payload": 4, "dedup_id": "b" }),
    ];
    let answer = batch(&broker, &messages).expect(201);
    let item = |at: usize| &answer["items"][at];
    assert_eq!((&item(0)["sequence"], item(0).get("duplicate")), (&json!(1), None));
    assert_eq!((&item(2)["id"], &item(2)["duplicate"]), (&item(0)["id"], &json!(true)));
    assert_eq!(item(3)["error"]["code"], "dedup_conflict");
    assert_eq!((&item(1)["sequence"], &item(4)["sequence"]), (&json!(2), &json!(3)));
    let again = batch(&broker, &[messages[0].clone(), messages[4].clone()]).expect(200);
    assert_eq!(again["items"][1]["id"], item(4)["id"]);
    let pulled = broker.pull("s", 10, Duration::ZERO);
    let payloads: Vec<_> = pulled.iter().map(|delivery| delivery.message["payload"].clone()).collect();
    assert_eq!(payloads, [1, 2, 4]);
}
