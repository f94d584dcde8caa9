//! Rule 1: `attempt` counts leases from 1, is stored before the message leaves, survives a restart and is never used
//! again; `failures` counts attempts that ended badly.

use serde_json::json;

use crate::support::{Broker, Delivery};

fn numbers(delivery: &Delivery) -> (u64, u64) {
    (delivery.attempt, delivery.failures)
}

/// Attempts go up by one with each lease; failures only with those that ended badly, a release is none.
#[test]
fn rule_1_attempts_count_leases_and_failures_count_bad_ends() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": 0, "backoff": "fixed" } }));
    let id = broker.publish("t", &json!(1));

    let delivery = broker.next("s");
    assert_eq!(numbers(&delivery), (1, 0));
    broker.release("s", &delivery.receipt);
    let delivery = broker.next("s");
    assert_eq!(numbers(&delivery), (2, 0));
    broker.nack("s", &delivery.receipt, "timeout");
    let delivery = broker.next("s");
    assert_eq!(numbers(&delivery), (3, 1));
    broker.extend("s", &delivery.receipt, "100ms");
    let delivery = broker.next("s");
    assert_eq!(numbers(&delivery), (4, 2), "a lease that ran out is a failure");
    broker.ack("s", &delivery.receipt);

    let timeline = &broker.delivery_of(&id)["timeline"];
    let counters = ["attempts", "failures", "releases"].map(|name| timeline[name].clone());
    assert_eq!(counters, [4, 2, 1]);
    let causes: Vec<_> =
        timeline["history"].as_array().expect("a list").iter().map(|past| past["cause"].clone()).collect();
    assert_eq!(causes, ["released", "nacked", "lease_expired"]);
}

/// A lease granted just before the broker was killed is known afterwards: its number is not given out again.
#[test]
fn rule_1_attempts_survive_a_kill() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({
        "lease": "300ms", "retry": { "delay": 0, "backoff": "fixed", "max_attempts": 50 },
    }));
    let id = broker.publish("t", &json!(1));
    for attempt in 1..=3 {
        let delivery = broker.next("s");
        assert_eq!(numbers(&delivery), (attempt, attempt - 1));
        broker.kill_and_start_again();
    }
    let delivery = broker.next("s");
    assert_eq!(numbers(&delivery), (4, 3));
    broker.ack("s", &delivery.receipt);
    broker.kill_and_start_again();
    assert_eq!(broker.delivery_of(&id)["state"], "acked");
    assert_eq!(broker.delivery_of(&id)["timeline"]["attempts"], 4);
}

/// The lease itself survives a kill: nobody else gets the delivery, and its receipt still acks.
#[test]
fn rule_1_a_lease_outlives_the_process() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    broker.kill_and_start_again();
    assert_eq!(broker.delivery_of(&id)["state"], "leased");
    assert_eq!(broker.delivery_of(&id)["until"], held.lease_until);
    assert_eq!(broker.poll("s"), None);
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}
