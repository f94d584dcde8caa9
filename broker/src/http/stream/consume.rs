//! The stream of a consumer: deliveries within its credit one way, settlements the other.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::super::auth::Caller;
use super::super::body::Format;
use super::super::pull::{DeliveryAnswer, delivery};
use super::super::settle::{Acks, Extensions, Nacks, Releases, Verb, open};
use super::super::shape::PayloadAs;
use super::super::{App, ErrorCode, Problem};
use super::frame::{self, Frame};
use super::leases::Leases;
use super::socket::{End, Incoming, hang_up, split};
use crate::dispatch::Awaited;
use crate::domain::access::Scope;
use crate::domain::failure::{Cause, Failure};
use crate::domain::limits::{
    MAX_BATCH_ITEMS, MAX_CREDIT_BYTES, MAX_CREDIT_MESSAGES, MAX_DELIVERIES_BYTES, MAX_UNANSWERED_FRAMES,
    MAX_WAIT,
};
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::engine::{Command, Granted, Nack, Pull, Refusal, SettleError};

/// How long a client may go on settling once the broker stops. The server waits a little longer.
const GRACE: Duration = Duration::from_secs(10);
/// How often a stream without credit looks whether its subscription is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// When a stream that found too many pulls waiting tries again.
const PULL_AGAIN: Duration = Duration::from_secs(1);

/// Deliveries that the client cannot have seen.
const RELEASED: Failure = Failure::of(Cause::Released);

/// A consumer on one subscription.
pub(super) struct Session {
    app: App,
    caller: Caller,
    subscription: Name,
    consumer: Arc<str>,
    format: Format,
    payload_as: PayloadAs,
    credit: watch::Sender<Credit>,
    leases: Leases,
}

/// What the client still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Credit {
    messages: u32,
    /// Payload bytes; `None` until the client speaks of them. The last delivery may overdraw them.
    bytes: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreditBody {
    messages: u32,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct DeliveriesBody<'a> {
    deliveries: Vec<DeliveryAnswer<'a>>,
}

/// An answer to a frame, and what it says about leases.
struct Answer {
    message: Message,
    settled: Vec<(Receipt, Option<Timestamp>)>,
}

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A pull that waits at the broker.
type Waiting = Option<Awaited<Vec<Granted>>>;

impl Session {
    pub(super) fn new(
        app: App,
        caller: Caller,
        subscription: Name,
        consumer: Arc<str>,
        format: Format,
        payload_as: PayloadAs,
    ) -> Self {
        let credit = watch::Sender::new(Credit::default());
        let leases = Leases::default();
        Self { app, caller, subscription, consumer, format, payload_as, credit, leases }
    }

    pub(super) async fn run(self, socket: WebSocket) {
        let (mut incoming, outgoing, answers, deliveries) = split(socket, self.format, self.app.streams.idle);
        let mut waiting = None;
        let mut sending = pin!(outgoing.run(&self.leases, self.app.broker.clock()));
        let (end, sent) = tokio::select! {
            end = self.talk(&mut incoming, &answers) => (end, None),
            end = self.deliver(&mut waiting, &deliveries) => (end, None),
            end = self.leave(&answers) => (end, None),
            (outgoing, end) = &mut sending => (end, Some(outgoing)),
        };
        drop((answers, deliveries));
        let unseen = self.leases.stop();
        tokio::join!(self.end_leases(unseen, waiting, end), hang_up(incoming, sending, sent, end));
    }

    /// Whether its token is as good as when the stream began.
    fn may_still(&self) -> bool {
        let now = self.caller.by_now(&self.app);
        now.is_some_and(|now| now.may(Scope::Consume) && now.subscriptions().allow(&self.subscription))
    }

