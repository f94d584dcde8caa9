//! Rule 3: one current lease per delivery, and what its receipt is worth.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, millis};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

/// A delivery whose first lease ran out and whose second is held: the old receipt and the new delivery.
fn granted_again(broker: &Broker) -> (String, Delivery) {
    broker.publish("t", &json!(1));
    let first = broker.next("s");
    let second = broker.next("s");
    assert_eq!((first.id(), second.attempt), (second.id(), 2));
    (first.receipt, second)
}

fn immediate() -> Value {
    json!({ "lease": "200ms", "retry": { "delay": 0, "backoff": "fixed", "max_attempts": 100 } })
}

/// While a delivery is leased nobody else gets it.
#[test]
fn rule_3_one_lease_at_a_time() {
    let broker = broker(json!({}));
    broker.publish("t", &json!(1));
    let held = broker.next("s");
    for _ in 0..3 {
        assert_eq!(broker.pull("s", 10, Duration::from_millis(20)), []);
    }
    assert_eq!(broker.subscription("s")["in_flight"], 1);
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}

/// A receipt of an older lease gets `stale_receipt` from every verb, and the current lease is as it was.
#[test]
fn rule_3_an_older_receipt_changes_nothing() {
    let broker = broker(immediate());
    let (old, current) = granted_again(&broker);
    broker.extend("s", &current.receipt, "30s");
    let before = broker.delivery_of(current.id());
    for answer in [
        broker.ack("s", &old),
        broker.nack("s", &old, "timeout"),
        broker.release("s", &old),
        broker.extend("s", &old, "1m"),
    ] {
        assert_eq!(answer["error"]["code"], "stale_receipt", "{answer}");
        assert_eq!(answer["receipt"], old);
    }
    assert_eq!(broker.delivery_of(current.id()), before);
    assert_eq!(broker.ack("s", &current.receipt), json!({ "receipt": current.receipt, "status": "acked" }));
}

/// A receipt whose lease ran out still acks while nobody else was granted one, and the answer says it was late.
#[test]
fn rule_3_a_late_ack_is_taken_and_flagged() {
    let broker = broker(json!({ "lease": "100ms", "retry": { "delay": "1h" } }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    crate::support::wait_for("the lease runs out", || {
        Some(broker.delivery_of(&id)).filter(|found| found["state"] == "delayed")
    });
    for answer in [broker.nack("s", &held.receipt, "x"), broker.extend("s", &held.receipt, "1m")] {
        assert_eq!(answer["error"]["code"], "stale_receipt", "only an ack is taken late");
    }
    let acked = broker.ack("s", &held.receipt);
    assert_eq!((&acked["status"], &acked["late"]), (&json!("acked"), &json!(true)));
    assert_eq!(broker.delivery_of(&id)["state"], "acked");
    assert_eq!(broker.ack("s", &held.receipt)["error"]["code"], "stale_receipt");
    let subscription = broker.subscription("s");
    assert_eq!((&subscription["backlog"], &subscription["delayed"]), (&json!(0), &json!(0)));
}

/// Settled twice is stale, whatever the second verb is.
#[test]
fn rule_3_a_settled_receipt_is_stale() {
    let broker = broker(json!({ "retry": { "delay": "1h" } }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    broker.nack("s", &held.receipt, "timeout");
    let before = broker.delivery_of(&id);
    for answer in [
        broker.ack("s", &held.receipt),
        broker.nack("s", &held.receipt, "timeout"),
        broker.release("s", &held.receipt),
        broker.extend("s", &held.receipt, "1m"),
    ] {
        assert_eq!(answer["error"]["code"], "stale_receipt", "{answer}");
    }
    assert_eq!(broker.delivery_of(&id), before);
}

/// Extending moves the deadline of the same receipt, longer and shorter, and no further than `max_lease` in all.
#[test]
fn rule_3_extend_moves_the_deadline_up_to_max_lease() {
    let broker = broker(json!({ "lease": "10s", "max_lease": "1m" }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    let granted = millis(&json!(held.lease_until)) - 10_000;
    let longer = broker.extend("s", &held.receipt, "50s");
    assert_eq!(longer["receipt"], held.receipt);
    let until = millis(&longer["lease_until"]);
    assert!((granted + 50_000..=granted + 60_000).contains(&until), "{longer}");
    assert_eq!(broker.delivery_of(&id)["until"], longer["lease_until"]);
    let shorter = broker.extend("s", &held.receipt, "5s");
    assert!(millis(&shorter["lease_until"]) < until);
    assert_eq!(broker.extend("s", &held.receipt, "61s")["error"]["code"], "max_lease_exceeded");
    assert_eq!(
        broker.delivery_of(&id)["until"],
        shorter["lease_until"],
        "a refused extension changes nothing"
    );
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}

/// A batch of receipts is answered item by item, in its order; one bad item spoils no other.
#[test]
fn rule_3_batches_are_answered_item_by_item() {
    let broker = broker(json!({}));
    for number in 0..3 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 3, Duration::ZERO);
    broker.ack("s", &held[1].receipt);
    let receipts = json!([held[0].receipt, "garbage", held[1].receipt, held[2].receipt, held[0].receipt]);
    let answer = broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": receipts })).expect(200);
    let items = answer["items"].as_array().expect("a list");
    let outcome = |item: &Value| {
        let code = item["error"]["code"].as_str().or(item["status"].as_str());
        code.expect("an outcome").to_owned()
    };
    let outcomes: Vec<_> = items.iter().map(outcome).collect();
    assert_eq!(outcomes, ["acked", "invalid_receipt", "stale_receipt", "acked", "stale_receipt"]);
    let given: Vec<_> = items.iter().map(|item| item["receipt"].clone()).collect();
    assert_eq!(json!(given), receipts);
    assert_eq!(broker.subscription("s")["backlog"], 0);
}
