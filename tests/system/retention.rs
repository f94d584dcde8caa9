//! Retention by age and bytes: what is too old or too much goes, settled or not, and every count follows.

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

/// The oldest messages go while a topic keeps more bytes than it should: leased, delayed and fresh ones alike, and
/// nothing is refused. A dead letter and a replayed one have copies, and stay.
#[test]
fn the_oldest_go_where_there_are_too_many_bytes() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "retain_bytes": 20_000, "keep_acked": "1h" })).expect(201);
    let retry = json!({ "delay": "1h", "classes": { "fatal": { "action": "dead_letter" } } });
    broker.subscribe("s", "t", json!({ "retry": retry }));
    let payload = "x".repeat(1_000);
    let publish = |broker: &Broker| broker.publish("t", &json!(payload));
    let old: Vec<_> = (0..5).map(|_| publish(&broker)).collect();
    let held = broker.pull("s", 4, Duration::ZERO);
    broker.nack("s", &held[1].receipt, "timeout");
    for dead in &held[2..] {
        broker.nack("s", &dead.receipt, "fatal");
    }
    let letters = broker.dead_letters("s");
    let letter = |at: usize| letters[at]["id"].as_str().expect("an id").to_owned();
    broker.post(&format!("/v1/dead-letters/{}/replay", letter(1)), &json!({})).expect(200);
    let new: Vec<_> = (0..40).map(|_| publish(&broker)).collect();
    let kept = |broker: &Broker| broker.get("/v1/topics/t").expect(200)["bytes"].as_u64().expect("a count");
    let settles = |broker: &Broker| {
        wait_for("the oldest to go", || Some(kept(broker)).filter(|bytes| *bytes <= 20_000))
    };
    // No more than has to: one more message would be too many.
    assert!(settles(&broker) > 18_900);
    assert_eq!(broker.ack("s", &held[0].receipt)["error"]["code"], "stale_receipt");
    for gone in [&old[0], &old[1], &old[4], &new[0]] {
        assert_eq!(broker.get(&format!("/v1/messages/{gone}")).status, 404);
    }
    assert_eq!(broker.dead_letter(&letter(0))["message"]["payload"], json!(payload));
    broker.kill_and_start_again();
    let browsed = broker.get("/v1/topics/t/messages").expect(200);
    let left: Vec<_> =
        browsed["items"].as_array().expect("items").iter().map(|it| it["id"].clone()).collect();
    assert_eq!(left.last(), Some(&json!(new[39])));
    let pulled = broker.pull("s", 100, Duration::ZERO);
    let replayed = pulled.iter().filter(|delivery| delivery.id() == held[3].id()).count();
    assert_eq!((replayed, pulled.len()), (1, left.len() + 1));
    assert_eq!(broker.subscription("s")["backlog"].as_u64(), Some(left.len() as u64 + 1));
    // Less from now on: the change itself has it looked at.
    let settings = json!({ "retain_bytes": 5_000, "keep_acked": "1h" });
    broker.put("/v1/topics/t", &settings).expect(200);
    assert_eq!(broker.get("/v1/topics/t").expect(200)["retain_bytes"], 5_000);
    wait_for("more to go", || Some(kept(&broker)).filter(|bytes| *bytes <= 5_000));
    let refused = broker.put("/v1/topics/t", &json!({ "retain_bytes": 0 })).problem();
    assert_eq!(refused, (422, "invalid_setting".to_owned()));
}
