//! Messages with times, keys and places of their own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, guests, millis, wait_for};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

fn numbers(pulled: &[Delivery]) -> Vec<u64> {
    pulled.iter().map(|delivery| delivery.message["payload"].as_u64().expect("a number")).collect()
}

/// A delay counts from the broker's clock: what a client's clock says is nowhere in it, and an absolute time is compared to
/// the broker's alone.
#[test]
fn s20_due_times_are_broker_time() {
    let broker = broker(json!({ "retry": { "delay": "3m", "jitter": "none" } }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    // HTTP lets a client say what its clock shows; five minutes slow, it changes nothing.
    let request =
        broker.request("POST", "/v1/subscriptions/s/nack").header("date", "Thu, 01 Jan 1970 00:00:00 GMT");
    let request = request.header("content-type", "application/json");
    let body = json!({ "items": [{ "receipt": held.receipt, "class": "timeout" }] }).to_string();
    let answer = broker.send(request.body(body)).expect(200);
    let due = millis(&answer["items"][0]["decision"]["next_attempt_at"]);
    let ended = millis(&broker.delivery_of(&id)["timeline"]["history"][0]["ended_at"]);
    assert!((180_000..185_000).contains(&(due - ended)), "{due} after {ended}");
}

/// A start with 200,000 overdue retries: it serves at once, new work is not starved, nobody gets more than was asked for,
/// and nothing is handed out twice.
#[test]
fn s23_a_start_with_many_overdue_messages() {
    const OVERDUE: usize = 200_000;
    let mut broker = broker(json!({ "max_in_flight": 100_000, "lease": "5m", "max_lease": "1h" }));
    let batch = json!({ "messages": vec![json!({ "payload": 1, "delay": "10s" }); 1_000] });
    for _ in 0..OVERDUE / 1_000 {
        broker.post("/v1/topics/t/messages", &batch).expect(201);
    }
    let last = broker.publish_with("t", json!({ "payload": 1, "delay": "10s" }));
    // The cursor passes them by while somebody waits: each becomes a delivery that waits.
    wait_for("all of them wait", || {
        _ = broker.pull("s", 1, Duration::from_millis(200));
        (broker.subscription("s")["delayed"].as_u64()? > OVERDUE as u64).then_some(())
    });
    broker.kill();
    broker.start_again();
    let due = millis(&broker.message(&last)["published_at"]) + 10_000;
    wait_for("all of them are overdue", || {
        let now = broker.message(&broker.publish("t", &json!(2)))["published_at"].clone();
        (millis(&now) > due).then_some(())
    });
    broker.kill_and_start_again();
    let new = broker.publish("t", &json!(2));
    let first = broker.pull("s", 10, Duration::from_secs(5));
    assert!(first.len() <= 10);
    let mut seen = std::collections::HashSet::new();
    let mut found = false;
    for delivery in
        first.into_iter().chain((0..20).flat_map(|_| broker.pull("s", 1_000, Duration::from_secs(5))))
    {
        found |= delivery.id() == new;
        assert!(seen.insert(delivery.id().to_owned()), "{} was handed out twice", delivery.id());
    }
    assert!(found, "new work waits behind {} overdue messages", seen.len());
}

/// Two subscriptions forward to each other's topic for ever: the message ends as a dead letter after the last hop allowed,
/// with its history. Forwarding to the topic that is read is refused.
#[test]
fn s34_a_forward_loop_ends() {
    let broker = Broker::start();
    broker.topic("a");
    broker.topic("b");
    for (name, topic, other) in [("x", "a", "b"), ("y", "b", "a")] {
        broker.subscribe(name, topic, json!({ "forward_to": [other] }));
        broker.upload(name, &guests::deciding(&guests::forward(other)).module(), None).expect(201);
    }
    broker.publish("a", &json!(1));
    let mut hops = 0;
    let letters = loop {
        for name in ["x", "y"] {
            if let Some(held) = broker.poll(name) {
                broker.nack(name, &held.receipt, "timeout");
                hops += 1;
            }
        }
        let letters = [broker.dead_letters("x"), broker.dead_letters("y")].concat();
        if !letters.is_empty() {
            break letters;
        }
        assert!(hops < 100, "it goes round for ever");
    };
    assert_eq!((letters.len(), hops), (1, 17));
    assert!(
        letters[0]["reason"].as_str().is_some_and(|reason| reason.starts_with("hop_limit")),
        "{letters:?}"
    );
    let itself = broker.put("/v1/subscriptions/z", &json!({ "topic": "a", "forward_to": ["a"] }));
    assert_eq!(itself.problem(), (422, "invalid_setting".to_owned()));
}

/// A dead letter has no time to live, and a replayed message gets none.
#[test]
fn s36_a_dead_letter_does_not_expire() {
    let broker = broker(json!({ "retry": { "max_attempts": 1 } }));
    let id = broker.publish_with("t", json!({ "payload": 1, "ttl": "300ms" }));
    let held = broker.next("s");
    broker.nack("s", &held.receipt, "timeout");
    let expires_at = millis(&broker.message(&id)["expires_at"]);
    wait_for("its time passes", || {
        let now = broker.publish("t", &json!(2));
        (millis(&broker.message(&now)["published_at"]) > expires_at).then_some(())
    });
    let letters = broker.dead_letters("s");
    assert_eq!(letters.len(), 1);
    let dead = letters[0]["id"].as_str().expect("an id");
    broker.post(&format!("/v1/dead-letters/{dead}/replay"), &json!({})).expect(200);
    let again = broker.pull("s", 100, Duration::from_secs(5));
    let again = again.iter().find(|delivery| delivery.id() == id).expect("it comes again");
    assert_eq!(again.message["expires_at"], Value::Null);
}

/// The topic that a policy forwards to is deleted: the message stays with its subscription, visible, tried again after the
/// fallback's delay and not in a hot loop, and arrives once the topic is back.
#[test]
fn s38_a_forward_waits_for_its_topic() {
    let broker = broker(json!({ "forward_to": ["target"], "fallback_delay": "1s", "fault_limit": 1_000 }));
    broker.upload("s", &guests::deciding(&guests::forward("target")).module(), None).expect(201);
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    let answer = broker.nack("s", &held.receipt, "timeout");
    assert_eq!(answer["decision"]["decided_by"], "fallback", "{answer}");
    assert_eq!(broker.delivery_of(&id)["state"], "delayed");
    assert!(broker.poll("s").is_none(), "no hot loop");
    broker.topic("target");
    broker.subscribe("reader", "target", json!({}));
    let held = broker.next("s");
    assert_eq!(broker.nack("s", &held.receipt, "timeout")["decision"]["action"], "forward");
    assert_eq!(broker.next("reader").message["payload"], 1);
    assert_eq!(broker.delivery_of(&id)["state"], "forwarded");
    assert!(broker.poll("reader").is_none(), "exactly one copy");
}

/// What was leased when everything was purged does not come back when its lease runs out.
#[test]
fn s42_a_purge_ends_leases_too() {
    let broker = broker(json!({ "lease": "150ms", "retry": { "delay": 0 } }));
    for number in 0..5 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 2, Duration::ZERO);
    let purged = broker.post("/v1/subscriptions/s/purge", &json!({})).expect(200);
    assert_eq!(purged, json!({ "next_sequence": 6, "ended": 5 }));
    // A delayed message tells that the lease would have run out.
    broker.publish_with("t", json!({ "payload": 9, "delay": "400ms" }));
    let next = broker.next("s");
    assert_eq!(next.message["payload"], 9);
    for delivery in &held {
        assert_eq!(broker.ack("s", &delivery.receipt)["error"]["code"], "stale_receipt");
        assert_eq!(broker.nack("s", &delivery.receipt, "x")["error"]["code"], "stale_receipt");
    }
    broker.ack("s", &next.receipt);
    let shown = broker.subscription("s");
    assert_eq!(
        [&shown["backlog"], &shown["in_flight"], &shown["delayed"]],
        [&json!(0), &json!(0), &json!(0)]
    );
}

/// A leased message that its topic gives up for its age leaves the leased ones; the sweep at the end of its lease finds
/// nothing, and every count is that of a recount.
#[test]
fn s44_what_retention_removes_is_not_counted() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_age": "1s" })).expect(201);
    broker.subscribe("s", "t", json!({ "lease": "30s", "retry": { "delay": 0 } }));
    let id = broker.publish("t", &json!(1));
    let held = broker.next("s");
    wait_for("it is too old", || (broker.get(&format!("/v1/messages/{id}")).status == 404).then_some(()));
    let counts = |broker: &Broker| {
        let shown = broker.subscription("s");
        ["backlog", "in_flight", "delayed"].map(|count| shown[count].as_u64().expect("a count"))
    };
    assert_eq!(counts(&broker), [0, 0, 0]);
    assert_eq!(broker.ack("s", &held.receipt)["error"]["code"], "stale_receipt");
    broker.kill_and_start_again();
    assert_eq!(counts(&broker), [0, 0, 0]);
    assert!(broker.poll("s").is_none());
}

