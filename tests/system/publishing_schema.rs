//! JSON Schemas of topics: what does not follow them is refused, and no schema or payload holds the broker up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Answer, Broker};

const TOPIC: &str = "/v1/topics/t";
const MESSAGES: &str = "/v1/topics/t/messages";

fn order() -> Value {
    json!({
        "type": "object",
        "required": ["order"],
        "properties": { "order": { "$ref": "#/$defs/number" }, "note": { "type": "string", "pattern": "^[a-z]+$" } },
        "$defs": { "number": { "type": "integer", "minimum": 1 } },
    })
}

fn put(broker: &Broker, schema: &Value) -> Answer {
    broker.put(TOPIC, &json!({ "schema": schema }))
}

fn raw(broker: &Broker, body: &str) -> Answer {
    broker.send(
        broker.request("POST", MESSAGES).header("content-type", "application/json").body(body.to_owned()),
    )
}

fn next_sequence(broker: &Broker) -> Value {
    broker.get(TOPIC).expect(200)["next_sequence"].clone()
}

/// A payload that violates the schema is refused and stored nowhere; the answer says where it is wrong and shows nothing
/// of it. The same holds for raw bodies, events, items of a batch, and what is no JSON.
#[test]
fn violations_are_refused() {
    let broker = Broker::start();
    put(&broker, &order()).expect(201);
    broker.subscribe("s", "t", json!({}));
    raw(&broker, r#"{"order":7}"#).expect(201);
    for body in [r#"{"order":0}"#, r#"{"order":"secret"}"#, r#"{"order":7,"note":"A"}"#, "{}", "7", "{", ""] {
        assert_eq!(raw(&broker, body).problem(), (422, "schema_violation".to_owned()), "{body}");
    }
    let refused = raw(&broker, r#"{"order":"secret"}"#);
    assert!(
        refused.text().contains("payload/order:") && refused.text().contains("integer"),
        "{}",
        refused.text()
    );
    assert!(!refused.text().contains("secret"), "{}", refused.text());
    let binary = broker.request("POST", MESSAGES).header("content-type", "application/octet-stream");
    assert_eq!(broker.send(binary.body(vec![0xff])).problem().1, "schema_violation");
    let event =
        json!({ "specversion": "1.0", "id": "1", "source": "/", "type": "t", "data": { "order": 0 } });
    let request = broker.request("POST", MESSAGES).header("content-type", "application/cloudevents+json");
    assert_eq!(broker.send(request.body(event.to_string())).problem().1, "schema_violation");

    let items = json!([{ "payload": { "order": 8 } }, { "payload": { "order": 0 } }, { "payload_base64": "eyJvcmRlciI6OX0=" }]);
    let answer = broker.post(MESSAGES, &json!({ "messages": items })).expect(201);
    assert_eq!((&answer["items"][0]["sequence"], &answer["items"][2]["sequence"]), (&json!(2), &json!(3)));
    let error = &answer["items"][1]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("schema_violation"), &json!(false)));
    let none = broker.post(MESSAGES, &json!({ "messages": [{ "payload": 1 }, { "payload": 2 }] }));
    assert_eq!((none.status, &none.json()["items"][1]["error"]["code"]), (422, &json!("schema_violation")));
    assert_eq!(next_sequence(&broker), 4);
    assert_eq!(broker.pull("s", 10, Duration::ZERO).len(), 3);
}

