//! The stream of a publisher: batches one way, their confirmations in the same order the other.

use std::pin::{Pin, pin};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tokio::sync::mpsc;

use super::super::auth::Caller;
use super::super::body::Format;
use super::super::publish::{Batch, batch, item, send};
use super::super::{App, Problem};
use super::frame::{self, Frame};
use super::leases::Leases;
use super::socket::{End, Incoming, hang_up, split};
use crate::domain::access::Scope;
use crate::domain::limits::MAX_UNANSWERED_FRAMES;
use crate::domain::name::Name;

/// A publisher to one topic.
pub(super) struct Session {
    pub(super) app: App,
    pub(super) caller: Caller,
    pub(super) topic: Name,
    pub(super) format: Format,
}

/// How often a stream without frames looks whether its token is still good.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

type Confirming = Pin<Box<dyn Future<Output = Message> + Send>>;

impl Session {
    pub(super) async fn run(self, socket: WebSocket) {
        let (mut incoming, outgoing, answers, _) = split(socket, self.format, self.app.streams.idle);
        let leases = Leases::default();
        let mut sending = pin!(outgoing.run(&leases, self.app.broker.clock()));
        let (end, sent) = tokio::select! {
            end = self.talk(&mut incoming, &answers) => (end, None),
            (outgoing, end) = &mut sending => (end, Some(outgoing)),
        };
        drop(answers);
        hang_up(incoming, sending, sent, end).await;
    }

    /// Takes batches, some before the first one is confirmed, and leaves the confirmations in their order.
    async fn talk(&self, incoming: &mut Incoming, answers: &mpsc::Sender<Message>) -> End {
        let mut asked: FuturesOrdered<Confirming> = FuturesOrdered::new();
        let feed = self.app.broker.feed(self.caller.realm);
        let mut stopping = pin!(feed.closed());
        let mut stops = false;
        loop {
            tokio::select! {
                Some(message) = asked.next() => {
                    if answers.send(message).await.is_err() {
                        return End::Lost;
                    }
                }
                received = incoming.next(), if !stops && asked.len() < MAX_UNANSWERED_FRAMES => match received {
                    Ok(_) if !self.may_still() => return End::Revoked,
                    Ok(received) => asked.push_back(self.take(received).await),
                    Err(end) => return end,
                },
                () = tokio::time::sleep(LOOK_AGAIN), if !stops => {
                    if !self.may_still() {
                        return End::Revoked;
                    }
                }
                () = &mut stopping, if !stops => {
                    stops = true;
                    asked.push_back(Box::pin(std::future::ready(frame::going_away(self.format))));
                }
                else => return End::ShuttingDown,
            }
        }
    }

    /// Whether its token is as good as when the stream began.
    fn may_still(&self) -> bool {
        let now = self.caller.by_now(&self.app);
        now.is_some_and(|now| now.may(Scope::Publish) && now.topics().allow(&self.topic))
    }

    async fn take(&self, received: Result<bytes::Bytes, Problem>) -> Confirming {
        let frame = match received.and_then(|bytes| Frame::read(self.format, bytes)) {
            Ok(frame) => frame,
            Err(problem) => return self.refuse(None, problem),
        };
        let taken = match frame.kind.as_str() {
            "publish" => self.publish(&frame).await,
            _ => Err(frame.unknown("publish")),
        };
        taken.unwrap_or_else(|problem| self.refuse(frame.id.as_deref(), problem))
    }

    fn refuse(&self, id: Option<&str>, problem: Problem) -> Confirming {
        Box::pin(std::future::ready(frame::error(self.format, id, problem)))
    }

    async fn publish(&self, frame: &Frame) -> Result<Confirming, Problem> {
        let Batch { messages } = frame.rest()?;
        let sent = send(&self.app, self.caller.realm, self.topic.clone(), batch(messages, item)?).await?;
        let (format, id) = (self.format, frame.id.clone());
        Ok(Box::pin(async move {
            match sent.answer().await {
                Ok(answer) => frame::frame(format, "published", id.as_deref(), &answer),
                Err(problem) => frame::error(format, id.as_deref(), problem),
            }
        }))
    }
}
