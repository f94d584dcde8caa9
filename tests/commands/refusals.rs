//! Calls that fail: each says why, on standard error alone, and has its exit code.

use serde_json::json;

use crate::run::{File, Ran, at, command, run, text};
use crate::support::{Broker, Launch, guests, policies};

/// What a broker or the sandbox refuses is exit code 1 with the reason; a command line that is wrong is 2.
#[test]
fn each_failure_has_its_words_and_its_code() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let good = File::of(&guests::deciding(&guests::retry(1_000)).module());
    let (good, bad) = (good.path(), File::of(b"no module"));
    let bad = bad.path();
    let needs = File::of(&policies::module("http-status"));
    let needs = needs.path();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let empty = text(empty.path());
    let before = broker.everything();
    let unknown = "(subscription_not_found): there is no subscription missing";
    for (arguments, code, words) in [
        (vec!["policy", "push", "--subscription", "missing", &good], 1, unknown),
        (vec!["policy", "revisions", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "rollback", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "backtest", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "simulate", "a", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "shadow", "set", "--subscription", "missing", &good], 1, unknown),
        (vec!["policy", "shadow", "show", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "shadow", "remove", "--subscription", "missing"], 1, unknown),
        (vec!["policy", "push", "--subscription", "s", &bad], 1, "(invalid_policy): this is not WebAssembly"),
        (vec!["policy", "push", "--subscription", "s", "nowhere.wasm"], 1, "nowhere.wasm: No such file"),
        (vec!["policy", "push", "--subscription", "s", &empty], 1, "there is no crate of a policy in"),
        (
            vec!["policy", "push", "--subscription", "s", &good, "--params", "{"],
            1,
            "--params is no JSON object: EOF",
        ),
        (
            vec!["policy", "push", "--subscription", "s", &good, "--params", "[]"],
            1,
            "--params is no JSON object",
        ),
        (
            vec!["policy", "push", "--subscription", "s", &needs, "--params", r#"{"delay":"soon"}"#],
            1,
            "(invalid_params): ",
        ),
        (vec!["policy", "rollback", "--subscription", "s"], 1, "(no_earlier_revision): "),
        (vec!["policy", "rollback", "--subscription", "s", "--revision", "9"], 1, "(revision_not_found): "),
        (vec!["policy", "rollback", "--subscription", "s", "--revision", "x"], 2, "invalid value 'x'"),
        (vec!["policy", "backtest", "--subscription", "s"], 1, "(nothing_recorded)"),
        (vec!["policy", "backtest", "--subscription", "s", &good], 1, "(nothing_recorded)"),
        (
            vec!["policy", "backtest", "--subscription", "s", "--last", "0"],
            1,
            "last must be from 1 to 100000",
        ),
        (vec!["policy", "backtest", "--subscription", "s", "--revision", "9"], 1, "(revision_not_found)"),
        (
            vec!["policy", "backtest", "--subscription", "s", &good, "--revision", "1"],
            2,
            "cannot be used with",
        ),
        (vec!["policy", "backtest", "--subscription", "s", "--params", "1"], 1, "--params is no JSON object"),
        (vec!["policy", "shadow", "set", "--subscription", "s"], 1, "(shadow_is_active): "),
        (
            vec!["policy", "shadow", "set", "--subscription", "s", "--revision", "1"],
            1,
            "(shadow_is_active): ",
        ),
        (
            vec!["policy", "shadow", "set", "--subscription", "s", "--revision", "9"],
            1,
            "(revision_not_found): ",
        ),
        (vec!["policy", "shadow", "show", "--subscription", "s"], 1, "(shadow_not_found): "),
        (vec!["policy", "shadow", "remove", "--subscription", "s"], 1, "(shadow_not_found): "),
        (
            vec!["policy", "simulate", "", "--subscription", "s"],
            1,
            "(invalid_scenario): `` is not an outcome",
        ),
        (vec!["policy", "simulate", "", "--policy", &good], 1, "broker: `` is not an outcome"),
        (vec!["policy", "simulate", "a*x", "--policy", &good], 1, "broker: "),
        (vec!["policy", "simulate", "a", "--policy", &good, "--seeds", "0"], 1, "broker: "),
        (vec!["policy", "simulate", "a", "--policy", &good, "--work", "soon"], 1, "broker: "),
        (vec!["policy", "simulate", "a", "--policy", &good, "--start", "tomorrow"], 1, "broker: start"),
        (
            vec!["policy", "simulate", "a", "--policy", &good, "--params", "nonsense"],
            1,
            "--params is no JSON object",
        ),
        (
            vec!["policy", "simulate", "a", "--policy", &needs, "--params", r#"{"delay":[]}"#],
            1,
            "refuses these params",
        ),
        (vec!["policy", "simulate", "a", "--policy", &bad], 1, "broker: this is not WebAssembly"),
        (vec!["policy", "simulate", "a", "--policy", &good, "--subscription", "s"], 2, "cannot be used with"),
        (vec!["policy", "simulate", "a", "--revision", "1"], 2, "--subscription"),
        (
            vec!["policy", "simulate", "a", "--subscription", "s", "--revision", "9"],
            1,
            "(revision_not_found): ",
        ),
        (vec!["policy", "build", &empty], 1, "there is no crate of a policy in"),
        (vec!["policy", "test", &empty], 1, "there is no crate of a policy in"),
        (
            vec!["policy", "test", "nowhere"],
            1,
            "there is no crate of a policy in nowhere: `broker policy new` writes one",
        ),
        (vec!["policy", "revisions"], 2, "--subscription"),
        (vec!["policy", "revisions", "--subscription", "../s"], 2, "a name has 1 to 128 ASCII letters"),
        (vec!["policy", "simulate", "a", "--subscription", "s?x"], 2, "a name has 1 to 128 ASCII letters"),
        (vec!["message", "explain", "../topics/t"], 2, "a message id is what publish and pull gave"),
        (vec!["message", "explain", "m00000001000000000000ffff"], 1, "(message_not_found): "),
        (
            vec!["message", "explain", "--output", "xml", "m000000010000000000000001"],
            2,
            "[possible values: table, json, jsonl]",
        ),
    ] {
        let Ran { code: left, stdout, stderr } = at(&broker, &arguments);
        assert_eq!(left, Some(code), "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(code == 2 || stderr.starts_with("broker: "), "{arguments:?}: {stderr}");
        assert_eq!(stdout, "", "{arguments:?}");
    }
    assert_eq!(broker.everything(), before, "nothing was changed");
}

/// Without a broker, or something else in its place, it says where it looked.
#[test]
fn without_a_broker_it_says_where_it_looked() {
    // Nobody listens there, and nobody will.
    let url = "http://127.0.0.1:1/";
    let id = "m000000010000000000000001";
    for arguments in [
        vec!["policy", "revisions", "--subscription", "s"],
        vec!["policy", "backtest", "--subscription", "s"],
        vec!["message", "explain", id],
    ] {
        let complaint = run(&[arguments, vec!["--url", url]].concat()).failed(1);
        let told = format!("broker: no answer from the broker at {}: ", url.trim_end_matches('/'));
        assert!(complaint.starts_with(&told) && complaint.contains("refused"), "{complaint}");
    }
    let complaint = run(&["message", "explain", id, "--url", "nonsense"]).failed(1);
    assert!(complaint.starts_with("broker: \"nonsense\" is not the URL of a broker"), "{complaint}");

    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", other.local_addr().expect("an address"));
    let answering = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = other.accept().expect("a connection");
        _ = stream.read(&mut [0; 4096]).expect("a request");
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").expect("an answer");
    });
    let complaint = run(&["message", "explain", id, "--url", &url]).failed(1);
    assert_eq!(complaint, "broker: the broker refused (404 Not Found): it is not a broker\n");
    answering.join().expect("it answered");
}

