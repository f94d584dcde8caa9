//! `.../policy/shadow`: a policy that is asked beside the active one.

use std::collections::BTreeMap;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::backtest::{ExampleBody, verdict};
use super::body::Format;
use super::candidate::{Candidate, Trial, trial};
use super::policies::{PolicyAnswer, policy_answer};
use super::wire::{JsonPayload, WireTime};
use super::{App, Problem};
use crate::domain::audit::Action;
use crate::domain::name::Name;
use crate::engine::{Command, Difference, SetShadow, ShadowView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShadowBody {
    revision: Option<u32>,
    params: Option<JsonPayload>,
}

#[derive(Serialize)]
struct ShadowAnswer {
    #[serde(flatten)]
    policy: PolicyAnswer,
    /// What follows is counted since then.
    since: WireTime,
    asked: u64,
    agreed: u64,
    differed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    agreement: Option<f64>,
    dropped: u64,
    in_flight: usize,
    faults: BTreeMap<&'static str, u64>,
    fuel_max: u64,
    differences: Vec<DifferenceBody>,
    examples: Vec<ExampleBody>,
}

#[derive(Serialize)]
struct DifferenceBody {
    class: String,
    attempt: u32,
    count: u64,
}

pub(super) async fn put(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    request: Request,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    // Before anything is compiled: whose shadow is it to be?
    let known = subscription.clone();
    app.broker.call(|reply| Command::GetPolicy(caller.realm, known, None, reply)).await?;
    let candidate = match trial::<NoQuery, ShadowBody>(request).await? {
        Trial::Module(candidate, NoQuery {}) => candidate,
        Trial::Body(body) => Candidate::Revision { number: body.revision, params: body.params },
    };
    let ready = candidate.ready(&app, &caller, &subscription).await?;
    let request = Box::new(SetShadow {
        subscription: subscription.clone(),
        module: ready.module(),
        params: ready.params,
        by: caller.name().to_owned(),
    });
    let entry = caller.does(Action::ShadowPut, &subscription).with(request.module.digest.to_string());
    let put = app.broker.audited(entry, |reply| Command::SetShadow(caller.realm, request, reply)).await?;
    Ok(format.put(put, |view| answer(&subscription, view, format)))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let known = subscription.clone();
    let view = app.broker.call(|reply| Command::GetShadow(caller.realm, known, reply)).await?;
    Ok(format.ok(&answer(&subscription, view, format)))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let entry = caller.does(Action::ShadowDelete, &subscription);
    app.broker.audited(entry, |reply| Command::DeleteShadow(caller.realm, subscription, reply)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn answer(subscription: &Name, view: ShadowView, format: Format) -> ShadowAnswer {
    let ShadowView { row, stats, in_flight } = view;
    let asked = stats.agreed + stats.differed;
    let mut differences: Vec<_> = stats
        .differences
        .into_iter()
        .map(|((class, attempt), count)| DifferenceBody { class, attempt, count })
        .collect();
    differences.sort_by_key(|difference| std::cmp::Reverse(difference.count));
    ShadowAnswer {
        policy: policy_answer(row, format),
        since: WireTime(stats.since),
        asked,
        agreed: stats.agreed,
        differed: stats.differed,
        agreement: (asked > 0).then(|| stats.agreed as f64 / asked as f64),
        dropped: stats.dropped,
        in_flight,
        faults: stats.faults,
        fuel_max: stats.fuel_max,
        differences,
        examples: stats.examples.into_iter().map(|example| example_body(subscription, example)).collect(),
    }
}

fn example_body(subscription: &Name, difference: Difference) -> ExampleBody {
    ExampleBody {
        number: None,
        at: WireTime(difference.at),
        message_id: difference.message_id.to_string(),
        class: difference.class,
        attempt: difference.attempt,
        before: verdict(subscription, difference.active),
        after: verdict(subscription, difference.shadow),
    }
}
