//! Programs under test, gone when dropped.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(crate) const BROKER: &str = env!("CARGO_BIN_EXE_broker");

/// A child process that does not outlive its test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// `broker serve` on a folder: the process, and where it listens.
pub(crate) fn serve(data_dir: &Path) -> (Process, String) {
    let mut command = Command::new(BROKER);
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--data-dir"]).arg(data_dir);
    let mut broker = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(broker.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").expect("its address").to_owned();
    (broker, url)
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The module of the `http-status` policy, compiled from its source.
pub(crate) fn http_status() -> PathBuf {
    let target_dir = Path::new(env!("POLICY_TARGET_DIR"));
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--package", "policy-http-status"])
        .args(["--target", "wasm32-unknown-unknown", "--target-dir"])
        .arg(target_dir)
        .current_dir(root())
        .env_remove("RUSTFLAGS")
        .status()
        .unwrap();
    assert!(built.success(), "the policy does not compile");
    target_dir.join("wasm32-unknown-unknown/release/http_status.wasm")
}
