//! Rule 2: whatever ends an attempt, the policy is asked; there is one path to a decision.

use serde_json::{Value, json};

use crate::support::{Broker, Stream, guests, wait_for};

/// A policy that says its name in every answer, so that a decision by anybody else is seen.
fn policy() -> Vec<u8> {
    guests::after_trial(&format!(
        "{} {}",
        guests::note("asked"),
        guests::dead_letter(Some("asked"), "as told")
    ))
}

/// Runs one delivery to its decision and gives the end of it.
fn decided(end: impl FnOnce(&Broker, &str), message: Value) -> Value {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "lease": "100ms" }));
    broker.upload("s", &policy(), None).expect(201);
    let id = broker.publish_with("t", message);
    end(&broker, &id);
    let letters =
        wait_for("a dead letter", || Some(broker.dead_letters("s")).filter(|found| found.len() == 1));
    assert_eq!(letters[0]["queue"], "s/asked");
    assert_eq!(letters[0]["reason"], "as told");
    let letter = broker.dead_letter(letters[0]["id"].as_str().expect("an id"));
    let history = letter["timeline"]["history"].as_array().expect("a list").clone();
    assert_eq!(history.len(), 1, "{letter}");
    assert_eq!(history[0]["decision"]["note"], "asked");
    assert_eq!(history[0]["decision"]["decided_by"], "policy");
    assert_eq!(history[0]["decision"]["revision"], 2);
    history[0].clone()
}

/// A nack asks the policy, with all that the consumer said.
#[test]
fn rule_2_nacked_leads_to_a_decision() {
    let end = |broker: &Broker, _: &str| {
        let delivery = broker.next("s");
        let said = json!({ "class": "timeout", "code": "504", "detail": "slow", "retry_after": "30s" });
        let nacked = broker.nack_with("s", &delivery.receipt, said);
        assert_eq!(nacked["decision"]["queue"], "s/asked");
        assert_eq!(nacked["decision"].get("next_attempt_at"), None);
    };
    let past = decided(end, json!({ "payload": 1 }));
    assert_eq!(past["cause"], "nacked");
    assert_eq!([&past["class"], &past["code"], &past["detail"]], ["timeout", "504", "slow"]);
    assert_eq!(past["retry_after"], "30s");
}

/// A lease that runs out asks the policy, without anybody pulling again.
#[test]
fn rule_2_lease_expired_leads_to_a_decision() {
    let past = decided(|broker, _| drop(broker.next("s")), json!({ "payload": 1 }));
    assert_eq!((&past["cause"], &past["attempt"]), (&json!("lease_expired"), &json!(1)));
}

/// A stream that goes asks the policy about what it held, long before its lease would run out.
#[test]
fn rule_2_disconnected_leads_to_a_decision() {
    let end = |broker: &Broker, _: &str| {
        broker.change("s", &json!({ "lease": "1h" }));
        let mut stream = Stream::consume(broker, "s");
        stream.credit(1);
        stream.deliveries(1);
    };
    let past = decided(end, json!({ "payload": 1 }));
    assert_eq!((&past["cause"], &past["attempt"]), (&json!("disconnected"), &json!(1)));
    assert_eq!(past["detail"], "connection_lost");
}

/// A release asks the policy too.
#[test]
fn rule_2_released_leads_to_a_decision() {
    let end = |broker: &Broker, _: &str| {
        let delivery = broker.next("s");
        assert_eq!(broker.release("s", &delivery.receipt)["decision"]["queue"], "s/asked");
    };
    let past = decided(end, json!({ "payload": 1 }));
    assert_eq!(past["cause"], "released");
}

/// A time to live that passes asks the policy, though nobody ever pulled: attempt 0.
#[test]
fn rule_2_message_expired_leads_to_a_decision() {
    let past = decided(|_, _| {}, json!({ "payload": 1, "ttl": "50ms" }));
    assert_eq!((&past["cause"], &past["attempt"]), (&json!("message_expired"), &json!(0)));
    assert_eq!(past.get("leased_at"), None);
}
