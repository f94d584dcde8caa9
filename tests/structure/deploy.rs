//! What is deployed and how it is run stay in step with the broker.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::{root, sources};

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn deployed(path: &str) -> String {
    file(&format!("examples/deploy/{path}"))
}

/// What follows `start` in the first line that begins so, without quotes.
#[track_caller]
fn value(text: &str, start: &str) -> String {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(start));
    found.unwrap_or_else(|| panic!("no line begins with {start}")).trim().trim_matches('"').to_owned()
}

/// The words of `serve` as docs/broker.toml lists them: keys, flags and variables. A test of the commands compares that
/// with the binary.
struct Words {
    keys: BTreeSet<String>,
    flags: BTreeSet<String>,
    variables: BTreeSet<String>,
}

fn words() -> Words {
    let page = file("docs/broker.toml");
    let settings = page.lines().filter_map(|line| line.strip_prefix('#'));
    let keys = settings.clone().filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()));
    let named = settings.filter(|line| line.starts_with(" --")).map(|line| line.trim().split_once(", "));
    let named: Vec<_> = named.map(|pair| pair.expect("a flag and a variable")).collect();
    let variables = named.iter().filter_map(|(_, rest)| Some(rest.split_once('.')?.0.to_owned()));
    let mut flags: BTreeSet<_> = named.iter().map(|(flag, _)| (*flag).to_owned()).collect();
    flags.insert("--config".to_owned());
    let mut variables: BTreeSet<_> = variables.collect();
    variables.insert("BROKER_CONFIG".to_owned());
    let keys: BTreeSet<_> = keys.filter(|key| !key.contains(' ')).collect();
    assert!(keys.len() > 10 && keys.len() + 1 == flags.len() && flags.len() == variables.len());
    Words { keys, flags, variables }
}

/// Every flag, variable and key that a file for deployment names is one of the broker's.
#[test]
fn settings_named_in_deployments_exist() {
    let Words { keys, flags, variables } = words();
    let arguments = |text: &str, start: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(start));
        let words = lines.flat_map(|line| line.split([' ', '=']).map(str::to_owned).collect::<Vec<_>>());
        words.filter(|word| word.starts_with("--")).collect()
    };
    let unit = arguments(&deployed("systemd/reprise.service"), "ExecStart=");
    let pod = arguments(&deployed("helm/reprise/templates/statefulset.yaml"), "- --");
    let pod_text = deployed("helm/reprise/templates/statefulset.yaml");
    let pod: BTreeSet<_> = pod_text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --")?.split_once('='))
        .map(|(flag, _)| format!("--{flag}"))
        .chain(pod)
        .collect();
    assert!(unit.contains("--config") && pod.len() == 4, "they are read: {unit:?} {pod:?}");
    for flag in unit.iter().chain(&pod) {
        assert!(flags.contains(flag), "there is no {flag}");
    }
    for path in ["container/Containerfile", "container/compose.yaml", "README.md"] {
        let text = deployed(path);
        let named = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        let named: Vec<_> = named.filter(|word| word.starts_with("BROKER_")).collect();
        assert!(!named.is_empty(), "{path} is read");
        for variable in named {
            assert!(variables.contains(variable), "{path}: there is no {variable}");
        }
    }
    let schema: Value = serde_json::from_str(&deployed("helm/reprise/values.schema.json")).expect("JSON");
    let config = schema["properties"]["config"]["properties"].as_object().expect("an object");
    let of_chart = ["data_dir", "listen", "no_auth", "operator_token_file"].map(str::to_owned);
    let known: BTreeSet<_> = config.keys().cloned().chain(of_chart).collect();
    assert_eq!(known, keys, "values.schema.json has the settings that the chart leaves open");
    let values = deployed("helm/reprise/values.yaml");
    for (at, line) in values.lines().enumerate() {
        if let Some((key, _)) = line.split_once(':').filter(|(key, _)| key.chars().all(char::is_alphabetic)) {
            assert!(schema["properties"].get(key).is_some(), "values.yaml:{}: {key} has no schema", at + 1);
        }
    }
}

/// Versions are those of the workspace, the compiler that of rust-toolchain.toml.
#[test]
fn versions_match() {
    let version = value(&file("Cargo.toml"), "version = ");
    let chart = deployed("helm/reprise/Chart.yaml");
    assert_eq!([value(&chart, "version:"), value(&chart, "appVersion:")], [version.clone(), version.clone()]);
    let image = format!("reprise-broker:{version}");
    assert_eq!(value(&deployed("container/compose.yaml"), "image:"), image);
    for path in ["container/Containerfile", "README.md"] {
        assert!(deployed(path).contains(&format!("--tag {image}")), "{path}");
    }
    let compiler = value(&file("rust-toolchain.toml"), "channel = ");
    let from = value(&deployed("container/Containerfile"), "FROM docker.io/library/rust:");
    assert_eq!(from, format!("{compiler}-slim-bookworm AS build"));
}

/// Whoever stops a broker waits longer than it gives requests in flight, and texts name the same times.
#[test]
fn there_is_time_to_drain() {
    let server = file("broker/src/http/server.rs");
    let grace = value(&server, "const GRACE: Duration = Duration::from_secs(");
    let grace: u64 = grace.trim_end_matches(");").parse().expect("seconds");
    let seconds = |text: String| text.trim_end_matches('s').parse::<u64>().expect("seconds");
    let values = deployed("helm/reprise/values.yaml");
    for given in [
        value(&deployed("systemd/reprise.service"), "TimeoutStopSec="),
        value(&deployed("container/compose.yaml"), "stop_grace_period:"),
        value(&values, "terminationGracePeriodSeconds:"),
    ] {
        assert!(seconds(given) >= 2 * grace);
    }
    for text in [
        deployed("systemd/reprise.service"),
        deployed("container/compose.yaml"),
        values,
        file("docs/operate.md"),
    ] {
        assert!(text.contains(&format!("requests in flight have {grace} seconds")));
    }
}

/// Every line of the log of level warn and error is explained in docs/operate.md, and nothing else is.
#[test]
fn each_warning_is_explained() {
    let mut told = BTreeSet::new();
    for (path, code) in sources(&root().join("broker/src")) {
        for level in ["warn", "error"] {
            for call in code.split(&format!("tracing::{level}!(")).skip(1) {
                let message = message(call).unwrap_or_else(|| panic!("{path}: a line has a text of its own"));
                told.insert((level.to_owned(), message));
            }
        }
    }
    assert!(told.len() > 15, "they are read");
    let page = file("docs/operate.md");
    let mut explained = BTreeSet::new();
    for level in ["warn", "error"] {
        for row in page.lines().filter_map(|line| line.strip_prefix(&format!("| {level} | "))) {
            let cell = row.split(" | ").next().unwrap_or_default();
            let lines: Vec<_> = match cell.strip_prefix("``") {
                Some(one) => vec![one.trim_end_matches('`')],
                None => cell.split('`').skip(1).step_by(2).collect(),
            };
            explained.extend(lines.into_iter().map(|line| (level.to_owned(), line.to_owned())));
        }
    }
    assert_eq!(explained, told);
}

/// The last text within the brackets of a call, of which this is what follows the opening one.
fn message(call: &str) -> Option<String> {
    let (mut depth, mut last, mut text) = (1, None, None::<String>);
    for c in call.chars() {
        match (&mut text, c) {
            (Some(_), '"') => last = text.take(),
            (Some(text), c) => text.push(c),
            (None, '"') => text = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    last
}
