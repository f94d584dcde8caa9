//! `message explain`: for every place that a message can be, why it is there and what happens next, in plain English.

use std::time::Duration;

use serde_json::{Value, json};

use crate::run::at;
use crate::support::{Broker, guests, wait_for};

/// What is told of a message on its topic's only subscription, without the head, with `TIME` for each moment.
#[track_caller]
fn explained(broker: &Broker, id: &str) -> Vec<String> {
    let told = without_times(&at(broker, &["message", "explain", id]).good());
    let head = format!("Message {id} was published to t at TIME.\n\nOn s:\n");
    let rest = told.strip_prefix(&head).unwrap_or_else(|| panic!("{told}"));
    rest.lines().map(|line| line.strip_prefix("  ").unwrap_or_else(|| panic!("{told}")).to_owned()).collect()
}

/// With `TIME` for each moment.
pub(crate) fn without_times(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("20") {
        let (before, moment) = rest.split_at(at);
        shown.push_str(before);
        let end = moment.find('Z').map_or(0, |end| end + 1);
        if humantime::parse_rfc3339(&moment[..end]).is_ok() {
            shown.push_str("TIME");
            rest = &moment[end..];
        } else {
            shown.push_str(&moment[..2]);
            rest = &moment[2..];
        }
    }
    shown + rest
}

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

/// A broker on which this policy decides.
fn with_policy(settings: Value, decide: &str) -> Broker {
    let broker = broker(settings);
    broker.upload("s", &guests::after_trial(decide), None).expect(201);
    broker
}

/// A message that no consumer had yet, and one that a consumer has.
#[test]
fn a_message_that_waits_for_a_consumer() {
    let broker = broker(json!({ "retry": { "delay": "1h", "jitter": "none" } }));
    let late = broker.publish_with("t", json!({ "payload": 1, "delay": "1h" }));
    let asked = ["It waits until TIME, as its publisher asked."];
    assert_eq!(explained(&broker, &late), asked);
    let id = broker.publish("t", &json!(1));
    assert_eq!(explained(&broker, &id), ["It has not been delivered yet and can be pulled."]);
    let delivery = broker.next("s");
    assert_eq!(explained(&broker, &late), asked, "the cursor has passed it");
    assert_eq!(
        explained(&broker, &id),
        ["A consumer holds it in attempt 1, until TIME unless it asks for longer."]
    );
    broker.ack("s", &delivery.receipt);
    assert_eq!(explained(&broker, &id), ["It is done: a consumer acked it."]);
}

/// What a consumer said of its failure, who decided, and when it goes out again.
#[test]
fn a_message_that_waits_for_a_retry() {
    let broker = broker(json!({
        "retry": { "delay": "1h", "jitter": "none", "classes": { "now": { "delay": "0s" } } }
    }));
    let item = json!({ "class": "timeout", "code": "504", "detail": "no \"answer\"", "retry_after": "20m" });
    let (id, _) = broker.fail_one(item);
    let nacked = "TIME: attempt 1 was nacked as \"timeout\" with code \"504\" saying \"no \\\"answer\\\"\", asking to \
                  wait 20m; revision 1 decided: retry in 20m.";
    assert_eq!(explained(&broker, &id), [nacked, "It waits until TIME for attempt 2."]);
    let (id, _) = broker.fail_one(json!({ "class": "now" }));
    let first = "TIME: attempt 1 was nacked as \"now\"; revision 1 decided: retry in 0s.";
    assert_eq!(explained(&broker, &id), [first, "It can be pulled for attempt 2."]);
    let again = broker.next("s");
    broker.release("s", &again.receipt);
    let second = "TIME: attempt 2 was given back without fault; revision 1 decided: retry in 0s.";
    assert_eq!(explained(&broker, &id), [first, second, "It can be pulled for attempt 3."]);
    broker.change("s", &json!({ "lease": "100ms" }));
    broker.next("s");
    wait_for("the lease to run out", || (broker.delivery_of(&id)["state"] == "delayed").then_some(()));
    let third = "TIME: attempt 3 ended when its lease ran out: the consumer never answered; revision 1 decided: retry \
                 in 1h.";
    assert_eq!(explained(&broker, &id), [first, second, third, "It waits until TIME for attempt 4."]);
}

