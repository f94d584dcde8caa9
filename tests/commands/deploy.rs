//! What examples/deploy tells the broker, and asks it, works with this one.

use std::process::Command;

use crate::run::{run, text};
use crate::support::Broker;

fn deployed(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/deploy").join(path)
}

/// The unit's file of settings is one that `serve` takes.
#[test]
fn the_units_settings_are_taken() {
    let file = text(&deployed("systemd/broker.toml"));
    run(&["config", "check", &file]).good();
    let shown = run(&["config", "show", "--config", &file]).good();
    assert!(shown.contains("/var/lib/reprise"), "{shown}");
}

/// The container's health check says that a broker is well while it serves, and that it is not once it is gone.
#[test]
fn the_containers_health_check_tells_whether_it_serves() {
    let container = std::fs::read_to_string(deployed("container/Containerfile")).expect("it is there");
    let check = container.lines().skip_while(|line| !line.starts_with("HEALTHCHECK")).nth(1);
    let check = check.and_then(|line| line.trim().strip_prefix("CMD ")).expect("a command");
    let check: Vec<String> = serde_json::from_str(check).expect("a list of words");
    let mut broker = Broker::start();
    let port = broker.address().rsplit_once(':').expect("a port").1.to_owned();
    let check: Vec<_> = check.iter().map(|word| word.replace("/7070", &format!("/{port}"))).collect();
    let is_well = || {
        let output = Command::new(&check[0]).args(&check[1..]).output().expect("it runs");
        output.status.success()
    };
    assert!(is_well());
    broker.terminate();
    assert!(broker.ended().success());
    assert!(!is_well());
}
