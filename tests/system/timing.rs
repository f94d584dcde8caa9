//! Delays, times to live and long polls. Every wait is for something to happen, on broker time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, Delivery, PATIENCE, Socket, millis, wait_for};

/// When a delivery on a subscription with the default lease was leased.
fn leased_at(delivery: &Delivery) -> i64 {
    millis(&json!(delivery.lease_until)) - 30_000
}

/// Waits until a message has been given up on, without anybody pulling.
fn ended(broker: &Broker, id: &str, state: &str) -> Value {
    wait_for(state, || Some(broker.delivery_of(id)).filter(|found| found["state"] == state))
}

/// A delayed message is delivered once its delay is over, not before, in a batch and raw, and after a kill.
#[test]
fn a_delayed_message_waits() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let id = broker.publish_with("t", json!({ "payload": "slow", "delay": "700ms" }));
    let request = broker.request("POST", "/v1/topics/t/messages").header("broker-delay", "500ms");
    broker.send(request.body("x")).expect(201);
    broker.publish("t", &json!("now"));
    let first = broker.next("s");
    assert_eq!(first.message["payload"], "now", "what waits does not hold up what does not");
    broker.kill_and_start_again();
    let stands = broker.delivery_of(&id);
    for (number, delay) in [(2, 500), (1, 700)] {
        let delivery = broker.next("s");
        assert_eq!(delivery.message["sequence"], number);
        assert_eq!(delivery.attempt, 1);
        assert!(leased_at(&delivery) >= millis(&delivery.message["published_at"]) + delay, "{delivery:?}");
        if number == 1 && stands["state"] == "delayed" {
            assert!(leased_at(&delivery) >= millis(&stands["until"]));
        }
    }
    assert_eq!(broker.poll("s"), None);
}

/// A time to live that passes ends the message as the policy says: a dead letter, a drop, or a delivery all the same.
#[test]
fn a_time_to_live_ends_a_message_that_waits() {
    let broker = Broker::start();
    broker.topic("t");
    for (name, on_expired) in [("bury", "dead_letter"), ("drop", "drop"), ("keep", "retry")] {
        broker.subscribe(name, "t", json!({ "retry": { "on_expired": on_expired } }));
    }
    let id = broker.publish_with("t", json!({ "payload": 1, "ttl": "100ms" }));
    let states = wait_for("all are decided", || {
        let message = broker.message(&id);
        let states: Vec<_> = message["deliveries"].as_array().expect("a list").clone();
        let decided =
            |delivery: &Value| delivery["timeline"]["history"].as_array().is_some_and(|past| past.len() == 1);
        states.iter().all(decided).then_some(states)
    });
    let state = |name: &str| {
        states.iter().find(|found| found["subscription"] == name).expect("listed")["state"].clone()
    };
    assert_eq!([state("bury"), state("drop"), state("keep")], ["dead_lettered", "dropped", "ready"]);
    let letters = broker.dead_letters("bury");
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &json!("expired")));
    assert_eq!((&letters[0]["cause"], &letters[0]["attempts"]), (&json!("message_expired"), &json!(0)));
    let delivery = broker.next("keep");
    assert!(leased_at(&delivery) >= millis(&delivery.message["expires_at"]));
    assert_eq!(broker.ack("keep", &delivery.receipt)["status"], "acked");
    assert_eq!((broker.poll("bury"), broker.poll("drop")), (None, None));
}

/// A message whose time to live passes while it is leased is left to its consumer; given back, it is decided.
#[test]
fn a_time_to_live_leaves_a_leased_message_to_its_consumer() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "1h" } }));
    let publish = || broker.publish_with("t", json!({ "payload": 1, "ttl": "150ms" }));
    let (acked, nacked) = (publish(), publish());
    let held = broker.pull("s", 2, Duration::ZERO);
    let expiring = publish();
    ended(&broker, &expiring, "dead_lettered");
    assert_eq!(broker.delivery_of(&acked)["state"], "leased");
    assert_eq!(broker.ack("s", &held[0].receipt), json!({ "receipt": held[0].receipt, "status": "acked" }));
    assert_eq!(broker.nack("s", &held[1].receipt, "timeout")["decision"]["action"], "retry");
    let end = ended(&broker, &nacked, "dead_lettered");
    let causes: Vec<_> = end["timeline"]["history"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|past| past["cause"].clone())
        .collect();
    assert_eq!(causes, ["nacked", "message_expired"]);
}

