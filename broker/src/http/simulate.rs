//! `POST .../policy/simulate`: a delivery's whole life under a policy.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use reprise_policy::testing::{NOW, Outcome, Outcomes, ScriptError};
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::Format;
use super::candidate::{Candidate, Trial, trial};
use super::publish::check;
use super::shape::{DecisionBody, decision_body};
use super::wire::{GivenDuration, JsonPayload, Pairs, WireDuration, moment, name, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::context::{ContextMessage, Load};
use crate::domain::id::{MessageId, TopicId};
use crate::domain::limits::MAX_CLASS_BYTES;
use crate::domain::name::Name;
use crate::domain::settings::{Reads, SubscriptionSettings};
use crate::domain::time::Timestamp;
use crate::engine::{Command, NewMessage, Refusal, SubscriptionView};
use crate::lab::simulate::{MAX_STEPS, Schedule, Step, simulate as play};
use crate::lab::{End, Rules, Scenario, Spread};
use crate::policy::Program;

/// Seeds of one simulation.
const MAX_SEEDS: u32 = 1_000;
/// The text of a scenario.
const MAX_SCENARIO_BYTES: usize = 4 * 1024;
/// The seed unless another is asked for: the same question gets the same answer.
pub(crate) const SEED: u64 = 42;

/// What a simulation is of, beside the policy; with a module it comes in the query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateQuery {
    pub(crate) scenario: String,
    pub(crate) seed: Option<u64>,
    pub(crate) seeds: Option<u32>,
    pub(crate) work: Option<String>,
    pub(crate) start: Option<String>,
}