    /// Takes the client's frames and leaves the answers, as they come.
    async fn talk(&self, incoming: &mut Incoming, answers: &mpsc::Sender<Message>) -> End {
        let mut asked: FuturesUnordered<Answering> = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(answer) = asked.next() => {
                    if answers.send(answer.message).await.is_err() {
                        return End::Lost;
                    }
                    // Not before the client is sure to be told: whoever waits for the last one closes the stream.
                    self.leases.settle(answer.settled);
                }
                received = incoming.next(), if asked.len() < MAX_UNANSWERED_FRAMES => match received {
                    Ok(_) if !self.may_still() => return End::Revoked,
                    Ok(received) => asked.extend(self.take(received).await),
                    Err(end) => return end,
                },
            }
        }
    }

    /// Carries out what a frame says; what comes back is the answer, if there is to be one.
    async fn take(&self, received: Result<bytes::Bytes, Problem>) -> Option<Answering> {
        let frame = match received.and_then(|bytes| Frame::read(self.format, bytes)) {
            Ok(frame) => frame,
            Err(problem) => return Some(self.refuse(None, problem)),
        };
        let taken = match frame.kind.as_str() {
            "ack" => self.settle::<Acks>("acked", &frame).await.map(Some),
            "nack" => self.settle::<Nacks>("nacked", &frame).await.map(Some),
            "release" => self.settle::<Releases>("released", &frame).await.map(Some),
            "extend" => self.settle::<Extensions>("extended", &frame).await.map(Some),
            "credit" => frame.rest().and_then(|given| self.add_credit(&given)).map(|()| None),
            _ => Err(frame.unknown("ack, nack, release, extend, credit")),
        };
        taken.unwrap_or_else(|problem| Some(self.refuse(frame.id.as_deref(), problem)))
    }

    fn refuse(&self, id: Option<&str>, problem: Problem) -> Answering {
        let message = frame::error(self.format, id, problem);
        Box::pin(std::future::ready(Answer { message, settled: Vec::new() }))
    }

    async fn settle<V: Verb + DeserializeOwned>(
        &self,
        kind: &'static str,
        frame: &Frame,
    ) -> Result<Answering, Problem> {
        let opened = open(&self.app, self.caller.realm, frame.rest::<V>()?)?;
        let receipts: Vec<Receipt> = opened.good.iter().map(|(receipt, _)| *receipt).collect();
        let (subscription, format, id) = (self.subscription.clone(), self.format, frame.id.clone());
        let settling = opened.send(&self.app, self.caller.realm, subscription.clone()).await?;
        Ok(Box::pin(async move {
            let results = match settling.results.await {
                Ok(results) => results,
                Err(refusal) => {
                    let message = frame::error(format, id.as_deref(), refusal.into());
                    return Answer { message, settled: Vec::new() };
                }
            };
            let settled = receipts.into_iter().zip(&results).filter_map(|(receipt, result)| match result {
                Ok(done) => Some((receipt, V::lease(done))),
                Err(SettleError::StaleReceipt) => Some((receipt, None)),
                Err(_) => None,
            });
            let settled = settled.collect();
            let answer = settling.items.answer(results, |done| V::show(&subscription, done));
            Answer { message: frame::frame(format, kind, id.as_deref(), &answer), settled }
        }))
    }

    fn add_credit(&self, given: &CreditBody) -> Result<(), Problem> {
        let mut result = Ok(());
        self.credit.send_if_modified(|credit| {
            match credit.with(given) {
                Ok(sum) => *credit = sum,
                Err(problem) => result = Err(problem),
            }
            result.is_ok()
        });
        result
    }

    /// Pulls as long as there is credit, and leaves what comes for the client.
    async fn deliver(&self, waiting: &mut Waiting, deliveries: &mpsc::Sender<Message>) -> End {
        loop {
            let granted = match self.next(waiting).await {
                Ok(granted) if granted.is_empty() && self.may_still() => continue,
                Ok(granted) => granted,
                Err(end) => return end,
            };
            self.credit.send_modify(|credit| credit.spend(&granted));
            self.leases.queue(&granted);
            if !self.may_still() {
                return End::Revoked;
            }
            // The next ones are looked for while these are written.
            if self.credit.borrow().is_left() {
                *waiting = self.pull().await.ok();
            }
            let message = self.deliveries(&granted);
            if deliveries.send(message).await.is_err() {
                return End::Lost;
            }
        }
    }

    fn deliveries(&self, granted: &[Granted]) -> Message {
        let show = |granted| delivery(&self.app, self.caller.realm, granted, self.payload_as, self.format);
        let body = DeliveriesBody { deliveries: granted.iter().map(show).collect() };
        frame::frame(self.format, "deliveries", None, &body)
    }

    /// The next deliveries; there may be none yet.
    async fn next(&self, waiting: &mut Waiting) -> Result<Vec<Granted>, End> {
        let granted = match waiting {
            // It stays in its place while it waits: whatever is granted to a stream that ends is found there.
            Some(pull) => pull.await,
            None => {
                self.has_credit().await?;
                match self.pull().await {
                    Ok(pull) => waiting.insert(pull).await,
                    Err(refusal) => Err(refusal),
                }
            }
        };
        *waiting = None;
        match granted {
            Err(Refusal::SubscriptionNotFound(_)) => Err(End::Deleted),
            Err(Refusal::TooManyWaiters(_)) => {
                tokio::time::sleep(PULL_AGAIN).await;
                Ok(Vec::new())
            }
            // Nothing is granted any more; how the stream ends is for others to say.
            Err(_) => std::future::pending().await,
            Ok(granted) if granted.is_empty() && self.app.broker.feed(self.caller.realm).is_closed() => {
                std::future::pending().await
            }
            Ok(granted) => Ok(granted),
        }
    }

    /// Asks for what there is credit for.
    async fn pull(&self) -> Result<Awaited<Vec<Granted>>, Refusal> {
        let credit = *self.credit.borrow();
        let bytes = credit.bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(0));
        let request = Pull {
            subscription: self.subscription.clone(),
            max: (credit.messages as usize).min(MAX_BATCH_ITEMS),
            wait: MAX_WAIT,
            max_bytes: bytes.min(MAX_DELIVERIES_BYTES),
            consumer: Some(Arc::clone(&self.consumer)),
        };
        self.app.broker.send(|reply| Command::Pull(self.caller.realm, request, reply)).await
    }

    /// Waits for credit, as long as there is a subscription to use it on.
    async fn has_credit(&self) -> Result<(), End> {
        let mut credit = self.credit.subscribe();
        while timeout(LOOK_AGAIN, credit.wait_for(Credit::is_left)).await.is_err() {
            let look = |reply| Command::GetSubscription(self.caller.realm, self.subscription.clone(), reply);
            if let Err(Refusal::SubscriptionNotFound(_)) = self.app.broker.call(look).await {
                return Err(End::Deleted);
            }
            if !self.may_still() {
                return Err(End::Revoked);
            }
        }
        Ok(())
    }

    /// Once the broker stops: tells the client, and waits until it has settled what it holds.
    async fn leave(&self, answers: &mpsc::Sender<Message>) -> End {
        self.app.broker.feed(self.caller.realm).closed().await;
        let unseen = self.leases.stop();
        _ = answers.send(frame::going_away(self.format)).await;
        let settled = self.leases.settled(self.app.broker.clock().now());
        _ = tokio::join!(timeout(GRACE, settled), self.give_back(unseen, RELEASED));
        End::ShuttingDown
    }

    /// Ends the leases that the stream leaves. What the client cannot have seen is given back without fault.
    async fn end_leases(&self, mut unseen: Vec<Receipt>, waiting: Waiting, end: End) {
        let granted = waiting.and_then(Awaited::give_up).unwrap_or_default();
        unseen.extend(granted.iter().map(|granted| granted.receipt));
        let detail = Some(end.as_str().to_owned());
        let disconnected = Failure { detail, ..Failure::of(Cause::Disconnected) };
        tokio::join!(self.give_back(self.leases.take(), disconnected), self.give_back(unseen, RELEASED));
    }

    /// Ends leases, all of them before the first decision is waited for. Some may be over already.
    async fn give_back(&self, receipts: Vec<Receipt>, failure: Failure) {
        let mut decisions = Vec::new();
        for receipts in receipts.chunks(MAX_BATCH_ITEMS) {
            let items = receipts.iter().map(|receipt| (*receipt, failure.clone())).collect();
            let nack = Nack { subscription: self.subscription.clone(), items };
            decisions.push(self.app.broker.send(|reply| Command::Nack(self.caller.realm, nack, reply)).await);
        }
        for decision in decisions.into_iter().flatten() {
            // They are for the next consumer to see.
            _ = decision.await;
        }
    }
}

