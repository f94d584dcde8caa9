//! Subscriptions over a pattern of topics: one configuration, one policy and one pull over all of them, those to come
//! included.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Broker, Client, Delivery, PATIENCE, Stream};
use crate::tenants::realm;
use crate::tokens::{guarded, operator, secret, token};

const EU: &str = "orders.eu";
const US: &str = "orders.us";

/// Two topics of a family, one that is not, and a subscription over the family.
fn family(settings: Value) -> Broker {
    let broker = Broker::start();
    for topic in [EU, US, "invoices"] {
        broker.topic(topic);
    }
    subscribe(&broker, "s", "orders.*", settings);
    broker
}

fn subscribe(broker: &Client, name: &str, pattern: &str, mut settings: Value) -> Value {
    settings["topic_pattern"] = json!(pattern);
    broker.put(&format!("/v1/subscriptions/{name}"), &settings).expect(201)
}

fn all(broker: &Client) -> Vec<Delivery> {
    broker.pull("s", 1_000, Duration::ZERO)
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().map(|delivery| delivery.id().to_owned()).collect()
}

fn count(broker: &Client, field: &str) -> u64 {
    broker.subscription("s")[field].as_u64().expect("a count")
}

/// One pull gives messages of all topics that the pattern takes, in the order of each, and of no other; over a kill too.
#[test]
fn one_pull_reads_them_all() {
    let mut broker = family(json!({}));
    let shown = broker.subscription("s");
    assert_eq!((&shown["topic_pattern"], &shown["topics"]), (&json!("orders.*"), &json!(2)));
    assert_eq!(shown.get("topic"), None);
    let mut published: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for number in 0..20 {
        let topic = if number % 3 == 0 { US } else { EU };
        published.entry(topic).or_default().push(broker.publish(topic, &json!(number)));
        broker.publish("invoices", &json!(number));
    }
    assert_eq!(count(&broker, "backlog"), 20);
    broker.kill_and_start_again();
    let mut got: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for _ in 0..10 {
        for delivery in broker.pull("s", 2, Duration::ZERO) {
            let topic = if delivery.message["topic"] == US { US } else { EU };
            assert_eq!(delivery.message["topic"], topic);
            got.entry(topic).or_default().push(delivery.id().to_owned());
            assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
        }
    }
    assert_eq!(got, published);
    assert_eq!(count(&broker, "backlog"), 0);
}

/// A topic that is created later is read from its first message on.
#[test]
fn topics_to_come_are_read_from_their_first_message_on() {
    let mut broker = Broker::start();
    subscribe(&broker, "s", "orders.>", json!({}));
    assert_eq!(broker.subscription("s")["topics"], 0);
    broker.topic("orders");
    broker.topic("orders.eu.retail");
    let id = broker.publish("orders.eu.retail", &json!(1));
    assert_eq!(ids(&all(&broker)), BTreeSet::from([id]));
    broker.kill_and_start_again();
    broker.topic("orders.x");
    let id = broker.publish("orders.x", &json!(2));
    assert_eq!(broker.subscription("s")["topics"], 2);
    assert_eq!(broker.next("s").id(), id);
}

/// One stream is pushed what comes on any of them, one that is created meanwhile included, and settles it; when it goes,
/// what it held on each of them is decided at once.
#[test]
fn one_stream_reads_them_all() {
    let broker = family(json!({ "retry": { "delay": 0 }, "lease": "5m" }));
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(100);
    let mut published = BTreeSet::from([broker.publish(EU, &json!(1)), broker.publish(US, &json!(2))]);
    broker.topic("orders.asia");
    published.insert(broker.publish("orders.asia", &json!(3)));
    let got = stream.deliveries(3);
    assert_eq!(ids(&got), published);
    let done = json!({ "type": "ack", "id": "1", "receipts": [got[0].receipt] });
    assert_eq!(stream.ask(&done, "acked")["items"][0]["status"], "acked");
    stream.reset();
    let again = [broker.next("s"), broker.next("s")];
    assert_eq!(ids(&again), ids(&got[1..]));
    assert!(again.iter().all(|delivery| (delivery.attempt, delivery.failures) == (2, 1)));
}

