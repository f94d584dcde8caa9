//! Limits, dead letters, replays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, Socket, wait_for};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

/// Retries at once, so many attempts in all.
fn attempts(most: u32) -> Value {
    json!({ "delay": 0, "backoff": "fixed", "max_attempts": most })
}

/// N attempts are exactly N deliveries, numbered 1 to N, and then one dead letter; N = 1 is no redelivery at all.
///
/// N = 0 is refused when it is set.
#[test]
fn s05_n_attempts_are_n_deliveries() {
    let broker = Broker::start();
    broker.topic("t");
    for most in 1..=3 {
        let name = format!("s{most}");
        broker.subscribe(&name, "t", json!({ "retry": attempts(most) }));
        let id = broker.publish("t", &json!(most));
        for attempt in 1..=most {
            let delivery = broker.next(&name);
            assert_eq!((delivery.id(), delivery.attempt), (id.as_str(), u64::from(attempt)));
            let action = broker.nack(&name, &delivery.receipt, "timeout")["decision"]["action"].clone();
            assert_eq!(action, if attempt < most { "retry" } else { "dead_letter" });
        }
        assert_eq!(broker.poll(&name), None);
        let letters = broker.dead_letters(&name);
        assert_eq!(letters.len(), 1);
        assert_eq!((&letters[0]["attempts"], &letters[0]["reason"]), (&json!(most), &json!("max_attempts")));
        assert_eq!(broker.subscription(&name)["backlog"], 0);
    }
    let none = broker.put("/v1/subscriptions/s0", &json!({ "topic": "t", "retry": attempts(0) }));
    assert_eq!(none.problem(), (422, "invalid_params".to_owned()));
}

/// The dead letter is there with the answer to the nack; nobody has to pull again for it.
#[test]
fn s06_a_dead_letter_needs_no_further_pull() {
    let broker = broker(json!({ "retry": attempts(1) }));
    let id = broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    assert_eq!(broker.nack("s", &delivery.receipt, "timeout")["decision"]["action"], "dead_letter");
    let letters = broker.dead_letters("s");
    assert_eq!((letters.len(), &letters[0]["message_id"]), (1, &json!(id)));
}

/// A message that crashes its consumers is dead-lettered at the limit: three that vanish are attempts 1, 2 and 3.
///
/// Over plain HTTP the broker learns of it when the lease runs out; that is the cause on record.
#[test]
fn s07_consumers_that_vanish_are_attempts() {
    let broker = broker(json!({ "lease": "150ms", "retry": attempts(3) }));
    let id = broker.publish("t", &json!("poison"));
    for attempt in 1..=3 {
        let mut consumer = Socket::connect(broker.address());
        consumer.post("/v1/subscriptions/s/pull", r#"{"wait":"15s"}"#);
        let (status, body) = consumer.read();
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &answer["deliveries"][0]["attempt"]), (200, &json!(attempt)), "{body}");
        drop(consumer);
    }
    let letters =
        wait_for("the dead letter", || Some(broker.dead_letters("s")).filter(|found| !found.is_empty()));
    assert_eq!((letters.len(), &letters[0]["message_id"]), (1, &json!(id)));
    let letter = broker.dead_letter(letters[0]["id"].as_str().expect("an id"));
    let history = letter["timeline"]["history"].as_array().expect("a list");
    let causes: Vec<_> =
        history.iter().map(|past| (past["attempt"].clone(), past["cause"].clone())).collect();
    let expected: Vec<_> = (1..=3).map(|attempt| (json!(attempt), json!("lease_expired"))).collect();
    assert_eq!(causes, expected);
}

/// Attempts survive a kill: after four of five the next delivery says 5, and the failure after it is the end.
#[test]
fn s09_attempts_survive_a_restart() {
    let mut broker = broker(json!({ "retry": attempts(5) }));
    broker.publish("t", &json!(1));
    for attempt in 1..=4 {
        let delivery = broker.next("s");
        assert_eq!(delivery.attempt, attempt);
        broker.nack("s", &delivery.receipt, "timeout");
    }
    broker.kill_and_start_again();
    let delivery = broker.next("s");
    assert_eq!((delivery.attempt, delivery.failures), (5, 4));
    assert_eq!(broker.nack("s", &delivery.receipt, "timeout")["decision"]["action"], "dead_letter");
    assert_eq!(broker.dead_letters("s").len(), 1);
    assert_eq!(broker.poll("s"), None);
}

/// A replayed dead letter starts at attempt 1, keeps its past as numbers, and its second cycle ends as the first did.
#[test]
fn s37_a_replay_starts_again_and_remembers() {
    let broker = broker(json!({ "retry": attempts(3) }));
    let id = broker.publish("t", &json!(1));
    for replays in 0..=2 {
        for attempt in 1..=3 {
            let delivery = broker.next("s");
            assert_eq!(
                (delivery.id(), delivery.attempt, delivery.failures),
                (id.as_str(), attempt, attempt - 1)
            );
            broker.nack("s", &delivery.receipt, "timeout");
        }
        let letters = broker.dead_letters("s");
        assert_eq!(letters.len(), 1);
        let letter = broker.dead_letter(letters[0]["id"].as_str().expect("an id"));
        let timeline = &letter["timeline"];
        let counters =
            ["attempts", "failures", "replays", "previous_attempts"].map(|name| timeline[name].clone());
        assert_eq!(counters, [3, 3, replays, 3 * replays]);
        assert_eq!(timeline["history"].as_array().map(Vec::len), Some(3 * (replays + 1)));
        if replays < 2 {
            let path = format!("/v1/dead-letters/{}/replay", letters[0]["id"].as_str().expect("an id"));
            assert_eq!(broker.post(&path, &Value::Null).expect(200)["replays"], replays + 1);
        }
    }
}

