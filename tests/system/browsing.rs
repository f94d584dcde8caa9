//! Reading without taking: the messages of a topic, and what is outstanding on a subscription.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Broker;

fn items(answer: &Value) -> Vec<(u64, String)> {
    let items = answer["items"].as_array().expect("a list").iter();
    let state = |item: &Value| item["delivery"]["state"].as_str().unwrap_or_default().to_owned();
    items.map(|item| (item["sequence"].as_u64().expect("a sequence"), state(item))).collect()
}

fn sequences(answer: &Value) -> Vec<u64> {
    items(answer).into_iter().map(|(sequence, _)| sequence).collect()
}

/// By sequence, by time, page by page; nothing is taken, and payloads are whole.
#[test]
fn a_topic_is_browsed() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let ids: Vec<_> = (1..=5).map(|number| broker.publish("t", &json!({ "number": number }))).collect();
    let all = broker.get("/v1/topics/t/messages").expect(200);
    assert_eq!((sequences(&all), &all["next"]), (vec![1, 2, 3, 4, 5], &Value::Null));
    assert_eq!((&all["items"][2]["payload"]["number"], &all["items"][2]["id"]), (&json!(3), &json!(ids[2])));
    let first = broker.get("/v1/topics/t/messages?from_sequence=2&limit=2").expect(200);
    assert_eq!(sequences(&first), [2, 3]);
    let next = first["next"].as_str().expect("there is more");
    let second = broker.get(&format!("/v1/topics/t/messages?limit=2&cursor={next}")).expect(200);
    assert_eq!((sequences(&second), &second["next"]), (vec![4, 5], &Value::Null));
    let at = broker.message(&ids[4])["published_at"].as_str().expect("a moment").to_owned();
    let since = broker.get(&format!("/v1/topics/t/messages?from_time={at}")).expect(200);
    assert_eq!(sequences(&since).last(), Some(&5));
    let none = broker.get("/v1/topics/t/messages?from_time=yesterday");
    assert_eq!(none.problem(), (400, "invalid_query".to_owned()));
    let both = broker.get(&format!("/v1/topics/t/messages?from_sequence=1&from_time={at}"));
    assert_eq!(both.problem(), (400, "invalid_query".to_owned()));
    assert_eq!(broker.subscription("s")["in_flight"], 0);
    assert_eq!(broker.pull("s", 10, Duration::ZERO).len(), 5);
}

/// Everything that is outstanding is shown with how it stands, and nothing that is settled or filtered.
#[test]
fn what_is_outstanding_is_peeked_at() {
    let broker = Broker::start();
    broker.topic("t");
    broker.subscribe(
        "s",
        "t",
        json!({ "filter": "not exists skip", "retry": { "delay": "1h", "max_attempts": 2 } }),
    );
    for number in 1..=6 {
        broker.publish("t", &json!(number));
    }
    broker.publish_with("t", json!({ "payload": 7, "attributes": { "skip": "" } }));
    broker.publish_with("t", json!({ "payload": 8, "delay": "1h" }));
    let held = broker.pull("s", 3, Duration::ZERO);
    broker.ack("s", &held[0].receipt);
    broker.nack("s", &held[1].receipt, "timeout");
    let state = |sequence, state: &str| (sequence, state.to_owned());
    let expected = [
        state(2, "delayed"),
        state(3, "leased"),
        state(4, "ready"),
        state(5, "ready"),
        state(6, "ready"),
        state(8, "delayed"),
    ];
    let peek = broker.get("/v1/subscriptions/s/messages").expect(200);
    assert_eq!(items(&peek), expected);
    assert_eq!(peek["items"][0]["delivery"]["timeline"]["failures"], 1, "{peek}");
    let mut paged = Vec::new();
    let mut path = "/v1/subscriptions/s/messages?limit=2".to_owned();
    loop {
        let page = broker.get(&path).expect(200);
        paged.extend(items(&page));
        assert!(paged.len() <= expected.len(), "it goes on for ever: {paged:?}");
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/subscriptions/s/messages?limit=2&cursor={next}");
    }
    assert_eq!(paged, expected);
    assert_eq!(broker.subscription("s")["in_flight"], 1, "nothing was taken");
}