/// A busy topic starves no other: pulls go from one to the next.
#[test]
fn topics_take_turns() {
    let broker = family(json!({}));
    let batch = json!({ "messages": vec![json!({ "payload": 1 }); 100] });
    broker.post(&format!("/v1/topics/{EU}/messages"), &batch).expect(201);
    broker.publish(US, &json!("rare"));
    let first: Vec<_> = (0..2).flat_map(|_| broker.pull("s", 5, Duration::ZERO)).collect();
    assert!(first.iter().any(|delivery| delivery.message["topic"] == US), "{first:?}");
}

/// The policy, its dead letters, replays and discards are those of the one subscription, whatever the topic; a dead
/// letter knows where it came from.
#[test]
fn failures_of_every_topic_go_to_the_one_policy() {
    let mut broker = family(json!({ "retry": { "max_attempts": 1 } }));
    // The same sequence on both topics.
    let published = [broker.publish(EU, &json!("eu")), broker.publish(US, &json!("us"))];
    for delivery in all(&broker) {
        let decided = broker.nack("s", &delivery.receipt, "timeout");
        assert_eq!(decided["decision"]["action"], "dead_letter");
    }
    broker.kill_and_start_again();
    let letters = broker.dead_letters("s");
    let messages: BTreeSet<_> = letters.iter().map(|it| it["message_id"].as_str().expect("an id")).collect();
    assert_eq!(messages, published.iter().map(String::as_str).collect());
    assert_eq!(count(&broker, "dead_letters"), 2);
    for letter in &letters {
        let id = letter["id"].as_str().expect("an id");
        let whole = broker.dead_letter(id);
        let payload = if whole["message"]["topic"] == EU { "eu" } else { "us" };
        assert_eq!(whole["message"]["payload"], payload);
        assert_eq!(
            broker.delivery_of(letter["message_id"].as_str().expect("an id"))["state"],
            "dead_lettered"
        );
    }
    // A page at a time gives the same.
    let page = broker.get("/v1/dead-letters?subscription=s&limit=1").expect(200);
    let cursor = page["next"].as_str().expect("a cursor");
    let rest = broker.get(&format!("/v1/dead-letters?subscription=s&limit=1&cursor={cursor}")).expect(200);
    assert_eq!([&page["items"][0]["id"], &rest["items"][0]["id"]], [&letters[0]["id"], &letters[1]["id"]]);
    let id = |at: usize| letters[at]["id"].as_str().expect("an id").to_owned();
    broker.post(&format!("/v1/dead-letters/{}/replay", id(0)), &json!({})).expect(200);
    broker.delete(&format!("/v1/dead-letters/{}", id(1)));
    assert_eq!((count(&broker, "dead_letters"), count(&broker, "backlog")), (0, 1));
    let again = broker.next("s");
    assert_eq!((again.id(), again.attempt), (letters[0]["message_id"].as_str().expect("an id"), 1));
}

/// What may be in flight is counted over all topics, as is what an operator stops and what a rate allows.
#[test]
fn limits_hold_over_all_topics_together() {
    let broker = family(json!({ "max_in_flight": 3 }));
    for number in 0..3 {
        broker.publish(EU, &json!(number));
        broker.publish(US, &json!(number));
    }
    let held = all(&broker);
    assert_eq!((held.len(), count(&broker, "in_flight")), (3, 3));
    assert!(broker.poll("s").is_none());
    broker.ack("s", &held[0].receipt);
    assert_eq!(all(&broker).len(), 1);
    broker.post("/v1/subscriptions/s/pause", &json!({})).expect(200);
    broker.ack("s", &held[1].receipt);
    assert!(broker.poll("s").is_none());
    broker.post("/v1/subscriptions/s/resume", &json!({})).expect(200);
    assert_eq!(all(&broker).len(), 1);
}

