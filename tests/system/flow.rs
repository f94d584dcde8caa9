//! Flow: pause, resume, seek, purge, rates, and consumers that hold all they may.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, PATIENCE, millis};

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

fn verb(broker: &Broker, verb: &str, body: &Value) -> Value {
    broker.post(&format!("/v1/subscriptions/s/{verb}"), body).expect(200)
}

fn pull_as(broker: &Broker, consumer: &str, max: usize) -> Vec<Delivery> {
    let body = json!({ "max": max, "consumer": consumer });
    let mut answer = broker.post("/v1/subscriptions/s/pull", &body).expect(200);
    serde_json::from_value(answer["deliveries"].take()).expect("deliveries")
}

/// Nothing is handed out until it is resumed, over a kill too, with the reason shown; settlements go on.
#[test]
fn a_pause_stops_deliveries_and_nothing_else() {
    let mut broker = broker(json!({ "retry": { "delay": 0 } }));
    let held = {
        broker.publish("t", &json!(1));
        broker.next("s")
    };
    broker.publish("t", &json!(2));
    let paused = verb(&broker, "pause", &json!({ "reason": "deploy of billing" }));
    assert_eq!(
        (&paused["paused"]["reason"], &paused["paused"]["by"]),
        (&json!("deploy of billing"), &json!("anonymous"))
    );
    broker.kill_and_start_again();
    let empty = broker.post("/v1/subscriptions/s/pull", &json!({ "max": 1, "wait": "50ms" })).expect(200);
    assert_eq!(empty["paused"]["reason"], "deploy of billing", "{empty}");
    assert_eq!(empty["deliveries"], json!([]));
    assert_eq!(broker.ack("s", &held.receipt)["status"], "acked");
    // A pull that waits is served once deliveries flow.
    let client = (*broker).clone();
    let waiting = std::thread::spawn(move || client.pull("s", 1, PATIENCE));
    let resumed = verb(&broker, "resume", &json!({}));
    assert_eq!(resumed["paused"], Value::Null);
    assert_eq!(waiting.join().expect("it pulls").len(), 1);
}

/// After a seek everything from that point on is delivered anew, in order, at attempt 1; old receipts are stale.
#[test]
fn a_seek_starts_again_from_any_point() {
    let mut broker = broker(json!({ "retry": { "delay": "1h" }, "start": "earliest" }));
    broker.put("/v1/topics/t", &json!({ "keep_acked": "1h" })).expect(200);
    let ids: Vec<_> = (0..6).map(|number| broker.publish("t", &json!(number))).collect();
    let held = broker.pull("s", 4, Duration::ZERO);
    broker.ack("s", &held[0].receipt);
    broker.nack("s", &held[1].receipt, "timeout");
    let sought = verb(&broker, "seek", &json!({ "to": { "sequence": 2 } }));
    assert_eq!(sought, json!({ "next_sequence": 2, "ended": 5 }));
    for delivery in &held[1..] {
        assert_eq!(broker.ack("s", &delivery.receipt)["error"]["code"], "stale_receipt");
    }
    broker.kill_and_start_again();
    let again = broker.pull("s", 100, Duration::ZERO);
    assert_eq!(again.iter().map(Delivery::id).collect::<Vec<_>>(), ids[1..].iter().collect::<Vec<_>>());
    assert!(again.iter().all(|delivery| delivery.attempt == 1));
    assert_eq!(broker.ack("s", &held[2].receipt)["error"]["code"], "stale_receipt");
    assert_eq!(broker.ack("s", &again[0].receipt)["status"], "acked");
    let shown = broker.subscription("s");
    assert_eq!(
        (&shown["backlog"], &shown["in_flight"], &shown["delayed"]),
        (&json!(4), &json!(4), &json!(0))
    );
    // To the end, to the beginning, and to a moment.
    assert_eq!(verb(&broker, "seek", &json!({ "to": "latest" }))["ended"], 4);
    assert!(broker.poll("s").is_none());
    assert_eq!(verb(&broker, "seek", &json!({ "to": "earliest" }))["next_sequence"], 1);
    let at = broker.message(&ids[3])["published_at"].clone();
    let sought = verb(&broker, "seek", &json!({ "to": { "time": at } }));
    let first =
        broker.message(&format!("m00000001{:016x}", sought["next_sequence"].as_u64().expect("a number")));
    assert!(millis(&first["published_at"]) >= millis(&at));
    assert!(sought["next_sequence"].as_u64() <= Some(4), "{sought}");
    assert_eq!(verb(&broker, "seek", &json!({ "to": { "sequence": 1_000_000 } }))["next_sequence"], 7);
}

/// A subscription can begin at a sequence or at a moment.
#[test]
fn a_start_is_a_point_of_the_topic() {
    let broker = broker(json!({}));
    broker.put("/v1/topics/t", &json!({ "keep_acked": "1h" })).expect(200);
    let ids: Vec<_> = (0..4).map(|number| broker.publish("t", &json!(number))).collect();
    broker.subscribe("at", "t", json!({ "start": { "sequence": 3 } }));
    assert_eq!(broker.next("at").id(), ids[2]);
    assert_eq!(broker.subscription("at")["start"], json!({ "sequence": 3 }));
    broker.subscribe("since", "t", json!({ "start": { "time": "2020-01-01T00:00:00Z" } }));
    assert_eq!(broker.next("since").id(), ids[0]);
    broker.subscribe("then", "t", json!({ "start": { "time": "2100-01-01T00:00:00Z" } }));
    assert!(broker.poll("then").is_none());
}

