//! `/v1/subscriptions`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::{Format, Given};
use super::policies::{RevisionAnswer, check_standard, revision_answer};
use super::query::{Asked, PageQuery, cursor};
use super::shape::ListBody;
use super::wire::{GivenDuration, JsonOut, JsonPayload, WireDuration, WireTime, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::access::Scope;
use crate::domain::audit::Action;
use crate::domain::circuit::Circuit;
use crate::domain::name::Name;
use crate::domain::settings::{Mode, Start};
use crate::engine::{Command, PutSubscription, Replace, SubscriptionChange, SubscriptionView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscriptionBody {
    topic: Option<String>,
    mode: Option<String>,
    start: Option<GivenStart>,
    lease: Option<GivenDuration>,
    max_lease: Option<GivenDuration>,
    max_in_flight: Option<u32>,
    min_delay: Option<GivenDuration>,
    max_delay: Option<GivenDuration>,
    attempt_limit: Option<u32>,
    fallback_delay: Option<GivenDuration>,
    fault_limit: Option<u32>,
    forward_to: Option<Vec<String>>,
    inspect_payload: Option<bool>,
    record_failures: Option<u32>,
    record_for: Option<GivenDuration>,
    retry: Option<JsonPayload>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum GivenStart {
    Earliest,
    Latest,
}

#[derive(Serialize)]
pub(super) struct SubscriptionAnswer {
    name: String,
    topic: String,
    mode: &'static str,
    start: &'static str,
    lease: WireDuration,
    max_lease: WireDuration,
    max_in_flight: u32,
    min_delay: WireDuration,
    max_delay: WireDuration,
    attempt_limit: u32,
    fallback_delay: WireDuration,
    fault_limit: u32,
    forward_to: Vec<String>,
    inspect_payload: bool,
    record_failures: u32,
    record_for: WireDuration,
    retry: Option<JsonOut>,
    created_at: WireTime,
    policy: RevisionAnswer,
    backlog: u64,
    in_flight: u64,
    delayed: u64,
    dead_letters: u64,
    circuit: CircuitAnswer,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum CircuitAnswer {
    Closed,
    Open { until: WireTime, probes: u32, reason: String },
    HalfOpen { probes: u32, reason: String },
}

pub(super) async fn put(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<SubscriptionBody>,
) -> Result<Response, Problem> {
    if body.topic.is_none() {
        return Err(Problem::new(ErrorCode::InvalidBody, "topic: say which topic it reads"));
    }
    store(&app, &caller, &subscription, body, Replace::All, format).await
}

pub(super) async fn patch(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<SubscriptionBody>,
) -> Result<Response, Problem> {
    if body.topic.is_some() || body.start.is_some() || body.mode.is_some() {
        let detail = "topic, start and mode are fixed when a subscription is created";
        return Err(Problem::new(ErrorCode::InvalidBody, detail));
    }
    store(&app, &caller, &subscription, body, Replace::Named, format).await
}

async fn store(
    app: &App,
    caller: &Caller,
    subscription: &str,
    body: SubscriptionBody,
    replace: Replace,
    format: Format,
) -> Result<Response, Problem> {
    if body.inspect_payload == Some(true) {
        // What its policy sees, its policy can tell.
        caller.must(&[Scope::ReadPayload])?;
    }
    let retry = match &body.retry {
        Some(given) => Some(check_standard(app, given).await?),
        None => None,
    };
    let request = PutSubscription {
        name: caller.subscription(subscription)?,
        topic: body.topic.as_deref().map(|topic| caller.topic(topic)).transpose()?,
        change: change(caller, &body)?,
        replace,
        retry,
    };
    let request = Box::new(request);
    let entry = caller.does(Action::SubscriptionPut, &request.name);
    let put =
        app.broker.audited(entry, |reply| Command::PutSubscription(caller.realm, request, reply)).await?;
    Ok(format.put(put, |view| answer(view, format)))
}

fn change(caller: &Caller, body: &SubscriptionBody) -> Result<SubscriptionChange, Problem> {
    // No policy forwards to where its owner may not go.
    let topics = |names: &Vec<String>| names.iter().map(|text| caller.topic(text)).collect();
    Ok(SubscriptionChange {
        mode: body.mode.as_deref().map(mode).transpose()?,
        start: body.start.map(|start| match start {
            GivenStart::Earliest => Start::Earliest,
            GivenStart::Latest => Start::Latest,
        }),
        lease: optional(body.lease.as_ref(), "lease")?,
        max_lease: optional(body.max_lease.as_ref(), "max_lease")?,
        max_in_flight: body.max_in_flight,
        min_delay: optional(body.min_delay.as_ref(), "min_delay")?,
        max_delay: optional(body.max_delay.as_ref(), "max_delay")?,
        attempt_limit: body.attempt_limit,
        fallback_delay: optional(body.fallback_delay.as_ref(), "fallback_delay")?,
        fault_limit: body.fault_limit,
        forward_to: body.forward_to.as_ref().map(topics).transpose()?,
        inspect_payload: body.inspect_payload,
        record_failures: body.record_failures,
        record_for: optional(body.record_for.as_ref(), "record_for")?,
    })
}

fn mode(text: &str) -> Result<Mode, Problem> {
    match text {
        "acked" => Ok(Mode::Acked),
        _ => Err(Problem::new(ErrorCode::InvalidSetting, "mode: this version has \"acked\"")),
    }
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Look>,
    Path(subscription): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let name = caller.subscription(&subscription)?;
    let view = app.broker.call(|reply| Command::GetSubscription(caller.realm, name, reply)).await?;
    Ok(format.ok(&answer(view, format)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::Look>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = query.page(|text| Name::new(text).ok())?;
    let among = caller.subscriptions();
    let listed =
        app.broker.call(|reply| Command::ListSubscriptions(caller.realm, page, among, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(&view.row.name), |view| answer(view, format))))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
) -> Result<Response, Problem> {
    let name = caller.subscription(&subscription)?;
    let entry = caller.does(Action::SubscriptionDelete, &name);
    app.broker.audited(entry, |reply| Command::DeleteSubscription(caller.realm, name, reply)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn answer(view: SubscriptionView, format: Format) -> SubscriptionAnswer {
    let settings = view.row.settings;
    SubscriptionAnswer {
        name: view.row.name.to_string(),
        topic: view.topic.to_string(),
        mode: match settings.mode {
            Mode::Acked => "acked",
        },
        start: match settings.start {
            Start::Earliest => "earliest",
            Start::Latest => "latest",
        },
        lease: WireDuration(settings.lease),
        max_lease: WireDuration(settings.max_lease),
        max_in_flight: settings.max_in_flight,
        min_delay: WireDuration(settings.min_delay),
        max_delay: WireDuration(settings.max_delay),
        attempt_limit: settings.attempt_limit,
        fallback_delay: WireDuration(settings.fallback_delay),
        fault_limit: settings.fault_limit,
        forward_to: settings.forward_to.iter().map(Name::to_string).collect(),
        inspect_payload: settings.inspect_payload,
        record_failures: settings.record_failures,
        record_for: WireDuration(settings.record_for),
        retry: JsonOut::new(view.row.retry.as_bytes(), format),
        created_at: WireTime(view.row.created_at),
        policy: revision_answer(view.revision, format),
        backlog: view.backlog,
        in_flight: view.in_flight,
        delayed: view.cursor.delayed,
        dead_letters: view.cursor.dead,
        circuit: match view.cursor.circuit {
            Circuit::Closed => CircuitAnswer::Closed,
            Circuit::Open { until, probes, reason } => {
                CircuitAnswer::Open { until: WireTime(until), probes, reason }
            }
            Circuit::HalfOpen { probes, reason, .. } => CircuitAnswer::HalfOpen { probes, reason },
        },
    }
}
