//! A message from its publish to its end.

use serde_json::json;

use crate::support::Broker;

/// A message is published, delivered, nacked, delivered again, acked, and its timeline tells all of it.
#[test]
fn a_message_fails_once_and_is_acked() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "10ms", "jitter": "none" } }));
    let id = broker.publish_with(
        "t",
        json!({ "payload": { "order": 7 }, "key": "c-42", "attributes": { "tenant": "acme" } }),
    );
    assert_eq!(broker.delivery_of(&id)["state"], "ready");

    let first = broker.next("s");
    assert_eq!((first.attempt, first.failures, first.redelivered), (1, 0, false));
    assert_eq!(first.id(), id);
    assert_eq!(first.message["topic"], "t");
    assert_eq!(first.message["sequence"], 1);
    assert_eq!(first.message["key"], "c-42");
    assert_eq!(first.message["attributes"], json!({ "tenant": "acme" }));
    assert_eq!(first.message["content_type"], "application/json");
    assert_eq!(first.message["payload"], json!({ "order": 7 }));
    assert_eq!(broker.delivery_of(&id)["state"], "leased");

    let nacked = broker.nack_with(
        "s",
        &first.receipt,
        json!({ "class": "timeout", "code": "504", "detail": "upstream timed out" }),
    );
    assert_eq!(nacked["receipt"], first.receipt);
    assert_eq!(nacked["decision"]["action"], "retry");
    assert_eq!(nacked["decision"]["delay"], "10ms");
    assert_eq!(nacked["decision"]["decided_by"], "policy");
    assert_eq!(nacked["decision"]["revision"], 1);
    assert!(nacked["decision"]["next_attempt_at"].is_string());

    let second = broker.next("s");
    assert_eq!((second.attempt, second.failures, second.redelivered), (2, 1, true));
    assert_eq!(second.message, first.message);
    assert_eq!(broker.ack("s", &second.receipt), json!({ "receipt": second.receipt, "status": "acked" }));

    let end = broker.delivery_of(&id);
    assert_eq!(end["state"], "acked");
    let timeline = &end["timeline"];
    assert_eq!((&timeline["attempts"], &timeline["failures"]), (&json!(2), &json!(1)));
    let past = &timeline["history"][0];
    assert_eq!(past["attempt"], 1);
    assert_eq!(past["cause"], "nacked");
    assert_eq!(
        (&past["class"], &past["code"], &past["detail"]),
        (&json!("timeout"), &json!("504"), &json!("upstream timed out"))
    );
    assert_eq!(past["decision"]["action"], "retry");
    assert_eq!(timeline["history"].as_array().map(Vec::len), Some(1));

    let subscription = broker.subscription("s");
    for gauge in ["backlog", "in_flight", "delayed", "dead_letters"] {
        assert_eq!(subscription[gauge], 0, "{gauge}");
    }
}

/// Each subscription has its own life of a message: what one does changes nothing for another.
#[test]
fn subscriptions_do_not_share_deliveries() {
    let broker = Broker::start();
    broker.topic("t");
    for name in ["one", "two"] {
        broker.subscribe(name, "t", json!({ "retry": { "max_attempts": 1 } }));
    }
    let id = broker.publish("t", &json!(1));
    broker.subscribe("late", "t", json!({}));

    let one = broker.next("one");
    assert_eq!(broker.nack("one", &one.receipt, "broken")["decision"]["action"], "dead_letter");
    let two = broker.next("two");
    assert_eq!((two.attempt, two.failures), (1, 0));
    assert_eq!(broker.ack("two", &two.receipt)["status"], "acked");
    assert_eq!(broker.poll("late"), None);

    let message = broker.message(&id);
    let state = |name: &str| {
        let deliveries = message["deliveries"].as_array().expect("a list");
        let found = deliveries.iter().find(|delivery| delivery["subscription"] == name);
        found.expect("every subscription is listed")["state"].clone()
    };
    assert_eq!(
        [state("one"), state("two"), state("late")],
        [json!("dead_lettered"), json!("acked"), json!("not_subscribed")]
    );
}

/// A subscription that starts at the earliest message reads what was published before it.
#[test]
fn a_subscription_can_start_at_the_earliest_message() {
    let broker = Broker::start();
    broker.topic("t");
    for number in 1..=3 {
        broker.publish("t", &json!(number));
    }
    broker.subscribe("all", "t", json!({ "start": "earliest" }));
    broker.subscribe("new", "t", json!({ "start": "latest" }));
    broker.publish("t", &json!(4));
    let payloads = |subscription| -> Vec<_> {
        let pulled = broker.pull(subscription, 10, std::time::Duration::ZERO);
        pulled.into_iter().map(|delivery| delivery.message["payload"].clone()).collect()
    };
    assert_eq!(payloads("all"), [1, 2, 3, 4]);
    assert_eq!(payloads("new"), [4]);
}
