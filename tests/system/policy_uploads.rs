//! Policies from outside: upload, parameters, revisions.

use serde_json::{Value, json};

use crate::support::{Broker, guests, policies};

fn fail_one(broker: &Broker, item: Value) -> Value {
    broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    broker.nack_with("s", &delivery.receipt, item)["decision"].clone()
}

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker
}

/// A compiled policy is taken, described, and decides from then on, after a kill too.
#[test]
fn a_compiled_policy_decides() {
    let mut broker = broker();
    let module = policies::module("http-status");
    let uploaded = broker.upload("s", &module, None).expect(201);
    assert_eq!((&uploaded["revision"], &uploaded["active"]), (&json!(2), &json!(true)));
    assert_eq!((&uploaded["name"], &uploaded["size"]), (&json!("http-status"), &json!(module.len())));
    assert_eq!(uploaded["exports"], json!(["decide", "check", "describe"]));
    assert!(uploaded["trial_fuel"].as_u64().is_some_and(|fuel| fuel > 0));
    assert!(uploaded["digest"].as_str().is_some_and(|digest| digest.len() >= 32));
    assert!(uploaded["summary"].as_str().is_some_and(|summary| !summary.is_empty()));
    assert!(uploaded["queues"].is_array() && uploaded["version"].is_string());
    for _ in 0..2 {
        let decision = fail_one(&broker, json!({ "code": "410" }));
        assert_eq!(
            (&decision["action"], &decision["revision"]),
            (&json!("dead_letter"), &json!(2)),
            "{decision}"
        );
        assert_eq!(decision["digest"], uploaded["digest"]);
        let decision = fail_one(&broker, json!({ "code": "503" }));
        assert_eq!(decision["action"], "retry", "{decision}");
        broker.kill_and_start_again();
    }
}

