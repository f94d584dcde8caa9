//! `POST /v1/subscriptions/{s}/ack`, `nack`, `release` and `extend`: batches of receipts, answered per item.
//!
//! A [`Verb`] is one of the four, whether it comes in a request or in a frame of a stream.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::{Format, Given};
use super::error::ItemError;
use super::shape::{DecisionBody, decision_body};
use super::wire::{GivenDuration, WireTime, optional};
use super::{App, ErrorCode, Problem};
use crate::dispatch::Awaited;
use crate::domain::decision::cut;
use crate::domain::delivery::Acked;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::RealmId;
use crate::domain::limits::{MAX_BATCH_ITEMS, MAX_CLASS_BYTES, MIN_LEASE};
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::engine::{Ack, Command, Decided, Extend, Nack, Reply, SettleError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiptsBody {
    receipts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ItemsBody<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NackItem {
    receipt: String,
    class: Option<String>,
    code: Option<String>,
    detail: Option<String>,
    retry_after: Option<GivenDuration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendItem {
    receipt: String,
    lease: Option<GivenDuration>,
}

#[derive(Serialize)]
pub(super) struct SettleAnswer<T> {
    items: Vec<ItemAnswer<T>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemAnswer<T> {
    Done {
        receipt: String,
        #[serde(flatten)]
        outcome: T,
    },
    Failed {
        receipt: String,
        error: ItemError,
    },
}

#[derive(Serialize)]
pub(super) struct AckedAnswer {
    status: &'static str,
    #[serde(skip_serializing_if = "is_false")]
    late: bool,
}

#[derive(Serialize)]
pub(super) struct DecidedAnswer {
    decision: DecisionBody,
}

#[derive(Serialize)]
pub(super) struct ExtendedAnswer {
    lease_until: WireTime,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

pub(super) async fn ack(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<Acks>,
) -> Result<Response, Problem> {
    settle(&app, &caller, &subscription, body, format).await
}

pub(super) async fn nack(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<Nacks>,
) -> Result<Response, Problem> {
    settle(&app, &caller, &subscription, body, format).await
}

pub(super) async fn release(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<Releases>,
) -> Result<Response, Problem> {
    settle(&app, &caller, &subscription, body, format).await
}

pub(super) async fn extend(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<Extensions>,
) -> Result<Response, Problem> {
    settle(&app, &caller, &subscription, body, format).await
}

async fn settle<V: Verb>(
    app: &App,
    caller: &Caller,
    subscription: &str,
    body: V,
    format: Format,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(subscription)?;
    let settling = open(app, caller.realm, body)?.send(app, caller.realm, subscription.clone()).await?;
    let results = settling.results.await?;
    Ok(format.ok(&settling.items.answer(results, |done| V::show(&subscription, done))))
}

/// A batch of one verb: what is asked of each receipt, and how that is put to the broker and answered.
pub(super) trait Verb: Send + 'static {
    /// What is asked beside the receipt.
    type Asked: Send + 'static;
    /// What the broker says.
    type Done: Send + 'static;
    /// What the client is told.
    type Shown: Serialize;

    fn items(self) -> impl Iterator<Item = (String, Result<Self::Asked, Problem>)>;

    fn command(
        realm: RealmId,
        subscription: Name,
        good: Vec<(Receipt, Self::Asked)>,
        reply: Reply<Vec<Settled<Self>>>,
    ) -> Command;

    fn show(subscription: &Name, done: Self::Done) -> Self::Shown;

    /// Until when the delivery is held now; `None` if its lease is over.
    fn lease(_: &Self::Done) -> Option<Timestamp> {
        None
    }
}

/// What became of one receipt.
pub(super) type Settled<V> = Result<<V as Verb>::Done, SettleError>;

/// Deliveries that are done.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Acks(ReceiptsBody);

impl Verb for Acks {
    type Asked = ();
    type Done = Acked;
    type Shown = AckedAnswer;

    fn items(self) -> impl Iterator<Item = (String, Result<(), Problem>)> {
        self.0.receipts.into_iter().map(|receipt| (receipt, Ok(())))
    }

    fn command(
        realm: RealmId,
        subscription: Name,
        good: Vec<(Receipt, ())>,
        reply: Reply<Vec<Settled<Self>>>,
    ) -> Command {
        let receipts = good.into_iter().map(|(receipt, ())| receipt).collect();
        Command::Ack(realm, Ack { subscription, receipts }, reply)
    }

    fn show(_: &Name, acked: Acked) -> AckedAnswer {
        AckedAnswer { status: "acked", late: acked.late }
    }
}

/// Attempts that ended badly; the answer says what was decided.
pub(super) type Nacks = ItemsBody<NackItem>;

impl Verb for Nacks {
    type Asked = Failure;
    type Done = Decided;
    type Shown = DecidedAnswer;

    fn items(self) -> impl Iterator<Item = (String, Result<Failure, Problem>)> {
        self.items.into_iter().map(|item| {
            let failure = failure(&item);
            (item.receipt, failure)
        })
    }

    fn command(
        realm: RealmId,
        subscription: Name,
        items: Vec<(Receipt, Failure)>,
        reply: Reply<Vec<Settled<Self>>>,
    ) -> Command {
        Command::Nack(realm, Nack { subscription, items }, reply)
    }

    fn show(subscription: &Name, decided: Decided) -> DecidedAnswer {
        let next = decided.next_attempt_at.map(WireTime);
        DecidedAnswer { decision: decision_body(subscription.as_str(), decided.decision, next) }
    }
}

/// Deliveries that are given back; the answer says what was decided.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Releases(ReceiptsBody);

impl Verb for Releases {
    type Asked = Failure;
    type Done = Decided;
    type Shown = DecidedAnswer;

    fn items(self) -> impl Iterator<Item = (String, Result<Failure, Problem>)> {
        self.0.receipts.into_iter().map(|receipt| (receipt, Ok(Failure::of(Cause::Released))))
    }

    fn command(
        realm: RealmId,
        subscription: Name,
        items: Vec<(Receipt, Failure)>,
        reply: Reply<Vec<Settled<Self>>>,
    ) -> Command {
        Nacks::command(realm, subscription, items, reply)
    }

    fn show(subscription: &Name, decided: Decided) -> DecidedAnswer {
        Nacks::show(subscription, decided)
    }
}

/// Leases whose deadline moves.
pub(super) type Extensions = ItemsBody<ExtendItem>;

impl Verb for Extensions {
    type Asked = Option<Duration>;
    type Done = Timestamp;
    type Shown = ExtendedAnswer;

    fn items(self) -> impl Iterator<Item = (String, Result<Option<Duration>, Problem>)> {
        self.items.into_iter().map(|item| (item.receipt, lease(item.lease.as_ref())))
    }

    fn command(
        realm: RealmId,
        subscription: Name,
        items: Vec<(Receipt, Option<Duration>)>,
        reply: Reply<Vec<Settled<Self>>>,
    ) -> Command {
        Command::Extend(realm, Extend { subscription, items }, reply)
    }

    fn show(_: &Name, until: Timestamp) -> ExtendedAnswer {
        ExtendedAnswer { lease_until: WireTime(until) }
    }

    fn lease(until: &Timestamp) -> Option<Timestamp> {
        Some(*until)
    }
}

fn lease(given: Option<&GivenDuration>) -> Result<Option<Duration>, Problem> {
    let lease = optional(given, "lease")?;
    if lease.is_some_and(|lease| lease < MIN_LEASE) {
        let detail = format!("lease: at least {MIN_LEASE:?}; to give it back at once, release it");
        return Err(Problem::new(ErrorCode::InvalidDuration, detail));
    }
    Ok(lease)
}

fn failure(item: &NackItem) -> Result<Failure, Problem> {
    let short = |what: &str, text: Option<&String>| match text {
        Some(text) if text.len() > MAX_CLASS_BYTES => {
            let detail = format!("{what}: at most {MAX_CLASS_BYTES} bytes; the rest belongs into detail");
            Err(Problem::new(ErrorCode::InvalidBody, detail))
        }
        text => Ok(text.cloned()),
    };
    Ok(Failure {
        cause: Cause::Nacked,
        class: short("class", item.class.as_ref())?.unwrap_or_default(),
        code: short("code", item.code.as_ref())?,
        detail: item.detail.clone().map(cut),
        retry_after: optional(item.retry_after.as_ref(), "retry_after")?,
    })
}

/// A batch whose receipts were opened: what goes on to the broker, and where the answers belong.
pub(super) struct Opened<V: Verb> {
    pub(super) good: Vec<(Receipt, V::Asked)>,
    items: Items,
}

/// A batch that the broker works on.
pub(super) struct Settling<V: Verb> {
    /// What becomes of the good receipts, in their order.
    pub(super) results: Awaited<Vec<Settled<V>>>,
    pub(super) items: Items,
}

/// The receipts in the order they were given, each with its error if it has one already.
pub(super) struct Items(Vec<(String, Option<Problem>)>);

pub(super) fn open<V: Verb>(app: &App, realm: RealmId, body: V) -> Result<Opened<V>, Problem> {
    let mut good = Vec::new();
    let mut items = Vec::new();
    for (text, value) in body.items().take(MAX_BATCH_ITEMS + 1) {
        let receipt = Receipt::open(&text, realm, app.broker.secret());
        let opened = receipt.map_err(|_| Problem::from(SettleError::InvalidReceipt));
        let problem = match opened.and_then(|receipt| Ok((receipt, value?))) {
            Ok(item) => {
                good.push(item);
                None
            }
            Err(problem) => Some(problem),
        };
        items.push((text, problem));
    }
    if items.is_empty() || items.len() > MAX_BATCH_ITEMS {
        let detail = format!("a batch has 1 to {MAX_BATCH_ITEMS} receipts");
        return Err(Problem::new(ErrorCode::BatchSize, detail));
    }
    Ok(Opened { good, items: Items(items) })
}

impl<V: Verb> Opened<V> {
    pub(super) async fn send(
        self,
        app: &App,
        realm: RealmId,
        subscription: Name,
    ) -> Result<Settling<V>, Problem> {
        let results = app.broker.send(|reply| V::command(realm, subscription, self.good, reply)).await?;
        Ok(Settling { results, items: self.items })
    }
}

impl Items {
    pub(super) fn answer<R, T>(
        self,
        results: Vec<Result<R, SettleError>>,
        convert: impl Fn(R) -> T,
    ) -> SettleAnswer<T> {
        let mut results = results.into_iter();
        let items = self.0.into_iter().map(|(receipt, problem)| {
            let result = match problem {
                Some(problem) => Err(problem),
                None => results.next().unwrap_or(Err(SettleError::StaleReceipt)).map_err(Problem::from),
            };
            match result {
                Ok(outcome) => ItemAnswer::Done { receipt, outcome: convert(outcome) },
                Err(problem) => ItemAnswer::Failed { receipt, error: problem.into() },
            }
        });
        SettleAnswer { items: items.collect() }
    }
}
