//! `broker topic`: every setting is an option, and what a topic holds is shown without taking it.

use serde_json::json;

use crate::explain::without_times;
use crate::run::{at, fed, json_lines};
use crate::snapshot;
use crate::support::Broker;

/// Each option arrives as the setting of its name; what is left out is the broker's default again.
#[test]
fn every_setting_is_an_option() {
    let broker = Broker::start();
    let schema = br#"{"type":"object"}"#;
    let settings = [
        ["--keep-acked", "1h"],
        ["--max-message-bytes", "64KiB"],
        ["--dedup-window", "5m"],
        ["--ttl", "2d"],
        ["--max-age", "7d"],
        ["--retain-bytes", "1GiB"],
        ["--max-messages", "1000"],
        ["--max-bytes", "2GiB"],
        ["--schema", "-"],
    ];
    let arguments = [&["topic", "put", "orders", "--output", "json"], settings.as_flattened()].concat();
    let put = fed(&broker, &arguments, schema).json();
    let expected = json!({
        "name": "orders", "keep_acked": "1h", "max_message_bytes": 65_536, "dedup_window": "5m", "ttl": "2d",
        "max_age": "7d", "retain_bytes": 1_u64 << 30, "max_messages": 1_000, "max_bytes": 2_u64 << 30,
        "schema": { "type": "object" },
    });
    for (setting, value) in expected.as_object().expect("an object") {
        assert_eq!(put[setting], *value, "{setting}");
    }
    assert_eq!(broker.get("/v1/topics/orders").expect(200), put);
    let replaced = at(&broker, &["topic", "create", "orders", "--output", "json"]).json();
    assert_eq!((&replaced["keep_acked"], &replaced["ttl"]), (&json!("10m"), &json!(null)));
}

/// What is shown to people and to programs, and that it goes when it is deleted.
#[test]
fn topics_are_shown_listed_browsed_and_deleted() {
    let broker = Broker::start();
    assert!(at(&broker, &["topic", "put", "orders"]).good().starts_with("name               orders\n"));
    at(&broker, &["topic", "put", "mail", "--ttl", "1h"]).good();
    let message = json!({ "payload": { "n": 7, "a": [1.0, "x"] }, "key": "c-42", "attributes": { "b": "2", "a": "1" } });
    broker.publish_with("orders", message);
    broker.publish_with("orders", json!({ "payload_base64": "AP8=" }));
    broker.publish_with("orders", json!({ "payload_base64": "aGVsbG8K", "content_type": "text/plain" }));

    let shown = at(&broker, &["topic", "show", "mail"]).good();
    snapshot::same("topic-show", &without_times(&shown));
    snapshot::same("topic-list", &without_times(&at(&broker, &["topic", "list"]).good()));
    snapshot::same("topic-browse", &without_times(&at(&broker, &["topic", "browse", "orders"]).good()));

    let all = at(&broker, &["topic", "list", "--output", "json"]).json();
    assert_eq!(all, broker.get("/v1/topics").expect(200)["items"]);
    let lines = json_lines(&at(&broker, &["topic", "list", "--output", "jsonl"]).good());
    assert_eq!(json!(lines), all);
    let browse = ["topic", "browse", "orders", "--output", "jsonl"];
    let later = at(&broker, &[&browse[..], &["--from-sequence", "2", "--limit", "1"]].concat());
    assert_eq!(later.stderr, "broker: there are more: --limit shows as many as it says\n");
    let later = json_lines(&later.good());
    assert_eq!((later.len(), &later[0]["sequence"]), (1, &json!(2)));
    let from = [&browse[..], &["--from-time", "2100-01-01T00:00:00Z"]].concat();
    assert_eq!(at(&broker, &from).good(), "");

    assert_eq!(at(&broker, &["topic", "delete", "mail"]).good(), "");
    assert!(at(&broker, &["topic", "show", "mail"]).failed(3).contains("(topic_not_found)"));
}

/// A list of more topics than fit a page of the API is whole.
#[test]
fn a_long_list_is_whole() {
    let broker = Broker::start();
    broker.topic("t");
    let lines: String = (0..1_500).map(|number| format!("{number}\n")).collect();
    fed(&broker, &["publish", "t", "--lines"], lines.as_bytes()).good();
    let all = at(&broker, &["topic", "browse", "t", "--limit", "1200", "--output", "jsonl"]);
    assert!(all.stderr.contains("there are more"), "{}", all.stderr);
    assert_eq!(all.good().lines().count(), 1_200);
    let all = at(&broker, &["topic", "browse", "t", "--limit", "1500", "--output", "jsonl"]);
    assert_eq!((all.stderr.as_str(), all.stdout.lines().count()), ("", 1_500));
}

/// What is wrong on the command line is told before anybody is asked; what a broker refuses has its code.
#[test]
fn what_is_wrong_is_told() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    for (arguments, code, words) in [
        (&["topic", "put"][..], 2, "<TOPIC>"),
        (&["topic", "put", "../x"], 2, "a name has 1 to 128 ASCII letters"),
        (&["topic", "put", "x", "--ttl", "soon"], 2, "give a text such as"),
        (&["topic", "put", "x", "--max-bytes", "much"], 2, "256MiB"),
        (&["topic", "put", "x", "--schema", "nowhere.json"], 1, "nowhere.json: No such file"),
        (&["topic", "put", "x", "--schema", "-"], 1, "-: it is no JSON object"),
        (&["topic", "put", "x", "--max-message-bytes", "1GiB"], 4, "(invalid_setting)"),
        (&["topic", "show", "x"], 3, "(topic_not_found)"),
        (&["topic", "delete", "x"], 3, "(topic_not_found)"),
        (&["topic", "delete", "t"], 4, "(topic_in_use)"),
        (&["topic", "browse", "x"], 3, "(topic_not_found)"),
        (&["topic", "browse", "t", "--from-time", "noon"], 2, "give a moment in UTC"),
        (
            &["topic", "browse", "t", "--from-time", "2026-01-01T00:00:00Z", "--from-sequence", "1"],
            2,
            "cannot be used",
        ),
        (&["topic", "browse", "t", "--limit", "0"], 4, "(invalid_query)"),
        (&["topic", "list", "--output", "xml"], 2, "[possible values: table, json, jsonl]"),
    ] {
        let ran = at(&broker, arguments);
        assert_eq!(ran.stdout, "", "{arguments:?}");
        let complaint = ran.failed(code);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}
