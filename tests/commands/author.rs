//! The way of a policy: written, tested, tried, built, pushed; and where it can go wrong on the way.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::run::{Ran, Workshop, text};
use crate::support::{Broker, policies};

const TEST: [&str; 3] = ["policy", "test", "payments"];
const TEST_COMPILED: [&str; 4] = ["policy", "test", "payments", "--skip-native"];

/// A test of its own changes the crate and puts it back, as what comes next builds on it.
struct Change<'a> {
    path: &'a Path,
    before: Option<String>,
}

impl<'a> Change<'a> {
    fn of(path: &'a Path, text: &str) -> Self {
        let before = fs::read_to_string(path).ok();
        fs::write(path, text).expect("it can be written");
        Self { path, before }
    }

    fn replacing(path: &'a Path, from: &str, to: &str) -> Self {
        let text = fs::read_to_string(path).expect("it is there");
        assert!(text.contains(from), "{text}");
        Self::of(path, &text.replace(from, to))
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        _ = match &self.before {
            Some(text) => fs::write(self.path, text),
            None => fs::remove_file(self.path),
        };
    }
}

/// From nothing to a policy that decides, in the order of the README; then each way in which it can fail. One test, as
/// all of it builds one crate.
#[test]
fn a_policy_is_written_tested_and_put_to_work() {
    let workshop = Workshop::open();
    workshop.run("", &["policy", "new", "payments"]).good();
    // The versions that the workspace has.
    let lock = fs::read_to_string(policies::workspace().join("Cargo.lock")).expect("a lock file");
    fs::write(workshop.crates().join("payments/Cargo.lock"), lock).expect("it can be written");

    it_passes_its_own_tests(&workshop);
    it_is_built(&workshop);
    it_is_simulated(&workshop);
    it_decides_on_a_broker(&workshop);
    a_fixture_that_fails_is_named(&workshop);
    a_dear_decision_is_named(&workshop);
    an_unusable_fixture_is_named(&workshop);
    code_that_does_not_compile_is_no_policy(&workshop);
    a_crate_without_a_module_is_no_policy(&workshop);
    a_component_beyond_the_budget_is_no_policy(&workshop);
}

/// Natively and compiled, from outside its folder and from within; for people and for programs.
fn it_passes_its_own_tests(workshop: &Workshop) {
    let ran = workshop.run("", &TEST);
    assert!(ran.stderr.contains("test result: ok"), "its own tests come first: {}", ran.stderr);
    let told = ran.good();
    let lines: Vec<_> = told.lines().collect();
    assert!(
        lines[1].starts_with("ok  timeout_waits.json ")
            && lines[1].ends_with("a timeout waits for at most the first delay")
    );
    assert!(lines[2].starts_with("ok  validation_is_final.json "), "{told}");
    assert_eq!(lines[4], "payments 0.1.0: 2 of 2 fixtures hold");
    assert!(lines[5].starts_with("fuel    ") && lines[5].contains(" of 5000000 (0."), "{told}");
    assert!(lines[6].starts_with("memory  ") && lines[6].contains(" of 8192 KiB ("), "{told}");
    assert!(lines[7].starts_with("size    ") && lines[7].contains(" of 1024 KiB ("), "{told}");

    let report = workshop.run("payments", &["policy", "test", "--skip-native", "--output", "json"]).json();
    let fields: Vec<_> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = [
        "failed",
        "fixtures",
        "fuel",
        "max_fuel",
        "max_memory",
        "max_size",
        "memory",
        "name",
        "size",
        "version",
    ];
    assert_eq!(fields, expected);
    assert_eq!((&report["name"], &report["version"]), (&json!("payments"), &json!("0.1.0")));
    assert_eq!(
        (&report["max_fuel"], &report["max_memory"], &report["max_size"]),
        (&json!(5_000_000), &json!(8 << 20), &json!(1 << 20))
    );
    assert_eq!(report["failed"], 0);
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{report}"));
    let fixtures = report["fixtures"].as_array().expect("a list");
    assert_eq!(fixtures.len(), 2);
    for (fixture, file) in fixtures.iter().zip(["timeout_waits.json", "validation_is_final.json"]) {
        assert_eq!(
            (&fixture["file"], &fixture["passed"], fixture.get("problem")),
            (&json!(file), &json!(true), None)
        );
        assert!(fixture["name"].is_string());
        assert!((1..20_000).contains(&number(&fixture["fuel"])) && number(&fixture["memory"]) > 0);
    }
    for most in ["fuel", "memory"] {
        assert_eq!(fixtures.iter().map(|fixture| number(&fixture[most])).max(), Some(number(&report[most])));
    }
    assert!((5_000..100_000).contains(&number(&report["size"])), "{report}");
}

