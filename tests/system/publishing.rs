//! Publish: one raw body or a batch, JSON or MessagePack. What is refused leaves nothing behind.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Answer, Broker, millis};

const MESSAGES: &str = "/v1/topics/t/messages";

fn next_sequence(broker: &Broker) -> Value {
    broker.get("/v1/topics/t").expect(200)["next_sequence"].clone()
}

/// Headers by name, with bytes that need not be text.
type Headers<'a> = &'a [(&'a str, &'a [u8])];

fn raw(broker: &Broker, headers: Headers<'_>, body: &[u8]) -> Answer {
    let mut request = broker.request("POST", MESSAGES).body(body.to_vec());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    broker.send(request)
}

/// A raw body is one message; its headers are its key, attributes, delay and time to live.
#[test]
fn a_raw_body_is_one_message() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let headers: [(&str, &[u8]); 5] = [
        ("content-type", b"text/plain"),
        ("Broker-Key", b"c-42"),
        ("Broker-Attribute-Tenant", "acmé".as_bytes()),
        ("Broker-Ttl", b"1h"),
        ("Broker-Realm", b"default"),
    ];
    let published = raw(&broker, &headers, b"hello").expect(201);
    assert_eq!(published["durability"], "fsync");
    assert_eq!(published["items"][0]["sequence"], 1);
    let delivery = broker.next("s");
    assert_eq!(published["items"][0]["id"], delivery.id());
    assert_eq!(delivery.message["key"], "c-42");
    assert_eq!(delivery.message["attributes"], json!({ "tenant": "acmé" }), "header names have no case");
    assert_eq!(delivery.message["content_type"], "text/plain");
    assert_eq!(delivery.message["payload_base64"], "aGVsbG8=");
    let lives = millis(&delivery.message["expires_at"]) - millis(&delivery.message["published_at"]);
    assert_eq!(lives, 3_600_000);
}

/// A JSON body that is no batch is a payload like any other, byte for byte.
#[test]
fn a_json_body_that_is_no_batch_is_a_payload() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for body in [r#"{"order":7}"#, r#"[1, 2]"#, r#"{"m":{"messages":[]}}"#, "null", " 7 "] {
        raw(&broker, &[("content-type", b"application/json")], body.as_bytes()).expect(201);
        let id = broker.next("s").id().to_owned();
        let exact = broker.get(&format!("/v1/messages/{id}?payload_as=base64")).expect(200);
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(exact["payload_base64"].as_str().expect("base64"))
            .expect("base64");
        assert_eq!(String::from_utf8(bytes).expect("text"), body);
    }
}

/// A JSON object with a field `messages` is a batch wherever the field stands, unless the query says otherwise.
#[test]
fn what_looks_like_a_batch_is_one_unless_it_is_said_to_be_raw() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let body = r#"{"kind":"x","messages":[{"payload":1}]}"#;
    let refused = raw(&broker, &[("content-type", b"application/json")], body.as_bytes());
    assert_eq!(refused.expect(400)["code"], "invalid_body");
    let request = broker.request("POST", &format!("{MESSAGES}?raw=true")).body(body);
    broker.send(request.header("content-type", "application/json")).expect(201);
    assert_eq!(broker.next("s").message["payload"]["kind"], "x");
}

/// A refused raw message stores nothing.
#[test]
fn a_refused_raw_message_stores_nothing() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let long = [b'x'; 300];
    let bad: [(Headers<'_>, u16, &str); 15] = [
        (&[("broker-delay", b"-1s")], 400, "invalid_duration"),
        (&[("broker-delay", b"soon")], 400, "invalid_duration"),
        (&[("broker-delay", b"1e400")], 400, "invalid_duration"),
        (&[("broker-delay", b"9223372036854775808s")], 400, "invalid_duration"),
        (&[("broker-ttl", b"2years")], 400, "invalid_duration"),
        (&[("broker-dely", b"1s")], 400, "invalid_header"),
        (&[("idempotency-key", b"")], 400, "invalid_message"),
        (&[("idempotency-key", &long)], 400, "invalid_message"),
        (&[("idempotency-key", b"a"), ("Idempotency-Key", b"b")], 400, "invalid_header"),
        (&[("broker-key", b"\xff")], 400, "invalid_header"),
        (&[("broker-attribute-x", b"\xff")], 400, "invalid_header"),
        (&[("broker-key", b"a"), ("Broker-Key", b"b")], 400, "invalid_header"),
        (&[("broker-key", &long)], 400, "invalid_message"),
        (&[("content-type", &long)], 400, "invalid_message"),
        (&[("broker-attribute-a", b"1"), ("broker-attribute-A", b"2")], 400, "invalid_attribute"),
    ];
    for (headers, status, code) in bad {
        let answer = raw(&broker, headers, b"x");
        assert_eq!(answer.problem(), (status, code.to_owned()), "{headers:?}");
    }
    assert_eq!(next_sequence(&broker), 1);
    assert_eq!(broker.poll("s"), None);
}