/// The ends: acked after a failure, dropped, forwarded, a dead letter, discarded, never subscribed.
#[test]
fn a_message_that_is_over() {
    let classes = json!({
        "odd": { "action": "drop", "reason": "nobody needs it" },
        "bad": { "action": "dead_letter", "queue": "invalid", "reason": "can never succeed" },
        "worse": { "action": "dead_letter" },
        "now": { "delay": "0s" },
    });
    let broker = Broker::start();
    broker.topic("t");
    let before = broker.publish("t", &json!(0));
    broker.subscribe("s", "t", json!({ "retry": { "classes": classes } }));
    assert_eq!(
        explained(&broker, &before),
        ["The subscription began after it was published, and does not get it."]
    );

    let (id, _) = broker.fail_one(json!({ "class": "now" }));
    broker.ack("s", &broker.next("s").receipt);
    let first = "TIME: attempt 1 was nacked as \"now\"; revision 1 decided: retry in 0s.";
    assert_eq!(explained(&broker, &id), [first, "It is done: a consumer acked it."]);

    let (id, _) = broker.fail_one(json!({ "class": "odd" }));
    let dropped = "TIME: attempt 1 was nacked as \"odd\"; revision 1 decided: drop: nobody needs it.";
    assert_eq!(explained(&broker, &id), [dropped, "It is over: a decision dropped it."]);

    let (id, _) = broker.fail_one(json!({ "class": "bad" }));
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    let buried = "TIME: attempt 1 was nacked as \"bad\"; revision 1 decided: dead letter to s/invalid: can never succeed.";
    let stays = format!(
        "It is a dead letter in s/invalid since TIME: can never succeed. It stays there until it is replayed or \
         discarded: id {letter}."
    );
    assert_eq!(explained(&broker, &id), [buried, &stays]);
    broker.delete(&format!("/v1/dead-letters/{letter}"));
    assert_eq!(explained(&broker, &id), [buried, "It is over: its dead letter was discarded."]);

    let (id, _) = broker.fail_one(json!({ "class": "worse" }));
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    let told = explained(&broker, &id);
    assert!(
        told[1].starts_with("It is a dead letter in the default queue since TIME: not_retried. "),
        "{told:?}"
    );
    broker.post(&format!("/v1/dead-letters/{letter}/replay"), &json!({})).expect(200);
    assert_eq!(explained(&broker, &id), [&told[0], "It was replayed and can be pulled."]);
    let replayed = broker.next("s");
    broker.nack("s", &replayed.receipt, "now");
    let again = "TIME: attempt 1 of replay 1 was nacked as \"now\"; revision 1 decided: retry in 0s.";
    assert_eq!(explained(&broker, &id), [&told[0], again, "It can be pulled for attempt 2."]);
}

/// A decision forwarded it: where to, and that it is over here.
#[test]
fn a_message_that_was_forwarded() {
    let broker = Broker::start();
    broker.topic("t");
    broker.topic("later");
    broker.subscribe("s", "t", json!({ "forward_to": ["later"] }));
    broker.upload("s", &guests::after_trial(&guests::forward("later")), None).expect(201);
    let (id, _) = broker.fail_one(json!({}));
    let forwarded = "TIME: attempt 1 was nacked; revision 2 decided: forward to later.";
    assert_eq!(explained(&broker, &id), [forwarded, "It is over here: a decision forwarded it."]);
}

