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
use super::wire::{GivenDuration, JsonOut, JsonPayload, WireDuration, WireTime, moment, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::access::Scope;
use crate::domain::audit::Action;
use crate::domain::circuit::Circuit;
use crate::domain::filter::Filter;
use crate::domain::name::Name;
use crate::domain::settings::{Mode, Ordering, Reads, Start};
use crate::engine::{Command, PutSubscription, Replace, SubscriptionChange, SubscriptionView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscriptionBody {
    topic: Option<String>,
    topic_pattern: Option<String>,
    mode: Option<String>,
    start: Option<WireStart>,
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
    ordering: Option<String>,
    filter: Option<String>,
    delivery_delay: Option<GivenDuration>,
    max_rate: Option<u32>,
    max_in_flight_per_consumer: Option<u32>,
}

/// A point of a topic: "earliest", "latest", {"sequence":17} or {"time":"..."}.
#[derive(Deserialize, Serialize, Clone)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum WireStart {
    Earliest,
    Latest,
    Sequence(u64),
    Time(String),
}

impl WireStart {
    /// The point that is meant.
    ///
    /// # Errors
    /// If the time is none.
    pub(super) fn check(&self, field: &str) -> Result<Start, Problem> {
        Ok(match self {
            Self::Earliest => Start::Earliest,
            Self::Latest => Start::Latest,
            Self::Sequence(sequence) => Start::Sequence(*sequence),
            Self::Time(text) => Start::Time(moment(field, text)?),
        })
    }
}

/// A point of a topic as it is shown.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ShownStart {
    Earliest,
    Latest,
    Sequence(u64),
    Time(WireTime),
}

#[derive(Serialize)]
pub(super) struct SubscriptionAnswer {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_pattern: Option<String>,
    topics: usize,
    mode: &'static str,
    start: ShownStart,
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
    ordering: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    delivery_delay: WireDuration,
    max_rate: u32,
    max_in_flight_per_consumer: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<PausedAnswer>,
    created_at: WireTime,
    policy: RevisionAnswer,
    backlog: u64,
    in_flight: u64,
    delayed: u64,
    dead_letters: u64,
    circuit: CircuitAnswer,
}

#[derive(Serialize)]
struct PausedAnswer {
    at: WireTime,
    reason: String,
    by: String,
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
    if body.topic.is_some() == body.topic_pattern.is_some() {
        let detail = "say which topic it reads, as topic, or which ones, as topic_pattern";
        return Err(Problem::new(ErrorCode::InvalidBody, detail));
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
    let fixed = [body.mode.is_some(), body.ordering.is_some(), body.filter.is_some()];
    let reads = body.topic.is_some() || body.topic_pattern.is_some();
    if reads || body.start.is_some() || fixed.contains(&true) {
        let detail =
            "topic, topic_pattern, start, mode, ordering and filter are fixed when a subscription is created";
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
    let reads = match (&body.topic, &body.topic_pattern) {
        (Some(topic), _) => Some(Reads::Topic(caller.topic(topic)?)),
        (None, Some(pattern)) => Some(Reads::Topics(caller.topics_like(pattern)?)),
        (None, None) => None,
    };
    let request = PutSubscription {
        name: caller.subscription(subscription)?,
        reads,
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
        start: body.start.as_ref().map(|start| start.check("start")).transpose()?,
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
        ordering: body.ordering.as_deref().map(ordering).transpose()?,
        filter: body.filter.as_deref().map(filter).transpose()?,
        delivery_delay: optional(body.delivery_delay.as_ref(), "delivery_delay")?,
        max_rate: body.max_rate,
        max_in_flight_per_consumer: body.max_in_flight_per_consumer,
    })
}

fn mode(text: &str) -> Result<Mode, Problem> {
    let known = [Mode::Acked, Mode::AutoAcked, Mode::Live].into_iter().find(|mode| mode.as_str() == text);
    let detail = "mode: one of \"acked\", \"auto_acked\", \"live\"";
    known.ok_or_else(|| Problem::new(ErrorCode::InvalidSetting, detail))
}

fn ordering(text: &str) -> Result<Ordering, Problem> {
    let known = [Ordering::None, Ordering::Key].into_iter().find(|ordering| ordering.as_str() == text);
    let detail = "ordering: one of \"none\", \"key\"";
    known.ok_or_else(|| Problem::new(ErrorCode::InvalidSetting, detail))
}

fn filter(text: &str) -> Result<Filter, Problem> {
    let filter = Filter::parse(text);
    filter.map_err(|error| Problem::new(ErrorCode::InvalidFilter, format!("filter: {error}")))
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

pub(super) fn answer(view: SubscriptionView, format: Format) -> SubscriptionAnswer {
    let settings = view.row.settings;
    let paused = view.row.paused.map(|paused| PausedAnswer {
        at: WireTime(paused.at),
        reason: paused.reason,
        by: paused.by,
    });
    let (topic, topic_pattern) = match view.reads {
        Reads::Topic(topic) => (Some(topic.to_string()), None),
        Reads::Topics(pattern) => (None, Some(pattern.to_string())),
    };
    SubscriptionAnswer {
        name: view.row.name.to_string(),
        topic,
        topic_pattern,
        topics: view.topics,
        mode: settings.mode.as_str(),
        start: match settings.start {
            Start::Earliest => ShownStart::Earliest,
            Start::Latest => ShownStart::Latest,
            Start::Sequence(sequence) => ShownStart::Sequence(sequence),
            Start::Time(at) => ShownStart::Time(WireTime(at)),
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
        ordering: settings.ordering.as_str(),
        filter: settings.filter.map(|filter| filter.to_string()),
        delivery_delay: WireDuration(settings.delivery_delay),
        max_rate: settings.max_rate,
        max_in_flight_per_consumer: settings.max_in_flight_per_consumer,
        paused,
        created_at: WireTime(view.row.created_at),
        policy: revision_answer(view.revision, format),
        backlog: view.counts.backlog,
        in_flight: view.counts.in_flight,
        delayed: view.counts.delayed,
        dead_letters: view.counts.dead,
        circuit: match view.cursor.circuit {
            Circuit::Closed => CircuitAnswer::Closed,
            Circuit::Open { until, probes, reason } => {
                CircuitAnswer::Open { until: WireTime(until), probes, reason }
            }
            Circuit::HalfOpen { probes, reason, .. } => CircuitAnswer::HalfOpen { probes, reason },
        },
    }
}