/// A pull that waits is over at its time with nothing, and not before.
#[test]
fn a_long_poll_ends_at_its_time() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let start = Instant::now();
    assert_eq!(broker.pull("s", 1, Duration::from_millis(300)), []);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// Sends a pull that waits for a minute; the broker is at work on it when this returns.
fn waiting_pull(broker: &Broker) -> Socket {
    let mut socket = Socket::connect(broker.address());
    let body = r#"{"wait":"1m"}"#;
    socket.begin("/v1/subscriptions/s/pull", body);
    socket.finish(body);
    // One round through the broker behind it.
    broker.subscription("s");
    socket
}

fn received(mut socket: Socket) -> Delivery {
    let (status, body) = socket.read();
    assert_eq!(status, 200, "{body}");
    let mut answer: Value = serde_json::from_str(&body).expect("JSON");
    serde_json::from_value(answer["deliveries"][0].take()).unwrap_or_else(|_| panic!("no delivery: {body}"))
}

/// A waiting pull is woken by a publish, a delay that ends, a release, a retry and a lease that runs out, each long
/// before its own time is over.
#[test]
fn a_long_poll_is_woken_by_whatever_becomes_ready() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "lease": "30s", "retry": { "delay": "50ms", "jitter": "none" } }));
    let socket = waiting_pull(&broker);
    broker.publish("t", &json!("published"));
    let delivery = received(socket);
    assert_eq!((delivery.attempt, &delivery.message["payload"]), (1, &json!("published")));

    let socket = waiting_pull(&broker);
    broker.release("s", &delivery.receipt);
    let delivery = received(socket);
    assert_eq!((delivery.attempt, delivery.failures), (2, 0), "released");

    let socket = waiting_pull(&broker);
    broker.nack("s", &delivery.receipt, "timeout");
    let delivery = received(socket);
    assert_eq!((delivery.attempt, delivery.failures), (3, 1), "retried");

    let socket = waiting_pull(&broker);
    broker.extend("s", &delivery.receipt, "100ms");
    let delivery = received(socket);
    assert_eq!((delivery.attempt, delivery.failures), (4, 2), "its lease ran out");
    broker.ack("s", &delivery.receipt);

    let socket = waiting_pull(&broker);
    broker.publish_with("t", json!({ "payload": "later", "delay": "100ms" }));
    assert_eq!(received(socket).message["payload"], "later");
}

/// Pulls that wait are served in the order they came, and each delivery goes to one of them.
#[test]
fn waiting_pulls_are_served_in_order() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let sockets: Vec<_> = (0..3).map(|_| waiting_pull(&broker)).collect();
    for number in 0..3 {
        broker.publish("t", &json!(number));
    }
    let payloads: Vec<_> =
        sockets.into_iter().map(|socket| received(socket).message["payload"].clone()).collect();
    assert_eq!(payloads, [0, 1, 2]);
}

/// A client that vanishes while its pull waits takes nothing with it.
#[test]
fn a_waiting_pull_that_vanishes_takes_nothing() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    drop(waiting_pull(&broker));
    broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    assert!(
        delivery.attempt <= 2 && delivery.failures == 0,
        "at most given back without fault: {delivery:?}"
    );
    assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
}

