//! A broker of the demo's own: a child process on a temporary folder and any free port.

use std::env;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// What `broker serve` prints before the address.
const ANNOUNCEMENT: &str = "listening on ";

/// A running broker. Dropping it ends the process and removes the folder.
#[derive(Debug)]
pub(super) struct Stage {
    child: Child,
    url: String,
    /// Removed after the child is gone.
    _folder: TempDir,
}

impl Stage {
    /// Starts the broker and waits until it serves.
    ///
    /// # Errors
    /// If the system refuses, or the broker ends; it said why on standard error.
    pub(super) fn set() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("reprise-demo-").tempdir()?;
        let mut command = Command::new(env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--data-dir"]).arg(folder.path());
        // Settings of another broker are not meant for this one.
        command.env_remove("BROKER_CONFIG");
        if env::var_os("BROKER_LOG").is_none() {
            command.env("BROKER_LOG", "warn");
        }
        // In a process group of its own, so that Ctrl-C reaches the demo alone, which then ends the broker.
        let mut child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let mut stage = Self { child, url: String::new(), _folder: folder };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().strip_prefix(ANNOUNCEMENT) {
            Some(url) => url.clone_into(&mut stage.url),
            None => return Err(io::Error::other("the broker did not start")),
        }
        Ok(stage)
    }

    /// Where it listens.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Its data goes with it, so there is nothing to finish.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