impl Credit {
    fn is_left(&self) -> bool {
        self.messages > 0 && self.bytes.is_none_or(|bytes| bytes > 0)
    }

    fn with(self, given: &CreditBody) -> Result<Self, Problem> {
        let messages = self.messages.saturating_add(given.messages);
        let bytes = given.bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let bytes = bytes.map_or(self.bytes, |more| Some(self.bytes.unwrap_or(0).saturating_add(more)));
        let too_much =
            bytes.is_some_and(|bytes| u64::try_from(bytes).is_ok_and(|bytes| bytes > MAX_CREDIT_BYTES));
        if messages > MAX_CREDIT_MESSAGES || too_much {
            let detail = format!(
                "a stream has at most {MAX_CREDIT_MESSAGES} messages and {MAX_CREDIT_BYTES} bytes of credit; nothing was added"
            );
            return Err(Problem::new(ErrorCode::LimitReached, detail));
        }
        Ok(Self { messages, bytes })
    }

    fn spend(&mut self, granted: &[Granted]) {
        let bytes: usize = granted.iter().map(|granted| granted.message.payload.len()).sum();
        self.messages = self.messages.saturating_sub(u32::try_from(granted.len()).unwrap_or(u32::MAX));
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes = self.bytes.map(|left| left.saturating_sub(bytes));
    }
}
