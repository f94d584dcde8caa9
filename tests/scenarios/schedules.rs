//! When a failed delivery comes again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, duration, guests, millis};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

/// When a delivery was leased, where the lease is the default one.
fn leased_at(delivery: &Delivery) -> i64 {
    millis(&json!(delivery.lease_until)) - 30_000
}

/// A back-off of two steps is kept exactly: the redeliveries come one step after each nack, not sooner.
///
/// The steps are 200 ms and 900 ms instead of 1 s and 5 s. An explicit `retry_after` of 0 means at once, as far as the
/// subscription's `min_delay` lets it.
#[test]
fn s01_a_schedule_of_steps_is_kept() {
    let broker = broker(json!({ "retry": { "delay": ["200ms", "900ms"], "max_attempts": 3 } }));
    let id = broker.publish("t", &json!(1));
    let mut delivery = broker.next("s");
    for step in [200, 900] {
        let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        assert_eq!(duration(&decision["delay"]), Duration::from_millis(step));
        let stands = broker.delivery_of(&id);
        let nacked_at = stands["timeline"]["history"][delivery.attempt as usize - 1]["ended_at"].clone();
        let due = millis(&decision["next_attempt_at"]);
        assert!(due >= millis(&nacked_at) + step as i64);
        assert_eq!(broker.poll("s"), None, "not at once");
        delivery = broker.next("s");
        assert!(leased_at(&delivery) >= due, "not before it is due");
    }
    assert_eq!(delivery.attempt, 3);
    assert_eq!(broker.nack("s", &delivery.receipt, "timeout")["decision"]["action"], "dead_letter");
}

/// An explicit wish for no delay is granted at once, but no sooner than the minimum gap of the subscription.
#[test]
fn s01_an_explicit_zero_respects_the_minimum_gap() {
    let broker = broker(json!({ "retry": { "delay": ["1s", "5s"], "max_attempts": 9 } }));
    broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    let nacked = broker.nack_with("s", &delivery.receipt, json!({ "retry_after": 0 }));
    assert_eq!(nacked["decision"]["delay"], "0s");
    let again = broker.poll("s").expect("it is ready at once");
    broker.change("s", &json!({ "min_delay": "300ms" }));
    let nacked = broker.nack_with("s", &again.receipt, json!({ "retry_after": 0 }));
    let decision = &nacked["decision"];
    assert_eq!((&decision["delay"], &decision["clamped_from"]), (&json!("300ms"), &json!("0s")));
    let third = broker.next("s");
    assert!(leased_at(&third) >= millis(&decision["next_attempt_at"]));
}

/// A consumer that works longer than the first retry delay keeps its lease: no redelivery meanwhile.
///
/// The lease is 30 s and the delay 50 ms; work takes until the consumer has looked ten times. Both settings read back.
#[test]
fn s04_a_retry_delay_is_no_lease() {
    let broker = broker(json!({ "lease": "30s", "retry": { "delay": "50ms" } }));
    broker.publish("t", &json!(1));
    let held = broker.next("s");
    for _ in 0..10 {
        assert_eq!(broker.pull("s", 1, Duration::from_millis(20)), [], "nobody else gets it");
    }
    let subscription = broker.subscription("s");
    assert_eq!(
        (&subscription["lease"], &subscription["retry"]),
        (&json!("30s"), &json!({ "delay": "50ms" }))
    );
    assert_eq!(broker.ack("s", &held.receipt), json!({ "receipt": held.receipt, "status": "acked" }));
}

/// Twenty deferrals are no failures: the failure after them is the first, with the first step of the back-off.
///
/// A deferral is a release; deferrals are counted as `releases`.
#[test]
fn s10_deferrals_use_up_no_attempt() {
    let broker = broker(json!({ "retry": { "delay": ["7s", "70s"], "max_attempts": 2 } }));
    let id = broker.publish("t", &json!(1));
    for attempt in 1..=20 {
        let delivery = broker.next("s");
        assert_eq!((delivery.attempt, delivery.failures), (attempt, 0));
        assert_eq!(broker.release("s", &delivery.receipt)["decision"]["action"], "retry");
    }
    let delivery = broker.next("s");
    let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
    assert_eq!((&decision["action"], &decision["delay"]), (&json!("retry"), &json!("7s")));
    let timeline = &broker.delivery_of(&id)["timeline"];
    let counters = ["attempts", "failures", "releases"].map(|name| timeline[name].clone());
    assert_eq!(counters, [21, 1, 20]);
}

