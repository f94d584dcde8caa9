//! `.../policy/simulate` and `.../policy/backtest`: what a policy would do.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use reprise_policy::testing::Outcomes;
use serde::{Deserialize, Serialize};

use super::auth::REALM;
use super::body::Format;
use super::candidate::{Candidate, Ready, Trial, trial};
use super::error::ItemError;
use super::shape::{DecisionBody, FaultBody, decision_body};
use super::wire::{GivenDuration, JsonPayload, Pairs, WireDuration, WireTime, moment, name, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::context::{ContextMessage, Load};
use crate::domain::decision::{Decision, Fault};
use crate::domain::id::{MessageId, TopicId};
use crate::domain::limits::{MAX_PAGE, MAX_RECORD_FAILURES};
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::engine::{Command, Page, SubscriptionView};
use crate::lab::backtest::{Change, action};
use crate::lab::simulate::{Schedule, Step, simulate as play};
use crate::lab::{Backtest, Report, Rules, Scenario, Spread};
use crate::trials::NotTried;

/// Seeds of one simulation.
const MAX_SEEDS: u32 = 1_000;
/// The text of a scenario.
const MAX_SCENARIO_BYTES: usize = 4 * 1024;
/// The seed unless another is asked for: the same question gets the same answer.
const SEED: u64 = 42;
/// Recorded failures of a backtest unless more are asked for.
const DEFAULT_LAST: u32 = 1_000;
/// Recorded failures that a backtest asks about before others get their turn.
const PIECE: usize = 100;

/// What a simulation is of, beside the policy; with a module it comes in the query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateQuery {
    scenario: String,
    seed: Option<u64>,
    seeds: Option<u32>,
    work: Option<String>,
    start: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateBody {
    scenario: String,
    seed: Option<u64>,
    seeds: Option<u32>,
    work: Option<GivenDuration>,
    start: Option<String>,
    revision: Option<u32>,
    params: Option<JsonPayload>,
    #[serde(default)]
    message: GivenMessage,
    #[serde(default)]
    load: GivenLoad,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GivenMessage {
    key: Option<String>,
    attributes: Pairs,
    content_type: Option<String>,
    size: Option<u64>,
    ttl: Option<GivenDuration>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GivenLoad {
    acked: u64,
    failed: u64,
    dead_lettered: u64,
    backlog: u64,
    in_flight: u64,
    consecutive_failures: u64,
}

#[derive(Serialize)]
struct PolicyBody {
    name: String,
    version: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
}

#[derive(Serialize)]
struct SimulateAnswer {
    policy: PolicyBody,
    scenario: String,
    seed: u64,
    steps: Vec<StepBody>,
    end: &'static str,
    total: WireDuration,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<SeedsBody>,
}

#[derive(Serialize)]
struct StepBody {
    attempt: u32,
    failures: u32,
    at: WireDuration,
    cause: &'static str,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<WireDuration>,
    decision: DecisionBody,
    fuel: u64,
}

/// Over many seeds, the first of which is the one that is shown step by step.
#[derive(Serialize)]
struct SeedsBody {
    count: u32,
    ends: BTreeMap<&'static str, u32>,
    attempts: SpreadBody<u64>,
    total: SpreadBody<WireDuration>,
}

#[derive(Serialize)]
struct SpreadBody<T> {
    p50: Option<T>,
    p90: Option<T>,
    p99: Option<T>,
    max: Option<T>,
}

impl<T> SpreadBody<T> {
    fn of<V: Copy + Ord>(spread: &Spread<V>, write: impl Fn(V) -> T) -> Self {
        let at = |percent| spread.percentile(percent).map(&write);
        Self { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

pub(super) async fn simulate(
    State(app): State<App>,
    Path(subscription): Path<String>,
    format: Format,
    request: Request,
) -> Result<Response, Problem> {
    let view = known(&app, &subscription).await?;
    let (candidate, asked) = match trial::<SimulateQuery, SimulateBody>(request).await? {
        Trial::Module(candidate, query) => {
            let SimulateQuery { scenario, seed, seeds, work, start } = query;
            let work = work.map(GivenDuration::Text);
            let (message, load) = Default::default();
            let (revision, params) = (None, None);
            (candidate, SimulateBody { scenario, seed, seeds, work, start, revision, params, message, load })
        }
        Trial::Body(mut body) => {
            let candidate = Candidate::Revision { number: body.revision, params: body.params.take() };
            (candidate, body)
        }
    };
    let scenario = scenario(&asked)?;
    let seeds = asked.seeds.unwrap_or(1);
    if seeds == 0 || seeds > MAX_SEEDS {
        return Err(Problem::new(ErrorCode::InvalidBody, format!("seeds must be from 1 to {MAX_SEEDS}")));
    }
    let ready = candidate.ready(&app, &view.row.name).await?;
    let rules = Rules::of(view.row.name.clone(), view.topic.clone(), &view.row.settings);
    let first = asked.seed.unwrap_or(SEED);
    let mut played: Option<Schedule> = None;
    let (mut ends, mut attempts, mut totals) = (BTreeMap::new(), Vec::new(), Vec::new());
    for seed in 0..seeds {
        let (program, params) = (ready.program.clone(), ready.params.clone());
        let (rules, scenario) = (rules.clone(), scenario.clone());
        let seed = first.wrapping_add(seed.into());
        let schedule =
            app.broker.trials().run(move || play(&program, &params, &rules, &scenario, seed)).await?;
        *ends.entry(schedule.end.as_str()).or_default() += 1;
        attempts.push(schedule.steps.len() as u64);
        totals.push(schedule.total);
        played.get_or_insert(schedule);
    }
    let Some(schedule) = played else {
        return Err(Problem::new(ErrorCode::Internal, "a simulation without a seed"));
    };
    let many = (seeds > 1).then(|| SeedsBody {
        count: seeds,
        ends,
        attempts: SpreadBody::of(&Spread::of(attempts), |attempts| attempts),
        total: SpreadBody::of(&Spread::of(totals), WireDuration),
    });
    let answer = SimulateAnswer {
        policy: policy_body(&ready),
        scenario: asked.scenario,
        seed: first,
        steps: schedule.steps.into_iter().map(|step| step_body(&rules.subscription, step)).collect(),
        end: schedule.end.as_str(),
        total: WireDuration(schedule.total),
        seeds: many,
    };
    Ok(format.ok(&answer))
}

fn scenario(asked: &SimulateBody) -> Result<Scenario, Problem> {
    if asked.scenario.len() > MAX_SCENARIO_BYTES {
        let detail = format!("a scenario has at most {MAX_SCENARIO_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidScenario, detail));
    }
    let outcomes: Outcomes =
        asked.scenario.parse().map_err(|error: reprise_policy::testing::ScriptError| {
            Problem::new(ErrorCode::InvalidScenario, error.to_string())
        })?;
    if outcomes.iter().next().is_none() {
        return Err(Problem::new(
            ErrorCode::InvalidScenario,
            "the scenario has no outcome: such as \"timeout*3, ok\"",
        ));
    }
    let start = match &asked.start {
        None => Timestamp::from_millis(reprise_policy::testing::NOW),
        Some(text) => moment("start", text)?,
    };
    let given = &asked.message;
    let ttl = optional(given.ttl.as_ref(), "message.ttl")?;
    let load = &asked.load;
    Ok(Scenario {
        outcomes,
        work: optional(asked.work.as_ref(), "work")?.unwrap_or(Duration::ZERO),
        message: ContextMessage {
            id: MessageId { topic: TopicId(1), sequence: 1 },
            key: given.key.clone(),
            attributes: given.attributes.0.clone(),
            content_type: given.content_type.clone(),
            size: given.size.unwrap_or(256),
            published_at: start,
            expires_at: ttl.map(|ttl| start + ttl),
            payload: None,
        },
        load: Load {
            acked: load.acked,
            failed: load.failed,
            dead_lettered: load.dead_lettered,
            backlog: load.backlog,
            in_flight: load.in_flight,
            consecutive_failures: load.consecutive_failures,
        },
        start,
    })
}

async fn known(app: &App, subscription: &str) -> Result<SubscriptionView, Problem> {
    let name = name("subscription", subscription)?;
    Ok(app.broker.call(|reply| Command::GetSubscription(REALM, name, reply)).await?)
}

fn policy_body(ready: &Ready) -> PolicyBody {
    let description = ready.program.description();
    PolicyBody {
        name: description.name.clone(),
        version: description.version.clone(),
        digest: ready.program.digest().to_string(),
        revision: ready.revision,
    }
}

fn step_body(subscription: &Name, step: Step) -> StepBody {
    StepBody {
        attempt: step.attempt,
        failures: step.failures,
        at: WireDuration(step.at),
        cause: step.failure.cause.as_str(),
        class: step.failure.class,
        code: step.failure.code,
        retry_after: step.failure.retry_after.map(WireDuration),
        decision: decision_body(subscription.as_str(), step.decision, None),
        fuel: step.fuel,
    }
}

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
    Path(subscription): Path<String>,
    format: Format,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let view = known(&app, &subscription).await?;
    let (candidate, last) = match trial::<BacktestQuery, BacktestBody>(request).await? {
        Trial::Module(candidate, query) => (candidate, query.last),
        Trial::Body(body) => (Candidate::Revision { number: body.revision, params: body.params }, body.last),
    };
    let last = last.unwrap_or(DEFAULT_LAST);
    if last == 0 || last > MAX_RECORD_FAILURES {
        let detail = format!("last must be from 1 to {MAX_RECORD_FAILURES}");
        return Err(Problem::new(ErrorCode::InvalidBody, detail));
    }
    let ready = candidate.ready(&app, &view.row.name).await?;
    let known = view.cursor.recorded.saturating_sub(view.cursor.recorded_from);
    let run = Run { app, of: u64::from(last).min(known), last: u64::from(last), view, ready };
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
            let page = Page { after, limit: left.min(PIECE).min(MAX_PAGE) };
            let name = self.view.row.name.clone();
            let listed = broker.call(|reply| Command::ListRecorded(REALM, name, page, reply)).await?;
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
            policy: policy_body(&self.ready),
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
        class: context.failure.class,
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
