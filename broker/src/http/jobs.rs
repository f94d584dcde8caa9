//! `/v1/dead-letters/jobs`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::{Format, Given, Nothing};
use super::dead_filter::{FilterBody, GivenFilter};
use super::query::{Asked, PageQuery, cursor};
use super::shape::ListBody;
use super::wire::WireTime;
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::id::DeadLetterId;
use crate::domain::job::{JobAction, JobId, JobPlan};
use crate::domain::limits::{MAX_JOB_RATE, MAX_PAUSE_REASON_BYTES};
use crate::engine::{Command, JobView, Refusal};
use crate::store::row::JobRow;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanBody {
    action: WireAction,
    #[serde(default)]
    filter: GivenFilter,
    /// An empty filter is meant.
    #[serde(default)]
    all: bool,
    #[serde(default)]
    reason: String,
    /// A second.
    rate: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireAction {
    Replay,
    Discard,
}

#[derive(Serialize)]
struct JobAnswer {
    id: String,
    action: &'static str,
    state: &'static str,
    filter: FilterBody,
    reason: String,
    by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    found: u64,
    sample: Vec<String>,
    done: u64,
    skipped: u64,
    created_at: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<WireTime>,
}

/// Counts what it is about, and waits to be started.
pub(super) async fn plan(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    format: Format,
    Given(body): Given<PlanBody>,
) -> Result<Response, Problem> {
    let invalid = |detail: String| Problem::new(ErrorCode::InvalidBody, detail);
    if body.reason.len() > MAX_PAUSE_REASON_BYTES {
        return Err(invalid(format!("reason: at most {MAX_PAUSE_REASON_BYTES} bytes")));
    }
    if body.rate.is_some_and(|rate| rate == 0 || rate > MAX_JOB_RATE) {
        return Err(invalid(format!("rate: from 1 to {MAX_JOB_RATE} a second")));
    }
    let in_body = |problem: Problem| match problem.code {
        ErrorCode::InvalidQuery => Problem { code: ErrorCode::InvalidBody, ..problem },
        _ => problem,
    };
    let filter = body.filter.check(&app, &caller).map_err(in_body)?;
    let filter =
        filter.ok_or_else(|| invalid("filter: the queue is one of another subscription".to_owned()))?;
    if filter.is_empty() && !body.all {
        let detail = "an empty filter means every dead letter of the realm: say \"all\": true";
        return Err(Problem::new(ErrorCode::FilterRequired, detail));
    }
    if !filter.is_within(&caller.subscriptions()) {
        let detail = "filter: this token has to name one of its subscriptions";
        return Err(Problem::new(ErrorCode::Forbidden, detail));
    }
    let action = match body.action {
        WireAction::Replay => JobAction::Replay,
        WireAction::Discard => JobAction::Discard,
    };
    let entry = caller.does(Action::JobPlan, action.as_str()).with(body.reason.as_str());
    let by = caller.name().to_owned();
    let plan = Box::new(JobPlan { action, filter, rate: body.rate.unwrap_or(0), reason: body.reason, by });
    let view = app.broker.audited(entry, |reply| Command::PlanJob(caller.realm, plan, reply)).await?;
    Ok(format.answer(StatusCode::CREATED, &answer(view)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = query.page(|text| JobId::parse(text).ok())?;
    let among = caller.subscriptions();
    let listed = app.broker.call(|reply| Command::ListJobs(caller.realm, page, among, reply)).await?;
    let next = listed.items.last().filter(|_| listed.more).map(|last| cursor(last.id));
    let items = listed.items.into_iter().map(answer).collect();
    Ok(format.ok(&ListBody { items, next }))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let view = visible(&app, &caller, &id).await?;
    Ok(format.ok(&answer(view)))
}

pub(super) async fn start(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
    format: Format,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    let id = visible(&app, &caller, &id).await?.id;
    let entry = caller.does(Action::JobStart, id);
    let view = app.broker.audited(entry, |reply| Command::StartJob(caller.realm, id, reply)).await?;
    Ok(format.ok(&answer(view)))
}

pub(super) async fn abort(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
    format: Format,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    let id = visible(&app, &caller, &id).await?.id;
    let entry = caller.does(Action::JobAbort, id);
    let view = app.broker.audited(entry, |reply| Command::AbortJob(caller.realm, id, reply)).await?;
    Ok(format.ok(&answer(view)))
}

/// The job, if it exists for the caller. What it is about stays, so what is found here holds.
async fn visible(app: &App, caller: &Caller, id: &str) -> Result<JobView, Problem> {
    let invalid = |_| Problem::new(ErrorCode::InvalidId, "a job's id is what its plan gave");
    let id = JobId::parse(id).map_err(invalid)?;
    let view = app.broker.call(|reply| Command::GetJob(caller.realm, id, reply)).await?;
    let exists = view.row.plan.filter.is_within(&caller.subscriptions());
    if exists { Ok(view) } else { Err(Refusal::JobNotFound.into()) }
}

fn answer(JobView { id, row }: JobView) -> JobAnswer {
    let JobRow { plan, state, progress, created_at, started_at, ended_at } = row;
    JobAnswer {
        id: id.to_string(),
        action: plan.action.as_str(),
        state: state.as_str(),
        filter: plan.filter.into(),
        reason: plan.reason,
        by: plan.by,
        rate: Some(plan.rate).filter(|rate| *rate > 0),
        found: progress.found,
        sample: progress.sample.iter().map(DeadLetterId::to_string).collect(),
        done: progress.done,
        skipped: progress.skipped,
        created_at: WireTime(created_at),
        started_at: started_at.map(WireTime),
        ended_at: ended_at.map(WireTime),
    }
}
