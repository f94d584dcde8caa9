//! Ordering by key: one delivery of a key at a time, in the order they were published; other keys go on.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, guests, wait_for};

fn ordered(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic("t");
    let mut all = json!({ "ordering": "key", "retry": { "delay": 0, "max_attempts": 3, "jitter": "none" } });
    for (name, value) in settings.as_object().expect("settings") {
        all[name] = value.clone();
    }
    broker.subscribe("s", "t", all);
    broker
}

fn publish(broker: &Broker, key: &str, number: u32) -> String {
    broker.publish_with("t", json!({ "payload": number, "key": key }))
}

const NONE: [u64; 0] = [];

fn numbers(pulled: &[Delivery]) -> Vec<u64> {
    pulled.iter().map(|delivery| delivery.message["payload"].as_u64().expect("a number")).collect()
}

fn pull(broker: &Broker) -> Vec<Delivery> {
    broker.pull("s", 100, Duration::ZERO)
}

/// Of each key one is out; the next comes when it is acked. Messages without a key are not held up.
#[test]
fn one_of_each_key_is_out_at_a_time() {
    let broker = ordered(json!({}));
    for (key, number) in [("k", 1), ("k", 2), ("j", 3), ("k", 4), ("j", 5)] {
        publish(&broker, key, number);
    }
    broker.publish("t", &json!(6));
    broker.publish("t", &json!(7));
    let first = pull(&broker);
    assert_eq!(numbers(&first), [1, 3, 6, 7]);
    assert_eq!(numbers(&pull(&broker)), NONE);
    assert_eq!(broker.subscription("s")["backlog"], 7);
    broker.ack("s", &first[0].receipt);
    let second = pull(&broker);
    assert_eq!(numbers(&second), [2]);
    broker.ack("s", &first[1].receipt);
    broker.ack("s", &second[0].receipt);
    // Both came free at about the same time.
    assert_eq!(numbers(&pull(&broker)).iter().sum::<u64>(), 4 + 5);
}

/// A retry holds its key by default: the others wait with it, also over a kill, and go on in order when it ends.
#[test]
fn a_retry_holds_its_key() {
    let mut broker = ordered(json!({ "retry": { "delay": "400ms", "jitter": "none", "max_attempts": 2 } }));
    for (key, number) in [("k", 1), ("k", 2), ("k", 3), ("j", 4)] {
        publish(&broker, key, number);
    }
    let first = pull(&broker);
    assert_eq!(numbers(&first), [1, 4]);
    broker.nack("s", &first[0].receipt, "timeout");
    assert_eq!(numbers(&pull(&broker)), NONE);
    broker.kill_and_start_again();
    let again = broker.next("s");
    assert_eq!((again.message["payload"].as_u64(), again.attempt), (Some(1), 2));
    assert_eq!(numbers(&pull(&broker)), NONE);
    // It is given up: its key goes on.
    broker.nack("s", &again.receipt, "timeout");
    let second = broker.next("s");
    assert_eq!(second.message["payload"], 2);
    broker.ack("s", &second.receipt);
    assert_eq!(broker.next("s").message["payload"], 3);
    assert_eq!(broker.dead_letters("s").len(), 1);
}

/// A policy can let the others pass: then a failed one takes its turn again when it is due and nobody is out.
#[test]
fn a_policy_lets_the_others_pass() {
    let broker = ordered(json!({}));
    let policy = format!("{} {}", guests::release_key(), guests::retry(0));
    broker.upload("s", &guests::deciding(&policy).module(), None).expect(201);
    for number in [1, 2, 3] {
        publish(&broker, "k", number);
    }
    let first = pull(&broker);
    assert_eq!(numbers(&first), [1]);
    let answer = broker.nack("s", &first[0].receipt, "timeout");
    assert_eq!(answer["decision"]["release_key"], true, "{answer}");
    let second = broker.next("s");
    assert_eq!(second.message["payload"], 2, "the next one passes");
    assert_eq!(numbers(&pull(&broker)), NONE, "one of the key is out");
    broker.ack("s", &second.receipt);
    // The failed one was published before the third.
    let third = broker.next("s");
    assert_eq!((third.message["payload"].as_u64(), third.attempt), (Some(1), 2));
    broker.ack("s", &third.receipt);
    assert_eq!(broker.next("s").message["payload"], 3);
}

/// A lease that runs out, a release and a late ack are ends like others.
#[test]
fn every_end_of_a_lease_lets_the_key_go_on() {
    let broker =
        ordered(json!({ "lease": "100ms", "retry": { "delay": "1h", "jitter": "none", "max_attempts": 9 } }));
    for number in [1, 2, 3] {
        publish(&broker, "k", number);
    }
    let first = broker.next("s");
    let released = broker.release("s", &first.receipt);
    assert_eq!(released["decision"]["action"], "retry", "{released}");
    let again = broker.next("s");
    assert_eq!(again.message["payload"], 1);
    let id = again.id().to_owned();
    wait_for("the lease runs out", || {
        Some(broker.delivery_of(&id)).filter(|found| found["state"] == "delayed")
    });
    assert_eq!(numbers(&pull(&broker)), NONE, "the retry holds its key");
    assert_eq!(broker.ack("s", &again.receipt)["late"], true);
    let second = broker.next("s");
    assert_eq!(second.message["payload"], 2);
    broker.ack("s", &second.receipt);
    assert_eq!(broker.next("s").message["payload"], 3);
}

