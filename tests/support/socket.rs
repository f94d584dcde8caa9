//! One connection, written and read by hand: for clients that vanish, and requests that stop half way.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use super::PATIENCE;

/// An open connection.
pub(crate) struct Socket(BufReader<TcpStream>);

impl Socket {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the broker accepts connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit can be set");
        Self(BufReader::new(stream))
    }

    /// Sends a whole request with a JSON body.
    pub(crate) fn post(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.write(&format!(
            "POST {path} HTTP/1.1\r\nhost: broker\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ));
    }

    /// Sends a whole request that does not say how long its body is.
    pub(crate) fn post_chunked(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.write(&format!(
            "POST {path} HTTP/1.1\r\nhost: broker\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        ));
    }

    /// Sends the head of a request and waits until the broker asks for its body: from then on it is at work on it.
    pub(crate) fn begin(&mut self, path: &str, body: &str) {
        let (status, answer) = self.announce("POST", path, "application/json", body.len());
        assert_eq!(status, 100, "{answer}");
    }

    /// Sends the head of a request that waits to be asked for its body, and reads what comes first: 100 or a refusal.
    pub(crate) fn announce(
        &mut self,
        method: &str,
        path: &str,
        media_type: &str,
        length: usize,
    ) -> (u16, String) {
        self.write(&format!(
            "{method} {path} HTTP/1.1\r\nhost: broker\r\ncontent-type: {media_type}\r\n\
             content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        ));
        self.read()
    }

    /// Sends the body that [`begin`](Self::begin) held back.
    pub(crate) fn finish(&mut self, body: &str) {
        self.write(body);
    }

    /// Reads one answer: its status and its body.
    pub(crate) fn read(&mut self) -> (u16, String) {
        let mut status = 0;
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("the broker answers");
            let line = line.trim_end().to_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status is a number");
            } else if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            } else if line.is_empty() {
                break;
            }
        }
        assert_ne!(status, 0, "the broker closed the connection");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the body is as long as it says");
        (status, String::from_utf8(body).expect("the body is text"))
    }

    fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the broker reads");
    }
}
