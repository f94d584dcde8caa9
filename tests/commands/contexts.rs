//! `broker context`: a file of the user's alone, which flags and environment go before.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::json;

use crate::run::{Ran, command, json_lines, text};
use crate::snapshot;
use crate::support::{Broker, Launch, wait_for};

/// A home of its own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(command(arguments).env("XDG_CONFIG_HOME", self.0.path()))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("reprise/contexts.json")
    }
}

/// They are added, listed, used, shown and removed, and no token is shown.
#[test]
fn contexts_come_and_go() {
    let home = Home::new();
    assert_eq!(home.run(&["context", "list"]).good(), "  context  url  realm  token\n");
    let add = [
        "context",
        "add",
        "prod",
        "--url",
        "https://broker.example",
        "--realm",
        "acme",
        "--token",
        "-secret",
    ];
    assert_eq!(home.run(&add).good(), "");
    home.run(&["context", "add", "local", "--url", "http://127.0.0.1:7070", "--token-file", "/run/token"])
        .good();
    let mode = |path: PathBuf| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(home.file()), 0o600);
    assert_eq!(mode(home.0.path().join("reprise")), 0o700);
    snapshot::same("context-list", &home.run(&["context", "list"]).good());
    let shown = home.run(&["context", "show"]).good();
    assert!(shown.contains("*  prod ") && shown.contains("kept") && !shown.contains("secret"), "{shown}");
    let lines = json_lines(&home.run(&["context", "list", "--output", "jsonl"]).good());
    assert_eq!(lines[1]["token"], "kept");
    home.run(&["context", "use", "local"]).good();
    let shown = home.run(&["context", "show", "--output", "json"]).json();
    assert_eq!((&shown["name"], &shown["token_file"]), (&json!("local"), &json!("/run/token")));
    home.run(&["context", "remove", "local"]).good();
    assert_eq!(home.run(&["context", "show"]).failed(1), "broker: no context is in use\n");
    let left: Vec<_> = std::fs::read_dir(home.0.path().join("reprise")).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing half written stays");
}

/// The one in use is asked, `--context` names another, and a URL, a token or a realm that is given goes before.
#[test]
fn a_context_says_where_and_as_whom() {
    let home = Home::new();
    let broker = Broker::launch(Launch { listen: "127.0.0.1:0", more: &[] });
    let token = broker.folder().data().join("operator.token");
    let secret = std::fs::read_to_string(&token).expect("a token");
    let url = format!("http://{}", broker.address());
    home.run(&["context", "add", "none", "--url", "http://127.0.0.1:1"]).good();
    home.run(&["context", "add", "file", "--url", &url, "--token-file", &text(&token)]).good();
    home.run(&["context", "add", "kept", "--url", &url, "--token", secret.trim(), "--realm", "acme"]).good();
    home.run(&["topic", "list"]).failed(1);
    home.run(&["topic", "list", "--context", "file"]).good();
    home.run(&["realm", "create", "acme", "--context", "file"]).good();
    home.run(&["topic", "put", "t", "--context", "kept"]).good();
    let in_acme = |arguments: &[&str]| {
        home.run(&[&["topic", "list", "--output", "jsonl"], arguments].concat()).good().lines().count()
    };
    assert_eq!(in_acme(&["--context", "kept"]), 1);
    assert_eq!(in_acme(&["--context", "kept", "--realm", "default"]), 0, "a realm goes before");
    assert_eq!(in_acme(&["--context", "file"]), 0);
    home.run(&["context", "use", "kept"]).good();
    assert_eq!(in_acme(&[]), 1);
    home.run(&["topic", "list", "--token", "wrong"]).failed(4);
    let by_environment = |name: &str, value: &str, arguments: &[&str]| {
        Ran::of(command(arguments).env("XDG_CONFIG_HOME", home.0.path()).env(name, value))
    };
    by_environment("BROKER_TOKEN", "wrong", &["topic", "list"]).failed(4);
    by_environment("BROKER_CONTEXT", "none", &["topic", "list"]).failed(1);

    // A token goes to its own broker alone.
    home.run(&["topic", "list", "--url", &url]).failed(4);
    let told = by_environment("BROKER_URL", &url, &["topic", "list", "--context", "kept"]).failed(4);
    assert!(told.starts_with("broker: a URL is given, so the context kept is not used\n"), "{told}");
}