/// Its time to live ran out, before or after an attempt.
#[test]
fn a_message_that_expired() {
    let broker = broker(json!({ "retry": { "delay": "1h", "jitter": "none" } }));
    let id = broker.publish_with("t", json!({ "payload": 1, "ttl": "1ms" }));
    let gone = |id: &str| (broker.delivery_of(id)["state"] == "dead_lettered").then_some(());
    wait_for("it expires", || gone(&id));
    let told = explained(&broker, &id);
    let expired =
        "TIME: its time to live ran out before attempt 1; revision 1 decided: dead letter: expired.";
    assert_eq!(told[0], expired);
    assert!(
        told[1].starts_with("It is a dead letter in the default queue since TIME: expired. "),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
    let id = broker.publish_with("t", json!({ "payload": 1, "ttl": "4s" }));
    broker.nack("s", &broker.next("s").receipt, "timeout");
    wait_for("it expires", || gone(&id));
    let told = explained(&broker, &id);
    assert_eq!(told[0], "TIME: attempt 1 was nacked as \"timeout\"; revision 1 decided: retry in 1h.");
    assert_eq!(told[1], expired.replace("attempt 1", "attempt 2"));
}

/// A pause: why nothing goes out, until when, and how it goes on.
#[test]
fn a_message_whose_subscription_is_paused() {
    let pausing = format!("{} {}", guests::pause(3_600_000, 1, "down"), guests::retry(1_000));
    let broker = with_policy(json!({}), &pausing);
    let (id, _) = broker.fail_one(json!({}));
    let failed = "TIME: attempt 1 was nacked; revision 2 decided: retry in 1s; it paused the subscription for 1h: down.";
    let paused = "The subscription is paused by its policy until TIME: down. Then it goes on with at most 1 at a time, \
                  until one is acked.";
    let told = explained(&broker, &id);
    assert_eq!([&told[0], &told[2]], [failed, paused]);
    let fresh = broker.publish("t", &json!(1));
    assert_eq!(explained(&broker, &fresh), ["It has not been delivered yet.", paused]);
}

/// After the pause: the few that go out first.
#[test]
fn a_message_whose_subscription_is_tried() {
    let pausing = format!("{} {}", guests::pause(1, 2, "down"), guests::retry(3_600_000));
    let broker = with_policy(json!({}), &pausing);
    broker.fail_one(json!({}));
    let ids = [(); 3].map(|()| broker.publish("t", &json!(1)));
    let probes = wait_for("the pause is over", || {
        Some(broker.pull("s", 10, Duration::ZERO)).filter(|pulled| !pulled.is_empty())
    });
    assert_eq!(probes.len(), 2);
    let tried =
        "The subscription was paused (down) and goes on with at most 2 at a time, until one is acked.";
    assert_eq!(explained(&broker, &ids[2])[1..], [tried]);
    assert_eq!(
        explained(&broker, &ids[0]),
        ["A consumer holds it in attempt 1, until TIME unless it asks for longer."]
    );
}

/// All leases are taken.
#[test]
fn a_message_that_waits_for_a_lease() {
    let broker = broker(json!({ "max_in_flight": 1 }));
    broker.publish("t", &json!(1));
    let id = broker.publish("t", &json!(2));
    broker.next("s");
    assert_eq!(
        explained(&broker, &id),
        [
            "It has not been delivered yet.",
            "All leases of the subscription are taken (1 of 1): it waits for one."
        ]
    );
}

/// Whoever decided in the policy's place, and what was cut: the fallback, the bounds, the limit of attempts, a note.
#[test]
fn a_decision_that_was_not_the_policys_alone() {
    let broker = with_policy(json!({ "fallback_delay": "1h" }), "(unreachable)");
    let (id, _) = broker.fail_one(json!({}));
    let broke = "TIME: attempt 1 was nacked; revision 2 broke (the policy trapped: wasm `unreachable` instruction \
                 executed), so the fallback decided: retry in 1h.";
    assert_eq!(explained(&broker, &id)[0], broke);

    let far = format!("{} {}", guests::note("far away"), guests::retry(7_200_000));
    let broker = with_policy(json!({ "max_delay": "1h" }), &far);
    let (id, _) = broker.fail_one(json!({}));
    let cut = "TIME: attempt 1 was nacked; revision 2 decided: retry in 1h (it asked for 2h, beyond the subscription's \
               bounds); note: far away.";
    assert_eq!(explained(&broker, &id)[0], cut);
    broker.change("s", &json!({ "max_delay": "1d", "min_delay": "3h" }));
    let (id, _) = broker.fail_one(json!({}));
    assert!(
        explained(&broker, &id)[0]
            .contains("retry in 3h (it asked for 2h, beyond the subscription's bounds)")
    );

    let broker = with_policy(json!({ "attempt_limit": 1 }), &guests::retry(1_000));
    let (id, _) = broker.fail_one(json!({ "class": "odd" }));
    let told = explained(&broker, &id);
    let limit =
        "TIME: attempt 1 was nacked as \"odd\"; the limit of attempts decided: dead letter: attempt_limit.";
    assert_eq!(told[0], limit);
    assert!(
        told[1].starts_with("It is a dead letter in the default queue since TIME: attempt_limit. "),
        "{told:?}"
    );
}

/// A long life: the last endings, and that there were more.
#[test]
fn a_message_with_a_long_history() {
    let broker = broker(json!({ "retry": { "delay": "0s", "max_attempts": 100 } }));
    let id = broker.publish("t", &json!(1));
    for _ in 0..40 {
        let delivery = broker.next("s");
        broker.nack("s", &delivery.receipt, "timeout");
    }
    let told = explained(&broker, &id);
    assert_eq!(told[0], "It was delivered 40 times. The last 32 bad endings were:");
    assert!(
        told[1].starts_with("TIME: attempt 9 was nacked") && told[32].starts_with("TIME: attempt 40 "),
        "{told:?}"
    );
    assert_eq!((told.len(), &*told[33]), (34, "It can be pulled for attempt 41."));
}

/// On several subscriptions each has its own story; on none it says so. JSON is what the broker says.
#[test]
fn each_subscription_has_its_own_story() {
    let broker = Broker::start();
    broker.topic("t");
    let nowhere = broker.publish("t", &json!(1));
    let told = without_times(&at(&broker, &["message", "explain", &nowhere]).good());
    assert_eq!(told, format!("Message {nowhere} was published to t at TIME.\nNo subscription gets it.\n"));
    broker.subscribe("a", "t", json!({}));
    broker.subscribe("b", "t", json!({}));
    let id = broker.publish("t", &json!(1));
    broker.ack("b", &broker.next("b").receipt);
    let told = without_times(&at(&broker, &["message", "explain", &id]).good());
    let stories = "On a:\n  It has not been delivered yet and can be pulled.\n\nOn b:\n  It is done: a consumer acked it.\n";
    assert_eq!(told, format!("Message {id} was published to t at TIME.\n\n{stories}"));
    let shown = at(&broker, &["message", "explain", &id, "--output", "json"]).json();
    assert_eq!(shown, broker.message(&id));
}
