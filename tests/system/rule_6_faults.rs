//! Rule 6: a policy that breaks loses nothing: the fallback applies, the fault is recorded, and a revision that keeps
//! breaking is taken out of service.

use serde_json::{Value, json};

use crate::support::{Broker, duration, guests};

/// Publishes, pulls and nacks one message: its id and the decision.
fn fail_one(broker: &Broker, class: &str) -> (String, Value) {
    let id = broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    let mut nacked = broker.nack("s", &delivery.receipt, class);
    (id, nacked["decision"].take())
}

/// Behaves while the failure has no class, and traps where it has one.
fn moody() -> Vec<u8> {
    let decide = format!(
        "(if (i32.load offset=112 (local.get $context)) (then (unreachable))) {}",
        guests::retry(3_600_000)
    );
    guests::after_trial(&decide)
}

/// Each way to break gives its fault, and the message waits for the fallback delay.
#[test]
fn rule_6_each_fault_is_named_and_answered_by_the_fallback() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fallback_delay": "7s" }));
    let long_memo =
        "(i32.store8 (i32.const 1096) (i32.const 1)) (i32.store (i32.const 1100) (i32.const 4096))
        (i32.store (i32.const 1104) (i32.const 257)) (i32.const 1024)";
    for (what, kind, decide) in [
        ("traps", "trap", "(unreachable)".to_owned()),
        ("divides by zero", "trap", "(i32.div_u (i32.const 1) (i32.const 0))".to_owned()),
        ("loops", "fuel", "(loop $again (br $again)) (unreachable)".to_owned()),
        (
            "eats memory",
            "memory",
            "(loop $more (drop (memory.grow (i32.const 16))) (br $more)) (unreachable)".to_owned(),
        ),
        ("points outside", "bad_answer", "(i32.const -8)".to_owned()),
        (
            "invents an action",
            "bad_answer",
            "(i32.store8 (i32.const 1024) (i32.const 9)) (i32.const 1024)".to_owned(),
        ),
        ("remembers too much", "bad_answer", long_memo.to_owned()),
        (
            "pauses without probes",
            "bad_answer",
            format!("{} {}", guests::pause(1_000, 0, ""), guests::retry(0)),
        ),
        ("names no queue", "bad_answer", guests::dead_letter(Some("a b"), "")),
    ] {
        broker.upload("s", &guests::after_trial(&decide), None).expect(201);
        let (id, decision) = fail_one(&broker, "timeout");
        assert_eq!(decision["fault"]["kind"], kind, "{what}: {decision}");
        assert!(decision["fault"]["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{what}");
        assert_eq!(
            (&decision["action"], &decision["decided_by"]),
            (&json!("retry"), &json!("fallback")),
            "{what}"
        );
        assert_eq!(decision["delay"], "7s", "{what}");
        let stands = broker.delivery_of(&id);
        assert_eq!(stands["state"], "delayed", "{what}");
        let recorded = &stands["timeline"]["history"][0]["decision"];
        assert_eq!(recorded["fault"]["kind"], kind, "{what}: the attempt keeps it");
    }
    assert!(broker.dead_letters("s").is_empty(), "a fault dead-letters nothing");
}

/// The fallback doubles with each fault in a row of one delivery, and never goes under a second.
#[test]
fn rule_6_the_fallback_doubles_up_to_max_delay() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fallback_delay": "1s", "max_delay": "1500ms" }));
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    let (id, first) = fail_one(&broker, "timeout");
    assert_eq!(first["delay"], "1s");
    let again = broker.next("s");
    assert_eq!((again.id(), again.attempt, again.failures), (id.as_str(), 2, 1), "nothing is lost");
    let second = broker.nack("s", &again.receipt, "timeout");
    assert_eq!(second["decision"]["delay"], "1s500ms", "doubled, and capped");
    let shorter = broker.patch("/v1/subscriptions/s", &json!({ "fallback_delay": "999ms" }));
    assert_eq!(shorter.problem(), (422, "invalid_setting".to_owned()));
}

