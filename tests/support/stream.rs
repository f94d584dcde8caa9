//! A client of streams, on a WebSocket library that is not the broker's framework.

use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};
use tungstenite::ClientRequestBuilder;
use tungstenite::Error;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::Response;
use tungstenite::protocol::{CloseFrame, Message, WebSocket};

use super::{Answer, Client, PATIENCE};

const JSON: &str = "reprise.v1.json";
const PROTOCOL: &str = "sec-websocket-protocol";
pub(crate) const MSGPACK: &str = "reprise.v1.msgpack";

/// One open stream. Pings are answered while frames are read.
pub(crate) struct Stream {
    pub(crate) socket: WebSocket<TcpStream>,
    packed: bool,
}

impl Stream {
    /// A consumer's stream on a subscription, in JSON.
    #[track_caller]
    pub(crate) fn consume(client: &Client, subscription: &str) -> Self {
        Self::open(client, &format!("/v1/subscriptions/{subscription}/stream"), Some(JSON))
    }

    /// A publisher's stream to a topic, in JSON.
    #[track_caller]
    pub(crate) fn publish(client: &Client, topic: &str) -> Self {
        Self::open(client, &format!("/v1/topics/{topic}/stream"), Some(JSON))
    }

    #[track_caller]
    pub(crate) fn open(client: &Client, path: &str, protocol: Option<&str>) -> Self {
        let headers: Vec<_> = protocol.iter().map(|name| (PROTOCOL, *name)).collect();
        let (answer, stream) = Self::request(client, path, &headers);
        assert_eq!(answer.header(PROTOCOL), protocol, "{}: {}", answer.status, answer.text());
        stream.unwrap_or_else(|| panic!("{}: {}", answer.status, answer.text()))
    }

    /// The problem with which such a request is refused.
    #[track_caller]
    pub(crate) fn refused(client: &Client, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        Self::request(client, path, headers).0.problem()
    }

    /// Asks for a stream: the answer, and the stream if it was opened.
    pub(crate) fn request(client: &Client, path: &str, headers: &[(&str, &str)]) -> (Answer, Option<Self>) {
        let address = client.address();
        let tcp = TcpStream::connect(address).expect("the broker accepts connections");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time limit can be set");
        tcp.set_write_timeout(Some(PATIENCE)).expect("a time limit can be set");
        tcp.set_nodelay(true).expect("it can be set");
        let uri = format!("ws://{address}{path}").parse().expect("an address");
        let request = headers.iter().fold(ClientRequestBuilder::new(uri), |request, (name, value)| {
            request.with_header(*name, *value)
        });
        let packed = headers.contains(&(PROTOCOL, MSGPACK));
        match tungstenite::client(request, tcp) {
            Ok((socket, response)) => (answer(response), Some(Self { socket, packed })),
            Err(HandshakeError::Failure(Error::Http(response))) => (answer(*response), None),
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    pub(crate) fn send(&mut self, frame: &Value) {
        let message = if self.packed {
            Message::Binary(rmp_serde::to_vec_named(frame).expect("it can be written").into())
        } else {
            Message::text(frame.to_string())
        };
        self.socket.send(message).expect("the broker reads");
    }

    /// Text as it is, whether it is a frame or not.
    pub(crate) fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).expect("the broker reads");
    }

    pub(crate) fn credit(&mut self, messages: u32) {
        self.send(&json!({ "type": "credit", "messages": messages }));
    }

    /// The next frame.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no frame comes");
            match self.socket.read() {
                Ok(Message::Text(text)) if !self.packed => {
                    return serde_json::from_str(&text).expect("a frame is JSON");
                }
                Ok(Message::Binary(bytes)) if self.packed => {
                    return rmp_serde::from_slice(&bytes).expect("a frame is MessagePack");
                }
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("no frame: {other:?}"),
            }
        }
    }

    /// The next frame, which is of this type.
    #[track_caller]
    pub(crate) fn expect(&mut self, kind: &str) -> Value {
        let frame = self.next();
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// Sends a frame and gives the next one, which answers it with this type.
    #[track_caller]
    pub(crate) fn ask(&mut self, frame: &Value, kind: &str) -> Value {
        self.send(frame);
        let answer = self.expect(kind);
        assert_eq!(answer.get("id"), frame.get("id"), "{answer}");
        answer
    }

    /// The next deliveries, until there are so many.
    #[track_caller]
    pub(crate) fn deliveries(&mut self, count: usize) -> Vec<super::Delivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            let mut frame = self.expect("deliveries");
            let more: Vec<_> =
                serde_json::from_value(frame["deliveries"].take()).expect("deliveries have their shape");
            assert!(!more.is_empty(), "a frame without deliveries");
            deliveries.extend(more);
        }
        assert_eq!(deliveries.len(), count, "more than were expected");
        deliveries
    }

    /// Reads on until the broker closes the stream: code and reason, `None` if it just broke.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> Option<(u16, String)> {
        let start = Instant::now();
        loop {
            // Pings alone would keep it from ever giving up.
            assert!(start.elapsed() < PATIENCE, "the stream stays open");
            match self.socket.read() {
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    // So that the broker has its answer.
                    while self.socket.read().is_ok() {}
                    return Some((code.into(), reason.to_string()));
                }
                Ok(Message::Close(None)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Closes it as clients should, and waits for the broker's answer.
    pub(crate) fn close(mut self) {
        self.socket.close(None).expect("it is open");
        while self.socket.read().is_ok() {}
    }

    /// Breaks the connection without a word, with frames unread: then the system sends a reset.
    pub(crate) fn reset(self) {
        let unread = self.socket.get_ref().peek(&mut [0]);
        assert_eq!(unread.expect("something comes"), 1);
    }
}

fn answer(response: Response<Option<Vec<u8>>>) -> Answer {
    let (parts, body) = response.into_parts();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.unwrap_or_default() }
}
