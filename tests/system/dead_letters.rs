//! Dead letters: list, filter, inspect, replay, discard.

use serde_json::{Value, json};

use crate::support::{Broker, millis};

/// Fails one message with this class; gives its id.
fn bury(broker: &Broker, subscription: &str, class: &str) -> String {
    let id = broker.publish_with(
        "t",
        json!({ "payload": { "class": class }, "key": "k", "attributes": { "tenant": "acme" } }),
    );
    let delivery = broker.next(subscription);
    assert_eq!(delivery.id(), id);
    let item = json!({ "class": class, "code": "E1", "detail": "it broke" });
    let nacked = broker.nack_with(subscription, &delivery.receipt, item);
    assert_eq!(nacked["decision"]["action"], "dead_letter", "{nacked}");
    id
}

fn broker() -> Broker {
    let broker = Broker::start();
    let classes = json!({ "invalid": { "action": "dead_letter", "queue": "invalid", "reason": "never" } });
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1, "classes": classes } }));
    broker
}

fn id(letter: &Value) -> String {
    letter["id"].as_str().expect("an id").to_owned()
}

/// The list shows enough to know what happened, and each dead letter on its own all of it.
#[test]
fn a_dead_letter_tells_what_happened() {
    let broker = broker();
    let message = bury(&broker, "s", "invalid");
    let letters = broker.dead_letters("s");
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    for (field, expected) in [
        ("subscription", json!("s")),
        ("queue", json!("s/invalid")),
        ("reason", json!("never")),
        ("labels", json!({ "class": "invalid" })),
        ("topic", json!("t")),
        ("message_id", json!(message)),
        ("attempts", json!(1)),
        ("failures", json!(1)),
        ("replays", json!(0)),
        ("cause", json!("nacked")),
        ("class", json!("invalid")),
        ("detail", json!("it broke")),
    ] {
        assert_eq!(letter[field], expected, "{field}");
    }
    let whole = broker.dead_letter(&id(letter));
    for (field, value) in letter.as_object().expect("an object") {
        assert_eq!(whole[field], *value, "{field}");
    }
    assert_eq!(whole["message"]["payload"], json!({ "class": "invalid" }));
    assert_eq!((&whole["message"]["key"], &whole["message"]["id"]), (&json!("k"), &json!(message)));
    assert_eq!(whole["message"]["attributes"], json!({ "tenant": "acme" }));
    let past = &whole["timeline"]["history"][0];
    assert_eq!((&past["code"], &past["decision"]["action"]), (&json!("E1"), &json!("dead_letter")));
    assert!(millis(&past["leased_at"]) <= millis(&past["ended_at"]));
    let bytes = broker.get(&format!("/v1/dead-letters/{}?payload_as=base64", id(letter))).expect(200);
    assert_eq!(bytes["message"]["payload_base64"], "eyJjbGFzcyI6ImludmFsaWQifQ==");
    assert_eq!(broker.delivery_of(&message)["dead_letter"]["id"], letter["id"]);
    assert_eq!(broker.subscription("s")["dead_letters"], 1);
}

