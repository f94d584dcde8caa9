//! What `broker policy` asks a running broker, for people and for programs.

use serde_json::{Value, json};

use crate::run::{File, at};
use crate::support::{Broker, guests, wait_for};

const OF_S: [&str; 2] = ["--subscription", "s"];

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "10s", "jitter": "none" }, "fault_limit": 1 }));
    broker
}

fn retrying(millis: u64) -> File {
    File::of(&guests::deciding(&guests::retry(millis)).module())
}

/// `policy` with a subscription and more.
fn of_s<'a>(verb: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["policy"], verb, &OF_S, more].concat()
}

#[track_caller]
fn table(broker: &Broker, verb: &[&str], more: &[&str]) -> String {
    at(broker, &of_s(verb, more)).good()
}

#[track_caller]
fn data(broker: &Broker, verb: &[&str], more: &[&str]) -> Value {
    at(broker, &[of_s(verb, more), vec!["--output", "json"]].concat()).json()
}

/// The cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// A push makes a revision decide, the same again is the same, the list shows what each did, and one goes back.
#[test]
fn revisions_come_and_go() {
    let broker = broker();
    let file = retrying(20_000);
    let pushed =
        table(&broker, &["push"], &[&file.path(), "--params", "{\n  \"tenant\": \"Łucja\u{7f}\"\n}"]);
    let uploaded = broker.revisions("s")[1].clone();
    assert_eq!(uploaded["params"], json!({ "tenant": "Łucja\u{7f}" }), "over several lines, as in a file");
    let told = format!(
        "revision 2 decides on s: guest 1.0, {} bytes, {}\n",
        uploaded["size"],
        uploaded["digest"].as_str().expect("a digest")
    );
    assert_eq!(pushed, told);
    let again = data(&broker, &["push"], &[&file.path(), "--params", "{\"tenant\":\"Łucja\u{7f}\"}"]);
    assert_eq!((&again["revision"], &again["digest"]), (&json!(2), &uploaded["digest"]));
    broker.fail_one(json!({}));

    let broken = File::of(&guests::after_trial("(unreachable)"));
    table(&broker, &["push"], &[&broken.path()]);
    broker.fail_one(json!({}));
    let listed = table(&broker, &["revisions"], &[]);
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(
        cells(lines[0]),
        ["revision", "policy", "created", "by", "size", "trial fuel", "decisions", "faults", "params"]
    );
    let [standard, healthy, quarantined] = [1, 2, 3].map(|at| cells(lines[at]));
    assert_eq!((&standard[0], &standard[3], &standard[1][..8]), (&"1", &"broker", "standard"));
    assert_eq!((&healthy[..2], &healthy[6..9]), (&["2", "guest 1.0"][..], &["1", "0", "active"][..]));
    assert_eq!(&quarantined[6..8], ["0", "1"]);
    let why = "quarantined: the policy trapped: wasm `unreachable` instruction executed";
    assert_eq!((lines.len(), quarantined[8]), (4, why));
    assert_eq!(data(&broker, &["revisions"], &[]), json!(broker.revisions("s")));

    assert!(table(&broker, &["rollback"], &[]).starts_with("revision 1 decides on s: standard "));
    assert_eq!(table(&broker, &["rollback"], &["--revision", "2"]), "revision 2 decides on s: guest 1.0\n");
    let back = data(&broker, &["rollback"], &["--revision", "1"]);
    assert_eq!((&back["revision"], &back["active"]), (&json!(1), &json!(true)));
    let refused = at(&broker, &of_s(&["rollback"], &["--revision", "3"])).failed(1);
    assert!(refused.starts_with("broker: the broker refused (revision_quarantined): "), "{refused}");
}

