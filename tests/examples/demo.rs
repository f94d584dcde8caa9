//! `broker demo`: the story it tells, the check it makes, and what it leaves behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::process::{BROKER, Process, http_status};

/// The demo with a temporary folder of its own.
fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(BROKER);
    command.arg("demo").env("TMPDIR", temporary).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Where the demo's broker listened.
fn address(stdout: &str) -> &str {
    let (_, rest) = stdout.split_once("http://").expect("the broker's address");
    rest.split([',', '\n']).next().unwrap()
}

fn assert_nothing_is_left(temporary: &Path, stdout: &str) {
    let left: Vec<_> = fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(TcpStream::connect(address(stdout)).is_err(), "a broker still listens");
}

/// One command, no arguments, no terminal: every failure class is shown with its decision, every order ends where the
/// policy should put it, and nothing is left behind.
#[test]
fn the_demo_shows_everything_and_cleans_up() {
    let temporary = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } = demo(temporary.path()).output().unwrap();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    for (result, decision) in [
        ("#1       charged        acked", ""),
        ("timeout        retry in ", "no answer from the provider"),
        ("rate_limited   retry in 700ms", "as long as the provider asked for"),
        ("validation     dead letter in payments/invalid", "its items cost 24000, its total says 23000"),
        ("crash", "its lease ends in 2s"),
        ("lease_expired  retry in ", "no answer before the lease ended"),
        ("#3       lease_expired  dead letter in payments/quarantine", "takes its worker down"),
        ("#6       timeout        dead letter in payments/exhausted", "out of attempts"),
    ] {
        let shown = stdout.lines().any(|line| line.contains(result) && line.contains(decision));
        assert!(shown, "no line with {result:?} and {decision:?} in\n{stdout}");
    }
    for line in [
        "  acked                  49   30 at the first attempt, 19 after retries",
        "  payments/exhausted      3   last failure timeout: 3",
        "  payments/invalid        6   last failure validation: 6",
        "  payments/quarantine     2   last failure lease_expired: 2",
        "      label crashed_attempts: 1,2,3",
    ] {
        assert!(stdout.lines().any(|shown| shown == line), "no line {line:?} in\n{stdout}");
    }
    assert!(stdout.contains("OK  60 of 60 orders ended where the orders policy should put them"), "{stdout}");
    assert!(!stdout.contains('\x1b'), "colours without a terminal");
    assert!(!stderr.contains("WARN") && !stderr.contains("ERROR"), "{stderr}");
    assert_nothing_is_left(temporary.path(), &stdout);
}

/// The check is a real one: under a policy with other rules the orders end elsewhere, and the demo says which, and
/// fails.
#[test]
fn another_policy_does_not_pass_the_check() {
    let temporary = tempfile::tempdir().unwrap();
    let params = r#"{"max_attempts":2,"delay":"10ms"}"#;
    let mut command = demo(temporary.path());
    let output = command.arg("--policy").arg(http_status()).args(["--params", params]).output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}\n{}", text(&output.stderr));
    let complaint = "A-1003 should have ended as a dead letter in payments/invalid, but is a dead letter in payments/exhausted";
    assert!(stdout.contains(complaint), "{stdout}");
    assert!(stdout.contains("FAILED  ") && !stdout.contains("OK  "), "{stdout}");
    assert_nothing_is_left(temporary.path(), &stdout);
}

/// A signal in the middle of the work ends it, with the exit status of an interrupted command and nothing left behind.
#[test]
fn an_interrupted_demo_cleans_up() {
    for signal in ["-INT", "-TERM"] {
        let temporary = tempfile::tempdir().unwrap();
        let mut demo = Process(demo(temporary.path()).spawn().unwrap());
        let mut stdout = BufReader::new(demo.0.stdout.take().unwrap());
        let mut told = String::new();
        while !told.contains("retry in") {
            assert_ne!(stdout.read_line(&mut told).unwrap(), 0, "it ended too early:\n{told}");
        }
        let kill = Command::new("kill").args([signal, &demo.0.id().to_string()]).status().unwrap();
        assert!(kill.success());
        stdout.read_to_string(&mut told).unwrap();
        assert_eq!(demo.0.wait().unwrap().code(), Some(130), "{told}");
        assert!(!told.contains("Check"), "{told}");
        assert_nothing_is_left(temporary.path(), &told);
    }
}

/// Without Rust the demo says what is missing and how to get it.
#[test]
fn a_missing_toolchain_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = demo(temporary.path());
    let output =
        command.env("PATH", temporary.path()).env_remove("CARGO").env_remove("RUSTC").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("rustc is missing") && stderr.contains("rustup target add"), "{stderr}");
}
