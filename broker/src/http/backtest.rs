//! `POST .../policy/backtest`: what another policy would have answered to recorded failures.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::Format;
use super::candidate::{Candidate, Ready, Trial, trial};
use super::error::ItemError;
use super::shape::{DecisionBody, FaultBody, decision_body};
use super::simulate::{PolicyBody, SpreadBody, known, policy_body};
use super::wire::{JsonPayload, WireDuration, WireTime};
use super::{App, ErrorCode, Problem};
use crate::domain::decision::{Decision, Fault};
use crate::domain::id::RealmId;
use crate::domain::limits::MAX_RECORD_FAILURES;
use crate::domain::name::Name;
use crate::engine::{Command, Page, SubscriptionView};
use crate::lab::backtest::{Change, action};
use crate::lab::{Backtest, Report};
use crate::trials::NotTried;

/// Recorded failures of a backtest unless more are asked for.
const DEFAULT_LAST: u32 = 1_000;
/// Recorded failures that a backtest asks about before others get their turn.
const PIECE: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BacktestQuery {
    last: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BacktestBody {
    last: Option<u32>,
    revision: Option<u32>,
    params: Option<JsonPayload>,
}

#[derive(Serialize)]
struct BacktestAnswer {
    policy: PolicyBody,
    failures: u64,
    changed: u64,
    changes: Vec<ChangesBody>,
    dead_letters: SidesBody<u64>,
    delays: SidesBody<SpreadBody<WireDuration>>,
    fuel: SidesBody<SpreadBody<u64>>,
    faults: BTreeMap<&'static str, u64>,
    reruns: u64,
    impure: u64,
    impure_records: Vec<u64>,
    examples: Vec<ExampleBody>,
}

#[derive(Serialize)]
struct SidesBody<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct ChangesBody {
    class: String,
    before: &'static str,
    after: &'static str,
    count: u64,
}

#[derive(Serialize)]
pub(super) struct ExampleBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    pub(super) at: WireTime,
    pub(super) message_id: String,
    pub(super) class: String,
    pub(super) attempt: u32,
    pub(super) before: VerdictBody,
    pub(super) after: VerdictBody,
}

/// A decision, or how the policy broke.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum VerdictBody {
    Decision(Box<DecisionBody>),
    Fault { action: &'static str, fault: FaultBody },
}

/// One line of a report in the making.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Progress { done: u64, of: u64 },
    Report(&'a BacktestAnswer),
    Error(ItemError),
}

pub(super) async fn backtest(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let view = known(&app, &caller, &subscription).await?;
    let (candidate, last) = match trial::<BacktestQuery, BacktestBody>(request).await? {
        Trial::Module(candidate, query) => (candidate, query.last),
        Trial::Body(body) => (Candidate::Revision { number: body.revision, params: body.params }, body.last),
    };
    let last = last.unwrap_or(DEFAULT_LAST);
    if last == 0 || last > MAX_RECORD_FAILURES {
        let detail = format!("last must be from 1 to {MAX_RECORD_FAILURES}");
        return Err(Problem::new(ErrorCode::InvalidBody, detail));
    }
    let ready = candidate.ready(&app, &caller, &view.row.name).await?;
    let known = view.cursor.recorded.saturating_sub(view.cursor.recorded_from);
    let run =
        Run { app, realm: caller.realm, of: u64::from(last).min(known), last: u64::from(last), view, ready };
    let lines =
        headers.get(header::ACCEPT).is_some_and(|it| it.as_bytes().starts_with(b"application/x-ndjson"));
    if !lines {
        return Ok(format.ok(&run.report(None).await?));
    }
    let (mut sender, body) = Channel::<Bytes, std::convert::Infallible>::new(1);
    tokio::spawn(async move {
        let outcome = run.report(Some(&mut sender)).await;
        let line = match &outcome {
            Ok(report) => Line::Report(report),
            Err(problem) => Line::Error(ItemError::from(problem.clone())),
        };
        // Whoever asked may have gone.
        _ = send(&mut sender, &line).await;
    });
    let media_type = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, media_type)], Body::new(body)).into_response())
}