/// A retry of one topic comes back while another has nothing and a third is busy, with a lease that ran out among them.
#[test]
fn retries_come_back_on_their_topic() {
    let mut broker = family(json!({ "retry": { "delay": "30ms" }, "lease": "1s" }));
    let retried = broker.publish(EU, &json!("retried"));
    let late = broker.publish(US, &json!("late"));
    for delivery in all(&broker) {
        if delivery.id() == retried {
            broker.nack("s", &delivery.receipt, "timeout");
        }
    }
    broker.kill_and_start_again();
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        for delivery in broker.pull("s", 10, PATIENCE) {
            assert_eq!(delivery.attempt, 2);
            assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
            seen.insert(delivery.id().to_owned());
        }
    }
    assert_eq!(seen, BTreeSet::from([retried, late]));
}

/// Keys are of their topic: the same key on two topics holds up nobody, on one topic it keeps its order.
#[test]
fn keys_are_ordered_within_their_topic() {
    let broker = family(json!({ "ordering": "key", "retry": { "delay": "1h" } }));
    let keyed = |topic: &str, payload| broker.publish_with(topic, json!({ "payload": payload, "key": "k" }));
    let (first, second) = (keyed(EU, 1), keyed(EU, 2));
    let other = keyed(US, 1);
    let held = all(&broker);
    assert_eq!(ids(&held), BTreeSet::from([first.clone(), other]));
    let own = held.iter().find(|delivery| delivery.id() == first).expect("the first");
    broker.ack("s", &own.receipt);
    assert_eq!(ids(&all(&broker)), BTreeSet::from([second]));
}

/// Whoever waits gets what comes on any topic, a new one included; in mode `auto_acked` the others find the rest.
#[test]
fn live_and_auto_acked_read_patterns_too() {
    for mode in ["live", "auto_acked"] {
        let broker = family(json!({ "mode": mode }));
        let client = (*broker).clone();
        let waiting = std::thread::spawn(move || client.pull("s", 10, PATIENCE));
        broker.topic("orders.asia");
        let mut published = 0;
        while !waiting.is_finished() {
            broker.publish("orders.asia", &json!(published));
            published += 1;
        }
        let got = waiting.join().expect("it pulls");
        assert!(!got.is_empty(), "{mode}");
        let rest = all(&broker);
        assert!(ids(&got).is_disjoint(&ids(&rest)), "{mode}");
        if mode == "auto_acked" {
            assert_eq!(got.len() + rest.len(), published);
            assert_eq!(count(&broker, "backlog"), 0);
        }
    }
}

/// Where it begins is the same rule for every topic; a seek goes over all or one of them, a purge too.
#[test]
fn seeks_and_purges_go_over_all_topics_or_one() {
    let mut broker = Broker::start();
    for topic in [EU, US, "invoices"] {
        broker.put(&format!("/v1/topics/{topic}"), &json!({ "keep_acked": "1h" })).expect(201);
        broker.publish(topic, &json!(1));
        broker.publish(topic, &json!(2));
    }
    subscribe(&broker, "s", "orders.*", json!({ "start": "earliest" }));
    let held = all(&broker);
    assert_eq!(held.len(), 4);
    for delivery in &held {
        broker.ack("s", &delivery.receipt);
    }
    let verb =
        |broker: &Broker, verb: &str, body: Value| broker.post(&format!("/v1/subscriptions/s/{verb}"), &body);
    let sought = verb(&broker, "seek", json!({ "to": "earliest" })).expect(200);
    assert_eq!(sought, json!({ "ended": 0 }));
    assert_eq!(count(&broker, "backlog"), 4);
    let sought = verb(&broker, "seek", json!({ "topic": US, "to": { "sequence": 2 } })).expect(200);
    assert_eq!(sought, json!({ "next_sequence": 2, "ended": 2 }));
    broker.kill_and_start_again();
    let again = all(&broker);
    assert_eq!(again.len(), 3);
    assert_eq!(broker.ack("s", &held[0].receipt)["error"]["code"], "stale_receipt");
    let purged = verb(&broker, "purge", json!({ "topic": EU })).expect(200);
    assert_eq!(purged, json!({ "next_sequence": 3, "ended": 2 }));
    assert_eq!(count(&broker, "backlog"), 1);
    assert_eq!(verb(&broker, "purge", json!({})).expect(200)["ended"], 1);
    for (body, code) in [
        (json!({ "to": { "sequence": 1 } }), "invalid_setting"),
        (json!({ "to": "latest", "topic": "invoices" }), "topic_not_found"),
        (json!({ "to": "latest", "topic": "orders.none" }), "topic_not_found"),
        (json!({ "to": "latest", "topic": "orders.*" }), "invalid_name"),
    ] {
        assert_eq!(verb(&broker, "seek", body.clone()).problem().1, code, "{body}");
    }
    // However many topics it has at the moment.
    subscribe(&broker, "s2", "*", json!({}));
    assert_eq!(broker.subscription("s2")["topics"], 1);
    let verb = |verb: &str, body: Value| broker.post(&format!("/v1/subscriptions/s2/{verb}"), &body);
    assert_eq!(verb("seek", json!({ "to": { "sequence": 1 } })).problem().1, "invalid_setting");
    assert_eq!(verb("seek", json!({ "to": "earliest" })).expect(200), json!({ "ended": 0 }));
    let purged = verb("purge", json!({ "topic": "invoices" })).expect(200);
    assert_eq!(purged, json!({ "next_sequence": 3, "ended": 2 }));
}

