//! A command as a process of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::Client;

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::fed(command, b"")
    }

    /// With this on its standard input.
    pub(crate) fn fed(command: &mut Command, input: &[u8]) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the command runs");
        // One that looks at none of it closes the pipe.
        _ = child.stdin.take().expect("it is piped").write_all(input);
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("it writes text");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// What it printed, where it went well.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The same as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// What it complained, where it failed with this exit code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// The binary, told nothing by the environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BROKER_")) {
        command.env_remove(name);
    }
    // The contexts of whoever runs the tests are none of theirs.
    command.env("XDG_CONFIG_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-configuration"));
    command.args(arguments);
    command
}

/// Runs it.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    Ran::of(&mut command(arguments))
}

/// Runs it against a broker.
pub(crate) fn at(broker: &Client, arguments: &[&str]) -> Ran {
    Ran::of(command(arguments).env("BROKER_URL", format!("http://{}", broker.address())))
}

/// The same with this on its standard input.
pub(crate) fn fed(broker: &Client, arguments: &[&str], input: &[u8]) -> Ran {
    let url = format!("http://{}", broker.address());
    Ran::fed(command(arguments).env("BROKER_URL", url), input)
}

/// A command line on a terminal: what it writes there, both outputs together. Its exit code is that of the command.
pub(crate) fn on_terminal(line: &str, broker: &Client) -> Command {
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    terminal
        .env("BROKER_URL", format!("http://{}", broker.address()))
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    terminal
}

/// The lines of a JSON-lines output.
#[track_caller]
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// A module in a file of its own, gone when dropped.
pub(crate) struct File(tempfile::TempDir);

impl File {
    pub(crate) fn of(module: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("policy.wasm"), module).expect("it can be written");
        Self(folder)
    }

    pub(crate) fn path(&self) -> String {
        text(&self.0.path().join("policy.wasm"))
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// Where crates are written and built, one test at a time. What is compiled stays below the target folder, so that the
/// dependencies of policies are compiled once.
pub(crate) struct Workshop {
    root: PathBuf,
    _lock: std::fs::File,
}

impl Workshop {
    pub(crate) fn open() -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands");
        std::fs::create_dir_all(&root).expect("a folder");
        let lock = std::fs::File::create(root.join("lock")).expect("a file");
        lock.lock().expect("the workshop is free in the end");
        let workshop = Self { root, _lock: lock };
        _ = std::fs::remove_dir_all(workshop.crates());
        std::fs::create_dir(workshop.crates()).expect("a folder");
        workshop
    }

    /// Where the crates are.
    pub(crate) fn crates(&self) -> PathBuf {
        self.root.join("crates")
    }

    /// Where cargo works.
    pub(crate) fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// A command in this folder below the crates. Cargo asks no registry: the workspace's dependencies are there.
    pub(crate) fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.current_dir(self.crates().join(folder)).env("CARGO_TARGET_DIR", self.target());
        command.env("CARGO_NET_OFFLINE", "true");
        command
    }

    pub(crate) fn run(&self, folder: &str, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(folder, arguments))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(self.crates());
    }
}
