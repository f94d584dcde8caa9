//! Receipts that are none of this subscription's: each is refused and nothing changes.

use serde_json::{Value, json};

use crate::support::{Broker, Delivery};

struct World {
    broker: Broker,
    held: Delivery,
}

fn world() -> World {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.publish("t", &json!(1));
    let held = broker.next("s");
    World { broker, held }
}

/// Sends the receipt with every verb and expects this code each time, and no change at all.
#[track_caller]
fn refused_by_every_verb(broker: &Broker, subscription: &str, receipt: &str, code: &str) {
    let before = broker.everything();
    for (verb, body) in [
        ("ack", json!({ "receipts": [receipt] })),
        ("nack", json!({ "items": [{ "receipt": receipt, "class": "x" }] })),
        ("release", json!({ "receipts": [receipt] })),
        ("extend", json!({ "items": [{ "receipt": receipt, "lease": "1m" }] })),
    ] {
        let answer = broker.post(&format!("/v1/subscriptions/{subscription}/{verb}"), &body).expect(200);
        let item = &answer["items"][0];
        assert_eq!(item["error"]["code"], code, "{verb} {receipt:?}: {answer}");
        assert_eq!(item["error"]["retryable"], false);
        assert_eq!(item["receipt"], receipt);
    }
    assert_eq!(broker.everything(), before, "{receipt:?}");
}

/// Random texts, near misses and other encodings of a good receipt are no receipts.
#[test]
fn garbage_is_no_receipt() {
    let World { broker, held } = world();
    let good = &held.receipt;
    let message = broker.delivery_of(held.id());
    let zeros = "A".repeat(good.len());
    let shorter = &good[..good.len() - 1];
    for receipt in
        ["", "x", "=", &zeros, shorter, &format!("{good}A"), &format!("{good}="), &format!(" {good}")]
    {
        refused_by_every_verb(&broker, "s", receipt, "invalid_receipt");
    }
    for receipt in ["é".repeat(24), "\u{0}".repeat(48), "x".repeat(100_000)] {
        refused_by_every_verb(&broker, "s", &receipt, "invalid_receipt");
    }
    assert_eq!(broker.delivery_of(held.id()), message);
    assert_eq!(broker.ack("s", good)["status"], "acked");
}

/// Changing any one character of a receipt makes it worthless: the MAC covers all of it.
#[test]
fn every_character_of_a_receipt_counts() {
    let World { broker, held } = world();
    let changed = |at: usize| {
        let other = if held.receipt.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}", &held.receipt[..at], &held.receipt[at + 1..])
    };
    let receipts: Vec<_> = (0..held.receipt.len()).map(changed).collect();
    let before = broker.everything();
    let answer = broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": receipts })).expect(200);
    for item in answer["items"].as_array().expect("a list") {
        assert_eq!(item["error"]["code"], "invalid_receipt", "{item}");
    }
    assert_eq!(broker.everything(), before);
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}

/// A receipt of another subscription is as good as random, though its message is of the same topic.
#[test]
fn a_receipt_of_another_subscription_is_refused() {
    let World { broker, held } = world();
    broker.subscribe("other", "t", json!({ "start": "earliest" }));
    let other = broker.next("other");
    assert_eq!(other.id(), held.id());
    refused_by_every_verb(&broker, "s", &other.receipt, "invalid_receipt");
    refused_by_every_verb(&broker, "other", &held.receipt, "invalid_receipt");
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
    assert_eq!(broker.ack("other", &other.receipt)["status"], "acked");
}

/// A receipt of another broker is refused: each has its own secret.
#[test]
fn a_receipt_of_another_broker_is_refused() {
    let (one, two) = (world(), world());
    assert_ne!(one.held.receipt, two.held.receipt);
    refused_by_every_verb(&one.broker, "s", &two.held.receipt, "invalid_receipt");
    assert_eq!(one.broker.ack("s", &one.held.receipt)["status"], "acked");
}

