//! Filters: a subscription gets the messages whose attributes its filter lets through, and the others cost it nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, wait_for};

fn publish(broker: &Broker, attributes: Value) -> String {
    broker.publish_with("t", json!({ "payload": 1, "attributes": attributes }))
}

fn filtered(filter: &str) -> Broker {
    let broker = Broker::start();
    broker.topic("t");
    broker.subscribe("s", "t", json!({ "filter": filter, "retry": { "delay": 0 } }));
    broker
}

/// Each form of the grammar, over the wire: what matches is delivered, in order, and the rest is passed by.
#[test]
fn what_matches_is_delivered_and_nothing_else() {
    let broker = filtered("(tenant = acme or tenant ^= 'big ') and size >= 10 and not exists test");
    let mut expected = Vec::new();
    for (attributes, matches) in [
        (json!({ "tenant": "acme", "size": "10" }), true),
        (json!({ "tenant": "acme", "size": "9.9" }), false),
        (json!({ "tenant": "big corp", "size": "1e3" }), true),
        (json!({ "tenant": "bigger", "size": "1e3" }), false),
        (json!({ "tenant": "acme", "size": "10", "test": "" }), false),
        (json!({ "tenant": "acme" }), false),
        (json!({}), false),
        (json!({ "tenant": "acme", "size": "11" }), true),
    ] {
        let id = publish(&broker, attributes);
        if matches {
            expected.push(id);
        }
    }
    let pulled = broker.pull("s", 100, Duration::ZERO);
    let got: Vec<_> = pulled.iter().map(|delivery| delivery.id().to_owned()).collect();
    assert_eq!(got, expected);
    assert_eq!(broker.subscription("s")["backlog"], 3);
}

/// A message that was filtered says so, before and after the cursor came by, and after a kill.
#[test]
fn a_filtered_message_says_so() {
    let mut broker = filtered("kind = a");
    let other = publish(&broker, json!({ "kind": "b" }));
    let wanted = publish(&broker, json!({ "kind": "a" }));
    let states = |broker: &Broker| {
        [&other, &wanted].map(|id| broker.delivery_of(id)["state"].as_str().expect("a state").to_owned())
    };
    assert_eq!(states(&broker), ["filtered", "ready"]);
    let delivery = broker.next("s");
    assert_eq!(states(&broker), ["filtered", "leased"]);
    broker.ack("s", &delivery.receipt);
    broker.kill_and_start_again();
    assert_eq!(states(&broker), ["filtered", "acked"]);
    assert_eq!(broker.subscription("s")["filter"], "kind = a");
}

/// Thousands in between do not hold up what matches, and whoever waits gets it.
#[test]
fn a_long_gap_is_passed_by() {
    let broker = filtered("kind = a");
    let batch = json!({ "messages": vec![json!({ "payload": 1, "attributes": { "kind": "b" } }); 1_000] });
    for _ in 0..5 {
        broker.post("/v1/topics/t/messages", &batch).expect(201);
    }
    let id = publish(&broker, json!({ "kind": "a" }));
    assert_eq!(broker.next("s").id(), id);
    broker.post("/v1/topics/t/messages", &batch).expect(201);
    assert!(broker.poll("s").is_none());
}

/// What a filter does not let through is kept for nobody, though nobody pulls; what it does is.
#[test]
fn what_is_filtered_is_not_kept() {
    let broker = filtered("kind = a");
    broker.put("/v1/topics/t", &json!({ "keep_acked": 0, "max_messages": 1_500 })).expect(200);
    let other = json!({ "payload": 1, "attributes": { "kind": "b" } });
    let publish_other = |count: usize| {
        broker.post("/v1/topics/t/messages", &json!({ "messages": vec![other.clone(); count] }))
    };
    publish_other(1_000).expect(201);
    let wanted = publish(&broker, json!({ "kind": "a" }));
    publish_other(499).expect(201);
    assert_eq!(publish_other(1).status, 429, "the topic is full");
    wait_for("there is room", || Some(publish_other(1)).filter(|answer| answer.status == 201));
    assert_eq!(broker.get("/v1/topics/t").expect(200)["messages"], 501, "from the one that is wanted on");
    assert_eq!(broker.next("s").id(), wanted);
}

/// A filtered message that expires is nobody's failure; a matching one is the policy's question.
#[test]
fn the_policy_is_not_asked_about_what_is_filtered() {
    let broker = filtered("kind = a");
    let attributes = |kind: &str| json!({ "payload": 1, "ttl": "1ms", "attributes": { "kind": kind } });
    let other = broker.publish_with("t", attributes("b"));
    let wanted = broker.publish_with("t", attributes("a"));
    wait_for("the one that matches is given up", || {
        Some(broker.delivery_of(&wanted)).filter(|found| found["state"] == "dead_lettered")
    });
    assert_eq!(broker.delivery_of(&other)["state"], "filtered");
    assert_eq!(broker.dead_letters("s").len(), 1);
}

/// A filter that cannot be read is refused with the place, and one that is there cannot be changed.
#[test]
fn filters_are_checked_and_fixed() {
    let broker = filtered("kind = a");
    for bad in ["", "kind", "kind = ", "kind < b", "(kind = a", "kind = a kind = b"] {
        let answer = broker.put("/v1/subscriptions/x", &json!({ "topic": "t", "filter": bad }));
        assert_eq!(answer.problem(), (422, "invalid_filter".to_owned()), "{bad}");
        assert!(answer.json()["detail"].as_str().is_some_and(|text| text.contains("at byte")), "{bad}");
    }
    let changed = json!({ "topic": "t", "filter": "kind = b" });
    assert_eq!(broker.put("/v1/subscriptions/s", &changed).problem(), (422, "invalid_setting".to_owned()));
    broker.put("/v1/subscriptions/s", &json!({ "topic": "t" })).expect(200);
    assert_eq!(broker.subscription("s")["filter"], "kind = a");
}
