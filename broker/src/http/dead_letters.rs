//! `/v1/dead-letters`.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::{Format, Given};
use super::dead_filter::GivenFilter;
use super::publish::{check, content};
use super::query::{Asked, cursor, page};
use super::shape::{HistoryBody, ListBody, MessageBody, PayloadAs, history_body, message_body, queue_name};
use super::wire::{BinaryPayload, JsonPayload, Pairs, WireTime, map, some};
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::id::DeadLetterId;
use crate::domain::time::Timestamp;
use crate::engine::{
    Command, DeadLetterEdit, DeadLetterQuery, DeadLetterView, DeadPlace, NewMessage, Order, Page, Refusal,
};

/// Everything that a list can be asked for.
struct ListQuery {
    filter: GivenFilter,
    order: Order,
    page: Page<DeadPlace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    #[serde(default)]
    payload_as: PayloadAs,
}

/// What is to be changed of a message that is replayed.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct EditBody {
    #[serde(default, deserialize_with = "some")]
    payload: Option<JsonPayload>,
    payload_base64: Option<BinaryPayload>,
    content_type: Option<String>,
    attributes: Option<Pairs>,
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
    Asked(query): Asked<Vec<(String, String)>>,
    format: Format,
) -> Result<Response, Problem> {
    let ListQuery { filter, order, page } = list_query(query)?;
    let Some(filter) = filter.check(&app, &caller)? else {
        return Ok(format.ok(&ListBody::<SummaryAnswer> { items: Vec::new(), next: None }));
    };
    let among = caller.subscriptions();
    let request = Box::new(DeadLetterQuery { filter, order, page, among });
    let listed = app.broker.call(|reply| Command::ListDeadLetters(caller.realm, request, reply)).await?;
    let next = listed.next.map(|(at, id)| cursor(format_args!("{} {id}", at.as_millis())));
    let items = listed.items.into_iter().map(|view| summary(&view)).collect();
    Ok(format.ok(&ListBody { items, next }))
}

fn list_query(query: Vec<(String, String)>) -> Result<ListQuery, Problem> {
    let invalid = |detail: String| Problem::new(ErrorCode::InvalidQuery, detail);
    let mut filter = GivenFilter::default();
    let (mut order, mut limit, mut after) = (None, None, None);
    for (key, value) in query {
        let Some((key, value)) = filter.take(key, value)? else { continue };
        let slot = match key.as_str() {
            "order" => &mut order,
            "limit" => &mut limit,
            "cursor" => &mut after,
            _ => return Err(invalid(format!("there is no parameter {key}"))),
        };
        if slot.replace(value).is_some() {
            return Err(invalid(format!("{key} is there twice")));
        }
    }
    let limit = limit.map(|text| text.parse::<usize>());
    let limit = limit.transpose().map_err(|_| invalid("limit: a number is wanted".to_owned()))?;
    let order = match order.as_deref() {
        None | Some("oldest") => Order::Oldest,
        Some("newest") => Order::Newest,
        Some(_) => return Err(invalid("order: one of oldest, newest".to_owned())),
    };
    Ok(ListQuery { filter, order, page: page(limit, after.as_deref(), place)? })
}

/// Where a page begins.
fn place(text: &str) -> Option<DeadPlace> {
    let (at, id) = text.split_once(' ')?;
    Some((Timestamp::from_millis(at.parse().ok()?), DeadLetterId::parse(id).ok()?))
}

#[derive(Serialize)]
struct FacetsAnswer {
    total: u64,
    complete: bool,
    facets: BTreeMap<&'static str, Vec<ValueAnswer>>,
}

#[derive(Serialize)]
struct ValueAnswer {
    value: String,
    count: u64,
}

/// How many there are, by what they have in common.
pub(super) async fn facets(
    State(app): State<App>,
    caller: May<need::DeadLetters>,
    Asked(query): Asked<Vec<(String, String)>>,
    format: Format,
) -> Result<Response, Problem> {
    let mut filter = GivenFilter::default();
    for (key, value) in query {
        if let Some((key, _)) = filter.take(key, value)? {
            return Err(Problem::new(ErrorCode::InvalidQuery, format!("there is no parameter {key}")));
        }
    }
    let Some(filter) = filter.check(&app, &caller)? else {
        return Ok(format.ok(&FacetsAnswer { total: 0, complete: true, facets: BTreeMap::new() }));
    };
    let (filter, among) = (Box::new(filter), caller.subscriptions());
    let counted =
        app.broker.call(|reply| Command::CountDeadLetters(caller.realm, filter, among, reply)).await?;
    let values = |values: Vec<(String, u64)>| {
        values.into_iter().map(|(value, count)| ValueAnswer { value, count }).collect()
    };
    let facets = counted.facets.into_iter();
    let facets = facets.map(|(facet, counts)| (facet.as_str(), values(counts))).collect();
    Ok(format.ok(&FacetsAnswer { total: counted.total, complete: counted.complete, facets }))
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
    Given(body): Given<Option<EditBody>>,
) -> Result<Response, Problem> {
    let id = dead_letter_id(&id)?;
    let view = visible(&app, &caller, id).await?;
    let edit = Box::new(edit(body.unwrap_or_default())?);
    let what = if *edit == DeadLetterEdit::default() { "" } else { ", edited" };
    let entry = caller.does(Action::DeadLetterReplay, id).with(format!("{}{what}", view.subscription));
    let replayed =
        app.broker.audited(entry, |reply| Command::ReplayDeadLetter(caller.realm, id, edit, reply)).await?;
    let message_id = replayed.message_id.to_string();
    Ok(format.ok(&ReplayAnswer { message_id, replays: replayed.replays }))
}

/// What is to be changed, checked as a publish is.
fn edit(body: EditBody) -> Result<DeadLetterEdit, Problem> {
    let (payload, content_type) = content(body.payload, body.payload_base64, body.content_type)?;
    let attributes = body.attributes.map(|pairs| pairs.0);
    check(NewMessage {
        payload: payload.clone().unwrap_or_default(),
        content_type: content_type.clone(),
        attributes: attributes.clone().unwrap_or_default(),
        ..NewMessage::default()
    })?;
    Ok(DeadLetterEdit { payload, content_type, attributes })
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