/// Messages that expire while they wait for their key leave their place.
#[test]
fn what_expires_in_the_line_leaves_it() {
    let broker = ordered(json!({}));
    publish(&broker, "k", 1);
    let short = broker.publish_with("t", json!({ "payload": 2, "key": "k", "ttl": "50ms" }));
    publish(&broker, "k", 3);
    let first = pull(&broker);
    assert_eq!(numbers(&first), [1]);
    wait_for("it expires", || {
        Some(broker.delivery_of(&short)).filter(|found| found["state"] == "dead_lettered")
    });
    broker.ack("s", &first[0].receipt);
    let last = pull(&broker);
    assert_eq!(numbers(&last), [3]);
    broker.ack("s", &last[0].receipt);
    let shown = broker.subscription("s");
    assert_eq!((&shown["backlog"], &shown["delayed"]), (&json!(0), &json!(0)));
}

/// A replayed dead letter takes its place in the line of its key.
#[test]
fn a_replay_waits_for_its_key() {
    let broker = ordered(json!({ "retry": { "max_attempts": 1 } }));
    publish(&broker, "k", 1);
    publish(&broker, "k", 2);
    let first = broker.next("s");
    broker.nack("s", &first.receipt, "timeout");
    let second = broker.next("s");
    let dead = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    broker.post(&format!("/v1/dead-letters/{dead}/replay"), &json!({})).expect(200);
    assert_eq!(numbers(&pull(&broker)), NONE);
    broker.ack("s", &second.receipt);
    assert_eq!(broker.next("s").message["payload"], 1);
}

/// One ack with the receipts of two deliveries of a key, the first late: each ends once, and the key goes on.
#[test]
fn two_ends_of_a_key_in_one_request() {
    let mut broker = ordered(json!({ "lease": "150ms" }));
    let policy = format!("{} {}", guests::release_key(), guests::retry(0));
    broker.upload("s", &guests::deciding(&policy).module(), None).expect(201);
    let ids: Vec<_> = (1..=3).map(|number| publish(&broker, "k", number)).collect();
    let late = broker.next("s");
    wait_for("the lease runs out", || {
        Some(broker.delivery_of(&ids[0])).filter(|found| found["state"] == "ready")
    });
    let second = broker.next("s");
    assert_eq!(second.message["payload"], 2);
    broker.extend("s", &second.receipt, "30s");
    assert_eq!(numbers(&pull(&broker)), NONE, "the late one waits for its key");
    let body = json!({ "receipts": [late.receipt, second.receipt] });
    let items = broker.post("/v1/subscriptions/s/ack", &body).expect(200)["items"].clone();
    assert_eq!((&items[0]["late"], &items[1]["status"]), (&json!(true), &json!("acked")), "{items}");
    broker.kill_and_start_again();
    let third = broker.next("s");
    assert_eq!(third.message["payload"], 3);
    broker.ack("s", &third.receipt);
    assert_eq!(broker.subscription("s")["backlog"], 0);
}

/// A delivery that holds its key expires past the limit of attempts, where no policy is asked: its key goes on.
#[test]
fn an_end_without_a_question_lets_the_key_go_on() {
    let broker = ordered(json!({ "retry": { "delay": "1h", "jitter": "none" } }));
    let id = broker.publish_with("t", json!({ "payload": 1, "key": "k", "ttl": "300ms" }));
    publish(&broker, "k", 2);
    let first = broker.next("s");
    broker.nack("s", &first.receipt, "timeout");
    broker.change("s", &json!({ "attempt_limit": 1 }));
    wait_for("its time passes", || {
        Some(broker.delivery_of(&id)).filter(|found| found["state"] == "dead_lettered")
    });
    assert_eq!(broker.next("s").message["payload"], 2);
}

/// A message that expires in the line of its key, and is delivered all the same, keeps its place: before the cursor came by,
/// and while it waited for its key.
#[test]
fn what_expires_and_is_delivered_keeps_its_place() {
    let broker = ordered(json!({ "retry": { "on_expired": "retry", "max_attempts": 9 } }));
    let publish_three = || {
        let numbers = [(1, None), (2, Some("300ms")), (3, None)];
        let ids = numbers.map(|(number, ttl)| {
            broker.publish_with("t", json!({ "payload": number, "key": "k", "ttl": ttl.unwrap_or("1h") }))
        });
        ids[1].clone()
    };
    let expired = |id: &str| {
        let expires_at = crate::support::millis(&broker.message(id)["expires_at"]);
        wait_for("its time passes", || {
            let now = broker.publish_with("t", json!({ "payload": 0, "ttl": "1ms" }));
            (crate::support::millis(&broker.message(&now)["published_at"]) > expires_at + 50).then_some(())
        });
    };
    let in_order = |first: Option<Delivery>| {
        let mut got = Vec::new();
        let mut held = first;
        while got.len() < 3 {
            let delivery = held.take().unwrap_or_else(|| broker.next("s"));
            if delivery.message["key"] == "k" {
                got.push(delivery.message["payload"].as_u64().expect("a number"));
            }
            broker.ack("s", &delivery.receipt);
        }
        assert_eq!(got, [1, 2, 3]);
    };
    let id = publish_three();
    expired(&id);
    in_order(None);
    while let Some(rest) = broker.poll("s") {
        broker.ack("s", &rest.receipt);
    }
    let id = publish_three();
    let first = broker.next("s");
    assert!(broker.poll("s").is_none(), "the others wait for their key");
    expired(&id);
    in_order(Some(first));
}
