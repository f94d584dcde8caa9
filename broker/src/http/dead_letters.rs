//! `/v1/dead-letters`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::Format;
use super::query::{Asked, cursor, page};
use super::shape::{HistoryBody, ListBody, MessageBody, PayloadAs, history_body, message_body, queue_name};
use super::wire::{WireTime, map, name};
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::id::DeadLetterId;
use crate::engine::{Command, DeadLetterQuery, DeadLetterView, Refusal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    subscription: Option<String>,
    queue: Option<String>,
    class: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    #[serde(default)]
    payload_as: PayloadAs,
}

#[derive(Serialize)]
struct SummaryAnswer {
    id: String,
    subscription: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    reason: String,
    #[serde(serialize_with = "labels")]
    labels: Vec<(String, String)>,
    dead_at: WireTime,
    topic: String,
    message_id: String,
    attempts: u32,
    failures: u32,
    replays: u32,
    cause: Option<&'static str>,
    class: Option<String>,
    detail: Option<String>,
}

#[derive(Serialize)]
struct DeadLetterAnswer<'a> {
    #[serde(flatten)]
    summary: SummaryAnswer,
    message: MessageBody<'a>,
    timeline: HistoryBody,
}

#[derive(Serialize)]
struct ReplayAnswer {
    message_id: String,
    replays: u32,
}

#[expect(clippy::ptr_arg, reason = "serde hands over a reference to the field")]
fn labels<S: serde::Serializer>(pairs: &Vec<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    map(pairs, serializer)
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Asked(query): Asked<ListQuery>,
    format: Format,
) -> Result<Response, Problem> {
    // A queue is given as it is shown, with its subscription, or by its own name.
    let (of, queue) = match query.queue.as_deref().map(|text| (text, text.split_once('/'))) {
        Some((_, Some((of, queue)))) => (Some(of), Some(queue)),
        Some((queue, None)) => (None, Some(queue)),
        None => (None, None),
    };
    if let (Some(of), Some(subscription)) = (of, &query.subscription)
        && of != subscription
    {
        return Ok(format.ok(&ListBody::<SummaryAnswer> { items: Vec::new(), next: None }));
    }
    let subscription = query.subscription.as_deref().or(of);
    let request = DeadLetterQuery {
        subscription: subscription.map(|text| caller.subscription(text)).transpose()?,
        queue: queue.map(|text| name("queue", text)).transpose()?,
        class: query.class,
        page: page(query.limit, query.cursor.as_deref(), |text| DeadLetterId::parse(text).ok())?,
        among: caller.subscriptions(),
    };
    let listed = app.broker.call(|reply| Command::ListDeadLetters(caller.realm, request, reply)).await?;
    let next = listed.next.map(cursor);
    let items = listed.items.into_iter().map(|view| summary(&view)).collect();
    Ok(format.ok(&ListBody { items, next }))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
    Asked(query): Asked<GetQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let id = dead_letter_id(&id)?;
    let view = visible(&app, &caller, id).await?;
    let payload_as = caller.shown(query.payload_as);
    if payload_as != PayloadAs::None {
        let entry = caller.does(Action::PayloadRead, id).with(view.subscription.as_str());
        app.broker.call(|reply| Command::Audit(Box::new(entry), reply)).await?;
    }
    let answer = DeadLetterAnswer {
        summary: summary(&view),
        message: message_body(view.message_id, &view.topic, &view.row.message, payload_as, format),
        timeline: history_body(view.subscription.as_str(), view.row.delivery.clone()),
    };
    Ok(format.ok(&answer))
}

pub(super) async fn replay(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let id = dead_letter_id(&id)?;
    let view = visible(&app, &caller, id).await?;
    let entry = caller.does(Action::DeadLetterReplay, id).with(view.subscription.as_str());
    let replayed =
        app.broker.audited(entry, |reply| Command::ReplayDeadLetter(caller.realm, id, reply)).await?;
    let message_id = replayed.message_id.to_string();
    Ok(format.ok(&ReplayAnswer { message_id, replays: replayed.replays }))
}

pub(super) async fn discard(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = dead_letter_id(&id)?;
    let view = visible(&app, &caller, id).await?;
    let entry = caller.does(Action::DeadLetterDiscard, id).with(view.subscription.as_str());
    app.broker.audited(entry, |reply| Command::DiscardDeadLetter(caller.realm, id, reply)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The dead letter, if it exists for the caller. It stays with its subscription, so what is found here holds.
async fn visible(app: &App, caller: &Caller, id: DeadLetterId) -> Result<DeadLetterView, Problem> {
    let view = app.broker.call(|reply| Command::GetDeadLetter(caller.realm, id, reply)).await?;
    let exists = caller.subscriptions().allow(&view.subscription);
    if exists { Ok(view) } else { Err(Refusal::DeadLetterNotFound.into()) }
}

fn dead_letter_id(text: &str) -> Result<DeadLetterId, Problem> {
    let detail = "a dead letter's id is what the list gave";
    DeadLetterId::parse(text).map_err(|_| Problem::new(ErrorCode::InvalidId, detail))
}

fn summary(view: &DeadLetterView) -> SummaryAnswer {
    let row = &view.row;
    let last = row.delivery.history.last();
    SummaryAnswer {
        id: view.id.to_string(),
        subscription: view.subscription.to_string(),
        queue: row.queue.as_ref().map(|queue| queue_name(view.subscription.as_str(), queue)),
        reason: row.reason.clone(),
        labels: row.labels.clone(),
        dead_at: WireTime(row.dead_at),
        topic: view.topic.to_string(),
        message_id: view.message_id.to_string(),
        attempts: row.delivery.attempt,
        failures: row.delivery.failures,
        replays: row.delivery.replays,
        cause: last.map(|past| past.failure.cause.as_str()),
        class: last.map(|past| past.failure.class.clone()),
        detail: last.and_then(|past| past.failure.detail.clone()),
    }
}
