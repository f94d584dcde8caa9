//! Where the settings of `serve` come from: the command line, the environment, a file, the defaults.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Ran, command, run, text};
use crate::served::Served;
use crate::support::{Folder, Launch, Stream, wait_for};

/// A folder of a test's own, and a file of settings in it.
struct Given(TempDir);

impl Given {
    fn new(settings: &str) -> Self {
        let given = Self(tempfile::tempdir().expect("a temporary folder"));
        std::fs::write(given.file(), settings).expect("it can be written");
        given
    }

    /// Settings beside a data folder of its own and any free port.
    fn serving(settings: &str) -> Self {
        let given = Self::new("");
        let place = format!("data_dir = {:?}\nlisten = \"127.0.0.1:0\"\n", text(&given.data()));
        std::fs::write(given.file(), place + settings).expect("it can be written");
        given
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("broker.toml")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn path(&self) -> String {
        text(&self.file())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.path().join("log")).unwrap_or_default()
    }

    fn serve(&self) -> Served {
        Served::start(&mut command(&["serve", "--config", &self.path()]), &self.0.path().join("log"))
    }
}

/// What `config show` tells of a setting: its value, and where that is from.
fn row(shown: &str, setting: &str) -> Option<(String, String)> {
    let line = shown.lines().find(|line| line.split_whitespace().next() == Some(setting))?;
    let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(1);
    Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker.toml");
    std::fs::read_to_string(page).expect("the page is there")
}

/// The keys of the explained file.
fn keys() -> BTreeSet<String> {
    let settings = page();
    let settings = settings.lines().filter(|line| line.starts_with('#') && !line.starts_with("# "));
    settings.filter_map(|line| Some(line[1..].split_once(" = ")?.0.to_owned())).collect()
}

/// The keys that a file sets.
fn set_in(file: &str) -> impl Iterator<Item = String> {
    file.lines().filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()))
}

/// docs/broker.toml is what `config default` prints. It sets nothing, and what it shows is what would be without it.
#[test]
fn the_explained_file_is_that_of_the_code() {
    let printed = run(&["config", "default"]).good();
    assert_eq!(printed, page(), "write it again: broker config default >docs/broker.toml");
    let given = Given::new(&printed);
    assert!(run(&["config", "check", &given.path()]).good().contains("settings: 0"));
    let set: String = printed
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    let given = Given::new(&set);
    let checked = run(&["config", "check", &given.path()]).good();
    assert!(checked.contains(&format!("settings: {}", keys().len())) && keys().len() > 10, "{checked}");
    let shown = run(&["config", "show", "--config", &given.path()]).good();
    let defaults = run(&["config", "show", "--data-dir", "/var/lib/reprise"]).good();
    for key in keys() {
        let (value, from) = row(&shown, &key).expect("each is shown");
        assert_eq!(from, given.path(), "{key}");
        if let Some((default, _)) = row(&defaults, &key) {
            assert_eq!(value, default, "{key}");
        }
    }
}

/// For each setting the command line wins over the environment, that over the file, that over the default.
#[test]
fn who_wins_is_the_same_for_each_setting() {
    let settings = [
        ("data_dir", "\"a\"", ["a", "b", "c"]),
        ("listen", "\"127.0.0.1:1\"", ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]),
        ("no_auth", "true", ["true", "false", "true"]),
        ("operator_token_file", "\"a\"", ["a", "b", "c"]),
        ("durability", "\"os\"", ["os", "fsync", "os"]),
        ("policy_threads", "3", ["3", "4", "5"]),
        ("stream_idle", "\"1s\"", ["1s", "2s", "3s"]),
        ("realm_max_messages", "1", ["1", "2", "3"]),
        ("realm_max_bytes", "1_024", ["1024", "2KiB", "3KiB"]),
        ("min_free_disk", "\"1GiB\"", ["1GiB", "2GiB", "0"]),
        ("log", "\"debug\"", ["debug", "warn", "off"]),
        ("log_format", "\"json\"", ["json", "text", "json"]),
    ];
    assert_eq!(settings.map(|(key, ..)| key.to_owned()).into_iter().collect::<BTreeSet<_>>(), keys());
    for (key, written, [file, environment, flag]) in settings {
        let given = Given::new(&format!("{key} = {written}\n"));
        let variable = format!("BROKER_{}", key.to_uppercase());
        let argument = format!("--{}={flag}", key.replace('_', "-"));
        let place = if key == "data_dir" { [].as_slice() } else { &["--data-dir", "d"] };
        let show = [&["config", "show"], place].concat();
        let path = given.path();
        let named = [&show[..], &["--config", &path]].concat();
        let told = [&named[..], &[&argument]].concat();
        let shown = |command: &mut std::process::Command| row(&Ran::of(command).good(), key);
        let expected = |value: &str, from: &str| Some((value.to_owned(), from.to_owned()));
        assert_eq!(shown(&mut command(&named)), expected(file, &given.path()));
        let by_variable = shown(command(&show).env("BROKER_CONFIG", given.path()));
        assert_eq!(by_variable, expected(file, &given.path()));
        assert_eq!(shown(command(&named).env(&variable, environment)), expected(environment, &variable));
        assert_eq!(shown(command(&told).env(&variable, environment)), expected(flag, "command line"));
        if key != "data_dir" {
            let (_, from) = row(&run(&show).good(), key).unwrap_or_default();
            assert!(from.is_empty() || from == "default", "{key} is from {from}");
        }
    }
}

