//! `broker subscription`: made with every setting, changed, paused, sought, purged, looked into and deleted.

use serde_json::{Value, json};

use crate::explain::without_times;
use crate::run::{at, fed, json_lines};
use crate::snapshot;
use crate::support::Broker;

fn settings() -> Value {
    json!({
        "topic": "t", "mode": "acked", "start": { "sequence": 2 }, "filter": "a = b", "ordering": "key", "lease": "5s",
        "max_lease": "10m", "max_in_flight": 7, "max_in_flight_per_consumer": 3, "max_rate": 100,
        "delivery_delay": "1s", "retry": { "max_attempts": 3 }, "min_delay": "1s", "max_delay": "1h",
        "attempt_limit": 20, "fallback_delay": "2s", "fault_limit": 4, "forward_to": ["u", "v"],
        "inspect_payload": true, "record_failures": 10, "record_for": "1d",
    })
}

#[track_caller]
fn has_settings(subscription: &Value) {
    for (setting, value) in settings().as_object().expect("an object") {
        assert_eq!(subscription[setting], *value, "{setting}");
    }
}

/// Each option arrives as the setting of its name, and so does a file with all of them.
#[test]
fn every_setting_is_an_option_or_in_a_file() {
    let broker = Broker::start();
    for topic in ["t", "u", "v"] {
        broker.topic(topic);
    }
    let options = [
        ["--topic", "t"],
        ["--mode", "acked"],
        ["--start", "2"],
        ["--filter", "a = b"],
        ["--ordering", "key"],
        ["--lease", "5s"],
        ["--max-lease", "10m"],
        ["--max-in-flight", "7"],
        ["--max-in-flight-per-consumer", "3"],
        ["--max-rate", "100"],
        ["--delivery-delay", "1s"],
        ["--retry", r#"{"max_attempts":3}"#],
        ["--min-delay", "1s"],
        ["--max-delay", "1h"],
        ["--attempt-limit", "20"],
        ["--fallback-delay", "2s"],
        ["--fault-limit", "4"],
        ["--forward-to", "u"],
        ["--forward-to", "v"],
        ["--inspect-payload", "--output=json"],
        ["--record-failures", "10"],
        ["--record-for", "1d"],
    ];
    let put = at(&broker, &[&["subscription", "put", "s"], options.as_flattened()].concat()).json();
    has_settings(&put);
    let put = ["subscription", "put", "f", "--from", "-", "--output", "json"];
    has_settings(&fed(&broker, &put, settings().to_string().as_bytes()).json());
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), r#"{"topic_pattern":"t.>","start":"earliest"}"#).expect("it can be written");
    let path = file.path().to_str().expect("a plain path");
    let put = at(&broker, &["subscription", "create", "p", "--from", path, "--output", "json"]).json();
    assert_eq!((&put["topic_pattern"], &put["start"]), (&json!("t.>"), &json!("earliest")));
    let live = ["subscription", "put", "l", "--topic-pattern", "t.*", "--mode", "live", "--output", "json"];
    assert_eq!(at(&broker, &live).json()["mode"], "live");
    let changed =
        ["subscription", "change", "s", "--lease", "9s", "--inspect-payload=false", "--output", "json"];
    let changed = at(&broker, &changed).json();
    let expected = (&json!("9s"), &json!(false), &json!("10m"));
    assert_eq!((&changed["lease"], &changed["inspect_payload"], &changed["max_lease"]), expected);
}

/// What is shown to people: one, all of them, and what waits on one.
#[test]
fn subscriptions_are_shown_listed_and_peeked_into() {
    let broker = Broker::start();
    broker.topic("orders");
    let retry = r#"{"delay":"1h","jitter":"none"}"#;
    at(&broker, &["subscription", "put", "billing", "--topic", "orders", "--retry", retry]).good();
    at(&broker, &["subscription", "put", "audit", "--topic-pattern", "orders.>", "--mode", "auto_acked"])
        .good();
    at(&broker, &["subscription", "pause", "audit", "--reason", "deploy"]).good();
    for number in 1..=3 {
        broker
            .publish_with("orders", json!({ "payload": { "order": number }, "key": format!("c-{number}") }));
    }
    let first = broker.next("billing");
    broker.nack("billing", &first.receipt, "timeout");
    broker.next("billing");

    let shown = at(&broker, &["subscription", "show", "billing"]).good();
    // Its digest is that of this build.
    let shown: String =
        shown.lines().filter(|line| !line.starts_with("policy ")).map(|line| format!("{line}\n")).collect();
    snapshot::same("subscription-show", &without_times(&shown));
    snapshot::same("subscription-list", &at(&broker, &["subscription", "list"]).good());
    let peeked = at(&broker, &["subscription", "peek", "billing"]).good();
    snapshot::same("subscription-peek", &without_times(&peeked));
    let two = at(&broker, &["subscription", "peek", "billing", "--limit", "2", "--output", "jsonl"]);
    assert!(two.stderr.contains("there are more"), "{}", two.stderr);
    let two = json_lines(&two.good());
    assert_eq!([&two[0]["delivery"]["state"], &two[1]["delivery"]["state"]], ["delayed", "leased"]);
    let listed = json_lines(&at(&broker, &["subscription", "list", "--output", "jsonl"]).good());
    assert_eq!(json!(listed), broker.get("/v1/subscriptions").expect(200)["items"]);
}

