//! An HTTP endpoint that fails on purpose, and remembers every request.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// What a request is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Status(u16),
    /// 429 with `Retry-After`, in seconds.
    TooMany(u64),
    /// No answer at all.
    HangUp,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    pub(crate) event: String,
    pub(crate) attempt: String,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// Requests by their `Webhook-Id`, in the order of arrival.
type Requests = Arc<Mutex<HashMap<String, Vec<Received>>>>;

pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    requests: Requests,
}

impl Endpoint {
    /// Listens on any free port. `plan` says how to answer a body that comes for the n-th time, from 1.
    pub(crate) fn start(plan: fn(&[u8], usize) -> Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        // Ends with the process, as its connections do.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                thread::spawn(move || serve(stream, &seen, plan));
            }
        });
        Self { address, requests }
    }

    /// Everything that arrived.
    pub(crate) fn received(&self) -> HashMap<String, Vec<Received>> {
        self.requests.lock().unwrap().clone()
    }
}

/// One request, one answer, then the connection is closed.
fn serve(mut stream: TcpStream, seen: &Requests, plan: fn(&[u8], usize) -> Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers = HashMap::new();
    let mut line = String::new();
    reader.read_line(&mut line)?;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let mut body = vec![0; header("content-length").parse().unwrap()];
    reader.read_exact(&mut body)?;
    let received = Received {
        at: Instant::now(),
        event: header("webhook-event"),
        attempt: header("webhook-attempt"),
        content_type: header("content-type"),
        body,
    };
    let answer = {
        let mut seen = seen.lock().unwrap();
        let earlier = seen.entry(header("webhook-id")).or_default();
        earlier.push(received.clone());
        plan(&received.body, earlier.len())
    };
    let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    match answer {
        Answer::Status(status) => write!(stream, "HTTP/1.1 {status} Planned\r\n{end}"),
        Answer::TooMany(seconds) => {
            write!(stream, "HTTP/1.1 429 Planned\r\nRetry-After: {seconds}\r\n{end}")
        }
        Answer::HangUp => stream.shutdown(Shutdown::Both),
    }
}
