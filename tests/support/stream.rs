//! A client of streams, on a WebSocket library that is not the broker's framework.

use std::net::TcpStream;

use serde_json::{Value, json};
use tungstenite::Error;
use tungstenite::client::{ClientRequestBuilder, IntoClientRequest as _};
use tungstenite::handshake::HandshakeError;
use tungstenite::http::Response;
use tungstenite::protocol::{CloseFrame, Message, WebSocket};

use super::{Answer, Client, PATIENCE};

pub(crate) const JSON: &str = "reprise.v1.json";
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
        match Self::request(client, path, protocol) {
            Ok((stream, response)) => {
                let chosen = response.headers().get("sec-websocket-protocol");
                assert_eq!(chosen.and_then(|value| value.to_str().ok()), protocol);
                stream
            }
            Err(answer) => panic!("{}: {}", answer.status, answer.text()),
        }
    }

    /// Opens a stream, or gives the answer that refuses it.
    pub(crate) fn request(
        client: &Client,
        path: &str,
        protocol: Option<&str>,
    ) -> Result<(Self, Response<Option<Vec<u8>>>), Answer> {
        let address = client.address();
        let tcp = TcpStream::connect(address).expect("the broker accepts connections");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time limit can be set");
        tcp.set_write_timeout(Some(PATIENCE)).expect("a time limit can be set");
        tcp.set_nodelay(true).expect("it can be set");
        let uri = format!("ws://{address}{path}").parse().expect("an address");
        let mut request = ClientRequestBuilder::new(uri);
        if let Some(protocol) = protocol {
            request = request.with_sub_protocol(protocol);
        }
        let request = request.into_client_request().expect("a request");
        match tungstenite::client(request, tcp) {
            Ok((socket, response)) => Ok((Self { socket, packed: protocol == Some(MSGPACK) }, response)),
            Err(HandshakeError::Failure(Error::Http(response))) => {
                let (parts, body) = response.into_parts();
                let (status, headers) = (parts.status.as_u16(), parts.headers);
                Err(Answer { status, headers, body: body.unwrap_or_default() })
            }
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
        loop {
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
    pub(crate) fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            match self.socket.read() {
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    // So that the broker has its answer.
                    while self.socket.read().is_ok() {}
                    return Some((code.into(), reason.to_string()));
                }
                Ok(Message::Close(None)) => return None,
                Err(error) => {
                    eprintln!("DBG {error:?}");
                    return None;
                }
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