/// Paused, nothing goes out, and it is said why; resumed, it does. A seek delivers again, a purge ends.
#[test]
fn a_subscription_is_controlled() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker.publish("t", &json!(1));
    let at = |arguments: &[&str]| at(&broker, &[&["subscription"], arguments].concat());
    assert!(at(&["pause", "s", "--reason", "deploy"]).good().contains("\"reason\":\"deploy\""));
    assert!(broker.poll("s").is_none());
    at(&["resume", "s"]).good();
    broker.ack("s", &broker.next("s").receipt);
    assert_eq!(at(&["seek", "s", "--to", "earliest"]).good(), "next_sequence  1\nended          0\n");
    broker.next("s");
    let far = at(&["seek", "s", "--to", "2100-01-01T00:00:00Z", "--output", "jsonl"]).good();
    assert_eq!(far, "{\"next_sequence\":2,\"ended\":1}\n");
    at(&["seek", "s", "--to", "1", "--topic", "t"]).good();

    let plan = at(&["purge", "s"]).failed(2);
    assert_eq!(plan, "broker: purging s ends 1 deliveries; do it with --yes\n");
    let plan = at(&["purge", "s", "--topic", "t"]).failed(2);
    assert!(plan.contains("those of its 1 deliveries that are of t"), "{plan}");
    assert_eq!(broker.subscription("s")["backlog"], 1, "a plan does nothing");
    assert_eq!(at(&["purge", "s", "--yes"]).good(), "next_sequence  2\nended          1\n");
    at(&["purge", "s"]).good();

    broker.publish("t", &json!(2));
    let plan = at(&["delete", "s"]).failed(2);
    assert_eq!(plan, "broker: deleting s loses 1 deliveries and 0 dead letters; do it with --yes\n");
    assert_eq!(at(&["delete", "s", "--yes"]).good(), "");
    assert!(at(&["show", "s"]).failed(3).contains("(subscription_not_found)"));
}

/// What is wrong on the command line is told before anybody is asked; what a broker refuses has its code.
#[test]
fn what_is_wrong_is_told() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for (arguments, code, words) in [
        (&["put", "x/y", "--topic", "t"][..], 2, "a name has 1 to 128 ASCII letters"),
        (&["put", "x"], 4, "(invalid_body)"),
        (&["put", "x", "--topic", "u"], 3, "(topic_not_found)"),
        (&["put", "x", "--topic", "t", "--topic-pattern", "t.*"], 2, "cannot be used with"),
        (&["put", "x", "--topic", "t", "--from", "f.json"], 2, "cannot be used with"),
        (&["put", "x", "--lease", "1s", "--from", "f.json"], 2, "cannot be used with"),
        (&["put", "x", "--from", "nowhere.json"], 1, "nowhere.json: No such file"),
        (&["put", "x", "--from", "-"], 1, "-: it is no JSON object"),
        (&["put", "x", "--topic", "t", "--retry", "[]"], 2, "it is no JSON object"),
        (&["put", "x", "--topic", "t", "--start", "noon"], 2, "\"earliest\", \"latest\", a sequence"),
        (
            &["put", "x", "--topic", "t", "--mode", "auto-acked"],
            2,
            "[possible values: acked, auto_acked, live]",
        ),
        (&["put", "x", "--topic", "t", "--filter", "((("], 4, "(invalid_filter)"),
        (&["put", "x", "--topic", "t", "--retry", r#"{"delay":"soon"}"#], 4, "(invalid_params)"),
        (&["put", "x", "--topic", "t", "--max-in-flight", "-1"], 2, "unexpected argument '-1'"),
        (&["put", "x", "--topic", "t", "--max-in-flight", "0"], 4, "(invalid_setting)"),
        (&["change", "x", "--lease", "1s"], 3, "(subscription_not_found)"),
        (&["change", "s", "--topic", "t"], 2, "unexpected argument '--topic'"),
        (&["show", "x"], 3, "(subscription_not_found)"),
        (&["delete", "x"], 3, "(subscription_not_found)"),
        (&["pause", "x"], 3, "(subscription_not_found)"),
        (&["resume", "x"], 3, "(subscription_not_found)"),
        (&["seek", "s"], 2, "--to"),
        (&["seek", "s", "--to", "yesterday"], 2, "a moment in UTC"),
        (&["seek", "s", "--to", "latest", "--topic", "u"], 3, "(topic_not_found)"),
        (&["purge", "x"], 3, "(subscription_not_found)"),
        (&["peek", "x"], 3, "(subscription_not_found)"),
    ] {
        let ran = at(&broker, &[&["subscription"], arguments].concat());
        assert_eq!(ran.stdout, "", "{arguments:?}");
        let complaint = ran.failed(code);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}
