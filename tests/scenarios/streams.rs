//! Consumers on an open connection: credit that is too generous, held, or lost with it.

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, Stream, millis, wait_for};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

fn at_once(max_attempts: u32) -> Value {
    json!({ "delay": 0, "backoff": "fixed", "jitter": "none", "max_attempts": max_attempts })
}

fn publish(broker: &Broker, count: usize) -> Vec<String> {
    (0..count).map(|number| broker.publish("t", &json!(number))).collect()
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(Delivery::id).collect()
}

fn causes(broker: &Broker, id: &str) -> Vec<Value> {
    let delivery = broker.delivery_of(id);
    let history = delivery["timeline"]["history"].as_array().cloned().unwrap_or_default();
    history.into_iter().map(|mut past| past["cause"].take()).collect()
}

/// The same as over plain HTTP, where the broker notices nothing: a closed connection ends the attempt at once, long before
/// its lease would run out, and three of them are the end.
#[test]
fn s07_streams_that_vanish_are_attempts() {
    let broker = broker(json!({ "lease": "1h", "retry": at_once(3) }));
    let id = broker.publish("t", &json!("poison"));
    for attempt in 1..=3 {
        let mut consumer = Stream::consume(&broker, "s");
        consumer.credit(1);
        assert_eq!(consumer.deliveries(1)[0].attempt, attempt);
        drop(consumer);
    }
    let letters =
        wait_for("the dead letter", || Some(broker.dead_letters("s")).filter(|found| !found.is_empty()));
    assert_eq!((letters.len(), &letters[0]["message_id"]), (1, &json!(id)));
    let letter = broker.dead_letter(letters[0]["id"].as_str().expect("an id"));
    let history = letter["timeline"]["history"].as_array().expect("a list");
    let ends: Vec<_> = history.iter().map(|past| (past["attempt"].clone(), past["cause"].clone())).collect();
    let expected: Vec<_> = (1..=3).map(|attempt| (json!(attempt), json!("disconnected"))).collect();
    assert_eq!(ends, expected);
}

/// A lease starts when the credit is used: what the client has no credit for waits without one. A client that is slower
/// than its leases extends them, any number of times, up to `max_lease`; nothing is delivered twice.
#[test]
fn s29_a_lease_starts_when_the_credit_is_used() {
    let broker = broker(json!({ "lease": "250ms", "max_lease": "2s", "retry": at_once(9) }));
    let published = publish(&broker, 10);
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(3);
    let held = stream.deliveries(3);
    let first_deadline = millis(&json!(held[0].lease_until));
    let items: Vec<_> = held.iter().map(|delivery| json!({ "receipt": delivery.receipt })).collect();
    let extend = json!({ "type": "extend", "id": "e", "items": items });
    let mut extensions = 0;
    // Three leases go by.
    loop {
        let extended = stream.ask(&extend, "extended");
        extensions += 1;
        if millis(&extended["items"][0]["lease_until"]) > first_deadline + 750 {
            break;
        }
    }
    assert!(extensions > 3);
    assert_eq!(broker.subscription("s")["in_flight"], 3);
    assert_eq!(broker.delivery_of(&published[3])["state"], "ready");
    let items = json!([{ "receipt": held[0].receipt, "lease": "1m" }]);
    let refused = stream.ask(&json!({ "type": "extend", "id": "m", "items": items }), "extended");
    assert_eq!(refused["items"][0]["error"]["code"], "max_lease_exceeded");
    let receipts: Vec<_> = held.iter().map(|delivery| &delivery.receipt).collect();
    let acked = stream.ask(&json!({ "type": "ack", "id": "a", "receipts": receipts }), "acked");
    assert!((0..3).all(|index| acked["items"][index].get("late").is_none()), "{acked}");
    stream.credit(100);
    let rest = stream.deliveries(7);
    assert_eq!(ids(&rest), published[3..]);
    assert!(rest.iter().all(|delivery| delivery.attempt == 1));
}

/// A consumer that holds all of its credit idle keeps nothing from others: what is new reaches them, what it holds
/// runs out on time, and when it goes what it holds is free at once.
#[test]
fn s49_an_idle_consumer_starves_nobody() {
    let broker = broker(json!({ "lease": "1s", "retry": at_once(9) }));
    let first = publish(&broker, 100);
    let mut idle = Stream::consume(&broker, "s");
    idle.credit(100);
    let held = idle.deliveries(100);
    let deadline = millis(&json!(held[0].lease_until));
    let mut other = Stream::consume(&broker, "s");
    other.credit(3);
    let fresh = publish(&broker, 3);
    // They may come in any number of frames.
    let got = other.deliveries(3);
    assert_eq!(ids(&got), fresh);
    assert!(got.iter().all(|delivery| delivery.attempt == 1));
    other.credit(100);
    let again = other.deliveries(100);
    assert_eq!(ids(&again), ids(&held));
    assert!(again.iter().all(|delivery| delivery.attempt == 2));
    assert!(again.iter().all(|delivery| millis(&json!(delivery.lease_until)) >= deadline + 1_000));
    assert_eq!(causes(&broker, &first[0]), ["lease_expired"]);
}

/// Consumers that all have credit take turns.
#[test]
fn s49_consumers_with_credit_take_turns() {
    let broker = broker(json!({ "retry": at_once(9) }));
    let mut streams = [Stream::consume(&broker, "s"), Stream::consume(&broker, "s")];
    for stream in &mut streams {
        stream.credit(100);
        // The next frame is answered behind it: this one waits first.
        stream.ask(&json!({ "type": "ack", "id": "a", "receipts": ["r"] }), "acked");
    }
    // One at a time: of two that come together the first in the line may take both.
    for turn in 0..10 {
        let published = publish(&broker, 1);
        assert_eq!(ids(&streams[turn % 2].deliveries(1)), published, "turn {turn}");
    }
}

/// A consumer that goes frees its leases at once for those who wait.
#[test]
fn s49_a_consumer_that_goes_frees_its_leases() {
    let broker = broker(json!({ "lease": "1h", "retry": at_once(9) }));
    let published = publish(&broker, 100);
    let mut gone = Stream::consume(&broker, "s");
    gone.credit(100);
    gone.deliveries(100);
    let mut other = Stream::consume(&broker, "s");
    other.credit(100);
    drop(gone);
    let mut again = other.deliveries(100);
    again.sort_by_key(|delivery| delivery.message["sequence"].as_u64());
    assert_eq!(ids(&again), published);
    assert!(again.iter().all(|delivery| (delivery.attempt, delivery.failures) == (2, 1)));
}
