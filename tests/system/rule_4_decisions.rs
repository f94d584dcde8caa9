//! Rule 4: what a policy may decide, and how the broker checks, clamps and applies it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, guests, wait_for};

/// A subscription `s` with this policy behind it.
fn broker(settings: Value, policy: &[u8]) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker.upload("s", policy, None).expect(201);
    broker
}

/// Publishes, pulls and nacks one message: its id and the decision.
fn fail_one(broker: &Broker) -> (String, Value) {
    let id = broker.publish("t", &json!({ "order": 7 }));
    let delivery = broker.next("s");
    assert_eq!(delivery.id(), id);
    let mut nacked = broker.nack("s", &delivery.receipt, "timeout");
    (id, nacked["decision"].take())
}

/// A delay within the bounds is taken as it is; beyond them it is clamped, and the clamp is recorded.
#[test]
fn rule_4_delays_are_clamped_and_the_clamp_is_recorded() {
    for (asked, allowed, from) in [
        (1_500, "1s500ms", None),
        (0, "1s", Some("0s")),
        (999, "1s", Some("999ms")),
        (60_001, "1m", Some("1m1ms")),
        (1 << 31, "1m", Some("24d20h31m23s648ms")),
        (u64::MAX, "1m", Some("213503982334d14h25m51s615ms")),
    ] {
        let policy = guests::after_trial(&guests::retry(asked));
        let broker = broker(json!({ "min_delay": "1s", "max_delay": "1m" }), &policy);
        let (id, decision) = fail_one(&broker);
        assert_eq!((&decision["action"], &decision["delay"]), (&json!("retry"), &json!(allowed)), "{asked}");
        let clamped = decision["clamped_from"].as_str();
        assert!(
            clamped == from || clamped.zip(from).is_some_and(|(had, from)| had.starts_with(from)),
            "{asked}: {decision}"
        );
        let stands = broker.delivery_of(&id);
        assert_eq!(stands["state"], "delayed");
        assert_eq!(stands["until"], decision["next_attempt_at"]);
        let recorded = &stands["timeline"]["history"][0]["decision"];
        assert_eq!(
            (&recorded["delay"], &recorded["clamped_from"]),
            (&decision["delay"], &decision["clamped_from"])
        );
    }
}

/// A queue becomes `subscription/queue`: no policy writes into another's.
#[test]
fn rule_4_queues_belong_to_the_subscription() {
    let policy = guests::after_trial(&guests::dead_letter(Some("invalid"), "can never succeed"));
    let broker = broker(json!({}), &policy);
    broker.subscribe("other", "t", json!({}));
    let (id, decision) = fail_one(&broker);
    assert_eq!((&decision["action"], &decision["queue"]), (&json!("dead_letter"), &json!("s/invalid")));
    assert_eq!(decision["reason"], "can never succeed");
    let letters = broker.dead_letters("s");
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0]["queue"], &letters[0]["message_id"]), (&json!("s/invalid"), &json!(id)));
    assert!(broker.dead_letters("other").is_empty());
    for name in ["../other", "other/invalid", ""] {
        let policy = guests::after_trial(&guests::dead_letter(Some(name), "elsewhere"));
        broker.upload("s", &policy, None).expect(201);
        let (_, decision) = fail_one(&broker);
        assert_eq!(decision["decided_by"], "fallback", "{name:?}: {decision}");
        assert_eq!(decision["fault"]["kind"], "bad_answer");
    }
    assert_eq!(broker.dead_letters("s").len(), 1);
}