/// The history of a delivery that is deferred and failed many times stays bounded; the sums stay right.
#[test]
fn s10_many_deferrals_overflow_nothing() {
    let broker = broker(json!({ "attempt_limit": 100_000 }));
    let id = broker.publish("t", &json!(1));
    for _ in 0..100 {
        let delivery = broker.next("s");
        broker.release("s", &delivery.receipt);
    }
    let timeline = &broker.delivery_of(&id)["timeline"];
    assert_eq!((&timeline["attempts"], &timeline["releases"]), (&json!(100), &json!(100)));
    let history = timeline["history"].as_array().expect("a list");
    assert_eq!((history.len(), &history[31]["attempt"]), (32, &json!(100)));
}

/// A first delivery is attempt 1 and not redelivered; given back, it is attempt 2 and redelivered. The shape of a
/// delivery is as written here.
#[test]
fn s11_the_first_attempt_is_one() {
    let broker = broker(json!({}));
    broker.publish("t", &json!({ "order": 7 }));
    let mut answer = broker.post("/v1/subscriptions/s/pull", &json!({})).expect(200);
    let mut delivery = answer["deliveries"][0].take();
    let receipt = delivery["receipt"].take();
    assert!(delivery["lease_until"].take().is_string());
    assert!(delivery["message"]["published_at"].take().is_string());
    let id = delivery["message"]["id"].take();
    assert_eq!(
        delivery,
        json!({
            "receipt": null, "attempt": 1, "failures": 0, "redelivered": false, "lease_until": null,
            "message": {
                "id": null, "topic": "t", "sequence": 1, "attributes": {}, "published_at": null,
                "content_type": "application/json", "payload": { "order": 7 },
            },
        })
    );
    broker.release("s", receipt.as_str().expect("a receipt"));
    let again = broker.next("s");
    assert_eq!((again.attempt, again.failures, again.redelivered), (2, 0, true));
    assert_eq!(json!(again.id()), id);
}

/// An exponential delay is finite, grows up to its cap and stays there, and is never in the past.
///
/// Through the broker for the first failures; the policy's fixtures have the same for a million of them.
#[test]
fn s13_a_growing_delay_is_monotone_and_capped() {
    let retry =
        json!({ "delay": "1ms", "factor": 1_000, "max_delay": "10s", "jitter": "none", "max_attempts": 100 });
    // Every failure but the last is followed at once: what was decided is read, not waited for.
    let broker = broker(json!({ "retry": retry, "max_delay": "1ms" }));
    broker.publish("t", &json!(1));
    let mut last = Duration::ZERO;
    for failures in 1..=70_u32 {
        let delivery = broker.next("s");
        let before = leased_at(&delivery);
        let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        assert!(duration(&decision["delay"]) <= Duration::from_millis(1), "{decision}");
        let asked = decision.get("clamped_from").unwrap_or(&decision["delay"]);
        let expected = Duration::from_millis(1_000_u64.saturating_pow(failures - 1).min(10_000));
        assert_eq!(duration(asked), expected, "failure {failures}");
        assert!(duration(asked) >= last);
        assert!(millis(&decision["next_attempt_at"]) > before);
        last = duration(asked);
    }
}

/// Delays from nothing to absurd are taken up to the cap or refused with a clear error, wherever they are given.
///
/// Up to a year is a duration, and what a policy asks beyond `max_delay` is clamped; more than a year, or text that is
/// no duration, is refused when it is given.
#[test]
fn s14_absurd_delays_are_clamped_or_refused() {
    let broker = broker(json!({ "max_delay": "1h", "retry": { "max_attempts": 100, "max_delay": "365d" } }));
    let two_to_the_31 = json!(2_147_483.648);
    for (given, expected) in [
        (json!(0), Ok("0s")),
        (json!(0.001), Ok("1ms")),
        (json!("1ms"), Ok("1ms")),
        (two_to_the_31, Ok("1h")),
        (json!("365days"), Ok("1h")),
        (json!(9_007_199_254_740_992_u64), Err("invalid_duration")),
        (json!(i64::MAX), Err("invalid_duration")),
        (json!(u64::MAX), Err("invalid_duration")),
        (json!("18446744073709551615ms"), Err("invalid_duration")),
        (json!("1e400"), Err("invalid_duration")),
    ] {
        let id = broker.publish("t", &json!(1));
        let delivery =
            broker.pull("s", 10, crate::support::PATIENCE).into_iter().find(|found| found.id() == id);
        let delivery = delivery.expect("the new message is delivered");
        let answer = broker.nack_with("s", &delivery.receipt, json!({ "retry_after": given }));
        match expected {
            Ok(delay) => {
                assert_eq!(answer["decision"]["delay"], delay, "{given}: {answer}");
                let waits = millis(&answer["decision"]["next_attempt_at"]) - leased_at(&delivery);
                assert!(waits <= 3_600_000 + 60_000, "{given}: waits {waits} ms");
            }
            Err(code) => assert_eq!(answer["error"]["code"], code, "{given}: {answer}"),
        }
        let published = json!({ "messages": [{ "payload": 1, "delay": given }] });
        let answer = broker.post("/v1/topics/t/messages", &published).json();
        assert_eq!(answer["items"][0]["error"]["code"].as_str(), expected.err(), "{given}: {answer}");
    }
}