/// What is checked is the schema that the topic has at that moment: after a change, without one, in a new topic of the
/// same name, and after a kill.
#[test]
fn the_schema_is_always_that_of_the_topic() {
    let mut broker = Broker::start();
    let text = |kind: &str| json!({ "type": kind });
    broker.topic("t");
    raw(&broker, "7").expect(201);
    for round in 0..2 {
        let shown = put(&broker, &text("integer"));
        assert_eq!(shown.json()["schema"], text("integer"));
        raw(&broker, "7").expect(201);
        assert_eq!(raw(&broker, r#""7""#).status, 422, "{round}");
        put(&broker, &text("string")).expect(200);
        raw(&broker, r#""7""#).expect(201);
        assert_eq!(raw(&broker, "7").status, 422, "{round}");
        put(&broker, &text("integer")).expect(200);
        // Nothing of this batch followed the schema that was known.
        broker.post(MESSAGES, &json!({ "messages": [{ "payload": 1 }, { "payload": 2 }] })).expect(201);
        assert_eq!(raw(&broker, r#""7""#).status, 422, "{round}");
        broker.kill_and_start_again();
        assert_eq!(broker.get(TOPIC).expect(200)["schema"], text("integer"));
        assert_eq!(raw(&broker, r#""7""#).status, 422, "after a kill");
        broker.put(TOPIC, &json!({})).expect(200);
        raw(&broker, r#""7""#).expect(201);
        raw(&broker, "no JSON").expect(201);
    }
    put(&broker, &text("integer")).expect(200);
    assert_eq!(raw(&broker, r#""7""#).status, 422);
    assert_eq!(broker.get("/v1/topics").expect(200)["items"][0].get("schema"), None, "lists are short");
    broker.delete(TOPIC).expect(204);
    broker.topic("t");
    raw(&broker, r#""7""#).expect(201);
}

/// Drafts by `$schema`, the current one without it; references within the schema are followed, formats are not checked.
#[test]
fn drafts_are_told_by_their_name() {
    let broker = Broker::start();
    broker.topic("t");
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    put(&broker, &json!({ "$schema": draft_7, "items": [{ "type": "integer" }], "additionalItems": false }))
        .expect(200);
    raw(&broker, "[1]").expect(201);
    assert_eq!(raw(&broker, "[1,2]").status, 422);
    put(&broker, &json!({ "prefixItems": [{ "type": "integer" }], "items": false })).expect(200);
    raw(&broker, "[1]").expect(201);
    assert_eq!(raw(&broker, "[1,2]").status, 422);
    put(&broker, &json!({ "format": "uuid" })).expect(200);
    raw(&broker, r#""no uuid""#).expect(201);
    put(&broker, &json!(false)).expect(200);
    assert_eq!(raw(&broker, "1").status, 422);
}

/// A schema that is none, refers elsewhere, or could cost too much is refused, and the topic stays as it was.
#[test]
fn bad_schemas_are_refused() {
    let broker = Broker::start();
    broker.topic("t");
    let before = broker.get(TOPIC).expect(200);
    let patterns: serde_json::Map<_, _> =
        (0..65).map(|n| (format!("p{n}"), json!({ "pattern": format!("^{n}$") }))).collect();
    let mut laughs = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        laughs.insert(format!("d{level}"), json!({ "allOf": [next, next] }));
    }
    laughs.insert("d40".to_owned(), json!({ "type": "object" }));
    for schema in [
        json!(7),
        json!("text"),
        json!([]),
        json!({ "type": "no type" }),
        json!({ "required": "x" }),
        json!({ "pattern": "(" }),
        // Patterns that need backtracking have no bound on their time, and huge ones none on their memory.
        json!({ "pattern": "(?=a)b" }),
        json!({ "pattern": r"(a)\1" }),
        json!({ "pattern": r"(\pL{1000}){1000}" }),
        json!({ "properties": patterns }),
        json!({ "$ref": "#" }),
        json!({ "properties": { "next": { "$ref": "#" } } }),
        json!({ "$ref": "http://127.0.0.1:1/schema.json" }),
        json!({ "$ref": "file:///etc/passwd" }),
        json!({ "$schema": "https://example.com/mine" }),
        json!({ "$ref": "#/$defs/d0", "$defs": laughs }),
        json!({ "properties": { "a": { "$id": "http://127.0.0.1:1/" } } }),
    ] {
        let start = Instant::now();
        assert_eq!(put(&broker, &schema).problem(), (422, "invalid_schema".to_owned()), "{schema}");
        assert!(start.elapsed() < Duration::from_secs(10), "{schema}");
    }
    let large = json!({ "description": "x".repeat(64 * 1024) });
    assert_eq!(put(&broker, &large).problem(), (422, "invalid_setting".to_owned()));
    assert_eq!(broker.get(TOPIC).expect(200), before);
}

/// The largest payloads, made to be slow to check, end in time, and others publish meanwhile.
#[test]
fn slow_payloads_hold_nobody_up() {
    let broker = Broker::start();
    let patterns: Vec<_> = (0..50).map(|n| json!({ "pattern": format!("^(a+)+{n}$") })).collect();
    let schema = json!({ "items": { "type": "string", "anyOf": patterns } });
    broker.put(TOPIC, &json!({ "max_message_bytes": 512 * 1024, "schema": schema })).expect(201);
    broker.topic("other");
    let slow = json!(vec!["a".repeat(1_000); 400]).to_string();
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..4).map(|_| scope.spawn(|| raw(&broker, &slow).status)).collect();
        for number in 0..50 {
            broker.publish("other", &json!(number));
        }
        for answer in slow {
            assert_eq!(answer.join().expect("it is answered"), 422);
        }
    });
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(raw(&broker, &deep).problem().1, "schema_violation");
}
