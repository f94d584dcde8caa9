//! Streams of publishers: batches in flight, confirmed in their order.

use serde_json::{Value, json};

use crate::support::{Broker, MSGPACK, PATIENCE, Stream};

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker
}

fn payloads(broker: &Broker, count: usize) -> Vec<Value> {
    let mut payloads = Vec::new();
    while payloads.len() < count {
        let pulled = broker.pull("s", 1_000, PATIENCE);
        assert!(!pulled.is_empty(), "only {} came", payloads.len());
        payloads.extend(pulled.into_iter().map(|delivery| delivery.message["payload"].clone()));
    }
    payloads
}

/// Many batches before the first confirmation is read: they are confirmed and stored in their order.
#[test]
fn batches_are_confirmed_in_their_order() {
    let broker = broker();
    let mut stream = Stream::publish(&broker, "t");
    let mut sequence = 0;
    for frame in 0..300 {
        let messages = [json!({ "payload": 2 * frame }), json!({ "payload": 2 * frame + 1, "key": "k" })];
        stream.send(&json!({ "type": "publish", "id": frame.to_string(), "messages": messages }));
    }
    for frame in 0..300 {
        let published = stream.expect("published");
        assert_eq!(
            (&published["id"], &published["durability"]),
            (&json!(frame.to_string()), &json!("fsync"))
        );
        for item in published["items"].as_array().expect("a list") {
            sequence += 1;
            assert_eq!(item["sequence"], sequence);
            assert!(item["id"].is_string());
        }
    }
    assert_eq!(payloads(&broker, 600), (0..600).map(Value::from).collect::<Vec<_>>());
}

/// What was confirmed survives the end of the process.
#[test]
fn what_is_confirmed_is_kept() {
    let mut broker = broker();
    let mut stream = Stream::publish(&broker, "t");
    let published =
        stream.ask(&json!({ "type": "publish", "id": "1", "messages": [{ "payload": 7 }] }), "published");
    broker.kill_and_start_again();
    assert_eq!(broker.next("s").id(), published["items"][0]["id"]);
}

/// A bad item has its error in its place and the others are stored; a bad frame stores nothing. Confirmations and errors
/// keep the order of the frames.
#[test]
fn bad_items_and_bad_frames_are_answered_in_their_order() {
    let broker = broker();
    let mut stream = Stream::publish(&broker, "t");
    let mixed = [
        json!({ "payload": 1 }),
        json!({}),
        json!({ "payload": 2, "key": "k".repeat(300) }),
        json!({ "payload": 3 }),
    ];
    stream.send(&json!({ "type": "publish", "id": "mixed", "messages": mixed }));
    stream.send(&json!({ "type": "publish", "id": "bad", "messages": [{ "payload": 4, "more": 1 }] }));
    stream.send(&json!({ "type": "publish", "id": "none", "messages": [] }));
    stream
        .send(&json!({ "type": "publish", "id": "many", "messages": vec![json!({ "payload": 5 }); 1_001] }));
    stream.send(&json!({ "type": "publish", "id": "good", "messages": [{ "payload": 6 }] }));
    let mixed = stream.expect("published");
    let codes: Vec<_> = (0..4).map(|index| mixed["items"][index]["error"]["code"].clone()).collect();
    assert_eq!(codes, [Value::Null, json!("invalid_message"), json!("invalid_message"), Value::Null]);
    for (id, code) in [("bad", "invalid_body"), ("none", "batch_size"), ("many", "batch_size")] {
        let error = stream.expect("error");
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(id), &json!(code)));
    }
    assert_eq!(stream.expect("published")["id"], "good");
    assert_eq!(payloads(&broker, 3), [json!(1), json!(3), json!(6)]);
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 4);
}

/// Payloads come back as the bytes that they were, in either format.
#[test]
fn payloads_keep_their_bytes() {
    let broker = broker();
    let mut stream = Stream::publish(&broker, "t");
    stream.send_text(r#"{"messages":[{"payload":{"a" : 1.50},"attributes":{"k":"v"}},{"payload_base64":"AP8="}],"type":"publish"}"#);
    assert_eq!(stream.expect("published").get("id"), None);
    let mut packed = Stream::open(&broker, "/v1/topics/t/stream", Some(MSGPACK));
    packed
        .ask(&json!({ "type": "publish", "id": "p", "messages": [{ "payload": [1, "two"] }] }), "published");
    let pulled =
        broker.post("/v1/subscriptions/s/pull", &json!({ "max": 10, "payload_as": "base64" })).expect(200);
    let bytes: Vec<_> =
        (0..3).map(|index| pulled["deliveries"][index]["message"]["payload_base64"].clone()).collect();
    assert_eq!(bytes, ["eyJhIiA6IDEuNTB9", "AP8=", "WzEsInR3byJd"]);
    assert_eq!(pulled["deliveries"][0]["message"]["attributes"], json!({ "k": "v" }));
}

/// A topic that is deleted meanwhile refuses what comes; the stream goes on.
#[test]
fn a_deleted_topic_refuses_batch_by_batch() {
    let broker = broker();
    broker.topic("other");
    let mut stream = Stream::publish(&broker, "other");
    broker.delete("/v1/topics/other").expect(204);
    let frame = json!({ "type": "publish", "id": "1", "messages": [{ "payload": 1 }] });
    assert_eq!(stream.ask(&frame, "error")["error"]["code"], "topic_not_found");
    broker.topic("other");
    stream.ask(&frame, "published");
}
