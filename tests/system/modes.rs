//! Modes: leases, settled on delivery, and for whoever is connected.

use std::time::Duration;

use serde_json::json;

use crate::support::{Broker, PATIENCE, Socket, wait_for};

fn broker(mode: &str) -> Broker {
    let broker = Broker::start();
    broker.topic("t");
    broker.subscribe("s", "t", json!({ "mode": mode }));
    broker
}

/// What is handed out is done with: no receipt, nothing in flight, not even after a kill.
#[test]
fn auto_acked_settles_on_delivery() {
    let mut broker = broker("auto_acked");
    let ids = [1, 2, 3].map(|number| broker.publish("t", &json!(number)));
    let pulled = broker.pull("s", 2, Duration::ZERO);
    assert_eq!(pulled.iter().map(|delivery| delivery.id()).collect::<Vec<_>>(), [&ids[0], &ids[1]]);
    assert!(pulled.iter().all(|delivery| delivery.receipt.is_empty() && delivery.lease_until.is_empty()));
    let shown = broker.subscription("s");
    assert_eq!(
        (&shown["mode"], &shown["in_flight"], &shown["backlog"]),
        (&json!("auto_acked"), &json!(0), &json!(1))
    );
    assert_eq!(broker.delivery_of(&ids[0])["state"], "acked");
    broker.kill_and_start_again();
    assert_eq!(broker.next("s").id(), ids[2]);
    assert!(broker.poll("s").is_none());
}

/// Whoever was away gets everything that was published meanwhile, delayed messages when they are due.
#[test]
fn auto_acked_waits_for_its_consumer() {
    let mut broker = broker("auto_acked");
    let late = broker.publish_with("t", json!({ "payload": 1, "delay": "300ms" }));
    let first = broker.publish("t", &json!(2));
    broker.kill_and_start_again();
    let mut got = [broker.next("s").id().to_owned(), broker.next("s").id().to_owned()];
    got.sort();
    assert_eq!(got, [late, first]);
    assert!(broker.poll("s").is_none());
    assert_eq!(broker.subscription("s")["backlog"], 0);
}

/// A pull that was given up while it waited takes nothing with it.
#[test]
fn auto_acked_loses_nothing_to_who_hung_up() {
    let broker = broker("auto_acked");
    for number in 0..20 {
        let mut gone = Socket::connect(broker.address());
        gone.begin("/v1/subscriptions/s/pull", r#"{"wait":"20s"}"#);
        gone.finish(r#"{"wait":"20s"}"#);
        drop(gone);
        let id = broker.publish("t", &json!(number));
        assert_eq!(broker.next("s").id(), id);
    }
}

/// Whoever is connected gets what is published from then on; nothing waits for who is not.
#[test]
fn live_is_for_who_is_connected() {
    let mut broker = broker("live");
    broker.publish("t", &json!("nobody hears it"));
    assert_eq!(broker.subscription("s")["backlog"], 0);
    let client = (*broker).clone();
    let waiting = std::thread::spawn(move || client.pull("s", 10, PATIENCE));
    // It is connected once it waits: what comes before that is not for it.
    let heard = wait_for("the consumer hears one", || {
        let id = broker.publish("t", &json!("heard"));
        waiting.is_finished().then_some(id)
    });
    let pulled = waiting.join().expect("it pulls");
    assert_eq!(pulled.len(), 1);
    assert!(pulled[0].receipt.is_empty());
    assert!(pulled[0].id() <= heard.as_str());
    // Between two pulls it still counts as connected.
    broker.publish("t", &json!("in between"));
    let next = broker.next("s");
    assert!(next.id() > pulled[0].id());
    let shown = broker.subscription("s");
    assert_eq!((&shown["in_flight"], &shown["delayed"]), (&json!(0), &json!(0)));
    // A start forgets it.
    broker.publish("t", &json!("lost"));
    broker.kill_and_start_again();
    assert!(broker.poll("s").is_none());
    assert_eq!(
        broker.post("/v1/subscriptions/s/seek", &json!({ "to": "earliest" })).problem(),
        (409, "not_for_live".to_owned())
    );
}

/// Settling what was settled on delivery is refused, as nobody has a receipt.
#[test]
fn there_is_nothing_to_settle() {
    let broker = broker("auto_acked");
    broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    let answer = broker.ack("s", &delivery.receipt);
    assert_eq!(answer["error"]["code"], "invalid_receipt");
}