/// After `fault_limit` faults in a row the revision is quarantined and the one before takes over, for good.
#[test]
fn rule_6_a_revision_that_keeps_breaking_is_quarantined() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 2, "retry": { "delay": "9s", "jitter": "none" } }));
    let broken = guests::after_trial("(unreachable)");
    broker.upload("s", &broken, None).expect(201);
    for _ in 0..2 {
        let (_, decision) = fail_one(&broker, "timeout");
        assert_eq!((&decision["decided_by"], &decision["revision"]), (&json!("fallback"), &json!(2)));
    }
    let expect_quarantine = |broker: &Broker| {
        let revisions = broker.revisions("s");
        let active: Vec<_> = revisions.iter().map(|revision| revision["active"].clone()).collect();
        assert_eq!(active, [true, false]);
        assert_eq!(revisions[0].get("quarantined"), None);
        let fault = revisions[1]["quarantined"]["fault"].as_str().unwrap_or_default();
        assert!(fault.contains("unreachable"), "{revisions:?}");
        assert!(revisions[1]["quarantined"]["at"].is_string());
        assert_eq!(broker.subscription("s")["policy"]["revision"], 1);
    };
    expect_quarantine(&broker);
    broker.kill_and_start_again();
    expect_quarantine(&broker);
    let (_, decision) = fail_one(&broker, "timeout");
    assert_eq!((&decision["decided_by"], &decision["delay"]), (&json!("policy"), &json!("9s")));
    assert_eq!(decision["revision"], 1);

    let uploaded = broker.upload("s", &broken, None).expect(201);
    assert_eq!(
        (&uploaded["revision"], &uploaded["active"]),
        (&json!(3), &json!(true)),
        "a new try is a new revision"
    );
}

/// Only faults in a row count: a good answer between them begins the count again.
#[test]
fn rule_6_a_good_answer_begins_the_count_again() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 2 }));
    broker.upload("s", &moody(), None).expect(201);
    for class in ["x", "", "x", ""] {
        let (_, decision) = fail_one(&broker, class);
        let by = if class.is_empty() { "policy" } else { "fallback" };
        assert_eq!(decision["decided_by"], by);
        assert_eq!(broker.subscription("s")["policy"]["revision"], 2);
    }
    fail_one(&broker, "x");
    fail_one(&broker, "x");
    assert_eq!(broker.subscription("s")["policy"]["revision"], 1);
}

/// While one policy loops until its fuel is gone, another subscription is decided as ever.
#[test]
fn rule_6_a_broken_policy_is_its_own_trouble() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &guests::after_trial("(loop $again (br $again)) (unreachable)"), None).expect(201);
    broker.topic("quiet");
    broker.subscribe("q", "quiet", json!({ "retry": { "delay": "9s", "jitter": "none" } }));
    for number in 0..20 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 20, std::time::Duration::ZERO);
    let items: Vec<_> = held.iter().map(|delivery| json!({ "receipt": delivery.receipt })).collect();
    let client = (*broker).clone();
    let storm = std::thread::spawn(move || {
        client.post("/v1/subscriptions/s/nack", &json!({ "items": items })).expect(200)
    });
    broker.publish("quiet", &json!(1));
    let delivery = broker.next("q");
    let decision = broker.nack("q", &delivery.receipt, "timeout")["decision"].clone();
    assert_eq!((&decision["decided_by"], duration(&decision["delay"]).as_secs()), (&json!("policy"), 9));
    let answer = storm.join().expect("the storm ends");
    let items = answer["items"].as_array().expect("a list");
    assert_eq!(items.len(), 20);
    let asked: Vec<_> = items.iter().filter(|item| item["decision"]["action"] == "retry").collect();
    assert_eq!(asked.len(), 20, "each is retried: {answer}");
}