/// Each setting of a file does what the same setting of the command line does.
#[test]
fn each_setting_of_a_file_takes_effect() {
    let many = "no_auth = true\ndurability = \"os\"\npolicy_threads = 3\nstream_idle = \"600ms\"\n\
                realm_max_messages = 2\nlog = \"debug\"\nlog_format = \"json\"\n";
    let given = Given::serving(many);
    let broker = given.serve();
    broker.topic_and_subscription(json!({ "lease": "5m" }));
    let published =
        broker.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": 1 }] })).expect(201);
    assert_eq!(published["durability"], "os");
    let threads = format!("/proc/{}/task", broker.process().0);
    let names = std::fs::read_dir(threads).expect("this is Linux").flatten();
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let evaluators = names.filter(|name| {
        name.trim().strip_prefix("policy-").is_some_and(|number| number.parse::<u32>().is_ok())
    });
    assert_eq!(evaluators.count(), 3);
    let mut silent = Stream::consume(&broker, "s");
    silent.credit(1);
    let id = published["items"][0]["id"].as_str().expect("an id");
    assert_eq!(silent.deliveries(1)[0].id(), id);
    wait_for("the end of a stream without a sign", || {
        (broker.delivery_of(id)["state"] != "leased").then_some(())
    });
    broker.publish("t", &json!(2));
    let third = broker.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": 3 }] }));
    assert_eq!(third.json()["items"][0]["error"]["code"], "quota_exceeded");
    broker.get("/v1/topics/missing");
    assert!(given.data().join("format").is_file());
    broker.stop();
    let lines: Vec<Value> =
        given.log().lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert!(
        lines.iter().any(|line| line["level"] == "DEBUG" && line["code"] == "topic_not_found"),
        "{lines:?}"
    );

    let token = "0123456789abcdef0123456789abcdef";
    let some = "realm_max_bytes = \"1KiB\"\noperator_token_file = TOKEN\n";
    let given = Given::serving(some);
    let token_file = given.0.path().join("token");
    std::fs::write(&token_file, format!("{token}\n")).expect("it can be written");
    let with_file = std::fs::read_to_string(given.file())
        .expect("it is there")
        .replace("TOKEN", &format!("{token_file:?}"));
    std::fs::write(given.file(), with_file).expect("it can be written");
    let broker = given.serve();
    assert_eq!(broker.get("/v1/topics").problem().1, "unauthorized");
    let operator = broker.with_token(token);
    operator.topic("t");
    let large =
        operator.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": "x".repeat(1024) }] }));
    assert_eq!(large.json()["items"][0]["error"]["code"], "quota_exceeded");
    assert!(!given.data().join("operator.token").exists(), "no other token is made");
    broker.stop();

    let one = "no_auth = true\nmin_free_disk = \"15EiB\"\n";
    let given = Given::serving(one);
    let broker = given.serve();
    broker.topic("t");
    let refused = broker.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": 1 }] }));
    assert_eq!(refused.json()["items"][0]["error"]["code"], "insufficient_storage");

    let places = ["data_dir", "listen"].map(str::to_owned);
    let seen = [many, some, one].into_iter().flat_map(set_in).chain(places).collect::<BTreeSet<_>>();
    assert_eq!(seen, keys(), "each setting is tried");
}

