//! CloudEvents in every mode of their HTTP binding, in and out, and W3C trace context.

use serde_json::{Value, json};

use crate::support::{Answer, Broker, Delivery};

const MESSAGES: &str = "/v1/topics/t/messages";
const STRUCTURED: &str = "application/cloudevents+json";
const BATCHED: &str = "application/cloudevents-batch+json";

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker
}

fn send(broker: &Broker, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request = broker.request("POST", MESSAGES).body(body.to_vec());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    broker.send(request)
}

/// The headers of a good event in binary mode, and more.
fn binary<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![
        ("ce-specversion", "1.0"),
        ("ce-id", "e1"),
        ("ce-source", "/shop"),
        ("ce-type", "com.example.order"),
    ];
    headers.extend(more);
    headers
}

fn event() -> Value {
    json!({ "specversion": "1.0", "id": "e1", "source": "/shop", "type": "com.example.order" })
}

/// An event with more members.
fn with(more: Value) -> Value {
    let (mut event, Value::Object(more)) = (event(), more) else { panic!("an object") };
    event.as_object_mut().expect("an object").extend(more);
    event
}

fn publish(broker: &Broker, event: &Value) -> Answer {
    send(broker, &[("content-type", STRUCTURED)], event.to_string().as_bytes())
}

/// The next message as an event.
fn pulled(broker: &Broker) -> Value {
    let mut answer = broker
        .post("/v1/subscriptions/s/pull", &json!({ "wait": "15s", "payload_as": "cloudevents" }))
        .expect(200);
    let delivery: Delivery = serde_json::from_value(answer["deliveries"][0].take()).expect("a delivery");
    delivery.message
}

fn next_sequence(broker: &Broker) -> Value {
    broker.get("/v1/topics/t").expect(200)["next_sequence"].clone()
}

