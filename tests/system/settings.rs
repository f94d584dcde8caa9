//! Topics and subscriptions: created, replaced, changed, listed, deleted.

use serde_json::{Value, json};

use crate::support::Broker;

/// A new subscription shows every setting with its documented default.
#[test]
fn defaults_are_as_documented() {
    let broker = Broker::start();
    let topic = broker.topic("t");
    assert_eq!(
        (&topic["keep_acked"], &topic["max_message_bytes"], &topic["next_sequence"]),
        (&json!("10m"), &json!(262_144), &json!(1))
    );
    let mut created = broker.subscribe("s", "t", json!({}));
    for (field, expected) in [
        ("name", json!("s")),
        ("topic", json!("t")),
        ("mode", json!("acked")),
        ("start", json!("latest")),
        ("lease", json!("30s")),
        ("max_lease", json!("1h")),
        ("max_in_flight", json!(10_000)),
        ("min_delay", json!("0s")),
        ("max_delay", json!("1d")),
        ("attempt_limit", json!(1_000)),
        ("fallback_delay", json!("5s")),
        ("fault_limit", json!(10)),
        ("forward_to", json!([])),
        ("inspect_payload", json!(false)),
        ("retry", json!({})),
        ("backlog", json!(0)),
        ("in_flight", json!(0)),
        ("delayed", json!(0)),
        ("dead_letters", json!(0)),
        ("circuit", json!({ "state": "closed" })),
    ] {
        assert_eq!(created[field].take(), expected, "{field}");
    }
    assert_eq!(created["policy"]["name"], "standard");
    assert_eq!((&created["policy"]["revision"], &created["policy"]["active"]), (&json!(1), &json!(true)));
}

/// PUT is the whole of it: what is not given goes back to its default. The same PUT again is a 200 without effect.
#[test]
fn put_replaces_and_is_idempotent() {
    let mut broker = Broker::start();
    assert_eq!(broker.put("/v1/topics/t", &json!({ "keep_acked": "1h" })).status, 201);
    let settings = json!({ "topic": "t", "lease": "7s", "attempt_limit": 9, "retry": { "delay": "1s" } });
    let created = broker.put("/v1/subscriptions/s", &settings).expect(201);
    assert_eq!(broker.put("/v1/subscriptions/s", &settings).expect(200), created);
    broker.kill_and_start_again();
    assert_eq!(broker.subscription("s"), created);
    let replaced = broker.put("/v1/subscriptions/s", &json!({ "topic": "t", "lease": "8s" })).expect(200);
    assert_eq!(
        [&replaced["lease"], &replaced["attempt_limit"], &replaced["retry"]],
        [&json!("8s"), &json!(1_000), &json!({})]
    );
    assert_eq!(replaced["created_at"], created["created_at"]);
    assert_eq!(broker.put("/v1/topics/t", &json!({})).expect(200)["keep_acked"], "10m");
}

/// PATCH changes what is given and nothing else, survives a kill, and leaves what is fixed alone.
#[test]
fn patch_changes_what_is_given() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "lease": "7s", "retry": { "delay": "1s" } }));
    let before = broker.subscription("s");
    let mut expected = before.clone();
    for (field, given, shown) in [
        ("lease", json!("1500ms"), json!("1s500ms")),
        ("max_lease", json!(7_200), json!("2h")),
        ("max_in_flight", json!(5), json!(5)),
        ("min_delay", json!(0.25), json!("250ms")),
        ("max_delay", json!("1h"), json!("1h")),
        ("attempt_limit", json!(7), json!(7)),
        ("fallback_delay", json!("2s"), json!("2s")),
        ("fault_limit", json!(3), json!(3)),
        ("forward_to", json!(["other"]), json!(["other"])),
        ("inspect_payload", json!(true), json!(true)),
    ] {
        expected[field] = shown;
        assert_eq!(broker.change("s", &json!({ field: given })), expected, "{field}");
    }
    broker.kill_and_start_again();
    assert_eq!(broker.subscription("s"), expected);
    for (field, value) in [("topic", json!("t")), ("mode", json!("acked")), ("start", json!("latest"))] {
        let answer = broker.patch("/v1/subscriptions/s", &json!({ field: value }));
        assert_eq!(answer.problem(), (400, "invalid_body".to_owned()), "{field}");
    }
    assert_eq!(broker.subscription("s"), expected);
}

/// Other `retry` parameters are a new revision of the standard policy; the same again is not.
#[test]
fn retry_parameters_are_revisions_of_the_standard_policy() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "1s" } }));
    assert_eq!(broker.revisions("s").len(), 1);
    let changed = broker.change("s", &json!({ "retry": { "delay": "2s" } }));
    assert_eq!((&changed["policy"]["revision"], &changed["retry"]), (&json!(2), &json!({ "delay": "2s" })));
    broker.change("s", &json!({ "retry": { "delay": "2s" } }));
    broker.change("s", &json!({ "lease": "9s" }));
    let revisions = broker.revisions("s");
    let params: Vec<_> = revisions.iter().map(|revision| revision["params"].clone()).collect();
    assert_eq!(params, [json!({ "delay": "1s" }), json!({ "delay": "2s" })]);
    let refused = broker.patch("/v1/subscriptions/s", &json!({ "retry": { "delay": "-2s" } }));
    assert_eq!(refused.problem(), (422, "invalid_params".to_owned()));
    assert_eq!(broker.revisions("s"), revisions);
}