/// A message that is a dead letter already and dies again after a seek is one dead letter, with both histories.
#[test]
fn a_message_that_dies_again_after_a_seek_is_one_dead_letter() {
    let broker = broker(json!({ "retry": { "max_attempts": 1 } }));
    let id = broker.publish("t", &json!(1));
    let fail = || {
        let held = broker.next("s");
        broker.nack("s", &held.receipt, "timeout");
    };
    fail();
    let dead = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    verb(&broker, "seek", &json!({ "to": "earliest" }));
    assert_eq!(broker.delivery_of(&id)["state"], "ready");
    let fresh = broker.post(&format!("/v1/dead-letters/{dead}/replay"), &json!({}));
    assert_eq!(fresh.problem(), (409, "outstanding".to_owned()));
    let held = broker.next("s");
    let refused = broker.post(&format!("/v1/dead-letters/{dead}/replay"), &json!({}));
    assert_eq!(refused.problem(), (409, "outstanding".to_owned()));
    broker.nack("s", &held.receipt, "timeout");
    let letters = broker.dead_letters("s");
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(broker.subscription("s")["dead_letters"], 1);
    let letter = broker.dead_letter(&dead);
    assert_eq!(letter["timeline"]["previous_attempts"], 1, "{letter}");
    assert_eq!(letter["timeline"]["history"].as_array().map(Vec::len), Some(2), "{letter}");
    broker.post(&format!("/v1/dead-letters/{dead}/replay"), &json!({})).expect(200);
    let again = broker.next("s");
    assert_eq!(broker.ack("s", &again.receipt)["status"], "acked");
    assert_eq!(broker.subscription("s")["dead_letters"], 0);
}

/// A dead letter from before a seek is replayed or discarded without a trace in what came after.
#[test]
fn dead_letters_outlive_a_seek() {
    let broker = broker(json!({ "retry": { "max_attempts": 1 } }));
    for number in 0..2 {
        broker.publish("t", &json!(number));
        let held = broker.next("s");
        broker.nack("s", &held.receipt, "timeout");
    }
    let dead: Vec<_> =
        broker.dead_letters("s").iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect();
    verb(&broker, "seek", &json!({ "to": "latest" }));
    broker.delete(&format!("/v1/dead-letters/{}", dead[0])).expect(204);
    broker.post(&format!("/v1/dead-letters/{}/replay", dead[1]), &json!({})).expect(200);
    let held = broker.next("s");
    assert_eq!((held.message["payload"].as_u64(), held.attempt), (Some(1), 1));
    broker.ack("s", &held.receipt);
    let shown = broker.subscription("s");
    assert_eq!((&shown["backlog"], &shown["dead_letters"]), (&json!(0), &json!(0)));
}

/// No more than the rate in a second, after a burst of one second's worth.
#[test]
fn a_rate_is_kept() {
    let broker = broker(json!({ "max_rate": 20 }));
    let batch = json!({ "messages": vec![json!({ "payload": 1 }); 60] });
    broker.post("/v1/topics/t/messages", &batch).expect(201);
    let start = Instant::now();
    let mut got = 0;
    while got < 50 {
        got += broker.pull("s", 100, PATIENCE).len();
    }
    // 20 at once, 30 more in a second and a half, if no faster; how much slower is the machine's business.
    assert!(start.elapsed() >= Duration::from_millis(1_400), "{got} in {:?}", start.elapsed());
    broker.change("s", &json!({ "max_rate": 0 }));
    assert_eq!(broker.pull("s", 100, Duration::ZERO).len(), 60 - got);
}

/// A consumer that holds all it may gets no more and stands in nobody's way.
#[test]
fn each_consumer_has_its_own_bound() {
    let broker = broker(json!({ "max_in_flight_per_consumer": 2, "retry": { "delay": "1h" } }));
    for number in 0..10 {
        broker.publish("t", &json!(number));
    }
    let first = pull_as(&broker, "a", 5);
    assert_eq!(first.len(), 2);
    assert_eq!(pull_as(&broker, "a", 5).len(), 0);
    assert_eq!(pull_as(&broker, "b", 5).len(), 2);
    // It waits in front of others, and they are served all the same.
    let client = (*broker).clone();
    let waiting = std::thread::spawn(move || {
        let body = json!({ "max": 5, "consumer": "a", "wait": "20s" });
        client.post("/v1/subscriptions/s/pull", &body).expect(200)["deliveries"].as_array().map(Vec::len)
    });
    assert_eq!(pull_as(&broker, "c", 1).len(), 1);
    broker.ack("s", &first[0].receipt);
    assert_eq!(waiting.join().expect("it pulls"), Some(1));
    broker.nack("s", &first[1].receipt, "timeout");
    assert_eq!(pull_as(&broker, "a", 5).len(), 1);
    assert_eq!(broker.pull("s", 100, Duration::ZERO).len(), 3, "without a name there is no bound");
    let answer = broker.post("/v1/subscriptions/s/pull", &json!({ "consumer": "" }));
    assert_eq!(answer.problem(), (400, "invalid_name".to_owned()));
}