/// A batch is answered item by item in its order; a bad item stores nothing and spoils no other.
#[test]
fn a_batch_is_answered_item_by_item() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let items = json!([
        { "payload": 1 },
        { "payload": 2, "delay": -1 },
        { "payload": 3, "payload_base64": "" },
        { "key": "no payload" },
        { "payload": 5, "attributes": { "": "nameless" } },
        { "payload": 6, "key": "k".repeat(257) },
        { "payload": "x".repeat(256 * 1024) },
        { "payload": 8 },
    ]);
    let answer = broker.post(MESSAGES, &json!({ "messages": items })).expect(201);
    let items = answer["items"].as_array().expect("a list");
    let codes: Vec<_> = items.iter().map(|item| item["error"]["code"].as_str()).collect();
    assert_eq!(
        codes,
        [
            None,
            Some("invalid_duration"),
            Some("invalid_message"),
            Some("invalid_message"),
            Some("invalid_attribute"),
            Some("invalid_message"),
            Some("message_too_large"),
            None,
        ]
    );
    assert_eq!((&items[0]["sequence"], &items[7]["sequence"]), (&json!(1), &json!(2)));
    let pulled = broker.pull("s", 10, Duration::ZERO);
    let payloads: Vec<_> = pulled.iter().map(|delivery| delivery.message["payload"].clone()).collect();
    assert_eq!(payloads, [1, 8]);

    let none = broker.post(MESSAGES, &json!({ "messages": [{ "payload": 1, "ttl": "never" }] }));
    assert_eq!(none.status, 422, "nothing was stored: {}", none.text());
    assert_eq!(none.json()["items"][0]["error"]["code"], "invalid_duration");
    assert_eq!(next_sequence(&broker), 3);
}

/// A batch that is too long, too heavy or empty is refused as a whole and stores nothing; the largest one keeps its
/// order.
#[test]
fn s53_batches_have_bounds() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let batch = |count: usize| -> Vec<_> { (0..count).map(|number| json!({ "payload": number })).collect() };
    let heavy: Vec<_> = (0..4).map(|_| json!({ "payload": "x".repeat(200 * 1024) })).collect();
    let refused = [
        (json!({ "messages": [] }), "batch_size"),
        (json!({ "messages": batch(1_001) }), "batch_size"),
        (json!({ "messages": heavy }), "batch_size"),
        (json!({ "messages": [{ "payload": 1, "id": "a" }, { "payload": 2, "id": "a" }] }), "invalid_body"),
        (json!({ "messages": { "payload": 1 } }), "invalid_body"),
        (json!({ "messages": [{ "payload": 1 }], "together": true }), "invalid_body"),
    ];
    for (body, code) in refused {
        assert_eq!(broker.post(MESSAGES, &body).problem(), (400, code.to_owned()));
    }
    assert_eq!(next_sequence(&broker), 1);
    let answer = broker.post(MESSAGES, &json!({ "messages": batch(1_000) })).expect(201);
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(1_000));
    let pulled = broker.pull("s", 1_000, Duration::ZERO);
    let payloads: Vec<_> =
        pulled.iter().filter_map(|delivery| delivery.message["payload"].as_u64()).collect();
    assert_eq!(payloads, (0..1_000).collect::<Vec<u64>>());
}

/// Headers that belong to a raw body are refused beside a batch, so that nothing is silently ignored.
#[test]
fn a_batch_takes_no_message_headers() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for header in ["broker-key", "broker-delay", "broker-attribute-x", "idempotency-key"] {
        let request = broker.request("POST", MESSAGES).json(&json!({ "messages": [{ "payload": 1 }] }));
        let answer = broker.send(request.header(header, "1s"));
        assert_eq!(answer.problem(), (400, "invalid_header".to_owned()), "{header}");
    }
    assert_eq!(next_sequence(&broker), 1);
}

#[derive(Serialize, Default)]
struct PackedMessage {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<serde_bytes::ByteBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<f64>,
}

#[derive(Serialize)]
struct PackedBatch {
    messages: Vec<PackedMessage>,
}

#[derive(Deserialize, Debug)]
struct PackedDelivery {
    receipt: String,
    attempt: u32,
    message: PackedBody,
}

#[derive(Deserialize, Debug)]
struct PackedBody {
    payload: Option<Value>,
    payload_base64: Option<serde_bytes::ByteBuf>,
}

#[derive(Deserialize, Debug)]
struct PackedPull {
    deliveries: Vec<PackedDelivery>,
}

const PACKED: &str = "application/msgpack";

fn packed(broker: &Broker, path: &str, body: &impl Serialize) -> Answer {
    let body = rmp_serde::to_vec_named(body).expect("it packs");
    broker.send(broker.request("POST", path).header("content-type", PACKED).body(body))
}

