//! Revisions: what each one did so far, who made it, and the way back.

use serde_json::json;

use crate::support::{Broker, guests};

fn retry(millis: u64) -> Vec<u8> {
    guests::deciding(&guests::retry(millis)).module()
}

fn rollback(broker: &Broker, revision: Option<u32>) -> crate::support::Answer {
    broker.post("/v1/subscriptions/s/policy/rollback", &json!({ "revision": revision }))
}

/// A revision counts its decisions and faults, across a change of revision, the way back, and a kill.
#[test]
fn each_revision_counts_what_it_did() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.fail_one(json!({}));
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    broker.fail_one(json!({}));
    broker.fail_one(json!({}));
    let counts = |broker: &Broker| -> Vec<_> {
        let revisions = broker.revisions("s").into_iter();
        revisions.map(|r| (r["decisions"].as_u64(), r["faults"].as_u64())).collect()
    };
    let expected = [(Some(1), Some(0)), (Some(0), Some(2))];
    assert_eq!(counts(&broker), expected);
    broker.kill_and_start_again();
    assert_eq!(counts(&broker), expected);
    assert_eq!(rollback(&broker, None).expect(200)["decisions"], 1);
    broker.fail_one(json!({}));
    assert_eq!(counts(&broker), [(Some(2), Some(0)), (Some(0), Some(2))]);
    let policy = broker.get("/v1/subscriptions/s/policy").expect(200);
    assert_eq!((&policy["revision"], &policy["decisions"]), (&json!(1), &json!(2)));
}

/// Each says who made it: the broker its own, a caller the others.
#[test]
fn a_revision_says_who_made_it() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &retry(1_000), None).expect(201);
    broker.put("/v1/subscriptions/s/policy/params", &json!({ "a": 1 })).expect(201);
    let made: Vec<_> = broker.revisions("s").into_iter().map(|r| r["created_by"].clone()).collect();
    assert_eq!(made[0], "broker");
    assert_eq!(made[1], made[2]);
    assert!(made[1] == "operator" || made[1] == "anonymous", "{made:?}");
}

/// Back to a revision by number or to the one before; it decides at once and after a kill, makes no new revision, and
/// messages that wait keep their due time.
#[test]
fn a_rollback_makes_an_earlier_revision_decide() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.upload("s", &retry(11_000), None).expect(201);
    broker.upload("s", &retry(12_000), None).expect(201);
    let (waiting, decision) = broker.fail_one(json!({}));
    assert_eq!((&decision["delay"], &decision["revision"]), (&json!("12s"), &json!(3)));
    let due = decision["next_attempt_at"].clone();

    let back = rollback(&broker, None).expect(200);
    assert_eq!((&back["revision"], &back["active"]), (&json!(2), &json!(true)));
    assert_eq!(broker.fail_one(json!({})).1["delay"], "11s");
    assert_eq!(broker.delivery_of(&waiting)["until"], due);
    broker.kill_and_start_again();
    assert_eq!(broker.fail_one(json!({})).1["delay"], "11s");
    assert_eq!(broker.delivery_of(&waiting)["until"], due);

    assert_eq!(rollback(&broker, Some(3)).expect(200)["revision"], 3);
    assert_eq!(broker.fail_one(json!({})).1["delay"], "12s");
    assert_eq!(rollback(&broker, Some(3)).expect(200)["revision"], 3, "the active one stays active");
    assert_eq!(broker.revisions("s").len(), 3);
    let next = broker.upload("s", &retry(13_000), None).expect(201);
    assert_eq!(next["revision"], 4, "numbers go on");
}

/// To what is not there, or not healthy, there is no way back, and nothing changes.
#[test]
fn a_rollback_without_a_target_changes_nothing() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 1 }));
    assert_eq!(rollback(&broker, None).problem(), (409, "no_earlier_revision".to_owned()));
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    broker.fail_one(json!({}));
    assert_eq!(broker.subscription("s")["policy"]["revision"], 1, "it was quarantined");
    let before = broker.everything();
    assert_eq!(rollback(&broker, Some(2)).problem(), (409, "revision_quarantined".to_owned()));
    assert_eq!(rollback(&broker, Some(0)).problem(), (404, "revision_not_found".to_owned()));
    assert_eq!(rollback(&broker, Some(3)).problem(), (404, "revision_not_found".to_owned()));
    let path = "/v1/subscriptions/s/policy/rollback";
    assert_eq!(broker.post(path, &json!({ "to": 1 })).problem().1, "invalid_body");
    assert_eq!(broker.everything(), before);
    broker.upload("s", &retry(1_000), None).expect(201);
    assert_eq!(rollback(&broker, None).expect(200)["revision"], 1, "a quarantined one is passed by");
}