/// The same bytes and parameters again are a 200 with the same revision; other parameters are a new one.
#[test]
fn uploads_are_idempotent() {
    let broker = broker();
    let module = policies::module("http-status");
    let first = broker.upload("s", &module, None).expect(201);
    let again = broker.upload("s", &module, None).expect(200);
    assert_eq!(again, first);
    assert_eq!(broker.upload("s", &module, Some("{}")).expect(200), first, "no parameters are no parameters");
    let other = broker.upload("s", &module, Some(r#"{ "max_attempts": 3 }"#)).expect(201);
    assert_eq!((&other["revision"], &other["params"]), (&json!(3), &json!({ "max_attempts": 3 })));
    assert_eq!(other["digest"], first["digest"]);
    let spaced = broker.upload("s", &module, Some(r#"{"max_attempts":3}"#)).expect(200);
    assert_eq!(spaced["revision"], 3, "spaces make no difference");
    assert_eq!(broker.revisions("s").len(), 3);
}

/// A component is taken like a core module.
#[test]
fn a_component_is_taken_too() {
    let broker = broker();
    let guest = guests::deciding(&guests::retry(7_000));
    let uploaded = broker.upload("s", &guest.component(), None).expect(201);
    assert_eq!(uploaded["name"], "guest");
    assert_eq!(fail_one(&broker, json!({}))["delay"], "7s");
}

/// Parameters are shown to the policy as they were given, and set by a route of their own.
#[test]
fn parameters_reach_the_policy() {
    // The note is the params.
    let echo = format!(
        "(i32.store8 (i32.const 1108) (i32.const 1))
         (i32.store (i32.const 1112) (i32.load offset=216 (local.get $context)))
         (i32.store (i32.const 1116) (i32.load offset=220 (local.get $context))) {}",
        guests::retry(3_600_000)
    );
    let mut broker = broker();
    broker.upload("s", &guests::deciding(&echo).module(), Some(r#"{"a": "é"}"#)).expect(201);
    assert_eq!(fail_one(&broker, json!({}))["note"], r#"{"a":"é"}"#);
    let path = "/v1/subscriptions/s/policy/params";
    let changed = broker.put(path, &json!({ "a": 2 })).expect(201);
    assert_eq!((&changed["revision"], &changed["params"]), (&json!(3), &json!({ "a": 2 })));
    assert_eq!(broker.put(path, &json!({ "a": 2 })).expect(200)["revision"], 3);
    broker.kill_and_start_again();
    let decision = fail_one(&broker, json!({}));
    assert_eq!((&decision["note"], &decision["revision"]), (&json!(r#"{"a":2}"#), &json!(3)));
    assert_eq!(broker.get("/v1/subscriptions/s/policy").expect(200)["params"], json!({ "a": 2 }));
}

/// Parameters that the policy refuses, or that are no object, are refused when they are set, with the policy's words.
#[test]
fn bad_parameters_change_nothing() {
    let broker = broker();
    broker.upload("s", &policies::module("rate-limited"), None).expect(201);
    let before = broker.everything();
    for params in ["[]", "1", "{", "null", r#"{"spread":9}"#, r#"{"nonsense":1}"#, ""] {
        let answer = broker.upload("s", &policies::module("rate-limited"), Some(params));
        assert_eq!(answer.problem(), (422, "invalid_params".to_owned()), "{params}");
    }
    for params in [json!([]), json!(1), json!({ "nonsense": 1 }), json!({ "max_wait": "-1s" })] {
        let answer = broker.put("/v1/subscriptions/s/policy/params", &params);
        assert_eq!(answer.problem(), (422, "invalid_params".to_owned()), "{params}");
    }
    let told = broker.put("/v1/subscriptions/s/policy/params", &json!({ "nonsense": 1 }));
    assert!(
        told.json()["detail"].as_str().is_some_and(|detail| detail.contains("nonsense")),
        "{}",
        told.text()
    );
    assert_eq!(broker.everything(), before);
}

/// Parameters have a size, and one byte more is refused.
#[test]
fn parameters_are_bounded() {
    const LARGEST: usize = 16 * 1024;
    let broker = broker();
    broker.upload("s", &guests::deciding(&guests::retry(1_000)).module(), None).expect(201);
    let path = "/v1/subscriptions/s/policy/params";
    let sized = |bytes: usize| json!({ "a": "x".repeat(bytes - r#"{"a":""}"#.len()) });
    assert_eq!(broker.put(path, &sized(LARGEST)).expect(201)["revision"], 3);
    let answer = broker.put(path, &sized(LARGEST + 1));
    assert_eq!(answer.problem(), (422, "invalid_params".to_owned()), "{}", answer.text());
    assert_eq!(fail_one(&broker, json!({}))["revision"], 3);
}

/// Revisions are numbered from 1, kept, listed in pages, and one of them is active.
#[test]
fn revisions_are_kept_and_listed() {
    let broker = broker();
    for seconds in 1..=5 {
        let guest = guests::deciding(&guests::retry(seconds * 1_000));
        assert_eq!(broker.upload("s", &guest.module(), None).expect(201)["revision"], seconds + 1);
    }
    let path = "/v1/subscriptions/s/policy/revisions";
    let first = broker.get(&format!("{path}?limit=4")).expect(200);
    let cursor = first["next"].as_str().expect("there is more");
    let second = broker.get(&format!("{path}?limit=4&cursor={cursor}")).expect(200);
    assert_eq!(second.get("next"), None);
    let both = [&first, &second];
    let items = both.iter().flat_map(|page| page["items"].as_array().expect("a list"));
    let found: Vec<_> = items.map(|item| (item["revision"].clone(), item["active"].clone())).collect();
    let expected: Vec<_> = (1..=6).map(|number| (json!(number), json!(number == 6))).collect();
    assert_eq!(found, expected);
    assert_eq!(broker.get("/v1/subscriptions/s/policy").expect(200), second["items"][1]);
}

/// A subscription's policy is its own: an upload to one does not decide for another.
#[test]
fn a_policy_is_bound_to_one_subscription() {
    let broker = broker();
    broker.subscribe("other", "t", json!({ "retry": { "delay": "9s", "jitter": "none" } }));
    broker.upload("s", &guests::deciding(&guests::retry(7_000)).module(), None).expect(201);
    assert_eq!(fail_one(&broker, json!({}))["delay"], "7s");
    let delivery = broker.next("other");
    assert_eq!(broker.nack("other", &delivery.receipt, "x")["decision"]["delay"], "9s");
}
