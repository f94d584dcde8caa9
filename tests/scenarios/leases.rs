//! Consumers that are slow, come late, or hold on for too long.

use serde_json::{Value, json};

use crate::support::{Broker, millis, wait_for};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

/// An ack after the lease ran out is taken while nobody else was granted one, and flagged as late.
#[test]
fn s24_a_late_ack_before_another_lease_is_taken() {
    let broker = broker(json!({ "lease": "100ms", "retry": { "delay": "1h" } }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    wait_for("the lease runs out", || {
        Some(broker.delivery_of(&id)).filter(|found| found["state"] == "delayed")
    });
    let acked = broker.ack("s", &held.receipt);
    assert_eq!(acked, json!({ "receipt": held.receipt, "status": "acked", "late": true }));
    assert_eq!(broker.delivery_of(&id)["state"], "acked");
}

/// Once another consumer was granted the delivery the old receipt is refused, and the new lease is as it was.
#[test]
fn s24_a_late_ack_after_another_lease_is_refused() {
    let retry = json!({ "delay": 0, "backoff": "fixed", "max_attempts": 100 });
    let broker = broker(json!({ "lease": "150ms", "retry": retry }));
    let id = broker.publish("t", &json!(1));
    let old = broker.next("s");
    let new = broker.next("s");
    broker.extend("s", &new.receipt, "30s");
    let before = broker.delivery_of(&id);
    assert_eq!(broker.ack("s", &old.receipt)["error"]["code"], "stale_receipt");
    assert_eq!(broker.delivery_of(&id), before);
    assert_eq!(broker.ack("s", &new.receipt), json!({ "receipt": new.receipt, "status": "acked" }));
}

/// An ack after the first deadline but within an extension is as good as any.
#[test]
fn s24_an_ack_within_an_extension_is_taken() {
    let broker = broker(json!({ "lease": "200ms" }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    let extended = broker.extend("s", &held.receipt, "30s");
    let first_deadline = millis(&json!(held.lease_until));
    assert!(millis(&extended["lease_until"]) > first_deadline + 20_000);
    // A message that becomes ready behind the first deadline tells that it has passed.
    broker.publish_with("t", json!({ "payload": 2, "delay": "300ms" }));
    let other = broker.next("s");
    assert_ne!(other.id(), id);
    assert!(millis(&json!(other.lease_until)) - 200 > first_deadline);
    assert_eq!(broker.ack("s", &held.receipt), json!({ "receipt": held.receipt, "status": "acked" }));
}

/// Random bytes and receipts of others are refused as such, alike, and nothing changes.
///
/// Receipts of another realm cannot be made over HTTP yet; the MAC covers the realm.
#[test]
fn s25_foreign_receipts_are_refused_alike() {
    let broker = broker(json!({}));
    broker.subscribe("other", "t", json!({}));
    broker.publish("t", &json!(1));
    let (held, other) = (broker.next("s"), broker.next("other"));
    let before = broker.everything();
    let refused: Vec<_> = ["", "AAAA", &"A".repeat(48), &other.receipt]
        .map(|receipt| {
            let mut answer = broker.ack("s", receipt);
            answer["receipt"].take();
            answer
        })
        .into();
    assert_eq!(refused[0]["error"]["code"], "invalid_receipt");
    assert!(refused.iter().all(|answer| *answer == refused[0]), "{refused:?}");
    assert_eq!(broker.everything(), before);
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
    assert_eq!(broker.ack("other", &other.receipt)["status"], "acked");
}

/// Extending is capped in all, the error says so, and a consumer that hangs gives its message up by then.
///
/// `max_lease` is 700 ms. A smaller value shortens the lease. What is refused leaves the deadline as it was.
#[test]
fn s30_extending_has_an_end() {
    let broker = broker(
        json!({ "lease": "300ms", "max_lease": "700ms", "retry": { "delay": 0, "backoff": "fixed" } }),
    );
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    let granted_at = millis(&json!(held.lease_until)) - 300;
    let client = (*broker).clone();
    let receipt = held.receipt.clone();
    // A heart that beats for ever.
    let hung = std::thread::spawn(move || {
        let mut last = Value::Null;
        loop {
            let answer = client.extend("s", &receipt, "200ms");
            match answer["error"]["code"].as_str() {
                None => last = answer["lease_until"].clone(),
                Some("max_lease_exceeded") => {}
                Some(code) => return (last, code.to_owned()),
            }
        }
    });
    let again = broker.next("s");
    assert_eq!((again.id(), again.attempt, again.failures), (id.as_str(), 2, 1));
    let (last, code) = hung.join().expect("the heart stops");
    assert_eq!(code, "stale_receipt", "extending after the end fails");
    assert!(millis(&last) <= granted_at + 700);
    let leased_again = millis(&json!(again.lease_until)) - 300;
    assert!(leased_again >= millis(&last), "not before the last deadline");
}

/// Extending by less than is left shortens the lease.
#[test]
fn s30_a_smaller_extension_shortens() {
    let broker = broker(json!({ "lease": "30s", "retry": { "delay": 0, "backoff": "fixed" } }));
    broker.publish("t", &json!(1));
    let held = broker.next("s");
    let shortened = broker.extend("s", &held.receipt, "100ms");
    assert!(millis(&shortened["lease_until"]) < millis(&json!(held.lease_until)) - 20_000);
    let again = broker.next("s");
    assert_eq!((again.attempt, again.failures), (2, 1));
    assert_eq!(broker.extend("s", &held.receipt, "1m")["error"]["code"], "stale_receipt");
}
