//! `POST /v1/subscriptions/{s}/pause`, `/resume`, `/seek`, `/purge`.

use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, Given, Nothing};
use super::subscriptions::{WireStart, answer};
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::limits::MAX_PAUSE_REASON_BYTES;
use crate::domain::name::Name;
use crate::engine::{Command, Pause, Purge, Seek, Sought};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeekBody {
    to: WireStart,
    topic: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgeBody {
    topic: Option<String>,
}

#[derive(Serialize)]
struct SoughtAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_sequence: Option<u64>,
    ended: u64,
}

pub(super) async fn pause(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<PauseBody>,
) -> Result<Response, Problem> {
    if body.reason.len() > MAX_PAUSE_REASON_BYTES {
        let detail = format!("reason: at most {MAX_PAUSE_REASON_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidBody, detail));
    }
    let subscription = caller.subscription(&subscription)?;
    let by = caller.name().to_owned();
    let request = Pause { subscription, reason: body.reason, by };
    let entry = caller.does(Action::SubscriptionPause, &request.subscription).with(request.reason.as_str());
    let view = app.broker.audited(entry, |reply| Command::Pause(caller.realm, request, reply)).await?;
    Ok(format.ok(&answer(view, format)))
}

pub(super) async fn resume(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    let name = caller.subscription(&subscription)?;
    let entry = caller.does(Action::SubscriptionResume, &name);
    let view = app.broker.audited(entry, |reply| Command::Resume(caller.realm, name, reply)).await?;
    Ok(format.ok(&answer(view, format)))
}

pub(super) async fn seek(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<SeekBody>,
) -> Result<Response, Problem> {
    let topic = body.topic.as_deref().map(|topic| caller.topic(topic)).transpose()?;
    let request = Seek { subscription: caller.subscription(&subscription)?, topic, to: body.to.check("to")? };
    let entry = caller.does(Action::SubscriptionSeek, &request.subscription).with(on(request.topic.as_ref()));
    let sought = app.broker.audited(entry, |reply| Command::Seek(caller.realm, request, reply)).await?;
    Ok(format.ok(&SoughtAnswer::from(sought)))
}

pub(super) async fn purge(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<PurgeBody>,
) -> Result<Response, Problem> {
    let topic = body.topic.as_deref().map(|topic| caller.topic(topic)).transpose()?;
    let request = Purge { subscription: caller.subscription(&subscription)?, topic };
    let entry =
        caller.does(Action::SubscriptionPurge, &request.subscription).with(on(request.topic.as_ref()));
    let sought = app.broker.audited(entry, |reply| Command::Purge(caller.realm, request, reply)).await?;
    Ok(format.ok(&SoughtAnswer::from(sought)))
}

/// What the audit log says of a deed on one topic alone.
fn on(topic: Option<&Name>) -> String {
    topic.map_or_else(String::new, |topic| format!("on topic {topic}"))
}

impl From<Sought> for SoughtAnswer {
    fn from(sought: Sought) -> Self {
        Self { next_sequence: sought.sequence, ended: sought.ended }
    }
}
