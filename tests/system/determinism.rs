//! The same input gives the same answer, over as many decisions as a subscription can remember.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Broker, PATIENCE};

const DECISIONS: usize = 100_000;
const BATCH: usize = 1_000;
const CLASSES: [&str; 5] = ["timeout", "rate_limited", "crash", "validation", "odd"];

/// Publishes, pulls and nacks until so many failures were decided; gives how often each action was.
fn decide(broker: &Broker, decisions: usize) -> BTreeMap<String, usize> {
    let messages: Vec<_> = (0..BATCH)
        .map(|n| json!({ "payload": n, "key": format!("k{}", n % 7), "attributes": { "n": "1" } }))
        .collect();
    let messages = json!({ "messages": messages });
    let mut actions = BTreeMap::new();
    let mut left = decisions;
    while left > 0 {
        broker.post("/v1/topics/t/messages", &messages).expect(201);
        let deliveries = broker.pull("s", left.min(BATCH), PATIENCE);
        left -= deliveries.len();
        let items: Vec<_> = (left..)
            .zip(&deliveries)
            .map(|(n, delivery)| {
                let class = CLASSES[n % CLASSES.len()];
                json!({ "receipt": delivery.receipt, "class": class, "code": (n % 600).to_string() })
            })
            .collect();
        let answer = broker.post("/v1/subscriptions/s/nack", &json!({ "items": items })).expect(200);
        for item in answer["items"].as_array().expect("items") {
            let decision = &item["decision"];
            assert_eq!(decision["decided_by"], "policy", "{item}");
            *actions.entry(decision["action"].as_str().expect("an action").to_owned()).or_default() += 1;
        }
    }
    actions
}

/// A hundred thousand decisions of a policy that draws at random, with classes, attempts, history and load of all
/// kinds: asked again with what was recorded, each is the same bit for bit, before and after a kill.
#[test]
fn a_hundred_thousand_decisions_are_the_same_again() {
    let mut broker = Broker::start();
    let classes = json!({
        "rate_limited": { "delay": "1h" },
        "crash": { "delay": "30s", "max_attempts": 2, "queue": "crashed" },
        "validation": { "action": "dead_letter", "queue": "invalid" },
        "odd": { "action": "drop" },
    });
    let retry = json!({ "delay": "0s", "jitter": "full", "max_attempts": 8, "classes": classes });
    broker.topic_and_subscription(json!({ "retry": retry, "record_failures": DECISIONS, "lease": "10m" }));
    let actions = decide(&broker, DECISIONS);
    assert!(
        ["retry", "dead_letter", "drop"].iter().all(|action| actions[*action] > DECISIONS / 10),
        "{actions:?}"
    );

    let same = |broker: &Broker, last: usize| {
        let report = broker.post("/v1/subscriptions/s/policy/backtest", &json!({ "last": last })).expect(200);
        assert_eq!((&report["failures"], &report["reruns"]), (&json!(last), &json!(last)), "{report}");
        assert_eq!((&report["impure"], &report["changed"]), (&json!(0), &json!(0)), "{report}");
        assert_eq!(report["fuel"]["before"], report["fuel"]["after"]);
        assert_eq!(report["delays"]["before"], report["delays"]["after"]);
        assert_ne!(report["delays"]["after"]["p90"], report["delays"]["after"]["max"], "chance plays a part");
        assert_eq!(report["dead_letters"]["after"].as_u64(), report["dead_letters"]["before"].as_u64());
        report["dead_letters"]["after"].clone()
    };
    let dead_letters = same(&broker, DECISIONS);
    assert_eq!(dead_letters, json!(actions["dead_letter"]));
    broker.kill_and_start_again();
    same(&broker, DECISIONS / 10);
    // With other parameters the same records have other answers: it is the policy that was asked.
    let asked = json!({ "last": 1_000, "params": { "delay": "7s", "jitter": "none" } });
    let other: Value = broker.post("/v1/subscriptions/s/policy/backtest", &asked).expect(200);
    assert_eq!((&other["reruns"], &other["delays"]["after"]["p50"]), (&json!(0), &json!("7s")), "{other}");
}
