//! An orderly end: who waits is answered at once, what is in flight finishes, and all of it is on disk.

use serde_json::{Value, json};

use crate::support::{Broker, Socket};

/// A pull that waits when SIGTERM arrives is answered at once with nothing, and the broker ends well.
#[test]
fn a_waiting_pull_is_answered_at_once() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let body = r#"{"wait":"1m"}"#;
    let mut sockets: Vec<_> = (0..3).map(|_| Socket::connect(broker.address())).collect();
    for socket in &mut sockets {
        socket.begin("/v1/subscriptions/s/pull", body);
        socket.finish(body);
    }
    broker.subscription("s");
    broker.terminate();
    for socket in &mut sockets {
        let (status, body) = socket.read();
        assert_eq!((status, body.as_str()), (200, r#"{"deliveries":[]}"#));
    }
    assert!(broker.ended().success());
}

/// Settlements that are under way when SIGTERM arrives are carried out and answered; they are there afterwards.
#[test]
fn settlements_in_flight_finish() {
    let mut broker = Broker::start();
    let retry = json!({ "delay": "1h", "jitter": "none" });
    broker.topic_and_subscription(json!({ "retry": retry }));
    let ids: Vec<_> = (0..4).map(|number| broker.publish("t", &json!(number))).collect();
    let held = broker.pull("s", 4, std::time::Duration::ZERO);
    let receipts = |index: usize| json!({ "receipts": [held[index].receipt] }).to_string();
    let items = |index: usize| json!({ "items": [{ "receipt": held[index].receipt }] }).to_string();
    let requests = [("ack", receipts(0)), ("nack", items(1)), ("release", receipts(2)), ("extend", items(3))];
    let mut sockets: Vec<_> = requests
        .iter()
        .map(|(verb, body)| {
            let mut socket = Socket::connect(broker.address());
            socket.begin(&format!("/v1/subscriptions/s/{verb}"), body);
            socket
        })
        .collect();
    broker.terminate();
    broker.refuses_connections();
    for (socket, (verb, body)) in sockets.iter_mut().zip(&requests) {
        socket.finish(body);
        let (status, answer) = socket.read();
        assert_eq!(status, 200, "{verb}: {answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["items"][0].get("error"), None, "{verb}: {answer}");
    }
    assert!(broker.ended().success());
    broker.start_again();
    let states: Vec<_> = ids.iter().map(|id| broker.delivery_of(id)["state"].clone()).collect();
    assert_eq!(states, ["acked", "delayed", "ready", "leased"]);
}

/// Publishes and pulls that come while it stops are refused as retryable, or get nothing: no new work begins.
#[test]
fn no_new_work_begins_while_it_stops() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.publish("t", &json!(1));
    let message = r#"{"messages":[{"payload":2}]}"#;
    let mut publish = Socket::connect(broker.address());
    publish.begin("/v1/topics/t/messages", message);
    let mut pull = Socket::connect(broker.address());
    pull.begin("/v1/subscriptions/s/pull", "{}");
    broker.terminate();
    broker.refuses_connections();
    // Whoever waits is let go only once the broker drains: behind that no publish is taken.
    pull.finish("{}");
    let (_, pulled) = pull.read();
    publish.finish(message);
    let (status, answer) = publish.read();
    if pulled == r#"{"deliveries":[]}"# {
        assert_eq!(status, 503, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((&answer["code"], &answer["retryable"]), (&json!("shutting_down"), &json!(true)));
    }
    assert!(broker.ended().success());
    broker.start_again();
    let expected = if status == 201 { 3 } else { 2 };
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], expected);
}

/// A decision that is being made when SIGTERM arrives is not lost: the nack is answered, or the lease is still there.
#[test]
fn an_orderly_end_keeps_everything() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1 } }));
    let ids: Vec<_> = (0..20).map(|number| broker.publish("t", &json!(number))).collect();
    let held = broker.pull("s", 10, std::time::Duration::ZERO);
    for delivery in &held[..5] {
        broker.nack("s", &delivery.receipt, "fatal");
    }
    let before: Vec<_> = ids.iter().map(|id| broker.delivery_of(id)).collect();
    let everything = broker.everything();
    broker.terminate();
    assert!(broker.ended().success());
    assert!(broker.folder().log().contains("everything is on disk"), "{}", broker.folder().log());
    broker.start_again();
    let after: Vec<_> = ids.iter().map(|id| broker.delivery_of(id)).collect();
    assert_eq!(after, before);
    assert_eq!(broker.everything(), everything);
}