/// Binary mode: the headers become attributes, percent signs and quotes decoded, and the body is the payload byte for
/// byte, even where it looks like a batch.
#[test]
fn binary_events_keep_headers_and_bytes() {
    let broker = broker();
    let body = br#"{"messages":[]}"#;
    let headers = binary(&[
        ("content-type", "application/json"),
        ("ce-subject", "Euro%20%E2%82%AC%20100%25"),
        ("ce-comexample", r#""a \"quoted\" one""#),
        ("ce-time", "2026-01-31T12:00:00.123+01:00"),
        ("Broker-Key", "c-42"),
        ("Broker-Attribute-Tenant", "acme"),
    ]);
    send(&broker, &headers, body).expect(201);
    let message = broker.next("s").message;
    let expected = json!({
        "ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop", "ce-type": "com.example.order",
        "ce-subject": "Euro € 100%", "ce-comexample": "a \"quoted\" one", "ce-time": "2026-01-31T12:00:00.123+01:00",
        "tenant": "acme",
    });
    assert_eq!(message["attributes"], expected);
    assert_eq!((&message["key"], &message["content_type"]), (&json!("c-42"), &json!("application/json")));
    assert_eq!(message["payload"], json!({ "messages": [] }));
}

/// Structured mode: data is kept as it was written, binary data as its bytes, a text of another type as what it says.
#[test]
fn structured_events_become_messages() {
    let broker = broker();
    let text = r#"{"specversion":"1.0","id":"e1","source":"/shop","type":"t","n":7,"flag":true,"none":null,
        "partitionkey":"c-42","data":{ "b":1.10,"a" : "é" }}"#;
    send(&broker, &[("content-type", "application/cloudevents+json; charset=utf-8")], text.as_bytes())
        .expect(201);
    let delivery = broker.send(broker.request("POST", "/v1/subscriptions/s/pull").json(&json!({})));
    assert!(delivery.text().contains(r#"{ "b":1.10,"a" : "é" }"#), "{}", delivery.text());
    let message = &delivery.json()["deliveries"][0]["message"];
    let expected = json!({
        "ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop", "ce-type": "t", "ce-n": "7", "ce-flag": "true",
    });
    assert_eq!(message["attributes"], expected);
    assert_eq!((&message["key"], &message["content_type"]), (&json!("c-42"), &json!("application/json")));

    for (more, content_type, payload) in [
        (json!({ "data_base64": "AP8=", "datacontenttype": "image/png" }), json!("image/png"), "AP8="),
        (json!({ "data_base64": "AP8=" }), Value::Null, "AP8="),
        (json!({ "data": "<a/>", "datacontenttype": "text/xml" }), json!("text/xml"), "PGEvPg=="),
        (json!({ "data": [1], "datacontenttype": "text/xml" }), json!("text/xml"), "WzFd"),
        (json!({}), Value::Null, ""),
    ] {
        publish(&broker, &with(more.clone())).expect(201);
        let message = broker.next("s").message;
        assert_eq!(
            (&message["content_type"], &message["payload_base64"]),
            (&content_type, &json!(payload)),
            "{more}"
        );
    }
}

/// Batched mode is a batch: its good events are stored in order, a bad one has an error in its place.
#[test]
fn batched_events_are_a_batch() {
    let broker = broker();
    let events = json!([
        with(json!({ "id": "1", "data": 1 })),
        with(json!({ "id": "2", "specversion": "0.3" })),
        7,
        with(json!({ "id": "4", "data": 4 })),
    ]);
    let post = |headers: &[(&str, &str)], events: &Value| {
        send(&broker, &[&[("content-type", BATCHED)], headers].concat(), events.to_string().as_bytes())
    };
    let answer = post(&[], &events).expect(201);
    let codes: Vec<_> = (0..4).map(|at| answer["items"][at]["error"]["code"].as_str()).collect();
    assert_eq!(codes, [None, Some("invalid_cloudevent"), Some("invalid_cloudevent"), None]);
    assert_eq!((pulled(&broker)["id"].clone(), pulled(&broker)["id"].clone()), (json!("1"), json!("4")));
    let many: Vec<_> = (0..1_001).map(|_| event()).collect();
    assert_eq!(post(&[], &json!([])).problem(), (400, "batch_size".to_owned()));
    assert_eq!(post(&[], &json!(many)).problem(), (400, "batch_size".to_owned()));
    assert_eq!(post(&[], &event()).problem(), (400, "invalid_body".to_owned()));
    assert_eq!(post(&[("broker-key", "k")], &json!([event()])).problem(), (400, "invalid_header".to_owned()));
    assert_eq!(next_sequence(&broker), 3);
}

/// What comes out as an event is the one that went in, whatever its mode, also from its page and from a dead letter.
#[test]
fn events_round_trip() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1 } }));
    let events = [
        with(
            json!({ "datacontenttype": "application/json", "data": { "order": 7 }, "time": "2026-01-31T12:00:00Z" }),
        ),
        with(json!({ "datacontenttype": "text/plain", "data": "é", "subject": "s", "partitionkey": "c-42" })),
        with(json!({ "datacontenttype": "image/png", "data_base64": "AP8=", "dataschema": "urn:x" })),
        with(json!({ "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" })),
        event(),
    ];
    for event in &events {
        publish(&broker, event).expect(201);
        assert_eq!(pulled(&broker), *event);
    }
    send(&broker, &binary(&[("content-type", "application/json")]), br#"{"order":7}"#).expect(201);
    let expected = with(json!({ "datacontenttype": "application/json", "data": { "order": 7 } }));
    let delivery = broker.next("s");
    let page = broker.get(&format!("/v1/messages/{}?payload_as=cloudevents", delivery.id())).expect(200);
    assert_eq!((&page["id"], &page["data"]), (&expected["id"], &expected["data"]));
    assert_eq!(page["deliveries"].as_array().map(Vec::len), Some(1));
    broker.nack("s", &delivery.receipt, "fatal");
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    let letter = broker.get(&format!("/v1/dead-letters/{letter}?payload_as=cloudevents")).expect(200);
    assert_eq!(letter["message"], expected);
}

/// Any message can be pulled as an event; what the broker fills in says where it is from.
#[test]
fn any_message_is_an_event() {
    let broker = broker();
    let attributes = json!({ "tenant": "acme", "Not-A-Name": "x", "id": "mine", "ce-type": "half an event" });
    let message = json!({ "payload": { "order": 7 }, "key": "c-42", "attributes": attributes });
    let id = broker.publish_with("t", message);
    let published_at = broker.message(&id)["published_at"].clone();
    let expected = json!({
        "specversion": "1.0", "id": id, "source": "/v1/topics/t", "type": "reprise.message", "time": published_at,
        "tenant": "acme", "partitionkey": "c-42", "datacontenttype": "application/json", "data": { "order": 7 },
    });
    assert_eq!(pulled(&broker), expected);
    broker.publish_with("t", json!({ "payload_base64": "AP8=" }));
    let event = pulled(&broker);
    assert_eq!(
        (&event["data_base64"], event.get("data"), event.get("datacontenttype")),
        (&json!("AP8="), None, None)
    );
}

