//! Texts of policies and consumers are shown, and none of them steers the terminal.

use serde_json::json;

use crate::run::{File, Ran, at, command, run};
use crate::support::guests::{self, Guest};
use crate::support::{Broker, wait_for};

/// Clears the screen, sets the title, forges a line; the same in the form with one character.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\nbroker: all is well\u{9b}31m\u{7f}";

/// A policy that says such things wherever it may say something.
fn hostile(decide: &str) -> Guest {
    Guest {
        decide: decide.to_owned(),
        // The version.
        describe: "(i32.store8 (i32.const 2054) (i32.const 27)) (i32.const 1200)".to_owned(),
        ..Guest::default()
    }
}

/// No character that a terminal acts upon but the end of a line, which only the command itself writes.
#[track_caller]
fn harmless(ran: &Ran) -> &Ran {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("broker: all is well")), "{text}");
    }
    ran
}

/// What the broker tells of a policy: its version, the reasons and notes of its decisions, its pauses, and the failures
/// of consumers, as tables and as JSON.
#[test]
fn nothing_that_a_broker_tells_steers_the_terminal() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let decide = format!("{} {}", guests::note(EVIL), guests::dead_letter(None, EVIL));
    let file = File::of(&hostile(&decide).module());
    let path = file.path();
    harmless(&at(&broker, &["policy", "push", "--subscription", "s", &path]));
    let item = json!({ "class": format!("c{EVIL}"), "code": EVIL, "detail": EVIL });
    let (id, decision) = broker.fail_one(item);
    assert_eq!(decision["reason"], EVIL, "the API tells it as it is");
    let paused =
        format!("{} {} {}", guests::pause(3_600_000, 1, EVIL), guests::note(EVIL), guests::retry(1_000));
    let other = File::of(&hostile(&paused).module());
    let other_path = other.path();
    harmless(&at(&broker, &["policy", "shadow", "set", "--subscription", "s", &other_path]));
    broker.fail_one(json!({ "class": "odd\u{9b}" }));
    wait_for("the shadow's answer", || {
        (broker.get("/v1/subscriptions/s/policy/shadow").json()["asked"] == 1).then_some(())
    });
    for format in ["table", "json"] {
        for (shows, arguments) in [
            (true, vec!["message", "explain", &id]),
            (true, vec!["policy", "revisions", "--subscription", "s"]),
            (true, vec!["policy", "simulate", "a*2", "--subscription", "s"]),
            (true, vec!["policy", "simulate", "a*2", "--policy", &path]),
            (true, vec!["policy", "simulate", "a*2", "--policy", &other_path]),
            (true, vec!["policy", "backtest", "--subscription", "s"]),
            (true, vec!["policy", "backtest", "--subscription", "s", &other_path]),
            (true, vec!["policy", "shadow", "show", "--subscription", "s"]),
            (false, vec!["policy", "rollback", "--subscription", "s"]),
            (true, vec!["policy", "push", "--subscription", "s", &other_path]),
        ] {
            let arguments = [arguments, vec!["--output", format]].concat();
            let ran = at(&broker, &arguments);
            harmless(&ran);
            let shown = ran.good();
            let marks = ['\u{fffd}', '\\'];
            assert!(!shows || shown.contains(marks) || format == "table" && shown.contains(".0"), "{shown}");
        }
        at(&broker, &["policy", "rollback", "--subscription", "s", "--revision", "2"]).good();
    }
    at(&broker, &["policy", "push", "--subscription", "s", &other_path]).good();
    let (paused, _) = broker.fail_one(json!({}));
    let ran = at(&broker, &["message", "explain", &paused]);
    assert!(harmless(&ran).stdout.contains("is paused by its policy until"), "{}", ran.stdout);
}

