//! Programs that misbehave, and programs that are replaced.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, guests};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

fn fail_one(broker: &Broker) -> (String, Value) {
    let id = broker.publish("t", &json!(1));
    let found = broker.pull("s", 100, crate::support::PATIENCE);
    let delivery = found.iter().find(|found| found.id() == id).expect("the new message is delivered");
    let mut nacked = broker.nack("s", &delivery.receipt, "timeout");
    (id, nacked["decision"].take())
}

/// A policy that traps, loops, allocates without end, answers 100 MB or recurses costs a fallback and nothing else: the
/// broker lives, and others are decided as ever.
#[test]
fn s54_a_policy_that_runs_wild_costs_a_fallback() {
    let broker = broker(json!({ "fallback_delay": "1h", "max_delay": "2h" }));
    broker.topic("quiet");
    broker.subscribe("q", "quiet", json!({ "retry": { "delay": "9s", "jitter": "none" } }));
    let huge = "(i32.store8 (i32.const 1024) (i32.const 3)) (i32.store (i32.const 1032) (i32.const 0))
        (i32.store (i32.const 1036) (i32.const 100000000)) (i32.const 1024)";
    let recursing = guests::Guest {
        fields: "(func $deeper (param $n i64) (result i64)
            (i64.add (i64.const 1) (call $deeper (i64.add (local.get $n) (i64.const 1)))))"
            .to_owned(),
        decide: "(if (i32.eq (i32.load offset=4 (local.get $context)) (i32.const 9)) (then (return (i32.const 1024))))
            (drop (call $deeper (i64.const 0))) (i32.const 1024)"
            .to_owned(),
        ..guests::Guest::default()
    };
    let grow = "(loop $more (drop (memory.grow (i32.const 65535))) (br $more)) (unreachable)";
    for (what, module, kinds) in [
        ("traps", guests::after_trial("(unreachable)"), ["trap"].as_slice()),
        ("loops", guests::after_trial("(loop $again (br $again)) (unreachable)"), &["fuel"]),
        ("allocates", guests::after_trial(grow), &["memory"]),
        ("answers 100 MB", guests::after_trial(huge), &["bad_answer"]),
        ("recurses", recursing.module(), &["trap"]),
    ] {
        broker.upload("s", &module, None).expect(201);
        let (id, decision) = fail_one(&broker);
        assert_eq!(
            (&decision["decided_by"], &decision["delay"]),
            (&json!("fallback"), &json!("1h")),
            "{what}"
        );
        let kind = decision["fault"]["kind"].as_str().unwrap_or_default();
        assert!(kinds.contains(&kind), "{what}: {decision}");
        assert_eq!(broker.delivery_of(&id)["state"], "delayed", "{what}");
        broker.publish("quiet", &json!(1));
        let delivery = broker.next("q");
        let decision = broker.nack("q", &delivery.receipt, "timeout")["decision"].clone();
        assert_eq!((&decision["decided_by"], &decision["delay"]), (&json!("policy"), &json!("9s")), "{what}");
    }
    assert_eq!(broker.get("/healthz").status, 200);
}