/// A file that is wrong is refused with file, line, key and what is allowed, by `check` and by `serve`, and nothing starts.
#[test]
fn a_wrong_file_is_refused_with_all_that_is_wrong() {
    for (settings, words) in [
        ("lisen = \"127.0.0.1:0\"", &["1: there is no setting \"lisen\"; there are data_dir, listen, "][..]),
        ("[serve]\nlisten = \"127.0.0.1:0\"", &["1: there is no setting \"serve\""]),
        ("data-dir = \"d\"", &["1: there is no setting \"data-dir\""]),
        (
            "\n\nlisten = \"here\"",
            &["3: listen = \"here\": give an address and a port, such as 127.0.0.1:7070"],
        ),
        ("listen = 7070", &["1: listen = 7070: give a text, in quotes"]),
        ("data_dir = \"\"", &["1: data_dir = \"\": "]),
        ("no_auth = \"true\"", &["1: no_auth = \"true\": give true or false"]),
        ("durability = \"disk\"", &["1: durability = \"disk\": give one of \"fsync\", \"os\""]),
        ("policy_threads = 0", &["1: policy_threads = 0: give a whole number, 1 or more"]),
        ("policy_threads = \"2\"", &["1: policy_threads = \"2\": give a whole number, without quotes"]),
        ("policy_threads = 1.5", &["1: policy_threads = 1.5: give a whole number"]),
        ("stream_idle = \"2h\"", &["1: stream_idle = \"2h\": give a time from 500ms to 1h, such as 60s"]),
        ("stream_idle = \"soon\"", &["1: stream_idle = \"soon\": give a time from 500ms to 1h"]),
        ("realm_max_messages = -1", &["1: realm_max_messages = -1: give a whole number, 1 or more"]),
        ("realm_max_bytes = \"1GB\"", &["1: realm_max_bytes = \"1GB\": give bytes such as 1048576"]),
        ("min_free_disk = [1]", &["1: min_free_disk = [1]: give a whole number, or a text in quotes"]),
        ("log = \"a=b=c\"", &["1: log = \"a=b=c\": give a level (error, warn, "]),
        ("log_format = \"xml\"", &["1: log_format = \"xml\": give one of \"text\", \"json\""]),
        ("log = \"off\"\nlog = \"warn\"", &["2: "]),
        ("listen = ", &["1: "]),
        ("no_auth = true\nlisten = \"0.0.0.0:0\"", &[" --no-auth lets everyone in: it is for loopback"]),
        ("a = 1\npolicy_threads = 0\nlog = 1", &["1: there is no", "2: policy_threads", "3: log = 1"]),
    ] {
        let given = Given::new(settings);
        let data = given.data();
        for arguments in [
            vec!["config", "check", &given.path()],
            vec!["serve", "--data-dir", &text(&data), "--config", &given.path()],
        ] {
            let complaint = run(&arguments).failed(1);
            assert!(complaint.starts_with("broker: "), "{complaint}");
            for words in words {
                let alone = words.starts_with(" --");
                let told =
                    if alone { words.trim_start().to_owned() } else { format!("{}:{words}", given.path()) };
                assert!(complaint.contains(&told), "{settings}: {complaint}");
            }
        }
        assert!(!data.exists(), "{settings}: it started");
    }
    let complaint = run(&["serve", "--config", "nowhere.toml"]).failed(1);
    assert_eq!(complaint, "broker: nowhere.toml: No such file or directory (os error 2)\n");
    let empty = Given::new("");
    let complaint = run(&["serve", "--config", &empty.path()]).failed(2);
    assert!(complaint.contains("--data-dir <FOLDER>"), "{complaint}");
}

/// A file for the operator's token that is missing, or holds none, is refused; none is made in its place.
#[test]
fn a_token_file_must_hold_a_token() {
    let folder = Folder::new();
    let missing = Launch { more: &["--operator-token-file", "nowhere"], ..Launch::default() };
    let short = Launch { more: &["--operator-token-file", "/dev/null"], ..Launch::default() };
    for (launch, words) in [
        (missing, "nowhere: No such file"),
        (short, "/dev/null holds no token; put in 32 characters or more"),
    ] {
        let output = launch.output(&folder.data());
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains(words), "{complaint}");
    }
    assert!(!Path::new("nowhere").exists());
}