/// Negative delays and such that are no number are refused, and cause no redelivery at all.
#[test]
fn s15_negative_delays_are_refused() {
    let broker = broker(json!({}));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    for given in [json!(-1), json!(-0.5), json!(i64::MIN), json!("NaN"), json!("-1s"), json!(-1e300)] {
        let answer = broker.nack_with("s", &held.receipt, json!({ "retry_after": given }));
        assert_eq!(answer["error"]["code"], "invalid_duration", "{given}");
    }
    let request =
        broker.request("POST", "/v1/subscriptions/s/nack").header("content-type", "application/json");
    let body = format!(r#"{{"items":[{{"receipt":"{}","retry_after":NaN}}]}}"#, held.receipt);
    assert_eq!(broker.send(request.body(body)).problem(), (400, "invalid_body".to_owned()));
    assert_eq!(broker.delivery_of(&id)["state"], "leased");
    assert_eq!(broker.poll("s"), None);
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
}

/// A delay longer than the lease is one wait and one delivery: waiting time is never under a lease.
///
/// The lease is 100 ms; the delays of publish and retry are 600 ms instead of 6 hours.
#[test]
fn s28_a_delay_is_longer_than_a_lease() {
    let broker = broker(json!({ "lease": "100ms", "retry": { "delay": "600ms", "jitter": "none" } }));
    let id = broker.publish_with("t", json!({ "payload": 1, "delay": "600ms" }));
    let stands = broker.delivery_of(&id);
    let delivery = broker.next("s");
    let at = millis(&json!(delivery.lease_until)) - 100;
    assert!(at >= millis(&delivery.message["published_at"]) + 600, "{stands}");
    assert_eq!((delivery.attempt, delivery.failures), (1, 0), "once, and nothing ran out meanwhile");
    let nacked = broker.nack("s", &delivery.receipt, "timeout");
    let stands = broker.delivery_of(&id);
    assert_eq!(
        (&stands["state"], &stands["until"]),
        (&json!("delayed"), &nacked["decision"]["next_attempt_at"])
    );
    assert_eq!(broker.subscription("s")["in_flight"], 0, "what waits holds no lease");
    let delivery = broker.next("s");
    assert_eq!((delivery.attempt, delivery.failures), (2, 1));
    assert!(millis(&json!(delivery.lease_until)) - 100 >= millis(&nacked["decision"]["next_attempt_at"]));
    broker.ack("s", &delivery.receipt);
}

/// One consumer's failure is its own: of two deliveries that are leased, the nack of one leaves the other's lease.
#[test]
fn s33_a_nack_leaves_other_leases_alone() {
    let broker = broker(json!({ "retry": { "delay": "1h" } }));
    let (a, b) = (broker.publish("t", &json!("a")), broker.publish("t", &json!("b")));
    let held = broker.pull("s", 2, Duration::ZERO);
    let before = broker.delivery_of(&a);
    broker.nack("s", &held[1].receipt, "timeout");
    assert_eq!(broker.delivery_of(&a), before);
    assert_eq!(broker.delivery_of(&b)["state"], "delayed");
    assert_eq!(broker.ack("s", &held[0].receipt), json!({ "receipt": held[0].receipt, "status": "acked" }));
}

/// A policy may ask for any delay: what is beyond the bounds is clamped, and recorded as such.
#[test]
fn s14_what_a_policy_asks_is_clamped() {
    let broker = broker(json!({ "max_delay": "2s" }));
    for asked in [1_u64 << 31, 1 << 53, i64::MAX as u64, u64::MAX] {
        broker.upload("s", &guests::after_trial(&guests::retry(asked)), None).expect(201);
        let id = broker.publish("t", &json!(1));
        let found = broker.pull("s", 10, crate::support::PATIENCE);
        let delivery = found.iter().find(|found| found.id() == id).expect("the new message is delivered");
        let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        assert_eq!(decision["delay"], "2s");
        assert!(
            duration(&decision["clamped_from"]) >= Duration::from_millis(asked.min(1 << 53)),
            "{decision}"
        );
    }
}
