//! The broker as a process of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

use super::process::Process;
use super::{Client, PATIENCE, wait_for};

/// A temporary folder with the data of one broker and the log of its processes.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        // In memory where the system has such a place: a start syncs a hundred files, and no test is about a
        // power cut. A kill leaves what was written, here as there.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(folder.expect("a temporary folder"))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.0.path().join("log")
    }
}

/// How `broker serve` is called.
pub(crate) struct Launch {
    pub(crate) listen: &'static str,
    pub(crate) more: &'static [&'static str],
}

impl Default for Launch {
    fn default() -> Self {
        Self { listen: "127.0.0.1:0", more: &["--no-auth"] }
    }
}

impl Launch {
    fn command(&self, data: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
        command.arg("serve").arg("--data-dir").arg(data).args(["--listen", self.listen]).args(self.more);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BROKER_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end, for a start that is to be refused.
    pub(crate) fn output(&self, data: &Path) -> Output {
        let mut child = self
            .command(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker can be started");
        if !has_ended_in_time(&mut child) {
            _ = child.kill();
        }
        child.wait_with_output().expect("the broker can be waited for")
    }
}

fn has_ended_in_time(child: &mut Child) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < PATIENCE {
        if child.try_wait().expect("the broker can be waited for").is_some() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    false
}

/// A running broker on a folder of its own. Neither outlives it.
pub(crate) struct Broker {
    folder: Folder,
    launch: Launch,
    process: Option<Child>,
    client: Client,
}

impl Broker {
    /// Without authentication, on any free port of loopback.
    pub(crate) fn start() -> Self {
        Self::launch(Launch::default())
    }

    pub(crate) fn launch(launch: Launch) -> Self {
        let folder = Folder::new();
        let (process, address) = spawn(&folder, &launch);
        Self { folder, launch, process: Some(process), client: Client::new(&address) }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The process that runs.
    pub(crate) fn process(&self) -> Process {
        Process(self.process.as_ref().expect("it runs").id())
    }

    /// Ends the process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the broker can be killed");
            process.wait().expect("the broker can be waited for");
        }
    }

    /// Starts it again on what is in its folder.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "it still runs");
        let (process, address) = spawn(&self.folder, &self.launch);
        self.process = Some(process);
        self.client = Client::new(&address);
    }

    /// Starts it again with other arguments.
    pub(crate) fn relaunch(mut self, launch: Launch) -> Self {
        self.launch = launch;
        self.start_again();
        self
    }

    pub(crate) fn kill_and_start_again(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Asks it to stop, and does not wait.
    pub(crate) fn terminate(&self) {
        let process = self.process.as_ref().expect("it runs");
        let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until it has stopped by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("it runs");
        if !has_ended_in_time(&mut process) {
            _ = process.kill();
            _ = process.wait();
            panic!("the broker does not stop\n{}", self.folder.log());
        }
        process.wait().expect("the broker can be waited for")
    }

    /// Waits until it takes no more connections.
    pub(crate) fn refuses_connections(&self) {
        let address = self.client.address().to_owned();
        wait_for("the listener closes", || std::net::TcpStream::connect(&address).err());
    }
}

/// A broker is asked through its client.
impl Deref for Broker {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Broker {
    #[expect(clippy::print_stderr, reason = "the log explains the failure")]
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            _ = process.kill();
            _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of the broker:\n{}", self.folder.log());
        }
    }
}

/// Starts a process and waits for its address.
fn spawn(folder: &Folder, launch: &Launch) -> (Child, String) {
    let log = File::options().create(true).append(true).open(folder.log_path()).expect("a log file");
    let mut process = launch
        .command(&folder.data())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the broker can be started");
    let stdout = process.stdout.take().expect("its output is piped");
    let (found, first_line) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        _ = found.send(read.map(|_| line));
    });
    let line = first_line.recv_timeout(PATIENCE);
    let address = line.ok().and_then(Result::ok).unwrap_or_default();
    let Some(address) = address.trim().strip_prefix("listening on http://") else {
        _ = process.kill();
        _ = process.wait();
        panic!("the broker does not start: it says {address:?}\n{}", folder.log());
    };
    (process, address.to_owned())
}
