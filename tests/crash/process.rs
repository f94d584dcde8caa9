//! The broker as a process that is killed and started again on the same folder.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

pub(crate) struct Broker {
    folder: tempfile::TempDir,
    process: Option<Child>,
    pub(crate) client: Client,
}

/// Speaks to one process; an error means that it is gone.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    http: reqwest::blocking::Client,
}

/// The process did not answer.
#[derive(Debug)]
pub(crate) struct Gone;

impl Broker {
    pub(crate) fn start() -> Self {
        // A kill leaves what was written, in memory as on a disk, and starting syncs many files.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a temporary folder");
        let (process, client) = spawn(folder.path());
        Self { folder, process: Some(process), client }
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the broker can be killed");
            process.wait().expect("the broker can be waited for");
        }
    }

    pub(crate) fn start_again(&mut self) {
        let (process, client) = spawn(self.folder.path());
        (self.process, self.client) = (Some(process), client);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &Path) -> (Child, Client) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_broker"))
        .arg("serve")
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen", "127.0.0.1:0", "--no-auth"])
        .env("BROKER_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the broker starts");
    let stdout = process.stdout.take().expect("its output is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("the broker says something");
    let address = line.trim().strip_prefix("listening on http://");
    let address = address.unwrap_or_else(|| panic!("the broker does not start; it says {line:?}")).to_owned();
    let http = reqwest::blocking::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build();
    (process, Client { address, http: http.expect("a client") })
}

impl Client {
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Gone> {
        self.send(self.http.post(self.url(path)).json(body))
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<Value, Gone> {
        self.send(self.http.put(self.url(path)).json(body))
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, Gone> {
        self.send(self.http.get(self.url(path)))
    }

    /// Uploads a policy.
    pub(crate) fn put_module(&self, path: &str, module: Vec<u8>, params: &Value) -> Result<Value, Gone> {
        let request = self.http.put(self.url(path)).header("content-type", "application/wasm");
        self.send(request.header("broker-policy-params", params.to_string()).body(module))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v1/{path}", self.address)
    }

    /// # Panics
    /// On a problem: a healthy client never meets one here.
    fn send(&self, request: reqwest::blocking::RequestBuilder) -> Result<Value, Gone> {
        let response = request.send().map_err(|_| Gone)?;
        let status = response.status();
        let body = response.text().map_err(|_| Gone)?;
        // Only a whole answer is an answer.
        let value = serde_json::from_str(&body).map_err(|_| Gone)?;
        assert!(status.is_success(), "{status}: {body}");
        Ok(value)
    }
}
