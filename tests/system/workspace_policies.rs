//! Policies of the workspace whose effect shows only in a broker: circuits, crashes, deadlines.

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, millis, policies, wait_for};

fn broker(settings: Value, policy: &str, params: &str) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker.upload("s", &policies::module(policy), Some(params)).expect(201);
    broker
}

/// The next delivery and when its lease was granted, in milliseconds since 1970.
fn next(broker: &Broker) -> (Delivery, i64) {
    let delivery = broker.next("s");
    let leased_at = millis(&json!(delivery.lease_until)) - 30_000;
    (delivery, leased_at)
}

/// The next delivery fails; what was decided.
fn fail(broker: &Broker) -> Value {
    let (delivery, _) = next(broker);
    broker.nack("s", &delivery.receipt, "unavailable")["decision"].clone()
}

/// The circuit breaker: the third failure in a row pauses the subscription, a failed probe pauses it for twice as long,
/// an acked one closes the circuit, and then one failure is only one.
#[test]
fn the_circuit_breaker_opens_probes_and_closes() {
    let params = r#"{"consecutive_failures":3,"pause":"300ms","delay":"10ms"}"#;
    let broker = broker(json!({ "lease": "30s" }), "circuit-breaker", params);
    broker.publish("t", &json!(1));
    for _ in 0..2 {
        assert_eq!(fail(&broker)["pause"], Value::Null);
    }
    for (pause, failures) in [("300ms", 3), ("600ms", 4)] {
        let decision = fail(&broker);
        let reason = format!("{failures} failures since the last ack");
        assert_eq!(decision["pause"], json!({ "duration": pause, "probes": 1, "reason": reason }));
        let circuit = broker.subscription("s")["circuit"].clone();
        assert_eq!((&circuit["state"], &circuit["reason"]), (&json!("open"), &json!(reason)));
        let until = millis(&circuit["until"]);
        let (probe, leased_at) = next(&broker);
        assert!(leased_at >= until, "a probe comes when the pause is over");
        assert_eq!(broker.subscription("s")["circuit"]["state"], "half_open");
        broker.release("s", &probe.receipt);
    }
    let (probe, _) = next(&broker);
    broker.ack("s", &probe.receipt);
    assert_eq!(broker.subscription("s")["circuit"]["state"], "closed");
    broker.publish("t", &json!(2));
    let decision = fail(&broker);
    assert_eq!((&decision["action"], &decision["pause"]), (&json!("retry"), &Value::Null));
}

/// What its README says of a restart: the circuit stays open, but failures are counted from 0.
#[test]
fn the_circuit_breaker_over_a_restart() {
    let params = r#"{"consecutive_failures":2,"pause":"1s","delay":"10ms"}"#;
    let mut broker = broker(json!({ "lease": "30s" }), "circuit-breaker", params);
    broker.publish("t", &json!(1));
    fail(&broker);
    assert_eq!(fail(&broker)["pause"]["duration"], "1s");
    let until = millis(&broker.subscription("s")["circuit"]["until"]);
    broker.kill_and_start_again();
    let (probe, leased_at) = next(&broker);
    assert!(leased_at >= until, "still open");
    assert_eq!(broker.nack("s", &probe.receipt, "unavailable")["decision"]["pause"], Value::Null);
    assert_eq!(fail(&broker)["pause"]["duration"], "1s", "the second failure since the start");
}

/// The quarantine: a message whose consumers fall silent is taken out, with the times at which they did.
#[test]
fn crashes_end_in_quarantine_with_their_times() {
    let params = r#"{"crashes":2,"delay":"10ms"}"#;
    let broker = broker(json!({ "lease": "100ms" }), "crash-quarantine", params);
    let id = broker.publish("t", &json!(1));
    let first = broker.next("s");
    broker.nack("s", &first.receipt, "timeout");
    for _ in 0..2 {
        broker.next("s");
    }
    let letter = wait_for("the quarantine", || broker.dead_letters("s").pop());
    assert_eq!((&letter["queue"], &letter["reason"]), (&json!("s/quarantine"), &json!("crashes")));
    let labels = &letter["labels"];
    assert_eq!((&labels["crashes"], &labels["cause"]), (&json!("2"), &json!("lease_expired")), "{labels}");
    assert_eq!((&labels["in_a_row"], &labels["last_class"]), (&json!("2"), &json!("timeout")), "{labels}");
    let history = broker.delivery_of(&id)["timeline"]["history"].clone();
    let ends = [&history[1]["ended_at"], &history[2]["ended_at"]].map(millis);
    let times = labels["crashed_at"].as_str().expect("a label is a text");
    let times: Vec<_> = times.split(' ').map(|time| millis(&json!(time))).collect();
    assert_eq!(times.len(), 2, "{labels}");
    for (told, ended) in times.iter().zip(ends) {
        assert!((told - ended).abs() <= 1_000, "{labels} {history}");
    }
}

/// The deadline: a delay that would pass the last start is shortened to it, and the failure after that is the end.
#[test]
fn the_last_attempt_comes_in_time() {
    let params = r#"{"deadline":"2s","attempt":"1s","delay":"10s"}"#;
    let broker = broker(json!({ "lease": "30s" }), "deadline", params);
    let id = broker.publish("t", &json!(1));
    let published_at = millis(&broker.message(&id)["published_at"]);
    let decision = fail(&broker);
    assert_eq!(decision["action"], "retry");
    // A delay counts from when the decision is applied, a moment after the policy was asked.
    let late = millis(&decision["next_attempt_at"]) - (published_at + 1_000);
    assert!((0..500).contains(&late), "{decision}");
    let last = fail(&broker);
    assert_eq!((&last["action"], &last["queue"]), (&json!("dead_letter"), &json!("s/deadline")), "{last}");
    let letter = broker.dead_letters("s").pop().expect("a dead letter");
    assert_eq!(letter["labels"], json!({ "class": "unavailable", "bound": "published" }));
}
