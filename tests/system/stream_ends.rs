//! How streams end: whatever happens to the connection, what it holds is decided at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::Message;

use crate::support::{Broker, Launch, PATIENCE, Stream, wait_for};

/// A broker on which failed deliveries come again at once.
pub(crate) fn again_at_once(launch: Launch) -> Broker {
    let broker = Broker::launch(launch);
    let retry = json!({ "delay": 0, "backoff": "fixed", "jitter": "none", "max_attempts": 10 });
    broker.topic_and_subscription(json!({ "retry": retry }));
    broker
}

/// How the attempts of a message ended: cause and detail.
fn causes(broker: &Broker, id: &str) -> Vec<(String, String)> {
    let delivery = broker.delivery_of(id);
    let history = delivery["timeline"]["history"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    history.iter().map(|past| (text(&past["cause"]), text(&past["detail"]))).collect()
}

#[track_caller]
pub(crate) fn assert_causes(broker: &Broker, id: &str, expected: &[(&str, &str)]) {
    let found = causes(broker, id);
    let found: Vec<_> = found.iter().map(|(cause, detail)| (cause.as_str(), detail.as_str())).collect();
    assert_eq!(found, expected);
}

/// A broker that soon misses a client.
fn impatient() -> Broker {
    again_at_once(Launch { more: &["--no-auth", "--stream-idle", "600ms"], ..Launch::default() })
}

/// A stream that holds one delivery.
fn holding(broker: &Broker) -> (String, Stream) {
    let id = broker.publish("t", &json!(1));
    let mut stream = Stream::consume(broker, "s");
    stream.credit(1);
    assert_eq!(stream.deliveries(1)[0].id(), id);
    (id, stream)
}

/// However it goes, what it holds is decided at once with cause `disconnected`, and what was settled is not.
#[test]
fn leases_end_with_their_stream() {
    let broker = again_at_once(Launch::default());
    let ends: [(_, fn(Stream)); 3] = [
        ("closed_by_client", Stream::close),
        ("connection_lost", |stream| drop(stream.socket.into_inner())),
        ("connection_lost", Stream::reset),
    ];
    for (detail, end) in ends {
        let ids: Vec<_> = (0..3).map(|number| broker.publish("t", &json!(number))).collect();
        let mut stream = Stream::consume(&broker, "s");
        stream.credit(3);
        let held = stream.deliveries(3);
        let ack = json!({ "type": "ack", "id": "a", "receipts": [held[0].receipt] });
        assert_eq!(stream.ask(&ack, "acked")["items"][0]["status"], "acked");
        // Settled elsewhere: the stream does not end it once more.
        broker.nack("s", &held[1].receipt, "timeout");
        // An answer to leave unread.
        stream.send(&json!({ "type": "ack", "id": "b", "receipts": ["r"] }));
        end(stream);
        let again = [broker.next("s"), broker.next("s")];
        assert_eq!([again[0].id(), again[1].id()], [&*ids[1], &*ids[2]]);
        assert!(again.iter().all(|delivery| (delivery.attempt, delivery.failures) == (2, 1)));
        assert_causes(&broker, &ids[1], &[("nacked", "")]);
        assert_causes(&broker, &ids[2], &[("disconnected", detail)]);
        assert_eq!(broker.delivery_of(&ids[0])["state"], "acked");
        again.iter().for_each(|delivery| drop(broker.ack("s", &delivery.receipt)));
    }
}

/// An end frees thousands of leases before any of them would run out.
#[test]
fn a_stream_with_many_leases_frees_them_all() {
    let broker = again_at_once(Launch::default());
    let count = 3_000;
    for _ in 0..count / 1_000 {
        let messages = vec![json!({ "payload": 1 }); 1_000];
        broker.post("/v1/topics/t/messages", &json!({ "messages": messages })).expect(201);
    }
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(10_000);
    stream.deliveries(count);
    drop(stream);
    let mut again = 0;
    while again < count {
        let pulled = broker.pull("s", 1_000, PATIENCE);
        assert!(!pulled.is_empty(), "only {again} came again");
        assert!(pulled.iter().all(|delivery| delivery.attempt == 2));
        again += pulled.len();
    }
}

/// A pull of a stream that waits at the broker ends with the stream, and takes nothing with it.
#[test]
fn a_waiting_stream_takes_nothing_with_it() {
    let broker = again_at_once(Launch::default());
    for end in [Stream::close as fn(Stream), drop] {
        let mut stream = Stream::consume(&broker, "s");
        stream.credit(10);
        stream.ask(&json!({ "type": "ack", "id": "behind it", "receipts": ["r"] }), "acked");
        end(stream);
        let id = broker.publish("t", &json!(1));
        let delivery = broker.next("s");
        assert_eq!((delivery.id(), delivery.failures), (&*id, 0));
        broker.ack("s", &delivery.receipt);
    }
}

/// A client that answers pings may be silent for longer than the broker waits.
#[test]
fn pings_keep_a_silent_stream_open() {
    let broker = impatient();
    let (id, mut stream) = holding(&broker);
    for _ in 0..8 {
        // The library answers it at the next read.
        assert!(matches!(stream.socket.read(), Ok(Message::Ping(_))));
    }
    assert_eq!(broker.delivery_of(&id)["state"], "leased");
    stream.ask(&json!({ "type": "ack", "id": "a", "receipts": ["r"] }), "acked");
}

/// A client that does not is gone, as far as the broker can know.
#[test]
fn a_client_without_a_sign_is_given_up() {
    let broker = impatient();
    let (id, mut stream) = holding(&broker);
    // Nothing is read, so no ping is answered.
    let again = broker.next("s");
    assert_eq!((again.id(), again.attempt), (&*id, 2));
    assert_causes(&broker, &id, &[("disconnected", "idle")]);
    assert_eq!(stream.closed(), Some((4000, "idle".to_owned())));
}

/// A client that says something but reads nothing is closed once a frame is stuck for too long. What it may have seen
/// ends as disconnected, and what was never sent to it is given back without fault.
#[test]
fn a_slow_reader_is_closed() {
    let broker = impatient();
    let big = "x".repeat(250_000);
    let ids: Vec<_> = (0..80).map(|_| broker.publish("t", &json!(big))).collect();
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(1_000);
    while stream.socket.send(Message::Pong("here".into())).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for("the leases end", || (broker.subscription("s")["in_flight"] == 0).then_some(()));
    let mut ends: Vec<_> = ids.iter().flat_map(|id| causes(&broker, id)).collect();
    ends.sort();
    ends.dedup();
    let slow = ("disconnected".to_owned(), "slow_reader".to_owned());
    assert_eq!(ends, [slow, ("released".to_owned(), String::new())]);
}

/// A deleted subscription closes its streams, whether they wait for deliveries or for credit.
#[test]
fn a_deleted_subscription_closes_its_streams() {
    let broker = again_at_once(Launch::default());
    let (_, mut idle) = holding(&broker);
    let mut waiting = Stream::consume(&broker, "s");
    waiting.credit(1);
    waiting.ask(&json!({ "type": "ack", "id": "behind it", "receipts": ["r"] }), "acked");
    broker.delete("/v1/subscriptions/s").expect(204);
    for stream in [&mut waiting, &mut idle] {
        assert_eq!(stream.closed(), Some((4004, "subscription_not_found".to_owned())));
    }
}

/// A broker that stops says so, delivers no more, and lets the client settle what it holds; then it closes.
#[test]
fn a_broker_that_stops_lets_streams_finish() {
    let mut broker = again_at_once(Launch::default());
    let ids: Vec<_> = (0..3).map(|number| broker.publish("t", &json!(number))).collect();
    let mut stream = Stream::consume(&broker, "s");
    stream.credit(2);
    let held = stream.deliveries(2);
    let mut idle = Stream::consume(&broker, "s");
    idle.ask(&json!({ "type": "ack", "id": "it runs", "receipts": ["r"] }), "acked");
    let mut publisher = Stream::publish(&broker, "t");
    broker.terminate();
    for other in [&mut idle, &mut publisher] {
        other.expect("going_away");
        assert_eq!(other.closed(), Some((1001, "shutting_down".to_owned())));
    }
    stream.expect("going_away");
    let begun = Instant::now();
    stream.credit(10);
    let ack = json!({ "type": "ack", "id": "a", "receipts": [held[0].receipt] });
    assert_eq!(stream.ask(&ack, "acked")["items"][0]["status"], "acked");
    let items = json!([{ "receipt": held[1].receipt, "class": "timeout" }]);
    let nacked = stream.ask(&json!({ "type": "nack", "id": "n", "items": items }), "nacked");
    assert_eq!(nacked["items"][0]["decision"]["action"], "retry");
    assert_eq!(stream.closed(), Some((1001, "shutting_down".to_owned())));
    // With the last settlement, not when the ten seconds are over.
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert!(broker.ended().success());
    broker.start_again();
    assert_eq!(broker.delivery_of(&ids[0])["state"], "acked");
    assert_causes(&broker, &ids[1], &[("nacked", "")]);
    assert_eq!(broker.next("s").id(), ids[1]);
}

/// A client that neither settles nor goes does not hold the broker up for ever: its leases end as if it had vanished.
#[test]
fn a_broker_that_stops_waits_only_so_long() {
    let mut broker = again_at_once(Launch::default());
    let (id, mut stream) = holding(&broker);
    broker.terminate();
    stream.expect("going_away");
    assert_eq!(stream.closed(), Some((1001, "shutting_down".to_owned())));
    assert!(broker.ended().success());
    broker.start_again();
    assert_eq!(broker.next("s").attempt, 2);
    assert_causes(&broker, &id, &[("disconnected", "shutting_down")]);
}

/// A client that goes on its own when it is told ends the wait.
#[test]
fn a_client_that_goes_ends_the_wait() {
    let mut broker = again_at_once(Launch::default());
    let (id, mut stream) = holding(&broker);
    broker.terminate();
    stream.expect("going_away");
    stream.close();
    assert!(broker.ended().success());
    broker.start_again();
    assert_eq!(broker.next("s").attempt, 2);
    assert_causes(&broker, &id, &[("disconnected", "closed_by_client")]);
}