/// A replay of 10,000 that is stopped half way, killed, started again and killed again: each message is in one place at any
/// time and comes back once; what died after the plan is left alone; and it is no faster than it may be.
#[test]
fn s40_a_bulk_replay_is_resumed() {
    const MANY: u64 = 10_000;
    const RATE: u64 = 1_500;
    let mut broker = broker(json!({ "retry": attempts(1), "max_in_flight": 20_000, "lease": "1h" }));
    let mut published = BTreeSet::new();
    for _ in 0..MANY / 1_000 {
        let batch = json!({ "messages": vec![json!({ "payload": "x" }); 1_000] });
        let answer = broker.post("/v1/topics/t/messages", &batch).expect(201);
        let items = answer["items"].as_array().expect("items").iter();
        published.extend(items.map(|item| item["id"].as_str().expect("an id").to_owned()));
        fail_all(&broker, 1_000);
    }
    let counts = |broker: &Broker| {
        let shown = broker.subscription("s");
        (shown["dead_letters"].as_u64().expect("a count"), shown["backlog"].as_u64().expect("a count"))
    };
    assert_eq!(counts(&broker), (MANY, 0));
    let plan =
        json!({ "action": "replay", "filter": { "subscription": "s", "class": "timeout" }, "rate": RATE });
    let planned = broker.post("/v1/dead-letters/jobs", &plan).expect(201);
    let job = format!("/v1/dead-letters/jobs/{}", planned["id"].as_str().expect("an id"));
    let planned = wait_for("them to be counted", || {
        Some(broker.get(&job).expect(200)).filter(|shown| shown["state"] != "planning")
    });
    assert_eq!((&planned["found"], &planned["state"]), (&json!(MANY), &json!("planned")));
    let done = |broker: &Broker| broker.get(&job).expect(200)["done"].as_u64().expect("a count");

    let started = Instant::now();
    broker.post(&format!("{job}/start"), &json!({})).expect(200);
    wait_for("some of it", || Some(()).filter(|()| done(&broker) >= MANY / 3));
    let aborted = broker.post(&format!("{job}/abort"), &json!({})).expect(200);
    let half = aborted["done"].as_u64().expect("a count");
    let most = RATE * (started.elapsed().as_secs() + 2);
    assert!(half < MANY && half <= most, "{half} after {:?}", started.elapsed());
    broker.kill_and_start_again();
    assert_eq!((done(&broker), counts(&broker)), (half, (MANY - half, half)), "it stands as it stood");
    // Others die meanwhile: of the same kind, and none of its business.
    let late: Vec<_> = (0..3).map(|_| broker.publish("t", &json!("late"))).collect();
    let mut held = Vec::new();
    while let Some(more) = Some(broker.pull("s", 1_000, Duration::ZERO)).filter(|it| !it.is_empty()) {
        held.extend(more);
    }
    for delivery in held.iter().filter(|delivery| late.contains(&delivery.id().to_owned())) {
        broker.nack("s", &delivery.receipt, "timeout");
    }
    assert_eq!(counts(&broker), (MANY - half + 3, half));

    broker.post(&format!("{job}/start"), &json!({})).expect(200);
    wait_for("more of it", || Some(()).filter(|()| done(&broker) > half));
    broker.kill_and_start_again();
    let ended = wait_for("the rest of it, by itself", || {
        Some(broker.get(&job).expect(200)).filter(|shown| shown["state"] == "done")
    });
    assert_eq!((&ended["done"], &ended["skipped"]), (&json!(MANY), &json!(0)));
    assert_eq!(counts(&broker), (3, MANY));
    let dead = broker.dead_letters("s");
    assert!(dead.iter().all(|letter| late.iter().any(|id| letter["message_id"] == **id)), "{dead:?}");
    let mut came: Vec<_> = held.iter().map(|it| it.id().to_owned()).filter(|id| !late.contains(id)).collect();
    while let Some(more) = Some(broker.pull("s", 1_000, Duration::ZERO)).filter(|it| !it.is_empty()) {
        assert!(more.iter().all(|delivery| (delivery.attempt, delivery.failures) == (1, 0)));
        came.extend(more.iter().map(|it| it.id().to_owned()));
    }
    assert_eq!(came.len() as u64, MANY, "none comes twice");
    assert_eq!(came.into_iter().collect::<BTreeSet<_>>(), published);
}

fn fail_all(broker: &Broker, count: usize) {
    let held = broker.pull("s", count, Duration::ZERO);
    assert_eq!(held.len(), count);
    let items: Vec<_> = held.iter().map(|it| json!({ "receipt": it.receipt, "class": "timeout" })).collect();
    broker.post("/v1/subscriptions/s/nack", &json!({ "items": items })).expect(200);
}