/// Filters by subscription, queue and class, alone and together; pages hold everything once.
#[test]
fn dead_letters_are_filtered_and_paged() {
    let broker = broker();
    broker.topic("u");
    broker.subscribe("other", "t", json!({ "retry": { "max_attempts": 1 } }));
    let mut expected = Vec::new();
    for class in ["invalid", "timeout", "invalid", "timeout", "timeout"] {
        expected.push(bury(&broker, "s", class));
    }
    let other = broker.next("other");
    broker.nack("other", &other.receipt, "invalid");

    let found = |query: &str| -> Vec<Value> {
        let answer = broker.get(&format!("/v1/dead-letters?{query}")).expect(200);
        answer["items"].as_array().expect("a list").clone()
    };
    assert_eq!(found("").len(), 6);
    assert_eq!(found("subscription=s").len(), 5);
    assert_eq!(found("subscription=other").len(), 1);
    assert_eq!(found("class=timeout").len(), 3);
    assert_eq!(found("class=invalid").len(), 3);
    assert_eq!(found("queue=s/invalid").len(), 2, "as it is shown");
    assert_eq!(found("queue=invalid").len(), 2, "by its own name");
    assert_eq!(found("subscription=s&queue=invalid&class=invalid").len(), 2);
    assert_eq!(found("subscription=other&queue=invalid").len(), 0);
    assert_eq!(found("class=nothing").len(), 0);

    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = broker.get(&format!("/v1/dead-letters?subscription=s&limit=2{cursor}")).expect(200);
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 2);
        paged.extend(items.iter().map(|letter| letter["message_id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(json!(paged), json!(expected), "oldest first");
}

/// A queue that is given with the name of another subscription has nothing of this one.
#[test]
fn a_queue_of_another_subscription_is_another_queue() {
    let broker = broker();
    bury(&broker, "s", "invalid");
    broker.subscribe("other", "t", json!({}));
    for query in [
        "queue=other/invalid",
        "subscription=other&queue=other/invalid",
        "subscription=s&queue=other/invalid",
    ] {
        let found = broker.get(&format!("/v1/dead-letters?{query}")).expect(200);
        assert_eq!(found["items"], json!([]), "{query}: {found}");
    }
}

/// A replayed dead letter is the same message with a fresh budget, and its past goes with it.
#[test]
fn a_replay_is_a_new_life_of_the_same_message() {
    let mut broker = broker();
    let message = bury(&broker, "s", "timeout");
    let letter = id(&broker.dead_letters("s")[0]);
    let path = format!("/v1/dead-letters/{letter}/replay");
    let replayed = broker.post(&path, &Value::Null).expect(200);
    assert_eq!(replayed, json!({ "message_id": message, "replays": 1 }));
    assert_eq!(broker.post(&path, &Value::Null).problem(), (404, "dead_letter_not_found".to_owned()));
    assert!(broker.dead_letters("s").is_empty());
    broker.kill_and_start_again();

    let delivery = broker.next("s");
    assert_eq!((delivery.id(), delivery.attempt, delivery.failures), (message.as_str(), 1, 0));
    assert_eq!(delivery.message["payload"], json!({ "class": "timeout" }));
    let timeline = broker.delivery_of(&message)["timeline"].clone();
    let counters =
        ["attempts", "failures", "replays", "previous_attempts"].map(|name| timeline[name].clone());
    assert_eq!(counters, [1, 0, 1, 1]);
    assert_eq!(timeline["history"][0]["replay"], 0, "the first life is told");
    broker.ack("s", &delivery.receipt);
    let end = broker.delivery_of(&message);
    assert_eq!(end["state"], "acked");
    assert_eq!(broker.subscription("s")["backlog"], 0);
}

/// The receipt of an earlier life means nothing to the next one, though both are attempt 1.
#[test]
fn a_receipt_of_an_earlier_life_is_stale() {
    let broker = broker();
    broker.publish("t", &json!(1));
    let first = broker.next("s");
    broker.nack("s", &first.receipt, "timeout");
    let letter = id(&broker.dead_letters("s")[0]);
    broker.post(&format!("/v1/dead-letters/{letter}/replay"), &Value::Null).expect(200);
    let second = broker.next("s");
    assert_eq!((first.attempt, second.attempt), (1, 1));
    assert_ne!(first.receipt, second.receipt);
    assert_eq!(broker.ack("s", &first.receipt)["error"]["code"], "stale_receipt");
    assert_eq!(broker.ack("s", &second.receipt)["status"], "acked");
}

/// A discarded dead letter is gone for good; its message tells so.
#[test]
fn a_discarded_dead_letter_is_gone() {
    let mut broker = broker();
    let message = bury(&broker, "s", "timeout");
    let path = format!("/v1/dead-letters/{}", id(&broker.dead_letters("s")[0]));
    assert_eq!(broker.delete(&path).status, 204);
    broker.kill_and_start_again();
    assert_eq!(broker.get(&path).problem(), (404, "dead_letter_not_found".to_owned()));
    assert_eq!(broker.delete(&path).problem(), (404, "dead_letter_not_found".to_owned()));
    assert_eq!(broker.delivery_of(&message)["state"], "discarded");
    assert_eq!(broker.subscription("s")["dead_letters"], 0);
    assert_eq!(broker.poll("s"), None);
}

/// A dead letter holds its message by itself: it stays when the topic's copy has gone, and can still be replayed.
#[test]
fn a_dead_letter_outlives_the_topics_copy() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "keep_acked": 0 })).expect(201);
    broker.subscribe("s", "t", json!({ "retry": { "max_attempts": 1 } }));
    let message = broker.publish("t", &json!({ "order": 7 }));
    let delivery = broker.next("s");
    broker.nack("s", &delivery.receipt, "timeout");
    crate::support::wait_for("the topic lets go", || {
        Some(broker.get("/v1/topics/t").expect(200)).filter(|topic| topic["first_sequence"] == 2)
    });
    assert_eq!(broker.message(&message)["payload"], json!({ "order": 7 }));
    let letter = id(&broker.dead_letters("s")[0]);
    assert_eq!(broker.dead_letter(&letter)["message"]["payload"], json!({ "order": 7 }));
    broker.post(&format!("/v1/dead-letters/{letter}/replay"), &Value::Null).expect(200);
    let delivery = broker.next("s");
    assert_eq!((delivery.id(), &delivery.message["payload"]), (message.as_str(), &json!({ "order": 7 })));
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
}

/// A replay carries no old time to live: the message is delivered though it would have expired long ago.
#[test]
fn a_replay_carries_no_old_time_to_live() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let message = broker.publish_with("t", json!({ "payload": 1, "ttl": "50ms" }));
    let letters = crate::support::wait_for("it expires", || {
        Some(broker.dead_letters("s")).filter(|letters| letters.len() == 1)
    });
    broker.post(&format!("/v1/dead-letters/{}/replay", id(&letters[0])), &Value::Null).expect(200);
    let delivery = broker.next("s");
    assert_eq!((delivery.id(), delivery.message.get("expires_at")), (message.as_str(), None));
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
    assert!(broker.dead_letters("s").is_empty());
}