/// The operator's token, as an option or in the environment, opens the broker; none or another is told what is missing.
#[test]
fn a_token_opens_the_broker() {
    let broker = Broker::launch(Launch { listen: "127.0.0.1:0", more: &[] });
    let token = std::fs::read_to_string(broker.folder().data().join("operator.token")).expect("a token");
    let token = token.trim();
    for (path, body) in [("/v1/topics/t", json!({})), ("/v1/subscriptions/s", json!({ "topic": "t" }))] {
        let request = broker.request("PUT", path).bearer_auth(token).json(&body);
        broker.send(request).expect(201);
    }
    let revisions = ["policy", "revisions", "--subscription", "s"];
    let with = |token| [&revisions[..], &["--token", token]].concat();
    for wrong in [revisions.to_vec(), with("other"), with("-other")] {
        let complaint = at(&broker, &wrong).failed(1);
        assert!(
            complaint.starts_with("broker: the broker refused (unauthorized): send the operator's token"),
            "{complaint}"
        );
        assert!(!complaint.contains(token));
    }
    let by_option = at(&broker, &[&revisions[..], &["--token", token]].concat()).good();
    let url = format!("http://{}", broker.address());
    let by_environment =
        Ran::of(command(&revisions).env("BROKER_TOKEN", token).env("BROKER_URL", &url)).good();
    assert_eq!(by_option, by_environment);
    assert!(by_option.contains("active"), "{by_option}");
    let before = Ran::of(&mut command(&[
        "policy",
        "--token",
        token,
        "--url",
        &url,
        "revisions",
        "--subscription",
        "s",
    ]));
    assert_eq!(before.good(), by_option, "options may come first");
    let file = File::of(&guests::deciding(&guests::retry(1_000)).module());
    let pushed = at(
        &broker,
        &["policy", "push", "--subscription", "s", &file.path(), "--token", token, "--output", "json"],
    );
    assert_eq!(pushed.json()["created_by"], "operator");
}

/// Without Rust or its wasm target it says what is missing and how to get it; a module needs neither.
#[test]
fn a_missing_toolchain_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = text(&folder.path().join("payments"));
    run(&["policy", "new", "payments", "--path", &path]).good();
    let without = |arguments: &[&str]| {
        let mut command = command(arguments);
        Ran::of(command.env("PATH", folder.path()).env_remove("CARGO").env_remove("RUSTC"))
    };
    for (arguments, program) in [
        (["policy", "build", &path].as_slice(), "rustc"),
        (&["policy", "test", &path], "cargo"),
        (&["policy", "test", "--skip-native", &path], "rustc"),
        (&["policy", "simulate", "a", "--policy", &path], "rustc"),
    ] {
        let complaint = without(arguments).failed(1);
        let told = format!("broker: {program} is missing, which compiles policies\n");
        assert!(complaint.starts_with(&told) && complaint.contains("rustup target add"), "{complaint}");
    }
    // A compiler that knows no such target: it prints something that is no folder.
    for arguments in [["policy", "build", &path].as_slice(), &["policy", "simulate", "a", "--policy", &path]]
    {
        let complaint = Ran::of(command(arguments).env("RUSTC", "echo")).failed(1);
        assert_eq!(
            complaint,
            "broker: the Rust target wasm32-unknown-unknown is missing\n\
             Get it with: rustup target add wasm32-unknown-unknown\n"
        );
    }
    let file = File::of(&guests::deciding(&guests::retry(1_000)).module());
    without(&["policy", "simulate", "a", "--policy", &file.path()]).good();
}
