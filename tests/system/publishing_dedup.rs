//! Ids that publishers give their messages: what is sent again is stored once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Broker, wait_for};

const MESSAGES: &str = "/v1/topics/t/messages";

fn next_sequence(broker: &Broker) -> Value {
    broker.get("/v1/topics/t").expect(200)["next_sequence"].clone()
}

fn raw(broker: &Broker, id: &str, body: &str) -> Answer {
    broker.send(broker.request("POST", MESSAGES).header("Idempotency-Key", id).body(body.to_owned()))
}

fn batch(broker: &Broker, messages: Value) -> Answer {
    broker.post(MESSAGES, &json!({ "messages": messages }))
}

/// The same id again has the first message's id and sequence, and is delivered once, however it was sent: as a raw
/// body, in a batch, or twice in one batch.
#[test]
fn the_same_id_is_stored_once() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let first = raw(&broker, "a", "7").expect(201);
    assert_eq!(first["items"][0].get("duplicate"), None);
    let mut expected = first["items"][0].clone();
    expected["duplicate"] = json!(true);
    let again = raw(&broker, "a", "7").expect(200);
    assert_eq!((&again["items"], &again["durability"]), (&json!([expected]), &json!("fsync")));
    assert_eq!(batch(&broker, json!([{ "payload": 7, "dedup_id": "a" }])).expect(200)["items"][0], expected);

    let items = json!([
        { "payload": 7, "dedup_id": "a" },
        { "payload": 8, "dedup_id": "b" },
        { "payload": 8, "dedup_id": "b", "key": "only payloads are compared" },
        { "payload": 8 },
    ]);
    let answer = batch(&broker, items).expect(201);
    let shown =
        |at: usize| (answer["items"][at]["sequence"].clone(), answer["items"][at].get("duplicate").cloned());
    let duplicate = Some(json!(true));
    assert_eq!(
        [shown(0), shown(1), shown(2), shown(3)],
        [(json!(1), duplicate.clone()), (json!(2), None), (json!(2), duplicate), (json!(3), None)]
    );
    assert_eq!(answer["items"][1]["id"], answer["items"][2]["id"]);
    assert_eq!(broker.pull("s", 10, Duration::ZERO).len(), 3);
    assert_eq!(next_sequence(&broker), 4);
}

/// Ids belong to their topic: another topic knows nothing of them, and neither does a new one of the same name.
#[test]
fn ids_belong_to_their_topic() {
    let broker = Broker::start();
    broker.topic("t");
    broker.topic("other");
    raw(&broker, "a", "7").expect(201);
    broker
        .post("/v1/topics/other/messages", &json!({ "messages": [{ "payload": 8, "dedup_id": "a" }] }))
        .expect(201);
    broker.delete("/v1/topics/t").expect(204);
    broker.topic("t");
    raw(&broker, "a", "9").expect(201);
}

/// The same id with another payload is a mistake that is told, and stores nothing.
#[test]
fn the_same_id_with_another_payload_is_refused() {
    let broker = Broker::start();
    broker.topic("t");
    let first = raw(&broker, "a", "7").expect(201)["items"][0]["id"].clone();
    let refused = raw(&broker, "a", "8");
    assert_eq!(refused.problem(), (409, "dedup_conflict".to_owned()));
    assert!(refused.text().contains(first.as_str().expect("an id")), "{}", refused.text());
    let items = json!([
        { "payload": 8, "dedup_id": "a" },
        { "payload": 1, "dedup_id": "b" },
        { "payload": 2, "dedup_id": "b" },
    ]);
    let answer = batch(&broker, items).expect(201);
    let codes: Vec<_> = (0..3).map(|at| answer["items"][at]["error"]["code"].as_str()).collect();
    assert_eq!(codes, [Some("dedup_conflict"), None, Some("dedup_conflict")]);
    assert_eq!(answer["items"][0]["error"]["retryable"], false);
    assert_eq!(batch(&broker, json!([{ "payload": 8, "dedup_id": "a" }])).status, 422);
    assert_eq!(next_sequence(&broker), 3);
}

/// A publish that was refused is not remembered: its id is free.
#[test]
fn what_was_refused_is_not_remembered() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": 1 })).expect(201);
    assert_eq!(raw(&broker, "a", "77").problem(), (413, "message_too_large".to_owned()));
    raw(&broker, "a", "7").expect(201);
}

/// What was answered before a kill is known after it, and so is what was answered before an orderly end.
#[test]
fn the_window_survives_a_kill_and_a_restart() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let items: Vec<_> = (0..500).map(|n| json!({ "payload": n, "dedup_id": format!("id-{n}") })).collect();
    let first = batch(&broker, json!(items)).expect(201);
    for orderly in [false, true] {
        if orderly {
            broker.terminate();
            assert!(broker.ended().success());
            broker.start_again();
        } else {
            broker.kill_and_start_again();
        }
        let again = batch(&broker, json!(items)).expect(200);
        for at in 0..500 {
            assert_eq!(again["items"][at]["duplicate"], true, "{at}");
            assert_eq!(again["items"][at]["id"], first["items"][at]["id"], "{at}");
        }
        assert_eq!(raw(&broker, "id-7", "8").problem(), (409, "dedup_conflict".to_owned()));
    }
    assert_eq!(next_sequence(&broker), 501);
}

/// Once the window has passed the id is free, also for another payload; a window of zero remembers nothing, and one
/// beyond the bound is refused.
#[test]
fn a_window_passes() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "dedup_window": "300ms" })).expect(201);
    raw(&broker, "a", "7").expect(201);
    wait_for("the id is free", || Some(raw(&broker, "a", "8")).filter(|answer| answer.status == 201));
    raw(&broker, "a", "8").expect(200);
    broker.put("/v1/topics/t", &json!({ "dedup_window": 0 })).expect(200);
    raw(&broker, "b", "7").expect(201);
    raw(&broker, "b", "7").expect(201);
    let beyond = broker.put("/v1/topics/t", &json!({ "dedup_window": "8d" }));
    assert_eq!(beyond.problem(), (422, "invalid_setting".to_owned()));
}

/// A duplicate is answered with its original even when that is gone, and when the topic has no room for more.
#[test]
fn the_original_may_be_gone() {
    let broker = Broker::start();
    broker.put("/v1/topics/t", &json!({ "keep_acked": 0, "max_messages": 1 })).expect(201);
    let id = raw(&broker, "a", "7").expect(201)["items"][0]["id"].clone();
    assert_eq!(raw(&broker, "a", "7").expect(200)["items"][0]["id"], id);
    let path = format!("/v1/messages/{}", id.as_str().expect("an id"));
    wait_for("the message goes", || Some(broker.get(&path)).filter(|answer| answer.status == 404));
    assert_eq!(raw(&broker, "a", "7").expect(200)["items"][0]["id"], id);
}
