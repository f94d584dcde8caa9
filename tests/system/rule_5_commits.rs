//! Rule 5: the end of a lease and everything that follows from it are one commit: after a crash all of it is there, or
//! none.

use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::{Broker, guests};

/// What was answered before a kill is there after it: publish, ack, nack, release, extend, replay, discard.
#[test]
fn rule_5_what_was_answered_survives_a_kill() {
    let mut broker = Broker::start();
    let retry =
        json!({ "delay": "1h", "jitter": "none", "classes": { "fatal": { "action": "dead_letter" } } });
    broker.topic_and_subscription(json!({ "retry": retry, "max_lease": "2h" }));
    let ids: Vec<_> = (0..8).map(|number| broker.publish("t", &json!(number))).collect();
    let held: Vec<_> = (0..7).map(|_| broker.next("s")).collect();
    broker.ack("s", &held[0].receipt);
    broker.nack("s", &held[1].receipt, "timeout");
    broker.release("s", &held[2].receipt);
    broker.extend("s", &held[3].receipt, "1h");
    for delivery in &held[4..7] {
        broker.nack("s", &delivery.receipt, "fatal");
    }
    let letters = broker.dead_letters("s");
    let path = |index: usize| format!("/v1/dead-letters/{}", letters[index]["id"].as_str().expect("an id"));
    broker.post(&format!("{}/replay", path(1)), &Value::Null).expect(200);
    broker.delete(&path(2)).expect(204);

    let before: Vec<_> = ids.iter().map(|id| broker.delivery_of(id)).collect();
    let everything = broker.everything();
    let states: Vec<_> = before.iter().map(|delivery| delivery["state"].as_str().expect("a state")).collect();
    assert_eq!(
        states,
        ["acked", "delayed", "ready", "leased", "dead_lettered", "ready", "discarded", "ready"]
    );
    broker.kill_and_start_again();
    let after: Vec<_> = ids.iter().map(|id| broker.delivery_of(id)).collect();
    assert_eq!(after, before);
    assert_eq!(broker.everything(), everything);
}

/// A kill amid a stream of nacks leaves each delivery before its decision or behind it, never between.
#[test]
fn rule_5_a_kill_amid_nacks_leaves_whole_transitions() {
    const MESSAGES: usize = 60;
    let mut broker = Broker::start();
    let retry = json!({ "max_attempts": 1 });
    broker.topic_and_subscription(json!({ "retry": retry }));
    let ids: Vec<_> = (0..MESSAGES).map(|number| broker.publish("t", &json!(number))).collect();
    let held = broker.pull("s", MESSAGES, std::time::Duration::ZERO);
    assert_eq!(held.len(), MESSAGES);

    let (answered, answers) = mpsc::channel();
    let consumers: Vec<_> = held
        .chunks(MESSAGES / 4)
        .map(|part| {
            let (part, client, answered) = (part.to_vec(), (*broker).clone(), answered.clone());
            std::thread::spawn(move || {
                for delivery in part {
                    let body = json!({ "items": [{ "receipt": delivery.receipt, "class": "fatal" }] });
                    let request = client.request("POST", "/v1/subscriptions/s/nack").json(&body);
                    match request.send() {
                        Ok(answer) if answer.status() == 200 => _ = answered.send(delivery.id().to_owned()),
                        _ => return,
                    }
                }
            })
        })
        .collect();
    drop(answered);
    let mut decided: Vec<String> = answers.iter().take(MESSAGES / 3).collect();
    broker.kill();
    for consumer in consumers {
        consumer.join().expect("a consumer ends");
    }
    decided.extend(answers.iter());
    broker.start_again();

    let letters = broker.dead_letters("s");
    for id in &ids {
        let stands = broker.delivery_of(id);
        let buried = letters.iter().filter(|letter| letter["message_id"] == **id).count();
        match stands["state"].as_str() {
            Some("leased") => {
                assert!(!decided.contains(id), "answered, and forgotten: {stands}");
                assert_eq!((buried, &stands["timeline"]["failures"]), (0, &json!(0)));
            }
            Some("dead_lettered") => {
                assert_eq!(buried, 1);
                let timeline = &stands["timeline"];
                assert_eq!((&timeline["attempts"], &timeline["failures"]), (&json!(1), &json!(1)));
                assert_eq!(timeline["history"].as_array().map(Vec::len), Some(1));
            }
            _ => panic!("neither before nor behind its decision: {stands}"),
        }
    }
    let subscription = broker.subscription("s");
    let counted = subscription["dead_letters"].as_u64().zip(subscription["in_flight"].as_u64());
    let (dead, leased) = counted.expect("numbers");
    assert_eq!((dead as usize, dead + leased), (letters.len(), MESSAGES as u64));
}

/// A forward that was answered is one message in the other topic, whatever the moment of the kill.
#[test]
fn rule_5_a_forward_is_exactly_one_message() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "forward_to": ["slow"] }));
    broker.upload("s", &guests::after_trial(&guests::forward("slow")), None).expect(201);
    broker.topic("slow");
    broker.subscribe("reader", "slow", json!({}));
    for number in 1..=3 {
        broker.publish("t", &json!(number));
        let delivery = broker.next("s");
        assert_eq!(broker.nack("s", &delivery.receipt, "large")["decision"]["action"], "forward");
        broker.kill_and_start_again();
        let arrived = broker.next("reader");
        assert_eq!(arrived.message["payload"], number);
        broker.ack("reader", &arrived.receipt);
        assert_eq!(broker.get("/v1/topics/slow").expect(200)["next_sequence"], number + 1);
    }
}