/// A poison message blocks its own key until it is dead-lettered, and nobody else; a consumer that comes back changes nothing.
#[test]
fn s47_a_poison_message_blocks_its_key_alone() {
    let mut broker = broker(
        json!({ "ordering": "key", "retry": { "max_attempts": 2, "delay": "300ms", "jitter": "none" } }),
    );
    for (key, number) in [("k", 1), ("k", 2), ("k", 3), ("j", 4)] {
        broker.publish_with("t", json!({ "payload": number, "key": key }));
    }
    let first = broker.pull("s", 100, Duration::ZERO);
    assert_eq!(numbers(&first), [1, 4]);
    broker.nack("s", &first[0].receipt, "poison");
    broker.ack("s", &first[1].receipt);
    assert!(broker.poll("s").is_none(), "its key waits with it");
    broker.kill_and_start_again();
    let again = broker.next("s");
    assert_eq!((numbers(std::slice::from_ref(&again)), again.attempt), (vec![1], 2));
    broker.nack("s", &again.receipt, "poison");
    assert_eq!(broker.dead_letters("s").len(), 1);
    for number in [2, 3] {
        let next = broker.pull("s", 100, Duration::from_secs(5));
        assert_eq!(numbers(&next), [number]);
        broker.ack("s", &next[0].receipt);
    }
}
