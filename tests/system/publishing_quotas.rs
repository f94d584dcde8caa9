//! Quotas: a topic or a realm that is full refuses publishes, drops nothing, and counts exactly.

use serde_json::{Value, json};

use crate::support::{Answer, Broker, Launch, guests, wait_for};

const MESSAGES: &str = "/v1/topics/t/messages";

fn kept(broker: &Broker, topic: &str) -> (Value, Value) {
    let shown = broker.get(&format!("/v1/topics/{topic}")).expect(200);
    (shown["messages"].clone(), shown["bytes"].clone())
}

fn publish(broker: &Broker, topic: &str, body: &str) -> Answer {
    broker.send(broker.request("POST", &format!("/v1/topics/{topic}/messages")).body(body.to_owned()))
}

/// Publishes are refused one by one at the first message that does not fit, with the hint to try again; what is there is
/// delivered and settled meanwhile, and its end makes room.
#[test]
fn a_full_topic_refuses_publishes_and_goes_on() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_messages": 2, "keep_acked": 0 })).expect(201);
    broker.subscribe("s", "t", json!({}));
    let answer =
        broker.post(MESSAGES, &json!({ "messages": [{ "payload": 1 }, { "payload": 2 }, { "payload": 3 }] }));
    let answer = answer.expect(201);
    assert_eq!(answer["items"][1].get("error"), None);
    let error = &answer["items"][2]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("quota_exceeded"), &json!(true)));

    let refused = publish(&broker, "t", "4");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem(), (429, "quota_exceeded".to_owned()));
    let refused = broker.post(MESSAGES, &json!({ "messages": [{ "payload": 5 }, { "payload": 6 }] }));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["items"][1]["error"]["code"], "quota_exceeded");

    broker.kill_and_start_again();
    assert_eq!(publish(&broker, "t", "7").status, 429, "what was counted is still counted");
    let delivery = broker.next("s");
    assert_eq!(delivery.message["payload"], 1);
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
    wait_for("there is room", || Some(publish(&broker, "t", "8")).filter(|answer| answer.status == 201));
    assert_eq!(broker.next("s").message["payload"], 2, "nothing was dropped for it");
}

/// Bytes are those of payloads and attributes, exactly, through kills and trimming; other fields do not count.
#[test]
fn bytes_are_counted_exactly() {
    let mut broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_bytes": 10, "keep_acked": 0 })).expect(201);
    broker.subscribe("s", "t", json!({}));
    broker.publish_with("t", json!({ "payload": 1, "key": "uncounted", "attributes": { "ab": "é" } }));
    assert_eq!(kept(&broker, "t"), (json!(1), json!(5)));
    assert_eq!(publish(&broker, "t", "123456").status, 429);
    assert_eq!(publish(&broker, "t", "12345").status, 201, "to the last byte");
    broker.kill_and_start_again();
    assert_eq!(kept(&broker, "t"), (json!(2), json!(10)));
    assert_eq!(publish(&broker, "t", "1").status, 429);
    assert_eq!(publish(&broker, "t", "").status, 201, "nothing takes no bytes");
    let delivery = broker.next("s");
    broker.ack("s", &delivery.receipt);
    wait_for("the first is gone", || (kept(&broker, "t") == (json!(2), json!(5))).then_some(()));
    broker.put("/v1/topics/t", &json!({ "keep_acked": 0 })).expect(200);
    assert_eq!(publish(&broker, "t", "123456").status, 201, "without a bound");
    for setting in ["max_messages", "max_bytes"] {
        let none = broker.put("/v1/topics/t", &json!({ setting: 0 }));
        assert_eq!(none.problem(), (422, "invalid_setting".to_owned()), "{setting}");
    }
}

/// All topics of the realm share its quota; a topic that is deleted gives its part back.
#[test]
fn a_realm_has_a_quota() {
    let more = &["--no-auth", "--realm-max-messages", "3", "--realm-max-bytes", "1KiB"];
    let mut broker = Broker::launch(Launch { more, ..Launch::default() });
    broker.topic("a");
    broker.topic("b");
    assert_eq!(publish(&broker, "a", &"x".repeat(1024)).status, 201);
    assert_eq!(publish(&broker, "b", "x").problem(), (429, "quota_exceeded".to_owned()));
    broker.kill_and_start_again();
    assert_eq!(publish(&broker, "b", "x").status, 429);
    broker.delete("/v1/topics/a").expect(204);
    for _ in 0..3 {
        assert_eq!(publish(&broker, "b", "x").status, 201);
    }
    assert_eq!(publish(&broker, "b", "").status, 429);
}