/// Every data route speaks MessagePack, with bytes as bytes; answers come in what was spoken.
#[test]
fn message_pack_on_every_data_route() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": 0, "backoff": "fixed" } }));
    let bytes: Vec<u8> = (0..=255).collect();
    let binary = PackedMessage {
        payload_base64: Some(serde_bytes::ByteBuf::from(bytes.clone())),
        ..Default::default()
    };
    let tree = json!({ "order": 7, "lines": ["a", null, -1.5, u64::MAX] });
    let plain = PackedMessage { payload: Some(tree.clone()), ..Default::default() };
    let answer = packed(&broker, MESSAGES, &PackedBatch { messages: vec![binary, plain] });
    assert_eq!((answer.status, answer.header("content-type")), (201, Some(PACKED)));
    let answer: Value = rmp_serde::from_slice(&answer.body).expect("MessagePack");
    assert_eq!((&answer["items"][1]["sequence"], &answer["durability"]), (&json!(2), &json!("fsync")));

    let pull = |max: usize| -> PackedPull {
        let answer = packed(&broker, "/v1/subscriptions/s/pull", &json!({ "max": max }));
        assert_eq!(answer.header("content-type"), Some(PACKED));
        rmp_serde::from_slice(&answer.body).expect("MessagePack")
    };
    let first = pull(2).deliveries;
    assert_eq!(first[0].message.payload_base64.as_deref(), Some(&bytes));
    assert_eq!(first[1].message.payload.as_ref(), Some(&tree));
    assert_eq!(first[1].attempt, 1);

    for (verb, body) in [
        ("extend", json!({ "items": [{ "receipt": first[0].receipt, "lease": 60 }] })),
        ("nack", json!({ "items": [{ "receipt": first[0].receipt, "class": "timeout" }] })),
        ("release", json!({ "receipts": [first[1].receipt] })),
    ] {
        let answer = packed(&broker, &format!("/v1/subscriptions/s/{verb}"), &body);
        let answer: Value = rmp_serde::from_slice(&answer.body).expect("MessagePack");
        assert_eq!(answer["items"][0].get("error"), None, "{verb}: {answer}");
    }
    let second = pull(2).deliveries;
    let receipts: Vec<_> = second.iter().map(|delivery| &delivery.receipt).collect();
    let answer = packed(&broker, "/v1/subscriptions/s/ack", &json!({ "receipts": receipts }));
    let answer: Value = rmp_serde::from_slice(&answer.body).expect("MessagePack");
    assert_eq!(
        (&answer["items"][0]["status"], &answer["items"][1]["status"]),
        (&json!("acked"), &json!("acked"))
    );

    let request =
        broker.request("POST", "/v1/subscriptions/s/pull").json(&json!({})).header("accept", PACKED);
    assert_eq!(broker.send(request).header("content-type"), Some(PACKED), "and in what was asked for");
}

/// A payload that is good JSON is delivered to a client that asks for MessagePack, however deep or large its numbers.
#[test]
fn any_json_payload_can_be_pulled_as_message_pack() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    for body in [deep.as_str(), "1e400", r#"{"a":1,"a":2}"#] {
        raw(&broker, &[("content-type", b"application/json")], body.as_bytes()).expect(201);
        let answer = packed(&broker, "/v1/subscriptions/s/pull", &json!({}));
        assert_eq!(answer.status, 200, "{}: {}", &body[..5], answer.text());
        let pulled: PackedPull = rmp_serde::from_slice(&answer.body).expect("MessagePack");
        assert_eq!(pulled.deliveries.len(), 1);
    }
}

/// MessagePack that is no request is refused: garbage, trailing bytes, other shapes, numbers that are none.
#[test]
fn message_pack_that_is_no_request_is_refused() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let good = rmp_serde::to_vec_named(&json!({ "messages": [{ "payload": 1 }] })).expect("it packs");
    let mut trailing = good.clone();
    trailing.extend_from_slice(&good);
    let shape = rmp_serde::to_vec_named(&json!({ "message": 1 })).expect("it packs");
    // An array of arrays of arrays.
    let deep = vec![0x91; 100_000];
    let huge = vec![0xdd, 0xff, 0xff, 0xff, 0xff];
    for body in [&b"\xc1"[..], b"", &good[..good.len() - 1], &trailing, &shape, &deep, &huge] {
        let request = broker.request("POST", MESSAGES).header("content-type", PACKED).body(body.to_vec());
        let answer = broker.send(request);
        assert_eq!(answer.problem(), (400, "invalid_body".to_owned()), "{} bytes", body.len());
    }
    for delay in [f64::NAN, f64::INFINITY, -1.0, f64::MAX] {
        let message = PackedMessage { payload: Some(json!(1)), delay: Some(delay), ..Default::default() };
        let answer = packed(&broker, MESSAGES, &PackedBatch { messages: vec![message] });
        assert_eq!(answer.status, 422, "{delay}");
        let answer: Value = rmp_serde::from_slice(&answer.body).expect("MessagePack");
        assert_eq!(answer["items"][0]["error"]["code"], "invalid_duration", "{delay}");
    }
    assert_eq!(next_sequence(&broker), 1);
}
