//! `/v1/realms`: the tenants, for operators.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, Given};
use super::query::{Asked, PageQuery, cursor};
use super::shape::ListBody;
use super::wire::{WireTime, name};
use super::{App, Problem};
use crate::domain::access::Rate;
use crate::domain::audit::Action;
use crate::domain::name::Name;
use crate::domain::quota::Quota;
use crate::engine::{Command, PutRealm, RealmView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RealmBody {
    rate: Option<RateBody>,
    max_messages: Option<u64>,
    max_bytes: Option<u64>,
}

/// How often something may ask.
#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(super) struct RateBody {
    per_second: u32,
    burst: u32,
}

impl From<RateBody> for Rate {
    fn from(RateBody { per_second, burst }: RateBody) -> Self {
        Self { per_second, burst }
    }
}

impl From<Rate> for RateBody {
    fn from(Rate { per_second, burst }: Rate) -> Self {
        Self { per_second, burst }
    }
}

#[derive(Serialize)]
struct RealmAnswer {
    name: String,
    rate: Option<RateBody>,
    created_at: WireTime,
    topics: usize,
    tokens: usize,
    messages: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
}

pub(super) async fn put(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(realm): Path<String>,
    format: Format,
    Given(body): Given<RealmBody>,
) -> Result<Response, Problem> {
    let quota = Quota { max_messages: body.max_messages, max_bytes: body.max_bytes };
    let request = PutRealm { name: name("realm", &realm)?, rate: body.rate.map(Rate::from), quota };
    let rate = request.rate.map_or_else(String::new, |rate| format!("rate {rate}"));
    let entry = caller.does(Action::RealmPut, &request.name).with(rate).within(&request.name);
    let put = app.broker.audited(entry, |reply| Command::PutRealm(request, reply)).await?;
    Ok(format.put(put, answer))
}

pub(super) async fn get(
    State(app): State<App>,
    _: May<need::Operator>,
    Path(realm): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let name = name("realm", &realm)?;
    let view = app.broker.call(|reply| Command::GetRealm(name, reply)).await?;
    Ok(format.ok(&answer(view)))
}

pub(super) async fn list(
    State(app): State<App>,
    _: May<need::Operator>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = query.page(|text| Name::new(text).ok())?;
    let listed = app.broker.call(|reply| Command::ListRealms(page, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(&view.row.name), answer)))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(realm): Path<String>,
) -> Result<Response, Problem> {
    let name = name("realm", &realm)?;
    let entry = caller.does(Action::RealmDelete, &name).within(&name);
    let id = app.broker.audited(entry, |reply| Command::DeleteRealm(name, reply)).await?;
    app.broker.feeds().forget(id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn answer(view: RealmView) -> RealmAnswer {
    RealmAnswer {
        name: view.row.name.to_string(),
        rate: view.row.rate.map(RateBody::from),
        created_at: WireTime(view.row.created_at),
        topics: view.topics,
        tokens: view.tokens,
        messages: view.usage.messages,
        bytes: view.usage.bytes,
        max_messages: view.quota.max_messages,
        max_bytes: view.quota.max_bytes,
    }
}