/// Peeking goes topic by topic, a page at a time.
#[test]
fn peeking_goes_topic_by_topic() {
    let broker = family(json!({}));
    let mut published = Vec::new();
    for topic in [EU, US] {
        published.extend((0..3).map(|number| broker.publish(topic, &json!(number))));
    }
    let (mut seen, mut query) = (Vec::new(), "limit=2".to_owned());
    loop {
        let page = broker.get(&format!("/v1/subscriptions/s/messages?{query}")).expect(200);
        for item in page["items"].as_array().expect("items") {
            seen.push(item["id"].as_str().expect("an id").to_owned());
        }
        let Some(cursor) = page["next"].as_str() else { break };
        assert!(seen.len() < published.len(), "it goes on for ever: {seen:?}");
        query = format!("limit=2&cursor={cursor}");
    }
    assert_eq!(seen, published);
}

/// A topic goes once nothing of it is left to settle; a topic of the same name begins anew.
#[test]
fn a_topic_of_a_pattern_can_go_once_it_is_settled() {
    let mut broker = family(json!({ "retry": { "max_attempts": 1 } }));
    let delete = |broker: &Broker| broker.delete(&format!("/v1/topics/{EU}"));
    broker.publish(EU, &json!(1));
    assert_eq!(delete(&broker).problem(), (409, "topic_in_use".to_owned()));
    let delivery = broker.next("s");
    assert_eq!(delete(&broker).problem().1, "topic_in_use");
    broker.nack("s", &delivery.receipt, "invalid");
    assert_eq!(delete(&broker).problem().1, "topic_in_use");
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    broker.delete(&format!("/v1/dead-letters/{letter}"));
    delete(&broker).expect(204);
    assert_eq!(broker.subscription("s")["topics"], 1);
    broker.kill_and_start_again();
    assert_eq!(broker.subscription("s")["topics"], 1);
    broker.topic(EU);
    let id = broker.publish(EU, &json!(2));
    assert_eq!(broker.next("s").id(), id);
}

/// When the subscription goes, so does all that it had; the topics stay.
#[test]
fn a_pattern_subscription_can_go() {
    let mut broker = family(json!({}));
    broker.publish(EU, &json!(1));
    let held = broker.next("s");
    broker.delete("/v1/subscriptions/s").expect(204);
    assert_eq!(
        broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [held.receipt] })).problem().0,
        404
    );
    broker.kill_and_start_again();
    broker.delete(&format!("/v1/topics/{EU}")).expect(204);
    subscribe(&broker, "s", "orders.*", json!({ "start": "earliest" }));
    assert_eq!(broker.subscription("s")["topics"], 1);
}