/// What is not there cannot be told from what is not yours: the answers to both are the same but for the receipt.
#[test]
fn refusals_tell_nothing_about_others() {
    let World { broker, held } = world();
    broker.subscribe("other", "t", json!({ "start": "earliest" }));
    let other = broker.next("other");
    let error = |receipt: &str| -> Value { broker.ack("s", receipt)["error"].clone() };
    assert_eq!(error(&other.receipt), error("garbage"));
    broker.ack("other", &other.receipt);
    assert_eq!(error(&other.receipt), error("garbage"));
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}

/// Settlements with too many, too few or malformed items change nothing.
#[test]
fn malformed_settlements_change_nothing() {
    let World { broker, held } = world();
    let good = &held.receipt;
    let before = broker.everything();
    let many = vec![good.as_str(); 1_001];
    let items: Vec<_> = many.iter().map(|receipt| json!({ "receipt": receipt })).collect();
    for (verb, body, code) in [
        ("ack", json!({ "receipts": many }), "batch_size"),
        ("release", json!({ "receipts": [] }), "batch_size"),
        ("nack", json!({ "items": items }), "batch_size"),
        ("extend", json!({ "items": [] }), "batch_size"),
        ("ack", json!({ "receipts": good }), "invalid_body"),
        ("ack", json!({ "receipts": [1] }), "invalid_body"),
        ("ack", json!({ "items": [{ "receipt": good }] }), "invalid_body"),
        ("ack", json!({}), "invalid_body"),
        ("nack", json!({ "items": [good] }), "invalid_body"),
        ("nack", json!({ "items": [{ "receipt": good, "clas": "x" }] }), "invalid_body"),
        ("nack", json!({ "items": [{ "receipt": good, "class": 5 }] }), "invalid_body"),
        ("extend", json!({ "items": [{ "receipt": good, "lease": true }] }), "invalid_body"),
        ("release", json!([good]), "invalid_body"),
    ] {
        let answer = broker.post(&format!("/v1/subscriptions/s/{verb}"), &body);
        assert_eq!(answer.problem(), (400, code.to_owned()), "{verb} {}", answer.text());
    }
    assert_eq!(broker.everything(), before);
    assert_eq!(broker.delivery_of(held.id())["state"], "leased");
}

/// A bad field of one item is that item's error: the lease is as it was, and a detail that is too long is cut.
#[test]
fn bad_fields_are_errors_of_their_item() {
    let World { broker, held } = world();
    let before = broker.everything();
    for (item, code) in [
        (json!({ "class": "x".repeat(129) }), "invalid_body"),
        (json!({ "code": "x".repeat(129) }), "invalid_body"),
        (json!({ "retry_after": -1 }), "invalid_duration"),
        (json!({ "retry_after": i64::MIN }), "invalid_duration"),
        (json!({ "retry_after": u64::MAX }), "invalid_duration"),
        (json!({ "retry_after": "1e400" }), "invalid_duration"),
        (json!({ "retry_after": "NaN" }), "invalid_duration"),
        (json!({ "retry_after": 1e300 }), "invalid_duration"),
    ] {
        let answer = broker.nack_with("s", &held.receipt, item.clone());
        assert_eq!(answer["error"]["code"], code, "{item}: {answer}");
    }
    for lease in ["-1s", "1e400", "", "9223372036854775808s", "366days"] {
        let answer = broker.extend("s", &held.receipt, lease);
        assert_eq!(answer["error"]["code"], "invalid_duration", "{lease:?}: {answer}");
    }
    assert_eq!(broker.everything(), before);
    let long = json!({ "class": "x".repeat(128), "detail": "é".repeat(5_000) });
    let answer = broker.nack_with("s", &held.receipt, long);
    assert_eq!(answer["decision"]["action"], "retry");
    let past = &broker.delivery_of(held.id())["timeline"]["history"][0];
    assert_eq!(past["detail"], "é".repeat(1_024));
}
