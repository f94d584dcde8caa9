//! `broker dead-letter`.

use serde_json::{Value, json};

use crate::explain::without_times;
use crate::run::{at, json_lines};
use crate::snapshot;
use crate::support::Broker;

fn broker() -> Broker {
    let broker = Broker::start();
    let classes = json!({
        "bad": { "action": "dead_letter", "queue": "invalid", "reason": "can never succeed" },
        "odd one": { "action": "dead_letter", "reason": "odd" },
    });
    broker.topic_and_subscription(json!({ "retry": { "classes": classes } }));
    broker
}

fn ids(broker: &Broker, filter: &[&str]) -> Vec<String> {
    let listed = at(broker, &[&["dead-letter", "list", "--output", "jsonl"], filter].concat()).good();
    let id = |letter: &Value| letter["id"].as_str().expect("an id").to_owned();
    json_lines(&listed).iter().map(id).collect()
}

/// They are found by where they are and why they died, shown with what happened, and go back or away.
#[test]
fn dead_letters_are_found_replayed_and_discarded() {
    let broker = broker();
    for class in ["bad", "odd one", "bad"] {
        broker.fail_one(json!({ "class": class, "detail": "no such order" }));
    }
    let all = ids(&broker, &[]);
    assert_eq!(all.len(), 3);
    assert_eq!(ids(&broker, &["--subscription", "s"]), all);
    assert_eq!(ids(&broker, &["--class", "odd one"]), all[1..2]);
    assert_eq!(ids(&broker, &["--queue", "invalid"]), [&*all[0], &all[2]]);
    assert_eq!(
        ids(&broker, &["--queue", "s/invalid", "--class", "bad&limit=1"]),
        [""; 0],
        "a filter is a value"
    );
    snapshot::same("dead-letter-list", &without_times(&at(&broker, &["dead-letter", "list"]).good()));
    snapshot::same(
        "dead-letter-show",
        &without_times(&at(&broker, &["dead-letter", "show", &all[0]]).good()),
    );
    let shown = at(&broker, &["dead-letter", "show", &all[0], "--output", "json"]).json();
    assert_eq!(shown, broker.dead_letter(&all[0]));
    let limited = at(&broker, &["dead-letter", "list", "--limit", "2"]);
    assert!(limited.stderr.contains("there are more"), "{}", limited.stderr);

    let replayed = at(&broker, &["dead-letter", "replay", &all[0], &all[1]]).good();
    assert_eq!(
        replayed,
        "message                    replays\nm000000010000000000000001  1\nm000000010000000000000002  1\n"
    );
    let again = at(&broker, &["dead-letter", "replay", &all[0], &all[2], "--output", "jsonl"]);
    assert_eq!(
        json_lines(&again.stdout)[0]["message_id"],
        "m000000010000000000000003",
        "the good one goes back"
    );
    let complaint = again.failed(3);
    assert!(complaint.starts_with(&format!("broker: {}: ", all[0])), "{complaint}");
    assert!(complaint.contains("(dead_letter_not_found)"), "{complaint}");

    let (_, _) = broker.fail_one(json!({ "class": "bad" }));
    let left = ids(&broker, &[]);
    assert_eq!(at(&broker, &["dead-letter", "discard", &left[0]]).good(), "");
    at(&broker, &["dead-letter", "discard", &left[0]]).failed(3);
    assert_eq!(ids(&broker, &[]), [""; 0]);
}

/// What is wrong on the command line is told before anybody is asked.
#[test]
fn what_is_wrong_is_told() {
    let broker = broker();
    for (arguments, code, words) in [
        (&["show", "../topics"][..], 2, "a dead letter's id is what the list gave"),
        (&["show", "m000000010000000000000001"], 2, "a dead letter's id is what the list gave"),
        (&["replay"], 2, "<IDS>"),
        (&["discard", "all"], 2, "a dead letter's id is what the list gave"),
        (&["list", "--subscription", "a/b"], 2, "a name has 1 to 128 ASCII letters"),
        (&["list", "--subscription", "x"], 3, "(subscription_not_found)"),
        (&["list", "--queue", "a b"], 4, "(invalid_name)"),
        (&["list", "--limit", "some"], 2, "--limit"),
    ] {
        let complaint = at(&broker, &[&["dead-letter"], arguments].concat()).failed(code);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}
