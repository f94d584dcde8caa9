//! `broker serve` with arguments of a test's own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, Process, wait_for};

/// A broker that serves, ended with the value.
pub(crate) struct Served {
    process: Child,
    client: Client,
}

impl Served {
    /// Starts it, its log in this file, and waits until it serves.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log_file = File::create(log).expect("a file for the log");
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let mut process = command.spawn().expect("it can be started");
        let mut line = String::new();
        let output = process.stdout.take().expect("its output is piped");
        BufReader::new(output).read_line(&mut line).expect("its output can be read");
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            _ = process.kill();
            _ = process.wait();
            panic!("it does not serve: {line:?}\n{}", std::fs::read_to_string(log).unwrap_or_default());
        };
        Self { process, client: Client::new(address) }
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.process.id())
    }

    /// Ends it in an orderly way; it must end well.
    pub(crate) fn stop(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let status = wait_for("the end", || self.process.try_wait().expect("it can be waited for"));
        assert!(status.success(), "{status}");
    }
}

impl Deref for Served {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
