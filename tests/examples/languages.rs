//! The policies in other languages decide in a running broker as their READMEs say.

use serde_json::{Value, json};

use crate::support::{Broker, policies};

/// A broker whose subscription `s` of topic `t` is decided by an example, with parameters.
fn broker(example: &str, params: &str) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "lease": "30s" }));
    let module = policies::example(example);
    let uploaded = broker.upload("s", &module, Some(params)).expect(201);
    assert_eq!((&uploaded["name"], &uploaded["size"]), (&json!(example), &json!(module.len())));
    assert_eq!(uploaded["exports"], json!(["decide", "check", "describe"]));
    broker
}

/// The next delivery fails; what was decided, which must be by the policy.
fn fail(broker: &Broker, item: Value) -> Value {
    let delivery = broker.next("s");
    let decision = broker.nack_with("s", &delivery.receipt, item)["decision"].clone();
    assert_eq!((&decision["decided_by"], &decision["revision"]), (&json!("policy"), &json!(2)), "{decision}");
    decision
}

/// The only dead letter there is.
fn dead_letter(broker: &Broker) -> Value {
    let mut letters = broker.dead_letters("s");
    assert_eq!(letters.len(), 1, "{letters:?}");
    letters.remove(0)
}

/// The one in text: two retries, the second after twice the delay, and the third failure is a labelled dead letter.
#[test]
fn the_policy_in_text_decides() {
    let broker = broker("policy-in-wat", r#"{ "delay": 1 }"#);
    broker.publish("t", &json!(1));
    let first = fail(&broker, json!({ "class": "timeout" }));
    assert_eq!((&first["action"], &first["delay"]), (&json!("retry"), &json!("1s")));
    assert_eq!(first["note"], "three failures are enough");
    let second = fail(&broker, json!({ "class": "timeout", "retry_after": "50ms" }));
    assert_eq!((&second["action"], &second["delay"]), (&json!("retry"), &json!("50ms")));
    let third = fail(&broker, json!({ "class": "crash" }));
    assert_eq!(
        (&third["action"], &third["queue"]),
        (&json!("dead_letter"), &json!("s/struck-out")),
        "{third}"
    );
    let letter = dead_letter(&broker);
    assert_eq!((&letter["queue"], &letter["reason"]), (&json!("s/struck-out"), &json!("three failures")));
    assert_eq!(letter["labels"], json!({ "class": "crash", "topic": "t" }));

    let refused = broker.upload("s", &policies::example("policy-in-wat"), Some(r#"{"delay":0}"#));
    assert_eq!(refused.problem().0, 422, "{}", refused.text());
    assert!(refused.text().contains("params are {} or"), "{}", refused.text());
}

/// The one in C: a delay with a part at random, and dead letters with labels in two queues. The decision of an attempt
/// is told again after a kill.
#[test]
fn the_policy_in_c_decides() {
    let mut broker = broker("policy-in-c", r#"{ "max_attempts": 2, "delay": 1 }"#);
    let id = broker.publish("t", &json!(1));
    let first = fail(&broker, json!({ "class": "timeout" }));
    assert_eq!(first["action"], "retry");
    let delay = crate::support::duration(&first["delay"]);
    assert!((500..=1_000).contains(&delay.as_millis()), "{delay:?}");
    broker.kill_and_start_again();
    let second = fail(&broker, json!({ "class": "timeout" }));
    assert_eq!(
        (&second["action"], &second["queue"]),
        (&json!("dead_letter"), &json!("s/exhausted")),
        "{second}"
    );
    let letter = dead_letter(&broker);
    assert_eq!((&letter["queue"], &letter["reason"]), (&json!("s/exhausted"), &json!("max_attempts")));
    assert_eq!(letter["labels"], json!({ "class": "timeout", "failures": "2" }));
    let history = broker.delivery_of(&id)["timeline"]["history"].clone();
    assert_eq!(history[0]["decision"]["delay"], first["delay"], "{history}");

    broker.publish("t", &json!(2));
    let rejected = fail(&broker, json!({ "class": "http_422" }));
    assert_eq!(
        (&rejected["action"], &rejected["queue"]),
        (&json!("dead_letter"), &json!("s/rejected")),
        "{rejected}"
    );

    let refused = broker.upload("s", &policies::example("policy-in-c"), Some(r#"{"delay":3601}"#));
    assert_eq!(refused.problem().0, 422, "{}", refused.text());
    assert!(refused.text().contains("delay is from 1 to 3600 seconds"), "{}", refused.text());
}