/// A forward to a listed topic publishes the message there, as it was, and settles it here.
#[test]
fn rule_4_forward_moves_the_message_to_a_listed_topic() {
    let policy = guests::after_trial(&guests::forward("slow"));
    let broker = broker(json!({ "forward_to": ["slow"] }), &policy);
    broker.topic("slow");
    broker.subscribe("reader", "slow", json!({}));
    let id = broker.publish_with(
        "t",
        json!({ "payload": { "order": 7 }, "key": "k", "attributes": { "tenant": "acme" }, "ttl": "1h" }),
    );
    let held = broker.next("s");
    let nacked = broker.nack("s", &held.receipt, "large");
    assert_eq!(nacked["decision"]["action"], "forward");
    assert_eq!(nacked["decision"]["topic"], "slow");
    assert_eq!(broker.delivery_of(&id)["state"], "forwarded");
    assert_eq!(broker.poll("s"), None);

    let arrived = broker.next("reader");
    assert_eq!((arrived.attempt, arrived.failures), (1, 0));
    for field in ["payload", "key", "attributes", "content_type"] {
        assert_eq!(arrived.message[field], held.message[field], "{field}");
    }
    assert_eq!(arrived.message["topic"], "slow");
    assert_eq!(arrived.message.get("expires_at"), None, "the time to live stays behind");
    assert_eq!(broker.ack("reader", &arrived.receipt)["status"], "acked");
    assert_eq!(broker.poll("reader"), None, "it arrives once");
}

/// A forward to a topic that is not listed, or that is not there, is a fault: the message stays.
#[test]
fn rule_4_forward_elsewhere_is_a_fault() {
    let policy = guests::after_trial(&guests::forward("slow"));
    let broker = broker(json!({ "forward_to": ["fast"] }), &policy);
    broker.topic("slow");
    let (id, decision) = fail_one(&broker);
    assert_eq!(decision["fault"]["kind"], "bad_answer", "{decision}");
    assert_eq!(broker.delivery_of(&id)["state"], "delayed");
    broker.change("s", &json!({ "forward_to": ["slow"] }));
    broker.delete("/v1/topics/slow").expect(204);
    let (id, decision) = fail_one(&broker);
    assert_eq!(decision["fault"]["kind"], "bad_answer", "{decision}");
    assert_eq!(broker.delivery_of(&id)["state"], "delayed");
}

/// A drop settles the message for good, and its reason is kept.
#[test]
fn rule_4_drop_settles_with_a_reason() {
    let broker = broker(json!({}), &guests::after_trial(&guests::drop("nobody needs it")));
    let (id, decision) = fail_one(&broker);
    assert_eq!((&decision["action"], &decision["reason"]), (&json!("drop"), &json!("nobody needs it")));
    let stands = broker.delivery_of(&id);
    assert_eq!(stands["state"], "dropped");
    assert_eq!(stands["timeline"]["history"][0]["decision"]["reason"], "nobody needs it");
    assert_eq!(broker.poll("s"), None);
    assert!(broker.dead_letters("s").is_empty());
}

/// A pause stops the whole subscription, half-opens it for so many probes, and the first ack closes it.
#[test]
fn rule_4_pause_opens_the_circuit_and_an_ack_closes_it() {
    let policy =
        guests::after_trial(&format!("{} {}", guests::pause(400, 1, "down"), guests::retry(3_600_000)));
    let broker = broker(json!({}), &policy);
    assert_eq!(broker.subscription("s")["circuit"]["state"], "closed");
    let (_, decision) = fail_one(&broker);
    assert_eq!(decision["pause"], json!({ "duration": "400ms", "probes": 1, "reason": "down" }));
    let circuit = broker.subscription("s")["circuit"].clone();
    assert_eq!((&circuit["state"], &circuit["reason"]), (&json!("open"), &json!("down")));
    for number in 0..3 {
        broker.publish("t", &json!(number));
    }
    assert_eq!(broker.pull("s", 10, Duration::ZERO), [], "nothing flows while it is open");

    let probe = broker.pull("s", 10, crate::support::PATIENCE);
    assert_eq!(probe.len(), 1, "one probe at a time");
    let leased_at = crate::support::millis(&json!(probe[0].lease_until)) - 30_000;
    assert!(leased_at >= crate::support::millis(&circuit["until"]), "not before the pause is over");
    assert_eq!(broker.subscription("s")["circuit"]["state"], "half_open");
    assert_eq!(broker.pull("s", 10, Duration::ZERO), []);
    broker.ack("s", &probe[0].receipt);
    assert_eq!(broker.subscription("s")["circuit"], json!({ "state": "closed" }));
    assert_eq!(broker.pull("s", 10, Duration::ZERO).len(), 2);
}