impl From<SimulateQuery> for SimulateBody {
    fn from(query: SimulateQuery) -> Self {
        let SimulateQuery { scenario, seed, seeds, work, start } = query;
        let work = work.map(GivenDuration::Text);
        let (message, load) = Default::default();
        Self { scenario, seed, seeds, work, start, revision: None, params: None, message, load }
    }
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
pub(super) struct PolicyBody {
    name: String,
    version: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
}

/// What was played, step by step for the first seed.
#[derive(Serialize)]
pub(crate) struct SimulateAnswer {
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
pub(super) struct SpreadBody<T> {
    p50: Option<T>,
    p90: Option<T>,
    p99: Option<T>,
    max: Option<T>,
}

impl<T> SpreadBody<T> {
    pub(super) fn of<V: Copy + Ord>(spread: &Spread<V>, write: impl Fn(V) -> T) -> Self {
        let at = |percent| spread.percentile(percent).map(&write);
        Self { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

pub(super) async fn simulate(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    request: Request,
) -> Result<Response, Problem> {
    let view = known(&app, &caller, &subscription).await?;
    let (candidate, asked) = match trial::<SimulateQuery, SimulateBody>(request).await? {
        Trial::Module(candidate, query) => (candidate, SimulateBody::from(query)),
        Trial::Body(mut body) => {
            let candidate = Candidate::Revision { number: body.revision, params: body.params.take() };
            (candidate, body)
        }
    };
    let scenario = scenario(&asked)?;
    let seeds = seeds(&asked)?;
    let ready = candidate.ready(&app, &caller, &view.row.name).await?;
    let topic = match view.reads {
        Reads::Topic(topic) => topic,
        Reads::Topics(pattern) => pattern.example().clone(),
    };
    let rules = Rules::of(view.row.name.clone(), topic, &view.row.settings);
    let first = asked.seed.unwrap_or(SEED);
    let mut played = Played::default();
    for n in 0..seeds {
        if app.broker.feed(caller.realm).is_closed() {
            return Err(Refusal::ShuttingDown.into());
        }
        let (program, params) = (ready.program.clone(), ready.params.clone());
        let (rules, scenario) = (rules.clone(), scenario.clone());
        let seed = first.wrapping_add(n.into());
        let add = move || {
            played.add(play(&program, &params, &rules, &scenario, seed));
            played
        };
        played = app.broker.trials().run(add).await?;
    }
    let policy = policy_body(&ready.program, ready.revision);
    Ok(format.ok(&answer(policy, asked.scenario, &rules.subscription, first, played)))
}

/// The same for a module that no broker has, with the settings of a new subscription.
///
/// # Errors
/// As the route's.
pub(crate) fn simulate_alone(
    program: &Program,
    params: &str,
    asked: SimulateQuery,
) -> Result<SimulateAnswer, Problem> {
    let asked = SimulateBody::from(asked);
    let played = scenario(&asked)?;
    let (seeds, first) = (seeds(&asked)?, asked.seed.unwrap_or(SEED));
    let rules =
        Rules::of(name("subscription", "local")?, name("topic", "local")?, &SubscriptionSettings::default());
    let mut all = Played::default();
    for n in 0..seeds {
        all.add(play(program, params, &rules, &played, first.wrapping_add(n.into())));
    }
    Ok(answer(policy_body(program, None), asked.scenario, &rules.subscription, first, all))
}

/// One schedule for each seed: the first whole, of the others only what is counted, as a step may be large.
#[derive(Default)]
struct Played {
    first: Option<Schedule>,
    ends: BTreeMap<&'static str, u32>,
    attempts: Vec<u64>,
    totals: Vec<Duration>,
}

impl Played {
    fn add(&mut self, schedule: Schedule) {
        *self.ends.entry(schedule.end.as_str()).or_default() += 1;
        // The attempt that succeeded is one, too.
        self.attempts.push(schedule.steps.len() as u64 + u64::from(schedule.end == End::Acked));
        self.totals.push(schedule.total);
        self.first.get_or_insert(schedule);
    }
}

fn seeds(asked: &SimulateBody) -> Result<u32, Problem> {
    match asked.seeds.unwrap_or(1) {
        seeds @ 1..=MAX_SEEDS => Ok(seeds),
        _ => Err(Problem::new(ErrorCode::InvalidBody, format!("seeds must be from 1 to {MAX_SEEDS}"))),
    }
}

fn answer(
    policy: PolicyBody,
    scenario: String,
    subscription: &Name,
    seed: u64,
    played: Played,
) -> SimulateAnswer {
    let Played { first, ends, attempts, totals } = played;
    let count = attempts.len() as u32;
    let (attempts, totals) = (Spread::of(attempts), Spread::of(totals));
    let seeds = (count > 1).then(|| SeedsBody {
        count,
        ends,
        attempts: SpreadBody::of(&attempts, |attempts| attempts),
        total: SpreadBody::of(&totals, WireDuration),
    });
    let (steps, end, total) = first.map_or((Vec::new(), End::Pending, Duration::ZERO), |schedule| {
        (schedule.steps, schedule.end, schedule.total)
    });
    SimulateAnswer {
        policy,
        scenario,
        seed,
        steps: steps.into_iter().map(|step| step_body(subscription, step)).collect(),
        end: end.as_str(),
        total: WireDuration(total),
        seeds,
    }
}

fn scenario(asked: &SimulateBody) -> Result<Scenario, Problem> {
    if asked.scenario.len() > MAX_SCENARIO_BYTES {
        let detail = format!("a scenario has at most {MAX_SCENARIO_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidScenario, detail));
    }
    let outcomes: Outcomes = asked
        .scenario
        .parse()
        .map_err(|error: ScriptError| Problem::new(ErrorCode::InvalidScenario, error.to_string()))?;
    if outcomes.iter().next().is_none() {
        return Err(Problem::new(
            ErrorCode::InvalidScenario,
            "the scenario has no outcome: such as \"timeout*3, ok\"",
        ));
    }
    let long = |text: &str| text.len() > MAX_CLASS_BYTES;
    let too_long = |outcome: &Outcome| match outcome {
        Outcome::Failed { class, code, .. } => long(class) || code.as_deref().is_some_and(long),
        Outcome::Acked => false,
    };
    // Once is enough of one that is repeated: nothing after the last step is played.
    if outcomes.iter().take(MAX_STEPS as usize + 1).any(too_long) {
        let detail = format!("a class or code has at most {MAX_CLASS_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidScenario, detail));
    }
    let start = match &asked.start {
        None => Timestamp::from_millis(NOW),
        Some(text) => moment("start", text)?,
    };
    let given = &asked.message;
    let message = check(NewMessage {
        key: given.key.clone(),
        attributes: given.attributes.0.clone(),
        content_type: given.content_type.clone(),
        ..NewMessage::default()
    })?;
    let ttl = optional(given.ttl.as_ref(), "message.ttl")?;
    let load = &asked.load;
    Ok(Scenario {
        outcomes,
        work: optional(asked.work.as_ref(), "work")?.unwrap_or(Duration::ZERO),
        message: ContextMessage {
            id: MessageId { topic: TopicId(1), sequence: 1 },
            key: message.key,
            attributes: message.attributes,
            content_type: message.content_type,
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

pub(super) async fn known(
    app: &App,
    caller: &Caller,
    subscription: &str,
) -> Result<SubscriptionView, Problem> {
    let name = caller.subscription(subscription)?;
    Ok(app.broker.call(|reply| Command::GetSubscription(caller.realm, name, reply)).await?)
}

pub(super) fn policy_body(program: &Program, revision: Option<u32>) -> PolicyBody {
    let description = program.description();
    PolicyBody {
        name: description.name.clone(),
        version: description.version.clone(),
        digest: program.digest().to_string(),
        revision,
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
