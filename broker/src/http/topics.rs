//! `/v1/topics`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, Given};
use super::query::{Asked, PageQuery, cursor};
use super::shape::ListBody;
use super::wire::{GivenDuration, JsonOut, JsonPayload, WireDuration, WireTime, optional};
use super::{App, Problem};
use crate::domain::audit::Action;
use crate::domain::name::Name;
use crate::domain::quota::Quota;
use crate::domain::settings::{Schema, TopicSettings};
use crate::engine::{Command, PutTopic, Refusal, TopicView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicBody {
    keep_acked: Option<GivenDuration>,
    max_message_bytes: Option<usize>,
    ttl: Option<GivenDuration>,
    max_age: Option<GivenDuration>,
    retain_bytes: Option<u64>,
    dedup_window: Option<GivenDuration>,
    max_messages: Option<u64>,
    max_bytes: Option<u64>,
    schema: Option<JsonPayload>,
}

#[derive(Serialize)]
pub(super) struct TopicAnswer {
    name: String,
    keep_acked: WireDuration,
    max_message_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<WireDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<WireDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retain_bytes: Option<u64>,
    dedup_window: WireDuration,
    max_messages: Option<u64>,
    max_bytes: Option<u64>,
    created_at: WireTime,
    next_sequence: u64,
    first_sequence: u64,
    subscriptions: usize,
    messages: u64,
    bytes: u64,
    incoming: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<JsonOut>,
}

pub(super) async fn put(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(topic): Path<String>,
    format: Format,
    Given(body): Given<TopicBody>,
) -> Result<Response, Problem> {
    let name = caller.topic(&topic)?;
    let default = TopicSettings::default();
    let schema = body.schema.as_ref().map(|JsonPayload(json)| Schema::new(&String::from_utf8_lossy(json)));
    let settings = TopicSettings {
        keep_acked: optional(body.keep_acked.as_ref(), "keep_acked")?.unwrap_or(default.keep_acked),
        max_message_bytes: body.max_message_bytes.unwrap_or(default.max_message_bytes),
        ttl: optional(body.ttl.as_ref(), "ttl")?,
        max_age: optional(body.max_age.as_ref(), "max_age")?,
        retain_bytes: body.retain_bytes,
        dedup_window: optional(body.dedup_window.as_ref(), "dedup_window")?.unwrap_or(default.dedup_window),
        quota: Quota { max_messages: body.max_messages, max_bytes: body.max_bytes },
        schema,
    };
    // Its size first.
    settings.validate().map_err(Refusal::from)?;
    if let Some(schema) = settings.schema.clone() {
        app.schemas.check(schema).await?;
    }
    let request = PutTopic { name, settings };
    let entry = caller.does(Action::TopicPut, &request.name);
    let put = app.broker.audited(entry, |reply| Command::PutTopic(caller.realm, request, reply)).await?;
    Ok(format.put(put, |view| with_schema(view, format)))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Look>,
    Path(topic): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let name = caller.topic(&topic)?;
    let view = app.broker.call(|reply| Command::GetTopic(caller.realm, name, reply)).await?;
    Ok(format.ok(&with_schema(view, format)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::Look>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = query.page(|text| Name::new(text).ok())?;
    let among = caller.topics();
    let listed = app.broker.call(|reply| Command::ListTopics(caller.realm, page, among, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(&view.row.name), answer)))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: May<need::Topics>,
    Path(topic): Path<String>,
) -> Result<Response, Problem> {
    let name = caller.topic(&topic)?;
    let entry = caller.does(Action::TopicDelete, &name);
    app.broker.audited(entry, |reply| Command::DeleteTopic(caller.realm, name, reply)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A list leaves schemas out: they may be large, and many.
fn with_schema(view: TopicView, format: Format) -> TopicAnswer {
    let schema = view.row.settings.schema.clone();
    let schema = schema.and_then(|schema| JsonOut::new(schema.text().as_bytes(), format));
    TopicAnswer { schema, ..answer(view) }
}

fn answer(view: TopicView) -> TopicAnswer {
    let (quota, usage) = (view.row.settings.quota, view.head.usage());
    TopicAnswer {
        name: view.row.name.to_string(),
        keep_acked: WireDuration(view.row.settings.keep_acked),
        max_message_bytes: view.row.settings.max_message_bytes,
        ttl: view.row.settings.ttl.map(WireDuration),
        max_age: view.row.settings.max_age.map(WireDuration),
        retain_bytes: view.row.settings.retain_bytes,
        dedup_window: WireDuration(view.row.settings.dedup_window),
        max_messages: quota.max_messages,
        max_bytes: quota.max_bytes,
        created_at: WireTime(view.row.created_at),
        next_sequence: view.head.next,
        first_sequence: view.head.first,
        subscriptions: view.subscriptions,
        messages: usage.messages,
        bytes: usage.bytes,
        incoming: view.head.incoming,
        schema: None,
    }
}