/// A failed probe whose decision pauses again opens the circuit again; the pause survives a kill.
#[test]
fn rule_4_a_pause_survives_a_kill() {
    let policy =
        guests::after_trial(&format!("{} {}", guests::pause(3_600_000, 2, "down"), guests::retry(0)));
    let mut broker = broker(json!({}), &policy);
    fail_one(&broker);
    let circuit = broker.subscription("s")["circuit"].clone();
    broker.kill_and_start_again();
    assert_eq!(broker.subscription("s")["circuit"], circuit);
    let pulled = broker.post("/v1/subscriptions/s/pull", &json!({})).expect(200);
    let paused = json!({ "until": circuit["until"], "probes": 2, "reason": "down" });
    assert_eq!(pulled, json!({ "deliveries": [], "paused": paused }), "it says why there is nothing");
}

/// The memo of one decision is shown to the next on the same delivery, and to no other.
#[test]
fn rule_4_memo_is_kept_for_the_same_delivery() {
    // The note is the memo that was shown; the new memo is a text of its own.
    let echo = "(i32.store8 (i32.const 1108) (i32.const 1))
        (i32.store (i32.const 1112) (i32.load offset=224 (local.get $context)))
        (i32.store (i32.const 1116) (i32.load offset=228 (local.get $context)))";
    let policy = guests::after_trial(&format!("{echo} {} {}", guests::memo("seen"), guests::retry(0)));
    let mut broker = broker(json!({}), &policy);
    let (_, decision) = fail_one(&broker);
    assert_eq!(decision["note"], "", "nothing is known of the first failure");
    broker.kill_and_start_again();
    let again = broker.next("s");
    let nacked = broker.nack("s", &again.receipt, "timeout");
    assert_eq!(nacked["decision"]["note"], "seen");
    let held = broker.next("s");
    let (_, decision) = fail_one(&broker);
    assert_eq!(decision["note"], "", "another delivery has a memo of its own");
    broker.ack("s", &held.receipt);
}

/// A note is shown in the answer and in the timeline.
#[test]
fn rule_4_note_is_shown() {
    let policy =
        guests::after_trial(&format!("{} {}", guests::note("half past nine"), guests::retry(60_000)));
    let broker = broker(json!({}), &policy);
    let (id, decision) = fail_one(&broker);
    assert_eq!(decision["note"], "half past nine");
    let timeline = &broker.delivery_of(&id)["timeline"];
    assert_eq!(timeline["history"][0]["decision"]["note"], "half past nine");
}

/// Past `attempt_limit` the broker dead-letters by itself, so that a careless policy cannot spin for ever.
#[test]
fn rule_4_attempt_limit_is_the_end() {
    let broker = broker(json!({ "attempt_limit": 3 }), &guests::after_trial(&guests::retry(0)));
    let id = broker.publish("t", &json!(1));
    for attempt in 1..=3 {
        let delivery = broker.next("s");
        assert_eq!(delivery.attempt, attempt);
        let nacked = broker.nack("s", &delivery.receipt, "timeout");
        let action = if attempt < 3 { "retry" } else { "dead_letter" };
        assert_eq!(nacked["decision"]["action"], action);
        if attempt == 3 {
            assert_eq!(nacked["decision"]["decided_by"], "attempt_limit");
        }
    }
    let letters = broker.dead_letters("s");
    assert_eq!((&letters[0]["reason"], &letters[0]["message_id"]), (&json!("attempt_limit"), &json!(id)));
    assert_eq!(broker.poll("s"), None);
}

/// On an expired message `retry` means: deliver it all the same.
#[test]
fn rule_4_retry_of_an_expired_message_delivers_it() {
    let broker = broker(json!({}), &guests::after_trial(&guests::retry(0)));
    let id = broker.publish_with("t", json!({ "payload": 1, "ttl": "50ms" }));
    wait_for("the message expires", || {
        Some(broker.delivery_of(&id))
            .filter(|found| found["timeline"]["history"].as_array().is_some_and(|h| h.len() == 1))
    });
    let delivery = broker.next("s");
    assert_eq!((delivery.id(), delivery.attempt, delivery.failures), (id.as_str(), 1, 0));
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
}