/// A realm can have bounds of its own, in place of the broker's and of its alone; what it shows is what holds.
#[test]
fn a_realm_has_bounds_of_its_own() {
    let more = &["--no-auth", "--realm-max-messages", "3", "--realm-max-bytes", "1KiB"];
    let mut broker = Broker::launch(Launch { more, ..Launch::default() });
    broker.put("/v1/realms/small", &json!({ "max_messages": 1 })).expect(201);
    let small = broker.with_headers(&[("broker-realm", "small")]);
    small.topic("t");
    broker.topic("t");
    small.publish("t", &json!(1));
    broker.kill_and_start_again();
    let small = broker.with_headers(&[("broker-realm", "small")]);
    let body = json!({ "messages": [{ "payload": 2 }] });
    assert_eq!(small.post(MESSAGES, &body).status, 429);
    assert_eq!(publish(&broker, "t", "2").status, 201, "another realm");
    let shown = broker.get("/v1/realms/small").expect(200);
    let counts = ["messages", "bytes", "max_messages", "max_bytes"].map(|field| shown[field].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(1), json!(1024)]);
    // It can be more than the broker's, and goes back to that.
    broker.put("/v1/realms/small", &json!({ "max_messages": 5 })).expect(200);
    for _ in 0..4 {
        small.publish("t", &json!(1));
    }
    assert_eq!(small.post(MESSAGES, &body).status, 429);
    broker.put("/v1/realms/small", &json!({})).expect(200);
    assert_eq!(broker.get("/v1/realms/small").expect(200)["max_messages"], 3);
    let none = broker.put("/v1/realms/small", &json!({ "max_bytes": 0 })).problem();
    assert_eq!(none, (422, "invalid_setting".to_owned()));
}

/// What is forwarded to a full topic waits in its order and is there to be seen; when there is room it arrives once,
/// also across a kill. Other topics are not held up by it.
#[test]
fn s38_forwards_wait_for_room() {
    let mut broker = Broker::start();
    broker.topic("t");
    broker.put("/v1/topics/full", &json!({ "max_messages": 1, "keep_acked": 0 })).expect(201);
    broker.topic("free");
    broker.subscribe("reader", "full", json!({}));
    broker.subscribe("other", "free", json!({}));
    for (name, to) in [("s", "full"), ("z", "free")] {
        broker.subscribe(name, "t", json!({ "forward_to": [to] }));
        broker.upload(name, &guests::after_trial(&guests::forward(to)), None).expect(201);
    }
    for number in 1..=3 {
        let id = broker.publish("t", &json!(number));
        for name in ["s", "z"] {
            let delivery = broker.next(name);
            let decision = broker.nack(name, &delivery.receipt, "")["decision"].clone();
            assert_eq!(decision["action"], "forward", "{decision}");
        }
        assert_eq!(broker.message(&id)["deliveries"][0]["state"], "forwarded");
        assert_eq!(broker.next("other").message["payload"], number, "there is room elsewhere");
    }
    let waiting = |broker: &Broker| broker.get("/v1/topics/full").expect(200)["incoming"].clone();
    assert_eq!((kept(&broker, "full").0, waiting(&broker)), (json!(1), json!(2)));
    broker.kill_and_start_again();
    assert_eq!((kept(&broker, "full").0, waiting(&broker)), (json!(1), json!(2)));
    for number in 1..=3 {
        let delivery = broker.next("reader");
        assert_eq!(delivery.message["payload"], number);
        broker.ack("reader", &delivery.receipt);
    }
    assert_eq!(broker.poll("reader"), None);
    assert_eq!(waiting(&broker), 0);
}

/// A topic that is deleted takes along what waited for room in it, and the broker goes on.
#[test]
fn what_waits_for_a_topic_goes_with_it() {
    let mut broker = Broker::start();
    broker.topic("t");
    broker.put("/v1/topics/full", &json!({ "max_messages": 1, "keep_acked": "1h" })).expect(201);
    broker.subscribe("s", "t", json!({ "forward_to": ["full"] }));
    broker.upload("s", &guests::after_trial(&guests::forward("full")), None).expect(201);
    for number in 1..=3 {
        broker.publish("t", &json!(number));
        let delivery = broker.next("s");
        assert_eq!(broker.nack("s", &delivery.receipt, "")["decision"]["action"], "forward");
    }
    assert_eq!(broker.get("/v1/topics/full").expect(200)["incoming"], 2);
    broker.delete("/v1/topics/full").expect(204);
    broker.kill_and_start_again();
    assert_eq!(broker.topic("full")["incoming"], 0);
    broker.subscribe("reader", "full", json!({}));
    broker.publish("full", &json!("new"));
    assert_eq!(broker.next("reader").message["payload"], "new");
    assert_eq!(broker.poll("reader"), None);
}

/// A disk with less room than is to be left free refuses publishes, for now; pulls and settlements go on, across a
/// restart too.
#[test]
fn a_nearly_full_disk_refuses_publishes() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": 0, "backoff": "fixed" } }));
    broker.publish("t", &json!(1));
    broker.kill();
    let mut broker =
        broker.relaunch(Launch { more: &["--no-auth", "--min-free-disk", "15EiB"], ..Launch::default() });
    let refused = publish(&broker, "t", "2");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem(), (507, "insufficient_storage".to_owned()));
    let refused = broker.post(MESSAGES, &json!({ "messages": [{ "payload": 1 }] }));
    let error = &refused.json()["items"][0]["error"];
    assert_eq!(
        (refused.status, &error["code"], &error["retryable"]),
        (507, &json!("insufficient_storage"), &json!(true))
    );
    let delivery = broker.next("s");
    assert_eq!(broker.nack("s", &delivery.receipt, "timeout")["decision"]["action"], "retry");
    let delivery = broker.next("s");
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 2);
    broker.kill();
    let broker =
        broker.relaunch(Launch { more: &["--no-auth", "--min-free-disk", "0"], ..Launch::default() });
    assert_eq!(publish(&broker, "t", "2").status, 201);
}