/// What is not there, or not understood, is named.
#[test]
fn what_is_wrong_is_told() {
    let home = Home::new();
    for (arguments, code, words) in [
        (&["context", "add", "a b", "--url", "http://x"][..], 2, "a name has 1 to 128 ASCII letters"),
        (&["context", "add", "a"], 2, "--url"),
        (&["context", "add", "a", "--url", "nonsense"], 1, "is not the URL of a broker"),
        (
            &["context", "add", "a", "--url", "http://x", "--token", "t", "--token-file", "f"],
            2,
            "cannot be used with",
        ),
        (&["context", "use", "a"], 3, "there is no context \"a\""),
        (&["context", "show", "a"], 3, "there is no context \"a\""),
        (&["context", "remove", "a"], 3, "there is no context \"a\""),
        (&["topic", "list", "--context", "a"], 3, "there is no context \"a\""),
    ] {
        let complaint = home.run(arguments).failed(code);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
    assert!(!home.file().exists(), "nothing was kept");
    home.run(&["context", "add", "a", "--url", "http://127.0.0.1:1", "--token-file", "/nowhere/token"])
        .good();
    assert!(home.run(&["topic", "list"]).failed(1).starts_with("broker: /nowhere/token: "));
    std::fs::write(home.file(), "{\"current\":7}").expect("it can be written");
    for arguments in
        [&["topic", "list"][..], &["context", "list"], &["context", "add", "b", "--url", "http://x"]]
    {
        let complaint = home.run(arguments).failed(1);
        assert!(complaint.contains("contexts.json: invalid type"), "{complaint}");
    }
    let kept = std::fs::read_to_string(home.file()).expect("it is there");
    assert_eq!(kept, "{\"current\":7}", "what is not understood is not written over");
    // Nobody asks for it where a URL is given.
    assert!(home.run(&["topic", "list", "--url", "http://127.0.0.1:1"]).failed(1).contains("no answer"));
}

/// A link to a file elsewhere stays a link, and who changes it waits for whoever does so already.
#[test]
fn the_file_is_changed_as_a_whole() {
    let home = Home::new();
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let file = elsewhere.path().join("mine.json");
    std::fs::write(&file, "{\"contexts\":{}}").expect("it can be written");
    std::fs::create_dir(home.0.path().join("reprise")).expect("a folder");
    symlink(&file, home.file()).expect("a link");
    let folder = File::open(elsewhere.path()).expect("a folder");
    folder.lock().expect("nobody else has it");
    let mut add = command(&["context", "add", "second", "--url", "http://127.0.0.1:1"]);
    let mut adding = add.env("XDG_CONFIG_HOME", home.0.path()).spawn().expect("it runs");
    // As the system writes of who waits.
    let waits = format!(" {} ", adding.id());
    wait_for("it waits for its turn", || {
        let locks = std::fs::read_to_string("/proc/locks").expect("this is Linux");
        locks.lines().any(|line| line.contains("->") && line.contains(&waits)).then_some(())
    });
    let first = "{\"current\":\"first\",\"contexts\":{\"first\":{\"url\":\"http://127.0.0.1:2\"}}}";
    std::fs::write(&file, first).expect("it can be written");
    folder.unlock().expect("it was locked");
    assert!(adding.wait().expect("it ends").success());
    assert!(home.file().is_symlink());
    let listed = json_lines(&home.run(&["context", "list", "--output", "jsonl"]).good());
    assert_eq!([&listed[0]["name"], &listed[1]["name"]], ["first", "second"], "nothing is lost");
}