/// A subscription stays with its topic, and a topic with subscriptions stays.
#[test]
fn what_belongs_together_stays_together() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.topic("other");
    let moved = broker.put("/v1/subscriptions/s", &json!({ "topic": "other" }));
    assert_eq!(moved.problem(), (409, "topic_differs".to_owned()));
    assert_eq!(broker.delete("/v1/topics/t").problem(), (409, "topic_in_use".to_owned()));
    assert_eq!(broker.get("/v1/topics/t").expect(200)["subscriptions"], 1);
    broker.delete("/v1/subscriptions/s").expect(204);
    broker.delete("/v1/topics/t").expect(204);
    assert_eq!(broker.get("/v1/topics/t").problem(), (404, "topic_not_found".to_owned()));
}

/// What is deleted is gone with its deliveries, and a new one of the same name starts from nothing.
#[test]
fn a_deleted_subscription_leaves_nothing() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1 } }));
    for number in 0..3 {
        broker.publish("t", &json!(number));
    }
    let held = broker.next("s");
    let dying = broker.next("s");
    broker.nack("s", &dying.receipt, "fatal");
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    broker.delete("/v1/subscriptions/s").expect(204);
    for again in [false, true] {
        if again {
            broker.kill_and_start_again();
        }
        assert_eq!(broker.get("/v1/subscriptions/s").status, 404);
        let gone = broker.get(&format!("/v1/dead-letters/{letter}"));
        assert_eq!(gone.problem(), (404, "dead_letter_not_found".to_owned()));
        assert_eq!(broker.get("/v1/dead-letters").expect(200)["items"], json!([]));
        let ack = broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [held.receipt] }));
        assert_eq!(ack.problem(), (404, "subscription_not_found".to_owned()));
    }
    broker.subscribe("s", "t", json!({}));
    assert_eq!(broker.ack("s", &held.receipt)["error"]["code"], "invalid_receipt", "another subscription");
    assert_eq!(broker.poll("s"), None);
    assert_eq!(broker.revisions("s").len(), 1);
}

/// A pull that waits on a subscription is told when it is deleted.
#[test]
fn a_waiting_pull_learns_of_the_deletion() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let mut socket = crate::support::Socket::connect(broker.address());
    socket.begin("/v1/subscriptions/s/pull", r#"{"wait":"1m"}"#);
    socket.finish(r#"{"wait":"1m"}"#);
    broker.subscription("s");
    broker.delete("/v1/subscriptions/s").expect(204);
    let (status, body) = socket.read();
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("subscription_not_found"), "{body}");
}

/// Lists come in pages that together hold everything once, in order.
#[test]
fn lists_come_in_pages() {
    let broker = Broker::start();
    let names: Vec<_> = (0..7).map(|number| format!("n{number}")).collect();
    for name in &names {
        broker.topic(name);
        broker.subscribe(name, name, json!({}));
    }
    for path in ["/v1/topics", "/v1/subscriptions"] {
        let mut found: Vec<Value> = Vec::new();
        let mut cursor = String::new();
        let mut pages = 0;
        loop {
            let page = broker.get(&format!("{path}?limit=3{cursor}")).expect(200);
            found.extend(page["items"].as_array().expect("a list").iter().map(|item| item["name"].clone()));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!((json!(found), pages), (json!(names), 3), "{path}");
    }
}

/// Messages that nobody needs any more are readable for `keep_acked`, then gone; with none they go at once.
#[test]
fn acked_messages_go_after_keep_acked() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "keep_acked": 0 })).expect(201);
    broker.subscribe("s", "t", json!({}));
    let id = broker.publish("t", &json!(1));
    let kept = broker.publish("t", &json!(2));
    let delivery = broker.next("s");
    broker.ack("s", &delivery.receipt);
    crate::support::wait_for("the message goes", || {
        Some(broker.get(&format!("/v1/messages/{id}"))).filter(|answer| answer.status == 404)
    });
    assert_eq!(broker.delivery_of(&kept)["state"], "ready", "one that is still needed stays");
}

/// A duration that the broker writes is one that it takes, in a setting and in the parameters of its own policy.
#[test]
fn durations_read_back_as_they_are_written() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let retry_shown = |text: &Value| {
        broker.change("s", &json!({ "retry": { "delay": 1, "max_delay": text } }))["retry"]["max_delay"]
            .clone()
    };
    for seconds in [0.001, 1.5, 90.0, 5_400.0, 86_400.0, 180_000.0, 3_000_000.0, 31_536_000.0] {
        let shown = broker.change("s", &json!({ "max_delay": seconds }))["max_delay"].clone();
        let again = broker.change("s", &json!({ "max_delay": shown }))["max_delay"].clone();
        assert_eq!(again, shown, "{seconds} seconds");
        if seconds >= 1.0 {
            assert_eq!(retry_shown(&shown), shown, "{seconds} seconds");
        }
    }
}
