//! Events: whoever listens hears of policies and circuits, in order, and can come back.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::support::{Answer, Broker, Client, guests};

/// A client that listens.
pub(crate) struct Listener {
    status: u16,
    headers: reqwest::header::HeaderMap,
    lines: std::io::Lines<BufReader<reqwest::blocking::Response>>,
}

/// One event: id, name and data.
pub(crate) type Event = (String, String, Value);

impl Listener {
    pub(crate) fn open(broker: &Client, last: Option<&str>) -> Self {
        let request = broker.request("GET", "/v1/events");
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        let answer = request.send().expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut lines = BufReader::new(answer).lines();
        // From here on nothing is missed.
        let first = lines.next().expect("a line").expect("it can be read");
        assert_eq!(first, ": events follow");
        Self { status, headers, lines }
    }

    /// What came before the events.
    pub(crate) fn answer(self) -> Answer {
        Answer { status: self.status, headers: self.headers, body: Vec::new() }
    }

    /// The next event; `None` at the end.
    pub(crate) fn hear(&mut self) -> Option<Event> {
        let mut event = (String::new(), String::new(), Value::Null);
        loop {
            let line = self.lines.next()?.expect("it can be read");
            match line.split_once(": ") {
                Some(("id", id)) => event.0 = id.to_owned(),
                Some(("event", name)) => event.1 = name.to_owned(),
                Some(("data", data)) => event.2 = serde_json::from_str(data).expect("JSON"),
                _ if line.is_empty() && !event.1.is_empty() => return Some(event),
                _ => {}
            }
        }
    }

    fn names(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.hear().expect("an event").1).collect()
    }
}

/// A revision that takes over, one that is quarantined, a pause with its probe and its end: each is told once, in order.
#[test]
fn policies_and_circuits_are_told_of() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 1, "max_delay": "1ms" }));
    let mut listener = Listener::open(&broker, None);
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    let (_, name, data) = listener.hear().expect("an event");
    assert_eq!(
        (name.as_str(), &data["subscription"], &data["revision"]),
        ("policy_activated", &json!("s"), &json!(2))
    );
    assert_eq!((&data["name"], data["at"].is_string()), (&json!("guest"), true));
    broker.fail_one(json!({}));
    let (_, name, data) = listener.hear().expect("an event");
    assert_eq!((name.as_str(), &data["revision"]), ("policy_quarantined", &json!(2)));
    assert!(data["fault"].as_str().is_some_and(|fault| fault.contains("unreachable")));
    let (_, name, data) = listener.hear().expect("an event");
    assert_eq!((name.as_str(), &data["revision"]), ("policy_activated", &json!(1)));

    let pausing = format!("{} {}", guests::pause(1, 3, "down\nfor good"), guests::retry(0));
    broker.upload("s", &guests::after_trial(&pausing), None).expect(201);
    broker.fail_one(json!({}));
    assert_eq!(listener.names(1), ["policy_activated"]);
    let (_, name, data) = listener.hear().expect("an event");
    assert_eq!(
        (name.as_str(), &data["probes"], &data["reason"]),
        ("subscription_paused", &json!(3), &json!("down\nfor good"))
    );
    assert!(data["until"].is_string());
    let delivery = broker.next("s");
    broker.ack("s", &delivery.receipt);
    assert_eq!(listener.names(2), ["subscription_probing", "subscription_resumed"]);
}

/// Who comes back goes on behind the last one heard; what is no longer known is said to be missed; an id of an earlier
/// run begins at the beginning.
#[test]
fn a_listener_can_come_back() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let mut listener = Listener::open(&broker, None);
    let set = |broker: &Broker, n: u32| {
        broker.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": n }))
    };
    for n in 1..=3 {
        set(&broker, n).expect(201);
    }
    let heard: Vec<_> = (0..3).map(|_| listener.hear().expect("an event")).collect();
    let mut again = Listener::open(&broker, Some(&heard[0].0));
    assert_eq!([again.hear(), again.hear()].map(|event| event.expect("an event")), heard[1..]);
    broker.kill_and_start_again();
    set(&broker, 4).expect(201);
    let mut after = Listener::open(&broker, Some(&heard[2].0));
    assert_eq!(after.hear().expect("an event").2["revision"], 5);
    assert_eq!(Listener::open(&broker, Some("nonsense")).hear().expect("an event").2["revision"], 5);
}

/// Listeners are bounded, and an orderly end ends them.
#[test]
fn listeners_are_bounded_and_end_with_the_broker() {
    let mut broker = Broker::start();
    let mut listeners: Vec<_> = (0..64).map(|_| Listener::open(&broker, None)).collect();
    assert_eq!(broker.get("/v1/events").problem(), (429, "too_many_listeners".to_owned()));
    broker.terminate();
    for listener in &mut listeners {
        assert_eq!(listener.hear(), None);
    }
    assert!(broker.ended().success());
}