/// To a component beside cargo's own folders, within a budget.
fn it_is_built(workshop: &Workshop) {
    let built = workshop.run("payments", &["policy", "build", "--output", "json"]).json();
    let path = workshop.target().join("payments.wasm");
    assert_eq!(built["path"], text(&path));
    let component = fs::read(&path).expect("it is there");
    assert_eq!(built["size"], component.len());
    assert!(wasmparser::Parser::is_component(&component));
    assert!(built["module_size"].as_u64() > Some(1_000), "{built}");
    let told = workshop.run("", &["policy", "build", "payments"]).good();
    assert!(told.starts_with(&format!("{}  {} bytes of 1048576 (", text(&path), component.len())), "{told}");
    let ran = workshop.run("", &["policy", "build", "payments", "--max-size", "1000"]);
    let complaint = ran.failed(1);
    let told = format!("broker: {} bytes are more than 1000\n", component.len());
    assert!(complaint.ends_with(&told), "{complaint}");
}

/// Without a broker, with the crate's own module.
fn it_is_simulated(workshop: &Workshop) {
    let scenario = "timeout*3, rate_limited(30s), ok";
    let played = workshop.run("payments", &["policy", "simulate", scenario]).good();
    assert!(played.lines().any(|line| line.contains("rate_limited  retry in 30s")), "{played}");
    assert!(played.lines().last().is_some_and(|line| line.starts_with("acked after ")), "{played}");
    assert_eq!(workshop.run("", &["policy", "simulate", scenario, "--policy", "payments"]).good(), played);
    let path = text(&workshop.target().join("payments.wasm"));
    let more = [
        "--params",
        r#"{"max_attempts":3}"#,
        "--seed",
        "7",
        "--seeds",
        "20",
        "--work",
        "1s",
        "--output",
        "json",
    ];
    let arguments = [&["policy", "simulate", "timeout*", "--policy", &path][..], &more].concat();
    let played = workshop.run("", &arguments).json();
    assert_eq!((&played["end"], &played["seed"]), (&json!("dead_lettered"), &json!(7)));
    assert_eq!(played["steps"].as_array().map(Vec::len), Some(3));
    assert_eq!(played["seeds"]["ends"], json!({ "dead_lettered": 20 }));
    assert_eq!(played["policy"]["name"], "payments");
}

/// Pushed from its folder it decides; tried again as it is, nothing changes.
fn it_decides_on_a_broker(workshop: &Workshop) {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let url = format!("http://{}", broker.address());
    let asked = |verb: &[&str], more: &[&str]| {
        let arguments = [&["policy"], verb, &["--subscription", "s", "--url", &url], more].concat();
        workshop.run("payments", &arguments).good()
    };
    assert!(asked(&["push"], &[]).starts_with("revision 2 decides on s: payments 0.1.0, "));
    let (_, decision) = broker.fail_one(json!({ "class": "validation" }));
    assert_eq!((&decision["queue"], &decision["revision"]), (&json!("s/invalid"), &json!(2)));
    let tried = asked(&["backtest"], &["."]);
    assert!(tried.contains("1 answers are its own, and the same bit for bit"), "{tried}");
    let params = r#"{"max_attempts":1}"#;
    assert!(
        asked(&["shadow", "set"], &[".", "--params", params]).starts_with("payments 0.1.0, asked since ")
    );
    assert!(asked(&["rollback"], &[]).starts_with("revision 1 decides on s: standard "));
}

fn fixture(expect: &Value, max_fuel: Option<u64>) -> String {
    let context = json!({ "failure": { "class": "timeout" } });
    let mut case = json!({ "name": "a case of this test", "context": context, "expect": expect });
    if let Some(max_fuel) = max_fuel {
        case["max_fuel"] = json!(max_fuel);
    }
    case.to_string()
}

