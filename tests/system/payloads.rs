//! Bytes and attributes come back exactly as they were given, or are refused when they are published.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::support::Broker;

const LARGEST: usize = 512 * 1024;

fn publish_raw(broker: &Broker, body: Vec<u8>) -> u16 {
    let request = broker.request("POST", "/v1/topics/t/messages");
    broker.send(request.header("content-type", "application/octet-stream").body(body)).status
}

fn bytes(message: &Value) -> Vec<u8> {
    BASE64.decode(message["payload_base64"].as_str().expect("a payload in base64")).expect("base64")
}

/// Payloads of all byte values, of none, and of the largest size come back byte for byte, raw and in a batch, also
/// after a kill and from a dead letter.
#[test]
fn s52_payloads_are_byte_exact() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": LARGEST })).expect(201);
    broker.subscribe("s", "t", json!({ "retry": { "max_attempts": 1 } }));
    let all: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..LARGEST).map(|at| (at * 7 + at / 256) as u8).collect();
    for payload in [all, Vec::new(), large] {
        let batch = json!({ "messages": [{ "payload_base64": BASE64.encode(&payload) }] });
        assert_eq!(publish_raw(&broker, payload.clone()), 201);
        broker.post("/v1/topics/t/messages", &batch).expect(201);
        broker.kill_and_start_again();
        for _ in 0..2 {
            let delivery = broker.next("s");
            assert!(bytes(&delivery.message) == payload, "{} bytes pulled", payload.len());
            assert!(bytes(&broker.message(delivery.id())) == payload, "{} bytes shown", payload.len());
            broker.nack("s", &delivery.receipt, "fatal");
            let letter = broker.dead_letters("s").pop().expect("a dead letter");
            let letter = broker.dead_letter(letter["id"].as_str().expect("an id"));
            assert!(bytes(&letter["message"]) == payload, "{} bytes buried", payload.len());
        }
    }
}

/// One byte more than the topic takes is refused, and so is a topic that would take more than there is room for.
#[test]
fn s52_payloads_beyond_the_limit_are_refused() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": 1_000 })).expect(201);
    assert_eq!(publish_raw(&broker, vec![0; 1_000]), 201);
    assert_eq!(publish_raw(&broker, vec![0; 1_001]), 413);
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": LARGEST })).expect(200);
    assert_eq!(publish_raw(&broker, vec![0; LARGEST + 1]), 413);
    let wider = broker.put("/v1/topics/t", &json!({ "max_message_bytes": LARGEST + 1 }));
    assert_eq!(wider.problem(), (422, "invalid_setting".to_owned()));
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 2);
}

/// JSON keeps its exact text: spaces, order, large numbers, names given twice, escapes.
#[test]
fn json_payloads_keep_their_text() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let text = r#"{ "b":1,"a" : 12345678901234567890123, "a":1.10, "e":"\u00e9\/", "n":-0.0 }"#;
    let request = broker.request("POST", "/v1/topics/t/messages").header("content-type", "application/json");
    let answer = broker.send(request.body(format!(r#"{{"messages":[{{"payload":{text}}}]}}"#)));
    answer.expect(201);
    let pulled = broker.send(broker.request("POST", "/v1/subscriptions/s/pull").json(&json!({})));
    assert!(pulled.text().contains(text), "{}", pulled.text());
    let id = pulled.json()["deliveries"][0]["message"]["id"].as_str().expect("an id").to_owned();
    let exact = broker.get(&format!("/v1/messages/{id}?payload_as=base64")).expect(200);
    assert_eq!(String::from_utf8(bytes(&exact)).expect("text"), text);
}

/// A payload that says it is JSON and is not comes back as the bytes it is.
#[test]
fn what_is_not_json_comes_back_as_bytes() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for body in [&b"{"[..], b"", b"{} {}", b"\xff", b"\"\xed\xa0\x80\""] {
        let request =
            broker.request("POST", "/v1/topics/t/messages").header("content-type", "application/json");
        broker.send(request.body(body.to_vec())).expect(201);
        let delivery = broker.next("s");
        assert_eq!(delivery.message.get("payload"), None, "{body:?}");
        assert_eq!(bytes(&delivery.message), body);
    }
}

fn attributes(pairs: impl IntoIterator<Item = (String, String)>) -> Value {
    Value::Object(pairs.into_iter().map(|(name, value)| (name, Value::String(value))).collect::<Map<_, _>>())
}

fn numbered(count: usize, value: &str) -> Value {
    attributes((0..count).map(|number| (format!("a{number:04}"), value.to_owned())))
}

/// Attributes within the limits come back exactly: UTF-8, empty, 8 KiB, line breaks and NUL, and as many as there
/// can be; a dead letter has them unchanged.
#[test]
fn s52_attributes_are_exact() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1 } }));
    for given in [
        json!({}),
        json!({ "名前": "héllo 🦀", "empty": "", "x-y.z_1": " spaces " }),
        json!({ "lines": "a\r\nb\u{0}c\u{7f}" }),
        json!({ "long": "v".repeat(8 * 1024) }),
        json!({ "n".repeat(128): "v" }),
        numbered(64, "v"),
        numbered(4, &"v".repeat(8 * 1024 - 5)),
    ] {
        let id = broker.publish_with("t", json!({ "payload": 1, "attributes": given }));
        let delivery = broker.next("s");
        assert_eq!(delivery.message["attributes"], given);
        broker.nack("s", &delivery.receipt, "fatal");
        let letter = broker.delivery_of(&id)["dead_letter"]["id"].as_str().expect("an id").to_owned();
        assert_eq!(broker.dead_letter(&letter)["message"]["attributes"], given);
    }
}

/// Attributes beyond the limits are refused when they are published, and nothing is stored.
#[test]
fn s52_attributes_beyond_the_limits_are_refused() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for given in [
        numbered(65, ""),
        numbered(1_000, ""),
        numbered(5, &"v".repeat(7 * 1024)),
        json!({ "long": "v".repeat(8 * 1024 + 1) }),
        json!({ "n".repeat(129): "v" }),
        json!({ "": "v" }),
        json!({ "a b": "v" }),
        json!({ "a\r\nb": "v" }),
        json!({ "a\u{0}": "v" }),
        json!({ "Tenant": "a", "tenant": "b" }),
        json!({ "É": "a", "é": "b" }),
    ] {
        let body = json!({ "messages": [{ "payload": 1, "attributes": given }] });
        let answer = broker.post("/v1/topics/t/messages", &body);
        assert_eq!(answer.status, 422, "{given}");
        assert_eq!(answer.json()["items"][0]["error"]["code"], "invalid_attribute", "{given}");
    }
    // The same name twice, which no map of ours can hold.
    let request = broker.request("POST", "/v1/topics/t/messages").header("content-type", "application/json");
    let answer = broker.send(request.body(r#"{"messages":[{"payload":1,"attributes":{"a":"1","a":"2"}}]}"#));
    assert_eq!(answer.json()["items"][0]["error"]["code"], "invalid_attribute");
    for given in [json!({ "a": 1 }), json!({ "a": null }), json!([]), json!("a")] {
        let body = json!({ "messages": [{ "payload": 1, "attributes": given }] });
        let answer = broker.post("/v1/topics/t/messages", &body);
        assert_eq!(answer.problem(), (400, "invalid_body".to_owned()), "{given}");
    }
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 1);
}
