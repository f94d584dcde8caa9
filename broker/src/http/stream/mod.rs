//! `GET /v1/subscriptions/{s}/stream` and `GET /v1/topics/{t}/stream`: WebSockets.
//!
//! [`consume`] pushes deliveries within the client's credit and takes settlements, [`publish`] takes messages. A stream
//! is one task with a few loops that run beside each other; the first one to end ends the stream:
//!
//! ```text
//!   client --frames--> talk --commands--> broker --answers--> talk ----.
//!                       `---credit---> deliver <--grants--- broker     |-- at most so many frames --> run --> client
//!                                         `----------------------------'
//! ```
//!
//! What the client does not take is not made for long: whoever makes frames waits for room, and then no more is read.

mod consume;
mod frame;
mod leases;
mod publish;
mod socket;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::auth::{Caller, May, need};
use super::body::Format;
use super::pull::consumer;
use super::query::Asked;
use super::shape::PayloadAs;
use super::{App, ErrorCode, Problem};
use crate::domain::id::RealmId;
use crate::domain::limits::{DEFAULT_STREAM_IDLE, MAX_FRAME_BYTES, MAX_STREAMS};
use crate::engine::Command;

/// The memory that a stream reads into and writes from.
const BUFFER_BYTES: usize = 32 * 1024;

/// The streams of a broker.
#[derive(Clone)]
pub(super) struct Streams {
    room: Arc<Semaphore>,
    /// How many there were, to name consumers by.
    opened: Arc<AtomicU64>,
    /// How long one may go without a sign of its client.
    pub(super) idle: Duration,
}

impl Default for Streams {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(MAX_STREAMS));
        Self { room, opened: Arc::default(), idle: DEFAULT_STREAM_IDLE }
    }
}

impl Streams {
    /// A place for one more.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let full =
            |_| Problem::new(ErrorCode::TooManyStreams, format!("{MAX_STREAMS} streams are open already"));
        Arc::clone(&self.room).try_acquire_owned().map_err(full)
    }

    /// A consumer that gives no name is one of its own.
    fn name_consumer(&self) -> Arc<str> {
        format!("stream {}", self.opened.fetch_add(1, Ordering::Relaxed)).into()
    }

    /// Waits until there is none.
    pub(super) async fn gone(&self) {
        const ALL: u32 = MAX_STREAMS as u32;
        _ = self.room.acquire_many(ALL).await;
    }
}

/// A request for a WebSocket whose frames are written in this format.
pub(super) struct Upgrade {
    request: WebSocketUpgrade,
    format: Format,
}

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let request = WebSocketUpgrade::from_request_parts(parts, state).await;
        let mut request =
            request.map_err(|error| Problem::new(ErrorCode::UpgradeRequired, error.body_text()))?;
        same_origin(&parts.headers)?;
        let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let mut offered =
            offered.flat_map(|value| value.to_str().unwrap_or("?").split(',').map(str::trim)).peekable();
        if offered.peek().is_none() {
            return Ok(Self { request, format: Format::Json });
        }
        let known = offered.find_map(|name| PROTOCOLS.into_iter().find(|(known, _)| *known == name));
        let (protocol, format) = known.ok_or_else(|| {
            let detail = "sec-websocket-protocol: reprise.v1.json or reprise.v1.msgpack";
            Problem::new(ErrorCode::InvalidHeader, detail)
        })?;
        request.set_selected_protocol(HeaderValue::from_static(protocol));
        Ok(Self { request, format })
    }
}

/// A browser lets a page of any site open a WebSocket, but says which.
///
/// # Errors
/// [`ErrorCode::InvalidHeader`] if the page is of another site than this one.
fn same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let site = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, site)| site);
    if site.is_some() && site == headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::InvalidHeader, "origin: pages of another site may not open streams"))
}

/// The subprotocols.
const PROTOCOLS: [(&str, Format); 2] =
    [("reprise.v1.json", Format::Json), ("reprise.v1.msgpack", Format::MessagePack)];

impl Upgrade {
    /// Answers with the upgrade, after which `run` has the socket.
    fn open<F>(self, run: impl FnOnce(WebSocket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.request
            .max_frame_size(MAX_FRAME_BYTES)
            .max_message_size(MAX_FRAME_BYTES)
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .on_upgrade(run)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    #[serde(default)]
    payload_as: PayloadAs,
    consumer: Option<String>,
}

pub(super) async fn consume(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    Asked(query): Asked<StreamQuery>,
    upgrade: Upgrade,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    app.broker.call(|reply| Command::GetSubscription(caller.realm, subscription.clone(), reply)).await?;
    let place = enter(&app, caller.realm)?;
    let named = query.consumer.as_deref().map(consumer).transpose()?;
    let consumer = named.unwrap_or_else(|| app.streams.name_consumer());
    let caller = Caller::clone(&caller);
    let session =
        consume::Session::new(app, caller, subscription, consumer, upgrade.format, query.payload_as);
    Ok(upgrade.open(|socket| async move {
        session.run(socket).await;
        drop(place);
    }))
}

pub(super) async fn publish(
    State(app): State<App>,
    caller: May<need::Publish>,
    Path(topic): Path<String>,
    upgrade: Upgrade,
) -> Result<Response, Problem> {
    let topic = caller.topic(&topic)?;
    let view = app.broker.call(|reply| Command::GetTopic(caller.realm, topic.clone(), reply)).await?;
    // Known beforehand, so that no frame comes back to be checked and arrives behind later ones.
    app.schemas.learn(caller.realm, topic.clone(), view.row.settings.schema).await?;
    let place = enter(&app, caller.realm)?;
    let session = publish::Session { app, caller: Caller::clone(&caller), topic, format: upgrade.format };
    Ok(upgrade.open(|socket| async move {
        session.run(socket).await;
        drop(place);
    }))
}

fn enter(app: &App, realm: RealmId) -> Result<OwnedSemaphorePermit, Problem> {
    if app.broker.feed(realm).is_closed() {
        return Err(crate::engine::Refusal::ShuttingDown.into());
    }
    app.streams.enter()
}