/// The subscription's policy in a scenario, with its settings; the same as the API says.
#[test]
fn a_scenario_is_played_on_a_broker() {
    let broker = broker();
    let played = at(&broker, &["policy", "simulate", "timeout, 503(1m), ok", "--subscription", "s"]).good();
    let lines: Vec<_> = played.lines().collect();
    assert_eq!(cells(lines[0]), ["attempt", "at", "failed with", "decision", "fuel", "note"]);
    assert_eq!(cells(lines[1])[..4], ["1", "0s", "timeout", "retry in 10s"]);
    assert_eq!(cells(lines[2])[..4], ["2", "10s", "503", "retry in 1m"]);
    assert_eq!(lines[3..], ["acked after 1m10s"]);
    let more = ["--seed", "7", "--seeds", "3", "--work", "1s", "--start", "2026-01-01T00:00:00Z"];
    let other = ["--revision", "1", "--params", r#"{"delay":"5s","jitter":"full","max_attempts":3}"#];
    let asked = ["policy", "simulate", "timeout*", "--subscription", "s", "--output", "json"];
    let played = at(&broker, &[&asked[..], &more, &other].concat()).json();
    let body = json!({
        "scenario": "timeout*", "seed": 7, "seeds": 3, "work": "1s", "start": "2026-01-01T00:00:00Z", "revision": 1,
        "params": { "delay": "5s", "jitter": "full", "max_attempts": 3 },
    });
    assert_eq!(played, broker.post("/v1/subscriptions/s/policy/simulate", &body).expect(200));
    let shown = at(&broker, &[&asked[..5], &more, &other].concat()).good();
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(cells(lines[3])[3], "dead letter: max_attempts");
    assert!(lines[4].starts_with("dead_lettered after "), "{shown}");
    assert_eq!(lines[5], "over 3 seeds: dead_lettered 3");
    assert_eq!(lines[6], "attempts  p50 3, p90 3, p99 3, max 3");
    assert!(lines[7].starts_with("total     p50 ") && lines.len() == 8, "{shown}");
}

/// What a policy would have answered: nothing else by itself, with other parameters, a file, another revision.
#[test]
fn recorded_failures_are_asked_again() {
    let broker = broker();
    for class in ["timeout", "timeout", "odd"] {
        broker.fail_one(json!({ "class": class }));
    }
    let same = table(&broker, &["backtest"], &[]);
    let lines: Vec<_> = same.lines().collect();
    assert!(
        lines[0].starts_with("standard ")
            && lines[0].ends_with(" on 3 recorded failures: 0 decisions change")
    );
    assert_eq!(lines[1], "3 answers are its own, and the same bit for bit");
    assert!(lines.iter().any(|line| cells(line) == ["delay p50", "10s", "10s"]), "{same}");
    assert!(!same.contains("for example"), "{same}");

    let params = r#"{"delay":"10s","jitter":"none","classes":{"odd":{"action":"drop","reason":"unneeded"}}}"#;
    let other = table(&broker, &["backtest"], &["--params", params]);
    for expected in [
        vec!["class", "before", "after", "decisions"],
        vec!["odd", "retry", "drop", "1"],
        vec!["dead letters", "0", "0"],
        vec!["for example", "class", "attempt", "before", "after"],
    ] {
        assert!(other.lines().any(|line| cells(line) == expected), "{expected:?}: {other}");
    }
    assert!(other.contains("no failure was answered by this module with these parameters"), "{other}");
    assert!(other.contains("retry in 10s  drop: unneeded"), "{other}");

    let broken = File::of(&guests::after_trial("(unreachable)"));
    let report = table(&broker, &["backtest"], &[&broken.path(), "--last", "2"]);
    assert!(report.starts_with("guest 1.0 on 2 recorded failures: 2 decisions change\n"), "{report}");
    assert!(report.lines().any(|line| cells(line) == ["faults, trap", "2"]), "{report}");
    assert!(report.contains("fault: the policy trapped"), "{report}");

    let file = retrying(7_000);
    table(&broker, &["push"], &[&file.path()]);
    for (more, body) in [
        (vec!["--revision", "1", "--last", "2"], json!({ "revision": 1, "last": 2 })),
        (vec!["--params", r#"{"a":1}"#], json!({ "params": { "a": 1 } })),
    ] {
        let expected = broker.post("/v1/subscriptions/s/policy/backtest", &body).expect(200);
        assert_eq!(data(&broker, &["backtest"], &more), expected);
    }
    let given = data(&broker, &["backtest"], &[&file.path()]);
    assert_eq!((&given["failures"], &given["delays"]["after"]["max"]), (&json!(3), &json!("7s")));
}

/// A shadow is set, shown while it is asked, and removed.
#[test]
fn a_shadow_is_set_shown_and_removed() {
    let broker = broker();
    let file = retrying(7_000);
    let set = table(&broker, &["shadow", "set"], &[&file.path()]);
    assert!(set.starts_with("guest 1.0, asked since "), "{set}");
    assert!(set.contains("\nit has not answered yet; 0 questions were left out\n"), "{set}");
    broker.fail_one(json!({ "class": "timeout" }));
    let asked = || (data(&broker, &["shadow", "show"], &[])["asked"] == 1).then_some(());
    wait_for("the shadow's answer", asked);
    let shown = table(&broker, &["shadow", "show"], &[]);
    assert!(shown.contains("\nagrees in 0.0 % of 1 answers; 0 questions were left out\n"), "{shown}");
    assert!(shown.lines().any(|line| cells(line) == ["timeout", "1", "1"]), "{shown}");
    assert!(shown.contains("retry in 10s  retry in 7s"), "{shown}");
    let params = r#"{"delay":"10s","jitter":"none","max_attempts":2}"#;
    let by_params = data(&broker, &["shadow", "set"], &["--revision", "1", "--params", params]);
    assert_eq!((&by_params["name"], &by_params["asked"]), (&json!("standard"), &json!(0)));
    assert_eq!(data(&broker, &["shadow", "show"], &[])["digest"], by_params["digest"]);
    assert_eq!(table(&broker, &["shadow", "remove"], &[]), "");
    let gone = at(&broker, &of_s(&["shadow", "show"], &[])).failed(1);
    assert!(gone.contains("(shadow_not_found)"), "{gone}");
    assert_eq!(broker.revisions("s").len(), 1, "it never became a revision");
}
