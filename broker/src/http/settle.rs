//! `POST /v1/subscriptions/{s}/ack`, `nack`, `release` and `extend`: batches of receipts, answered per item.

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
use crate::domain::decision::cut;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::RealmId;
use crate::domain::limits::{MAX_BATCH_ITEMS, MAX_CLASS_BYTES, MIN_LEASE};
use crate::domain::receipt::Receipt;
use crate::engine::{Ack, Command, Extend, Nack, SettleError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptsBody {
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
struct SettleAnswer<T> {
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
struct AckedAnswer {
    status: &'static str,
    #[serde(skip_serializing_if = "is_false")]
    late: bool,
}

#[derive(Serialize)]
struct DecidedAnswer {
    decision: DecisionBody,
}

#[derive(Serialize)]
struct ExtendedAnswer {
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
    Given(body): Given<ReceiptsBody>,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let batch = open(&app, caller.realm, body.receipts.into_iter().map(|receipt| (receipt, Ok(()))))?;
    let receipts = batch.good.iter().map(|(receipt, ())| *receipt).collect();
    let request = Ack { subscription, receipts };
    let results = app.broker.call(|reply| Command::Ack(caller.realm, request, reply)).await?;
    let acked = |acked: crate::domain::delivery::Acked| AckedAnswer { status: "acked", late: acked.late };
    Ok(format.ok(&batch.items.answer(results, acked)))
}

pub(super) async fn nack(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<ItemsBody<NackItem>>,
) -> Result<Response, Problem> {
    let items = body.items.into_iter().map(|item| {
        let failure = failure(&item);
        (item.receipt, failure)
    });
    end(&app, &caller, &subscription, items, format).await
}

pub(super) async fn release(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<ReceiptsBody>,
) -> Result<Response, Problem> {
    let items = body.receipts.into_iter().map(|receipt| (receipt, Ok(Failure::of(Cause::Released))));
    end(&app, &caller, &subscription, items, format).await
}

pub(super) async fn extend(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<ItemsBody<ExtendItem>>,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let items = body.items.into_iter().map(|item| (item.receipt, lease(item.lease.as_ref())));
    let Opened { good, items } = open(&app, caller.realm, items)?;
    let request = Extend { subscription, items: good };
    let results = app.broker.call(|reply| Command::Extend(caller.realm, request, reply)).await?;
    Ok(format.ok(&items.answer(results, |until| ExtendedAnswer { lease_until: WireTime(until) })))
}

fn lease(given: Option<&GivenDuration>) -> Result<Option<Duration>, Problem> {
    let lease = optional(given, "lease")?;
    if lease.is_some_and(|lease| lease < MIN_LEASE) {
        let detail = format!("lease: at least {MIN_LEASE:?}; to give it back at once, release it");
        return Err(Problem::new(ErrorCode::InvalidDuration, detail));
    }
    Ok(lease)
}

/// Ends attempts badly or gives them back; the answer says what was decided.
async fn end(
    app: &App,
    caller: &Caller,
    subscription: &str,
    given: impl Iterator<Item = (String, Result<Failure, Problem>)>,
    format: Format,
) -> Result<Response, Problem> {
    let name = caller.subscription(subscription)?;
    let Opened { good, items } = open(app, caller.realm, given)?;
    let request = Nack { subscription: name, items: good };
    let results = app.broker.call(|reply| Command::Nack(caller.realm, request, reply)).await?;
    let answer = items.answer(results, |decided| DecidedAnswer {
        decision: decision_body(subscription, decided.decision, decided.next_attempt_at.map(WireTime)),
    });
    Ok(format.ok(&answer))
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
struct Opened<T> {
    good: Vec<(Receipt, T)>,
    items: Items,
}

/// The receipts in the order they were given, each with its error if it has one already.
struct Items(Vec<(String, Option<Problem>)>);

fn open<T>(
    app: &App,
    realm: RealmId,
    given: impl Iterator<Item = (String, Result<T, Problem>)>,
) -> Result<Opened<T>, Problem> {
    let mut good = Vec::new();
    let mut items = Vec::new();
    for (text, value) in given.take(MAX_BATCH_ITEMS + 1) {
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

impl Items {
    fn answer<R, T>(self, results: Vec<Result<R, SettleError>>, convert: impl Fn(R) -> T) -> SettleAnswer<T> {
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