#[test]
fn bad_patterns_are_refused() {
    let broker = family(json!({}));
    let put = |name: &str, body: Value| broker.put(&format!("/v1/subscriptions/{name}"), &body).problem();
    for bad in ["", "orders", "or*", "a.>.b", "..*", "*/x", "orders.* ", &format!("{}.*", "n".repeat(300))] {
        assert_eq!(put("x", json!({ "topic_pattern": bad })), (400, "invalid_name".to_owned()), "{bad:?}");
    }
    for (body, expected) in [
        (json!({}), "invalid_body"),
        (json!({ "topic": EU, "topic_pattern": "orders.*" }), "invalid_body"),
        (json!({ "topic_pattern": 1 }), "invalid_body"),
        (json!({ "topic_pattern": "orders.*", "start": { "sequence": 3 } }), "invalid_setting"),
        (json!({ "topic_pattern": "orders.*", "forward_to": [EU] }), "invalid_setting"),
    ] {
        assert_eq!(put("x", body.clone()).1, expected, "{body}");
    }
    assert_eq!(broker.get("/v1/subscriptions/x").problem().0, 404);
    // What it reads is fixed.
    assert_eq!(put("s", json!({ "topic_pattern": "orders.>" })).1, "topic_differs");
    assert_eq!(put("s", json!({ "topic": EU })).1, "topic_differs");
    let patch = broker.patch("/v1/subscriptions/s", &json!({ "topic_pattern": "orders.*" }));
    assert_eq!(patch.problem().1, "invalid_body");
    broker.put("/v1/subscriptions/s", &json!({ "topic_pattern": "orders.*", "lease": "7s" })).expect(200);
    assert_eq!(broker.subscription("s")["lease"], "7s");
    // It may be shown to no topic that it reads: a message would go round.
    assert_eq!(
        broker.patch("/v1/subscriptions/s", &json!({ "forward_to": [US] })).problem().1,
        "invalid_setting"
    );
}

/// Their number is bounded, as each may come to every topic.
#[test]
fn pattern_subscriptions_are_bounded() {
    let broker = Broker::start();
    for number in 0..100 {
        subscribe(&broker, &format!("s{number}"), "orders.*", json!({}));
    }
    let refused = broker.put("/v1/subscriptions/x", &json!({ "topic_pattern": "orders.*" })).problem();
    assert_eq!(refused.1, "limit_reached");
    broker.topic(EU);
    let id = broker.publish(EU, &json!(1));
    assert_eq!(broker.next("s99").id(), id);
}

/// Tokens and realms: a pattern takes topics of its realm alone, and none that its token may not read.
#[test]
fn a_pattern_reaches_no_further_than_its_token() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.topic(EU);
    let realm = realm(&broker, "acme");
    realm.topic(EU);
    let narrow = json!({ "scopes": ["topics", "consume"], "topics": ["orders.*", "x"] });
    let narrow = operator.with_token(secret(&token(&operator, "narrow", narrow)));
    for (pattern, may) in
        [("orders.*", true), ("orders.>", true), (">", false), ("*.eu", false), ("x.*", false)]
    {
        let answer = narrow.put("/v1/subscriptions/s", &json!({ "topic_pattern": pattern }));
        if may {
            answer.expect(201);
            operator.delete("/v1/subscriptions/s").expect(204);
        } else {
            assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{pattern}");
        }
    }
    subscribe(&operator, "s", ">", json!({}));
    realm.publish(EU, &json!(1));
    assert_eq!(operator.subscription("s")["topics"], 1);
    assert!(all(&operator).is_empty());
    // A realm with a subscription is in use, topics or not.
    realm.delete("/v1/topics/orders.eu").expect(204);
    subscribe(&realm, "s", ">", json!({}));
    assert_eq!(operator.delete("/v1/realms/acme").problem().1, "realm_in_use");
    realm.delete("/v1/subscriptions/s").expect(204);
    operator.delete("/v1/realms/acme").expect(204);
}