/// No more deliveries are under a lease than `max_in_flight`, and each settled one makes room for the next.
#[test]
fn max_in_flight_bounds_leases() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "max_in_flight": 2 }));
    for number in 0..4 {
        broker.publish("t", &json!(number));
    }
    let held = broker.pull("s", 10, Duration::ZERO);
    assert_eq!(held.len(), 2);
    assert_eq!(broker.poll("s"), None);
    let socket = waiting_pull(&broker);
    broker.ack("s", &held[0].receipt);
    assert_eq!(received(socket).message["payload"], 2);
    assert_eq!(broker.poll("s"), None);
    broker.change("s", &json!({ "max_in_flight": 3 }));
    assert_eq!(broker.pull("s", 10, PATIENCE).len(), 1);
}

/// With a delivery delay every message waits so long after its publish, in order, without a row of its own; a message's
/// own longer delay counts; a kill changes nothing.
#[test]
fn a_delivery_delay_holds_every_message_back() {
    let mut broker = Broker::start();
    broker.topic("t");
    broker.subscribe("s", "t", json!({ "delivery_delay": "600ms" }));
    let first = broker.publish("t", &json!(1));
    let last = broker.publish_with("t", json!({ "payload": 2, "delay": "900ms" }));
    let second = broker.publish("t", &json!(3));
    let shown = broker.subscription("s");
    assert_eq!((&shown["delayed"], &shown["backlog"]), (&json!(0), &json!(3)));
    let stands = broker.delivery_of(&first);
    if stands["state"] == "delayed" {
        let published_at = broker.message(&first)["published_at"].clone();
        assert_eq!(millis(&stands["until"]), millis(&published_at) + 600);
    }
    broker.kill_and_start_again();
    // After a slow start all may be due; before that they come in the order of their times.
    let mut expected = vec![first, last.clone(), second];
    while !expected.is_empty() {
        let delivery = broker.next("s");
        let delay = if delivery.id() == last { 900 } else { 600 };
        assert!(leased_at(&delivery) >= millis(&delivery.message["published_at"]) + delay, "{delivery:?}");
        expected.retain(|id| id != delivery.id());
    }
    assert_eq!(broker.poll("s"), None);
}

/// A message can be due at a moment of broker time; one in the past is due at once, one beyond a year is refused.
#[test]
fn a_message_is_due_at_a_moment() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let now = broker.message(&broker.publish("t", &json!(0)))["published_at"].clone();
    broker.next("s");
    let soon = humantime::parse_rfc3339(now.as_str().expect("a text")).expect("a moment");
    let soon = humantime::format_rfc3339_millis(soon + Duration::from_millis(400)).to_string();
    let id = broker.publish_with("t", json!({ "payload": 1, "deliver_at": soon }));
    let past = broker.publish_with("t", json!({ "payload": 2, "deliver_at": "2001-01-01T00:00:00Z" }));
    assert_eq!(broker.next("s").id(), past);
    let delivery = broker.next("s");
    assert_eq!(delivery.id(), id);
    assert!(leased_at(&delivery) >= millis(&json!(soon)));
    let far = broker.post(
        "/v1/topics/t/messages",
        &json!({ "messages": [{ "payload": 1, "deliver_at": "2999-01-01T00:00:00Z" }, { "payload": 2 }] }),
    );
    let items = far.expect(201)["items"].clone();
    assert_eq!(items[0]["error"]["code"], "invalid_duration", "{items}");
    let raw =
        broker.request("POST", "/v1/topics/t/messages").header("broker-deliver-at", "tomorrow").body("x");
    assert_eq!(broker.send(raw).problem().1, "invalid_body");
}

/// A delivery delay that is taken back holds nothing back any more.
#[test]
fn a_delivery_delay_can_be_taken_back() {
    let broker = Broker::start();
    broker.topic("t");
    broker.subscribe("s", "t", json!({ "delivery_delay": "1h" }));
    let id = broker.publish("t", &json!(1));
    assert_eq!(broker.poll("s"), None);
    broker.change("s", &json!({ "delivery_delay": 0 }));
    assert_eq!(broker.next("s").id(), id);
}
