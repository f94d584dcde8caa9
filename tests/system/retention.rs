//! Retention by age: what is too old goes, settled or not, and every count follows.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, wait_for};

/// Leased, delayed, blocked and fresh deliveries end with their messages; the counts are right, a restart agrees, and the
/// subscription goes on with what is new.
#[test]
fn old_messages_go_with_their_deliveries() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_age": "1s" })).expect(201);
    broker.subscribe("s", "t", json!({ "ordering": "key", "retry": { "delay": "1h" } }));
    broker.subscribe("idle", "t", json!({}));
    for number in 0..3 {
        broker.publish_with("t", json!({ "payload": number, "key": "k" }));
    }
    let ids: Vec<_> = (0..3).map(|number| broker.publish("t", &json!(number))).collect();
    let held = broker.pull("s", 100, Duration::ZERO);
    assert_eq!(held.len(), 4);
    broker.nack("s", &held[1].receipt, "timeout");
    let gone = |broker: &Broker| {
        wait_for("they are too old", || {
            Some(broker.get(&format!("/v1/messages/{}", ids[2]))).filter(|it| it.status == 404)
        });
    };
    gone(&broker);
    let empty = |broker: &Broker| {
        for name in ["s", "idle"] {
            let shown = broker.subscription(name);
            let counts: Vec<_> = ["backlog", "in_flight", "delayed"].map(|count| &shown[count]).to_vec();
            assert_eq!(counts, [&json!(0), &json!(0), &json!(0)], "{name}");
        }
    };
    empty(&broker);
    for delivery in &held {
        assert_eq!(broker.ack("s", &delivery.receipt)["error"]["code"], "stale_receipt");
    }
    broker.kill_and_start_again();
    empty(&broker);
    let id = broker.publish_with("t", json!({ "payload": 9, "key": "k" }));
    assert_eq!([broker.next("s").id(), broker.next("idle").id()], [&id, &id]);
}

/// A topic's time to live is that of messages that bring none.
#[test]
fn a_topic_has_a_time_to_live() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "ttl": "1h" })).expect(201);
    broker.subscribe("s", "t", json!({}));
    let ttl = |message: Value| {
        let shown = broker.message(&broker.publish_with("t", message));
        crate::support::millis(&shown["expires_at"]) - crate::support::millis(&shown["published_at"])
    };
    assert_eq!(ttl(json!({ "payload": 1 })), 3_600_000);
    assert_eq!(ttl(json!({ "payload": 1, "ttl": "5m" })), 300_000);
    assert_eq!(broker.get("/v1/topics/t").expect(200)["ttl"], "1h");
}
