//! The client of the benchmark: MessagePack over kept connections, and as little else as possible.

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// Any failure of a benchmark ends it.
pub(super) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One connection, for one request at a time.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends a body and gives the answer's, which has to be a success.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        media_type: &str,
        body: Bytes,
    ) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "broker")
            .header(header::CONTENT_TYPE, media_type)
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status == StatusCode::OK || status == StatusCode::CREATED {
            Ok(body)
        } else {
            Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into())
        }
    }

    pub(super) async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        let body = rmp_serde::to_vec_named(body)?.into();
        let answer = self.send(Method::POST, path, "application/msgpack", body).await?;
        Ok(rmp_serde::from_slice(&answer)?)
    }
}

#[derive(Serialize)]
pub(super) struct Pull {
    pub(super) max: usize,
    pub(super) wait: &'static str,
}

#[derive(Deserialize)]
pub(super) struct Pulled {
    pub(super) deliveries: Vec<Delivery>,
}

#[derive(Deserialize)]
pub(super) struct Delivery {
    pub(super) receipt: String,
    pub(super) attempt: u32,
    #[serde(rename = "message")]
    _message: IgnoredAny,
}

#[derive(Serialize)]
pub(super) struct Receipts {
    pub(super) receipts: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Nacks {
    pub(super) items: Vec<Nack>,
}

#[derive(Serialize)]
pub(super) struct Nack {
    pub(super) receipt: String,
    pub(super) class: &'static str,
}

#[derive(Serialize)]
pub(super) struct Batch<'a> {
    pub(super) messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    #[serde(with = "serde_bytes")]
    pub(super) payload_base64: &'a [u8],
}

/// Answers per item; the benchmark wants no errors among them.
#[derive(Deserialize)]
pub(super) struct Settled {
    pub(super) items: Vec<Item>,
}

#[derive(Deserialize)]
pub(super) struct Item {
    pub(super) error: Option<IgnoredAny>,
}