/// It fails natively, and where that is skipped, compiled; each with its file and what differs.
fn a_fixture_that_fails_is_named(workshop: &Workshop) {
    let path = workshop.crates().join("payments/fixtures/a_wish.json");
    let _change = Change::of(&path, &fixture(&json!({ "action": "drop" }), None));
    let Ran { code, stdout, stderr } = workshop.run("", &TEST);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("a_wish.json: "), "{stderr}");
    assert!(stderr.ends_with("broker: its own tests fail; the reason is above\n"), "{stderr}");

    let ran = workshop.run("", &TEST_COMPILED);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[1].starts_with("FAILED  a_wish.json ") && lines[1].contains("drop"), "{}", ran.stdout);
    assert!(lines[2].starts_with("ok      timeout_waits.json "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\npayments 0.1.0: 2 of 3 fixtures hold\n"), "{}", ran.stdout);
    let ran = workshop.run("", &[&TEST_COMPILED[..], &["--output", "json"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON also where it fails");
    assert_eq!(report["failed"], 1);
    let failed = &report["fixtures"][0];
    assert_eq!((&failed["file"], &failed["passed"]), (&json!("a_wish.json"), &json!(false)));
    assert_eq!(failed["name"], "a case of this test");
    assert!(failed["problem"].as_str().is_some_and(|problem| problem.contains("drop")), "{failed}");
}

/// The answer is right and costs more than its fixture, or the command line, allows.
fn a_dear_decision_is_named(workshop: &Workshop) {
    let path = workshop.crates().join("payments/fixtures/dear.json");
    let change = Change::of(&path, &fixture(&json!({ "action": "retry" }), Some(10)));
    let ran = workshop.run("", &[&TEST_COMPILED[..], &["--output", "json"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let dear = &report["fixtures"][0];
    let burnt = dear["fuel"].as_u64().expect("a number");
    assert!(burnt > 10 && report["failed"] == 1, "{report}");
    assert_eq!(dear["problem"], format!("it burns {burnt} fuel, 10 are allowed"));
    drop(change);
    let ran = workshop.run("", &[&TEST_COMPILED[..], &["--max-fuel", "11"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches(" fuel, 11 are allowed").count(), 2, "{}", ran.stdout);
    assert!(ran.stdout.contains(": 0 of 2 fixtures hold\n"), "{}", ran.stdout);
}

/// A file that is no case is a failure, and so is a policy without any.
fn an_unusable_fixture_is_named(workshop: &Workshop) {
    let path = workshop.crates().join("payments/fixtures/odd.json");
    for (text, told) in [("{", "EOF"), (r#"{"name":"x","expect":{"action":"retry"},"colour":1}"#, "colour")] {
        let _change = Change::of(&path, text);
        let ran = workshop.run("", &TEST_COMPILED);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stdout.lines().any(|line| line.starts_with("FAILED  odd.json ") && line.contains(told)),
            "{}",
            ran.stdout
        );
    }
    let (fixtures, away) = (workshop.crates().join("payments/fixtures"), workshop.crates().join("away"));
    fs::rename(&fixtures, &away).expect("it can be moved");
    let complaint = workshop.run("", &TEST_COMPILED).failed(1);
    fs::rename(&away, &fixtures).expect("it can be moved");
    assert!(
        complaint.ends_with("broker: there are no fixtures: say in fixtures/*.json what it should decide\n")
    );
}

/// The compiler's words come first; whoever wanted the policy hears the same.
fn code_that_does_not_compile_is_no_policy(workshop: &Workshop) {
    let path = workshop.crates().join("payments/src/lib.rs");
    let _change = Change::replacing(&path, "Decision::retry(hint)", "Decision::retyr(hint)");
    for arguments in [
        ["policy", "build", "payments"].as_slice(),
        &TEST_COMPILED,
        &["policy", "simulate", "a", "--policy", "payments"],
        &["policy", "push", "--subscription", "s", "payments"],
    ] {
        let complaint = workshop.run("", arguments).failed(1);
        assert!(complaint.contains("no function or associated item named `retyr`"), "{complaint}");
        let told = "broker: the policy does not compile (cargo: exit status: 101); the reason is above\n";
        assert!(complaint.ends_with(told), "{complaint}");
    }
    assert!(workshop.run("", &TEST).failed(1).ends_with("broker: its own tests fail; the reason is above\n"));
}

/// A library for other Rust code only.
fn a_crate_without_a_module_is_no_policy(workshop: &Workshop) {
    let path = workshop.crates().join("payments/Cargo.toml");
    let _change = Change::replacing(&path, r#"["cdylib", "rlib"]"#, r#"["rlib"]"#);
    let complaint = workshop.run("", &["policy", "build", "payments"]).failed(1);
    let told = "broker: payments makes no wasm module: its [lib] needs crate-type = [\"cdylib\"]\n";
    assert!(complaint.ends_with(told), "{complaint}");
}

/// More bytes than a broker takes.
fn a_component_beyond_the_budget_is_no_policy(workshop: &Workshop) {
    let path = workshop.crates().join("payments/src/lib.rs");
    let large = "#[used]\nstatic LARGE: [u8; 1_200_000] = [7; 1_200_000];\n\nexport!(Decider);";
    let _change = Change::replacing(&path, "export!(Decider);", large);
    let complaint = workshop.run("", &["policy", "build", "payments"]).failed(1);
    assert!(complaint.ends_with(" bytes are more than 1048576\n"), "{complaint}");
    let complaint = workshop.run("", &TEST_COMPILED).failed(1);
    assert!(complaint.contains(" bytes, 1048576 are allowed; build it with --release"), "{complaint}");
}