/// An event that lacks what every event has, or has what none may, is refused, and nothing is stored.
#[test]
fn what_is_no_event_is_refused() {
    let broker = broker();
    let mut bad = vec![
        with(json!({ "specversion": "1.1" })),
        with(json!({ "specversion": 1.0 })),
        with(json!({ "id": "" })),
        with(json!({ "id": null })),
        with(json!({ "Upper": "x" })),
        with(json!({ "with-dash": "x" })),
        with(json!({ "subject": "a\nb" })),
        with(json!({ "list": [] })),
        with(json!({ "number": 1.5 })),
        with(json!({ "data": 1, "data_base64": "" })),
        with(json!({ "data_base64": "?" })),
        with(json!({ "datacontenttype": 7 })),
        json!([event()]),
    ];
    for name in ["specversion", "id", "source", "type"] {
        let mut event = event();
        event.as_object_mut().expect("an object").remove(name);
        bad.push(event);
    }
    for event in bad {
        assert_eq!(publish(&broker, &event).problem(), (400, "invalid_cloudevent".to_owned()), "{event}");
    }
    let twice = event().to_string().replace(r#""id""#, r#""source":"/x","id""#);
    for body in [twice.as_bytes(), b"", b"{", b"\xff"] {
        let answer = send(&broker, &[("content-type", STRUCTURED)], body);
        assert_eq!(answer.problem(), (400, "invalid_cloudevent".to_owned()));
    }
    for missing in 0..4 {
        let mut headers = binary(&[]);
        headers.remove(missing);
        assert_eq!(
            send(&broker, &headers, b"").problem(),
            (400, "invalid_cloudevent".to_owned()),
            "{missing}"
        );
    }
    for (more, code) in [
        (("ce-datacontenttype", "text/plain"), "invalid_cloudevent"),
        (("ce-data", "7"), "invalid_cloudevent"),
        (("ce-with-dash", "x"), "invalid_cloudevent"),
        (("ce-subject", "%FF"), "invalid_cloudevent"),
        (("ce-subject", "%0A"), "invalid_cloudevent"),
        (("ce-id", "e2"), "invalid_attribute"),
        (("broker-attribute-ce-id", "e2"), "invalid_attribute"),
    ] {
        assert_eq!(send(&broker, &binary(&[more]), b"").problem(), (400, code.to_owned()), "{more:?}");
    }
    let keys = binary(&[("broker-key", "a"), ("ce-partitionkey", "b")]);
    assert_eq!(send(&broker, &keys, b"").problem(), (400, "invalid_cloudevent".to_owned()));
    assert_eq!(next_sequence(&broker), 1);
    // What is said to be raw is a payload like any other.
    let request = broker.request("POST", &format!("{MESSAGES}?raw=true")).header("content-type", STRUCTURED);
    broker.send(request.body("{}")).expect(201);
    assert_eq!(broker.next("s").message["content_type"], STRUCTURED);
}

/// The id of an `Idempotency-Key` stands for the data of an event.
#[test]
fn events_are_deduplicated_by_their_key() {
    let broker = broker();
    let post = |event: &Value| {
        let headers = [("content-type", STRUCTURED), ("idempotency-key", "a")];
        send(&broker, &headers, event.to_string().as_bytes())
    };
    post(&with(json!({ "data": 1 }))).expect(201);
    assert_eq!(
        post(&with(json!({ "data": 1, "time": "2026-01-31T12:00:00Z" }))).expect(200)["items"][0]["duplicate"],
        true
    );
    assert_eq!(post(&with(json!({ "data": 2 }))).problem(), (409, "dedup_conflict".to_owned()));
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Trace context of a raw publish is handed back as attributes; what is not valid is left out, and is no error.
#[test]
fn trace_context_is_kept() {
    let broker = broker();
    let good = json!({ "traceparent": PARENT, "tracestate": "a=1,b=2" });
    let state = ("tracestate", "a=1,b=2");
    let long = "x".repeat(513);
    let upper = PARENT.to_uppercase();
    let cases: [(&[(&str, &str)], Value); 8] = [
        (&[("traceparent", PARENT), state], good.clone()),
        (&[("TraceParent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], good),
        (&[("traceparent", PARENT)], json!({ "traceparent": PARENT })),
        (&[("traceparent", PARENT), ("tracestate", &long)], json!({ "traceparent": PARENT })),
        (&[state], json!({})),
        (&[("traceparent", &upper), state], json!({})),
        (&[("traceparent", PARENT), ("traceparent", PARENT), state], json!({})),
        (&[("traceparent", PARENT), ("broker-attribute-traceparent", "x")], json!({ "traceparent": "x" })),
    ];
    for (headers, expected) in cases {
        send(&broker, headers, b"7").expect(201);
        assert_eq!(broker.next("s").message["attributes"], expected, "{headers:?}");
    }
    broker.publish_with("t", json!({ "payload": 1, "attributes": { "traceparent": "anything" } }));
    assert_eq!(broker.next("s").message["attributes"], json!({ "traceparent": "anything" }));
}