/// What a policy says of parameters that it refuses comes as a complaint, from the broker and from the sandbox here.
#[test]
fn nothing_that_a_policy_complains_steers_the_terminal() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let refusing = Guest {
        // Two bytes at 2304, the text of the refusal: an escape and a tab.
        check: "(i32.store8 (i32.const 2304) (i32.const 27)) (i32.store8 (i32.const 2305) (i32.const 9))
            (i32.store (i32.const 1304) (i32.const 2304)) (i32.store (i32.const 1308) (i32.const 2))
            (i32.store8 (i32.const 1300) (i32.const 1)) (i32.const 1300)"
            .to_owned(),
        ..Guest::default()
    };
    let file = File::of(&refusing.module());
    for ran in [
        at(&broker, &["policy", "push", "--subscription", "s", &file.path()]),
        run(&["policy", "simulate", "a", "--policy", &file.path()]),
    ] {
        let complaint = harmless(&ran).stderr.clone();
        assert!(complaint.contains("the policy refuses these params: \u{fffd}\u{fffd}"), "{complaint}");
        ran.failed(1);
    }
}

/// Keys, attributes, payloads, reasons and details come from anywhere, and so do the names in a file of contexts.
#[test]
fn nothing_in_a_message_steers_the_terminal() {
    let broker = Broker::start();
    let classes = json!({ "bad": { "action": "dead_letter", "reason": EVIL } });
    broker.topic_and_subscription(json!({ "filter": "not exists x", "retry": { "classes": classes } }));
    let message = |payload: serde_json::Value| {
        let mut message = payload;
        message["key"] = json!(EVIL);
        message["attributes"] = json!({ "evil": EVIL });
        broker.publish_with("t", message);
    };
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, EVIL);
    message(json!({ "payload": { EVIL: EVIL } }));
    message(json!({ "payload_base64": text, "content_type": "text/plain" }));
    message(json!({ "payload": "\u{9b}2J" }));
    for _ in 0..2 {
        broker.nack_with(
            "s",
            &broker.next("s").receipt,
            json!({ "class": "bad", "code": EVIL, "detail": EVIL }),
        );
    }
    let letter = broker.dead_letters("s")[0]["id"].as_str().expect("an id").to_owned();
    broker.post("/v1/subscriptions/s/pause", &json!({ "reason": EVIL })).expect(200);
    for format in ["table", "json", "jsonl"] {
        for arguments in [
            vec!["topic", "browse", "t"],
            vec!["subscription", "peek", "s"],
            vec!["subscription", "show", "s"],
            vec!["subscription", "list"],
            vec!["dead-letter", "list"],
            vec!["dead-letter", "show", &letter],
            vec!["top", "--once", "--interval", "100ms"],
        ] {
            let ran = at(&broker, &[arguments.clone(), vec!["--output", format]].concat());
            let shown = harmless(&ran).stdout.clone();
            assert!(shown.contains(['\u{fffd}', '\\']), "{arguments:?} shows it: {shown}");
            ran.good();
        }
        let pulled = at(&broker, &["pull", "s", "--output", format]);
        assert!(harmless(&pulled).stderr.contains("is paused by"), "{}", pulled.stderr);
    }
    broker.post("/v1/subscriptions/s/resume", &json!({})).expect(200);
    harmless(&at(&broker, &["pull", "s"])).stdout.contains('\u{fffd}').then_some(()).expect("it is shown");
    harmless(&at(&broker, &["ack", "s", EVIL]));
    harmless(&at(&broker, &["publish", "t", "1", "--attribute", &format!("{EVIL}=1")]));

    let home = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(home.path().join("reprise")).expect("a folder");
    let contexts =
        json!({ "current": EVIL, "contexts": { EVIL: { "url": EVIL, "realm": EVIL, "token_file": EVIL } } });
    std::fs::write(home.path().join("reprise/contexts.json"), contexts.to_string())
        .expect("it can be written");
    for arguments in
        [&["context", "list"][..], &["context", "show"], &["topic", "list"], &["context", "use", "\u{1b}"]]
    {
        harmless(&Ran::of(command(arguments).env("XDG_CONFIG_HOME", home.path())));
    }
}