/// A delay beyond the cap is clamped; a target that is not configured is a fault with the fallback. Both are recorded.
///
/// A delay is a whole number of milliseconds, so that a policy cannot say NaN or a negative one: bits that meant those
/// are a delay far beyond the cap.
#[test]
fn s55_what_a_policy_may_not_decide_is_recorded() {
    let broker = broker(json!({ "max_delay": "1h", "fallback_delay": "7s" }));
    let not_a_number = f64::NAN.to_bits();
    let negative = (-1_i64).cast_unsigned();
    for asked in [not_a_number, negative, 3_600_001] {
        broker.upload("s", &guests::after_trial(&guests::retry(asked)), None).expect(201);
        let (id, decision) = fail_one(&broker);
        assert_eq!(
            (&decision["decided_by"], &decision["delay"]),
            (&json!("policy"), &json!("1h")),
            "{asked}"
        );
        assert!(decision["clamped_from"].is_string(), "{decision}");
        let recorded = broker.delivery_of(&id)["timeline"]["history"][0]["decision"].clone();
        assert_eq!(recorded["clamped_from"], decision["clamped_from"]);
    }
    for (what, answer) in [
        ("a queue that is no name", guests::dead_letter(Some("a/b"), "x")),
        ("a topic that is not listed", guests::forward("elsewhere")),
        ("a topic that is no name", guests::forward("")),
    ] {
        broker.upload("s", &guests::after_trial(&answer), None).expect(201);
        let (id, decision) = fail_one(&broker);
        assert_eq!(
            (&decision["decided_by"], &decision["delay"]),
            (&json!("fallback"), &json!("7s")),
            "{what}"
        );
        let recorded = broker.delivery_of(&id)["timeline"]["history"][0]["decision"].clone();
        assert_eq!(recorded["fault"]["kind"], "bad_answer", "{what}");
        assert_eq!(recorded["fault"], decision["fault"], "{what}");
    }
    // A listed topic that was deleted meanwhile.
    broker.topic("gone");
    broker.change("s", &json!({ "forward_to": ["gone"] }));
    broker.delete("/v1/topics/gone").expect(204);
    broker.upload("s", &guests::after_trial(&guests::forward("gone")), None).expect(201);
    let (id, decision) = fail_one(&broker);
    assert_eq!(
        (&decision["decided_by"], &decision["fault"]["kind"]),
        (&json!("fallback"), &json!("bad_answer"))
    );
    assert_eq!(broker.delivery_of(&id)["state"], "delayed");
}

/// A new policy leaves the due times of what waits; it decides from the next failure on, and every decision says which
/// revision made it and from which input.
#[test]
fn s56_a_new_policy_leaves_due_times_alone() {
    let mut broker = broker(json!({ "retry": { "delay": "400ms", "jitter": "none", "max_attempts": 9 } }));
    let id = broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    let first = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
    let waiting = broker.delivery_of(&id);
    assert_eq!((&first["revision"], &first["delay"]), (&json!(1), &json!("400ms")));
    let module = guests::after_trial(&guests::retry(3_600_000));
    let uploaded = broker.upload("s", &module, None).expect(201);
    broker.kill_and_start_again();
    assert_eq!(broker.delivery_of(&id)["timeline"], waiting["timeline"]);

    let again = broker.next("s");
    let leased_at = crate::support::millis(&json!(again.lease_until)) - 30_000;
    assert!(leased_at >= crate::support::millis(&first["next_attempt_at"]));
    let second = broker.nack("s", &again.receipt, "timeout")["decision"].clone();
    assert_eq!((&second["revision"], &second["delay"]), (&json!(2), &json!("1h")));
    assert_eq!(second["digest"], uploaded["digest"]);
    assert_ne!(second["input_hash"], first["input_hash"]);
    let history = broker.delivery_of(&id)["timeline"]["history"].clone();
    for (past, decision) in history.as_array().expect("a list").iter().zip([&first, &second]) {
        for field in ["revision", "digest", "input_hash", "fuel", "delay"] {
            assert_eq!(past["decision"][field], decision[field], "{field}");
        }
    }
}

/// Deliveries that are leased while the policy changes are decided by the new one; none is lost or decided twice.
#[test]
fn s56_leased_deliveries_are_decided_by_the_new_policy() {
    let broker = broker(json!({}));
    for number in 0..5 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 5, Duration::ZERO);
    broker.upload("s", &guests::after_trial(&guests::drop("replaced")), None).expect(201);
    for delivery in &held {
        let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        assert_eq!((&decision["action"], &decision["revision"]), (&json!("drop"), &json!(2)));
    }
    assert_eq!(broker.subscription("s")["backlog"], 0);
}
