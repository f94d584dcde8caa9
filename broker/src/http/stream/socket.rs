//! The two directions of a WebSocket, with their bounds of time, and how a stream ends.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use super::super::body::Format;
use super::super::{ErrorCode, Problem};
use super::leases::Leases;
use crate::clock::Clock;

/// Pings before a silent client is given up.
const PINGS: u32 = 3;
/// How long the client may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The client closed it.
    Closed,
    /// The connection broke.
    Lost,
    /// The client gave no sign.
    Idle,
    /// The client took nothing.
    SlowReader,
    /// The client does not speak the protocol.
    Protocol,
    /// A text frame is not UTF-8.
    InvalidText,
    /// A frame is larger than streams take.
    TooLarge,
    /// The subscription was deleted.
    Deleted,
    /// The token ended, or may do this no more.
    Revoked,
    /// The broker stops.
    ShuttingDown,
}

impl End {
    /// Its name: the reason of the close frame, and the detail of the failures it leaves.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed_by_client",
            Self::Lost => "connection_lost",
            Self::Idle => "idle",
            Self::SlowReader => "slow_reader",
            Self::Protocol => "protocol_error",
            Self::InvalidText => "invalid_text",
            Self::TooLarge => "frame_too_large",
            Self::Deleted => "subscription_not_found",
            Self::Revoked => "token_revoked",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// The code of the close frame; `None` where there is nobody to read it.
    const fn code(self) -> Option<u16> {
        match self {
            Self::Closed | Self::Lost => None,
            Self::ShuttingDown => Some(close_code::AWAY),
            Self::Protocol => Some(close_code::PROTOCOL),
            Self::InvalidText => Some(close_code::INVALID),
            Self::TooLarge => Some(close_code::SIZE),
            Self::Revoked => Some(4003),
            Self::Idle => Some(4000),
            Self::SlowReader => Some(4001),
            Self::Deleted => Some(4004),
        }
    }
}

impl From<axum::Error> for End {
    fn from(error: axum::Error) -> Self {
        use tungstenite::Error;
        use tungstenite::error::ProtocolError;
        match error.into_inner().downcast_ref::<Error>() {
            Some(Error::Capacity(_)) => Self::TooLarge,
            Some(Error::Utf8(_)) => Self::InvalidText,
            Some(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Self::Lost,
            Some(Error::Protocol(_)) => Self::Protocol,
            _ => Self::Lost,
        }
    }
}

/// What the client sends.
pub(super) struct Incoming {
    stream: SplitStream<WebSocket>,
    format: Format,
    idle: Duration,
}

/// What goes to the client.
pub(super) struct Outgoing {
    sink: SplitSink<WebSocket, Message>,
    answers: mpsc::Receiver<Message>,
    deliveries: mpsc::Receiver<Message>,
    idle: Duration,
}

/// Both directions, and the places where frames for the client are left: answers, and deliveries one at a time.
pub(super) fn split(
    socket: WebSocket,
    format: Format,
    idle: Duration,
) -> (Incoming, Outgoing, mpsc::Sender<Message>, mpsc::Sender<Message>) {
    let (sink, stream) = socket.split();
    let (send_answer, answers) = mpsc::channel(crate::domain::limits::MAX_UNANSWERED_FRAMES);
    let (send_deliveries, deliveries) = mpsc::channel(1);
    let outgoing = Outgoing { sink, answers, deliveries, idle };
    (Incoming { stream, format, idle }, outgoing, send_answer, send_deliveries)
}

impl Incoming {
    /// The next frame, or what is wrong with it. It can be waited for again if the wait was broken off.
    ///
    /// # Errors
    /// Why there are no more.
    pub(super) async fn next(&mut self) -> Result<Result<Bytes, Problem>, End> {
        loop {
            let received = timeout(self.idle, self.stream.next()).await.map_err(|_| End::Idle)?;
            let frame = match (received.ok_or(End::Lost)??, self.format) {
                (Message::Text(text), Format::Json) => Ok(text.into()),
                (Message::Binary(bytes), Format::MessagePack) => Ok(bytes),
                (Message::Text(_), Format::MessagePack) => Err("MessagePack travels in binary frames"),
                (Message::Binary(_), Format::Json) => Err("JSON travels in text frames"),
                (Message::Ping(_) | Message::Pong(_), _) => continue,
                (Message::Close(_), _) => return Err(End::Closed),
            };
            return Ok(frame.map_err(|detail| Problem::new(ErrorCode::InvalidBody, detail)));
        }
    }
}

impl Outgoing {
    /// Sends what is left for the client, and pings, until nobody leaves answers any more or the client takes none.
    pub(super) async fn run(mut self, leases: &Leases, clock: Clock) -> (Self, End) {
        let mut ping = interval(self.idle / PINGS);
        ping.reset();
        loop {
            // Deliveries come last: they are not to keep pings and answers waiting.
            let message = tokio::select! {
                biased;
                answer = self.answers.recv() => match answer {
                    Some(answer) => answer,
                    None => return (self, End::Closed),
                },
                _ = ping.tick() => Message::Ping(Bytes::new()),
                Some(deliveries) = self.deliveries.recv() => {
                    if !leases.begin(clock.now()) {
                        continue;
                    }
                    deliveries
                }
            };
            match timeout(self.idle, self.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return (self, error.into()),
                Err(_) => return (self, End::SlowReader),
            }
        }
    }

    /// Sends a frame, and the answers that are there already, in one go.
    async fn send(&mut self, message: Message) -> Result<(), axum::Error> {
        self.sink.feed(message).await?;
        while let Ok(answer) = self.answers.try_recv() {
            self.sink.feed(answer).await?;
        }
        self.sink.flush().await
    }
}

/// Sends what was left for the client, says why the stream ends, and gives the client a moment to take it.
pub(super) async fn hang_up(
    mut incoming: Incoming,
    sending: impl Future<Output = (Outgoing, End)>,
    sent: Option<Outgoing>,
    end: End,
) {
    let farewell = async {
        let mut outgoing = match sent {
            Some(outgoing) => outgoing,
            None => sending.await.0,
        };
        match end.code() {
            Some(code) => {
                let reason = Utf8Bytes::from_static(end.as_str());
                outgoing.sink.send(Message::Close(Some(CloseFrame { code, reason }))).await?;
            }
            // The answer to the client's own close frame may be on its way.
            None => outgoing.sink.flush().await?,
        }
        while let Some(Ok(_)) = incoming.stream.next().await {}
        Ok::<(), axum::Error>(())
    };
    _ = timeout(FAREWELL, farewell).await;
}
