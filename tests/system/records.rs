//! Recorded failures: what a policy was shown, and what it said.

use reprise_policy::testing::fixtures::Fixture;
use serde_json::{Value, json};

use crate::support::{Broker, guests, policies};

const PATH: &str = "/v1/subscriptions/s/policy/failures";

fn records(broker: &Broker) -> Vec<Value> {
    let mut answer = broker.get(PATH).expect(200);
    serde_json::from_value(answer["items"].take()).expect("records are a list")
}

/// Every decided failure is kept with its answer, newest first, page by page, and after a kill.
#[test]
fn decided_failures_are_kept() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "5s", "jitter": "none" } }));
    let (first, _) = broker.fail_one(json!({ "class": "timeout", "code": "504" }));
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    broker.fail_one(json!({ "class": "odd" }));
    let kept = records(&broker);
    assert_eq!(kept.iter().map(|record| record["number"].clone()).collect::<Vec<_>>(), [json!(2), json!(1)]);
    let [broken, plain] = &kept[..] else { panic!("two of them: {kept:?}") };
    assert_eq!((&broken["class"], &broken["revision"]), (&json!("odd"), &json!(2)));
    assert_eq!((&broken["fault"]["kind"], broken.get("answer")), (&json!("trap"), None));
    assert_eq!((&plain["message_id"], &plain["class"]), (&json!(first), &json!("timeout")));
    assert_eq!(
        (&plain["attempt"], &plain["failures"], &plain["cause"]),
        (&json!(1), &json!(1), &json!("nacked"))
    );
    assert_eq!(plain["answer"], json!({ "action": "retry", "delay": "5s" }));
    assert!(plain["fuel"].as_u64().is_some_and(|fuel| fuel > 0));
    broker.kill_and_start_again();
    assert_eq!(records(&broker), kept);
    let page = broker.get(&format!("{PATH}?limit=1")).expect(200);
    assert_eq!(page["items"][0], kept[0]);
    let cursor = page["next"].as_str().expect("there is more");
    let page = broker.get(&format!("{PATH}?limit=1&cursor={cursor}")).expect(200);
    assert_eq!((&page["items"][0], page.get("next")), (&kept[1], None));
}

/// The count is bounded by the setting; 0 keeps none; what is too many is never shown.
#[test]
fn the_count_is_bounded() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "record_failures": 3 }));
    for number in 0..8 {
        broker.fail_one(json!({ "class": format!("c{number}") }));
    }
    let classes = |broker: &Broker| records(broker).iter().map(|r| r["class"].clone()).collect::<Vec<_>>();
    assert_eq!(classes(&broker), ["c7", "c6", "c5"]);
    broker.change("s", &json!({ "record_failures": 0 }));
    broker.fail_one(json!({ "class": "c8" }));
    assert!(classes(&broker).is_empty());
    broker.change("s", &json!({ "record_failures": 2 }));
    broker.fail_one(json!({ "class": "c9" }));
    assert_eq!(classes(&broker)[0], "c9");
    for (field, bad) in [("record_failures", json!(100_001)), ("record_for", json!("0s"))] {
        let answer = broker.patch("/v1/subscriptions/s", &json!({ field: bad }));
        assert_eq!(answer.problem(), (422, "invalid_setting".to_owned()));
    }
}

/// A record becomes a case for the policy's own tests, which holds; the payload is in it only where the policy was
/// shown it.
#[test]
fn a_record_becomes_a_fixture() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &policies::module("http-status"), Some(r#"{"delay":"3s"}"#)).expect(201);
    let attributes = json!({ "tenant": "acme" });
    broker.publish_with("t", json!({ "payload": { "secret": 1 }, "key": "k", "attributes": attributes }));
    let mut delivery = broker.next("s");
    broker.nack_with("s", &delivery.receipt, json!({ "code": "429", "retry_after": "0s" }));
    delivery = broker.next("s");
    broker.nack_with("s", &delivery.receipt, json!({ "code": "410", "detail": "gone" }));
    let fixture = broker.get(&format!("{PATH}/2/fixture")).expect(200);
    assert_eq!(fixture["params"], json!({ "delay": "3s" }));
    assert_eq!(fixture["context"]["message"]["attributes"], attributes);
    assert_eq!(fixture["context"]["message"].get("payload"), None, "it was not shown");
    assert_eq!(fixture["context"]["history"][0]["delay"], "0s");
    assert_eq!(fixture["expect"]["action"], "dead_letter");
    let case = Fixture::parse(&fixture.to_string()).expect("it is a case");
    assert_eq!(case.context().failures(), 2);
    case.run(&http_status()).expect("it holds");

    broker.change("s", &json!({ "inspect_payload": true }));
    broker.publish_with("t", json!({ "payload": { "shown": 1 } }));
    let delivery = broker.next("s");
    broker.nack_with("s", &delivery.receipt, json!({ "code": "410" }));
    let fixture = broker.get(&format!("{PATH}/3/fixture")).expect(200);
    assert_eq!(fixture["context"]["message"]["payload"], r#"{"shown":1}"#);
    Fixture::parse(&fixture.to_string()).expect("it is a case");
}

/// The policy as its own tests have it.
fn http_status() -> impl reprise_policy::Policy {
    http_status::HttpStatus
}