async fn send(sender: &mut Sender<Bytes>, line: &Line<'_>) -> Result<(), Problem> {
    let gone = || Problem::new(ErrorCode::ShuttingDown, "nobody waits for it any more");
    let mut bytes = serde_json::to_vec(line).map_err(|_| gone())?;
    bytes.push(b'\n');
    sender.send_data(bytes.into()).await.map_err(|_| gone())
}

/// A backtest under way. It ends when nobody waits for it.
struct Run {
    app: App,
    realm: RealmId,
    view: SubscriptionView,
    ready: Ready,
    last: u64,
    /// How many there are to go through, as far as is known.
    of: u64,
}

impl Run {
    async fn report(self, mut progress: Option<&mut Sender<Bytes>>) -> Result<BacktestAnswer, Problem> {
        let broker = &self.app.broker;
        let mut backtest =
            Backtest::new(self.ready.program.clone(), &self.ready.params, self.view.row.settings.bounds());
        let mut after = None;
        while backtest.done() < self.last {
            let left = usize::try_from(self.last - backtest.done()).unwrap_or(usize::MAX);
            let page = Page { after, limit: left.min(PIECE) };
            let name = self.view.row.name.clone();
            let listed = broker.call(|reply| Command::ListRecorded(self.realm, name, page, reply)).await?;
            after = listed.items.last().map(|view| view.failure.number);
            backtest = broker
                .trials()
                .run(move || {
                    for view in listed.items {
                        backtest.ask(view.digest, view.failure);
                    }
                    backtest
                })
                .await?;
            if let Some(sender) = progress.as_deref_mut() {
                let of = self.of.max(backtest.done());
                send(sender, &Line::Progress { done: backtest.done(), of }).await?;
            }
            if !listed.more {
                break;
            }
        }
        if backtest.done() == 0 {
            let detail = "no failure is recorded on this subscription that a policy could be tried on";
            return Err(Problem::new(ErrorCode::NothingRecorded, detail));
        }
        Ok(self.answer(backtest.report()))
    }

    fn answer(&self, report: Report) -> BacktestAnswer {
        let subscription = &self.view.row.name;
        let counts = report.counts;
        let changes = report.changes.into_iter().map(|((class, before, after), count)| ChangesBody {
            class,
            before,
            after,
            count,
        });
        BacktestAnswer {
            policy: policy_body(&self.ready.program, self.ready.revision),
            failures: counts.failures,
            changed: counts.changed,
            changes: changes.collect(),
            dead_letters: SidesBody { before: counts.dead_letters.before, after: counts.dead_letters.after },
            delays: SidesBody {
                before: SpreadBody::of(&report.delays.before, WireDuration),
                after: SpreadBody::of(&report.delays.after, WireDuration),
            },
            fuel: SidesBody {
                before: SpreadBody::of(&report.fuel.before, |fuel| fuel),
                after: SpreadBody::of(&report.fuel.after, |fuel| fuel),
            },
            faults: report.faults,
            reruns: counts.reruns,
            impure: counts.impure,
            impure_records: report.impure,
            examples: report.examples.into_iter().map(|change| example(subscription, change)).collect(),
        }
    }
}

fn example(subscription: &Name, change: Change) -> ExampleBody {
    let context = change.failure.context;
    ExampleBody {
        number: Some(change.failure.number),
        at: WireTime(context.now),
        message_id: context.message.id.to_string(),
        class: context.failure.label().to_owned(),
        attempt: context.attempt,
        before: verdict(subscription, change.before),
        after: verdict(subscription, change.after),
    }
}

pub(super) fn verdict(subscription: &Name, decision: Result<Decision, Fault>) -> VerdictBody {
    match decision {
        Ok(decision) => VerdictBody::Decision(Box::new(decision_body(subscription.as_str(), decision, None))),
        Err(fault) => VerdictBody::Fault { action: action(&Err(fault.clone())), fault: (&fault).into() },
    }
}

impl From<NotTried> for Problem {
    fn from(error: NotTried) -> Self {
        let code = match error {
            NotTried::TooMany => ErrorCode::TooManyTrials,
            NotTried::BrokeOff => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}
