//! Rule 7: a policy sees what it is shown and nothing else; no state of its own survives a decision.

use serde_json::{Value, json};

use crate::support::{Broker, guests};

/// A policy that counts its calls, in a global and in memory, always finds itself at the first.
#[test]
fn rule_7_a_static_counter_always_sees_its_first_value() {
    let counting = guests::Guest {
        fields: "(global $count (mut i64) (i64.const 0))".to_owned(),
        decide: "(global.set $count (i64.add (global.get $count) (i64.const 1000)))
            (i64.store (i32.const 4000) (i64.add (i64.load (i32.const 4000)) (i64.const 1)))
            (i64.store (i32.const 1032) (i64.add (global.get $count) (i64.load (i32.const 4000))))
            (i32.const 1024)"
            .to_owned(),
        ..guests::Guest::default()
    };
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &counting.module(), None).expect(201);
    for number in 0..10 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 10, std::time::Duration::ZERO);
    let items: Vec<_> = held.iter().map(|delivery| json!({ "receipt": delivery.receipt })).collect();
    let answer = broker.post("/v1/subscriptions/s/nack", &json!({ "items": items })).expect(200);
    let items = answer["items"].as_array().expect("a list");
    assert_eq!(items.len(), 10);
    for item in items {
        assert_eq!(item["decision"]["delay"], "1s1ms", "{item}");
        assert_eq!(item["decision"]["fuel"], items[0]["decision"]["fuel"]);
    }
}

/// The random bits of an attempt are part of what is shown, and each attempt has its own.
#[test]
fn rule_7_randomness_belongs_to_the_attempt() {
    // The delay is the lowest 16 bits of the seed, in milliseconds and above a second.
    let decide = "(i64.store (i32.const 1032) (i64.add (i64.const 1000)
            (i64.and (i64.load offset=208 (local.get $context)) (i64.const 65535)))) (i32.const 1024)";
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &guests::after_trial(decide), None).expect(201);
    let delays: Vec<Value> = (0..8)
        .map(|number| {
            broker.publish("t", &json!(number));
            let delivery = broker.next("s");
            broker.nack("s", &delivery.receipt, "timeout")["decision"]["delay"].clone()
        })
        .collect();
    let distinct: std::collections::HashSet<_> = delays.iter().map(Value::to_string).collect();
    assert!(distinct.len() >= 6, "eight draws of 16 bits: {delays:?}");
}

/// The payload is shown only where the subscription says so.
#[test]
fn rule_7_payloads_are_shown_on_request_only() {
    // The note is the payload, where there is one.
    let decide = format!(
        "(if (i32.load8_u offset=88 (local.get $context)) (then
            (i32.store8 (i32.const 1108) (i32.const 1))
            (i32.store (i32.const 1112) (i32.load offset=92 (local.get $context)))
            (i32.store (i32.const 1116) (i32.load offset=96 (local.get $context))))) {}",
        guests::retry(3_600_000)
    );
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &guests::after_trial(&decide), None).expect(201);
    for (inspect, note) in [(false, Value::Null), (true, json!(r#"{"order":7}"#)), (false, Value::Null)] {
        broker.change("s", &json!({ "inspect_payload": inspect }));
        broker.publish("t", &json!({ "order": 7 }));
        let delivery = broker.next("s");
        assert_eq!(broker.nack("s", &delivery.receipt, "x")["decision"]["note"], note, "{inspect}");
    }
}

/// Every decision names the module, the fuel and the hash of what it was shown; other input has another hash.
#[test]
fn rule_7_decisions_record_what_they_were_made_from() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "1h" } }));
    let digest = broker.subscription("s")["policy"]["digest"].clone();
    let mut hashes = Vec::new();
    for number in 0..2 {
        let id = broker.publish("t", &json!(number));
        let delivery = broker.next("s");
        let answered = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        let recorded = broker.delivery_of(&id)["timeline"]["history"][0]["decision"].clone();
        for field in ["digest", "fuel", "input_hash", "revision", "decided_by", "delay"] {
            assert_eq!(recorded[field], answered[field], "{field}");
        }
        assert_eq!(recorded["digest"], digest);
        assert!(recorded["fuel"].as_u64().is_some_and(|fuel| fuel > 0));
        hashes.push(recorded["input_hash"].as_str().expect("a hash").to_owned());
    }
    assert!(hashes.iter().all(|hash| hash.len() == 32), "{hashes:?}");
    assert_ne!(hashes[0], hashes[1]);
}
