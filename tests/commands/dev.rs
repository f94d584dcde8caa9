//! `broker dev`: a broker for whoever is on this machine.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::run::{command, run, text};
use crate::support::Client;

/// One that runs, with the temporary folders of its own.
struct Dev {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    client: Client,
}

fn start(temporary: &Path, arguments: &[&str]) -> Dev {
    let mut dev = command(&[&["dev", "--listen", "127.0.0.1:0"], arguments].concat());
    let dev = dev.env("TMPDIR", temporary).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = dev.spawn().expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says where it listens");
    let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}"));
    Dev { client: Client::new(address), child, output }
}

impl Dev {
    /// Ends it with a signal; gives what it said.
    fn end(mut self, signal: &str) -> String {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let mut told = String::new();
        self.output.read_to_string(&mut told).expect("it is text");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        told
    }
}

/// Everyone is let in, and nothing stays: however it is told to end, also when its terminal is closed.
#[test]
fn it_leaves_nothing_behind() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let dev = start(temporary.path(), &[]);
        dev.client.topic("t");
        assert_eq!(
            std::fs::read_dir(temporary.path()).expect("a folder").count(),
            1,
            "it is in a folder of its own"
        );
        dev.end(signal);
        assert_eq!(std::fs::read_dir(temporary.path()).expect("a folder").count(), 0, "{signal}");
    }
}

/// What it says to try works as it is printed, in a shell.
#[test]
fn what_it_says_to_try_works() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let dev = start(temporary.path(), &[]);
    let client = dev.client.clone();
    let told = dev.end("-TERM");
    assert!(told.contains(&format!("api=http://{}/v1 ", client.address())), "{told}");
    assert!(told.contains("Ctrl-C ends it and what it holds goes."), "{told}");
    // With the address of another one: that of the first is gone with it.
    let dev = start(temporary.path(), &[]);
    let lines = told.replace(client.address(), dev.client.address());
    let folder = Path::new(env!("CARGO_BIN_EXE_broker")).parent().expect("it is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    let output = shell.args(["-e", "-c", &lines]).env("PATH", path).env_remove("BROKER_TOKEN").output();
    let output = output.expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(r#""payload":{"order":7}"#) && said.contains(r#"{"order":8}"#), "{said}");
    dev.end("-TERM");
}

/// With a folder it goes on where it was.
#[test]
fn a_folder_that_is_given_stays() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let data = text(&temporary.path().join("data"));
    let dev = start(temporary.path(), &["--data", &data]);
    dev.client.topic("t");
    let told = dev.end("-INT");
    assert!(told.contains("Ctrl-C ends it. To try"), "{told}");
    let dev = start(temporary.path(), &["--data", &data]);
    assert_eq!(dev.client.get("/v1/topics/t").expect(200)["name"], json!("t"));
    dev.end("-TERM");
}

/// It lets everyone in, so it listens nowhere else.
#[test]
fn it_listens_on_loopback_alone() {
    let complaint = run(&["dev", "--listen", "0.0.0.0:0"]).failed(1);
    assert_eq!(complaint, "broker: it lets everyone in: it is for loopback addresses only\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let complaint = run(&["dev", "--listen", &address]).failed(1);
    assert!(complaint.contains(&format!("cannot listen on {address}: ")), "{complaint}");
    assert!(run(&["dev", "--listen", "here"]).failed(2).contains("--listen"));
}
