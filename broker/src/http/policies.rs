//! `/v1/subscriptions/{s}/policy`.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, Given, read};
use super::candidate::Candidate;
use super::query::{Asked, PageQuery, cursor};
use super::shape::ListBody;
use super::wire::{JsonOut, JsonPayload, WireTime};
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::limits::{MAX_MODULE_BYTES, MAX_PARAMS_BYTES};
use crate::engine::{Command, Refusal, RevisionView, Rollback, SetPolicy};
use crate::policy::Description;
use crate::store::row::RevisionRow;

#[derive(Serialize)]
pub(super) struct RevisionAnswer {
    revision: u32,
    active: bool,
    #[serde(flatten)]
    policy: PolicyAnswer,
    decisions: u64,
    faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined: Option<QuarantineAnswer>,
}

/// A module and its parameters, as they were put.
#[derive(Serialize)]
pub(super) struct PolicyAnswer {
    digest: String,
    name: String,
    version: String,
    params: Option<JsonOut>,
    size: u64,
    trial_fuel: u64,
    created_at: WireTime,
    created_by: String,
}

#[derive(Serialize)]
struct QuarantineAnswer {
    at: WireTime,
    fault: String,
}

#[derive(Serialize)]
struct UploadAnswer {
    #[serde(flatten)]
    revision: RevisionAnswer,
    exports: [&'static str; 3],
    summary: String,
    queues: Vec<String>,
}

/// A policy's parameters come beside its bytes.
const PARAMS: &str = "broker-policy-params";

pub(super) async fn put(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    request: Request,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let params = upload_params(request.headers())?;
    // Before anything is compiled: whose policy is it to be?
    let known = subscription.clone();
    app.broker.call(|reply| Command::GetPolicy(caller.realm, known, None, reply)).await?;
    let (parts, body) = request.into_parts();
    let bytes = read(&parts.headers, body, MAX_MODULE_BYTES, ErrorCode::PolicyTooLarge).await?;
    let ready = Candidate::Module { bytes, params }.ready(&app, &caller, &subscription).await?;
    let Description { summary, queues, .. } = ready.program.description().clone();
    let digest = ready.program.digest();
    let request = Box::new(SetPolicy {
        subscription,
        module: Some(ready.module()),
        params: Some(ready.params),
        checked: None,
        by: caller.name().to_owned(),
    });
    let entry = caller.does(Action::PolicyPut, &request.subscription).with(digest.to_string());
    let put = app.broker.audited(entry, |reply| Command::SetPolicy(caller.realm, request, reply)).await?;
    let exports = ["decide", "check", "describe"];
    Ok(format.put(put, |view| {
        let revision = revision_answer(view, format);
        UploadAnswer { revision, exports, summary, queues }
    }))
}

pub(super) async fn put_params(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    Given(params): Given<JsonPayload>,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let params = params_text(&params.0)?;
    let known = subscription.clone();
    let active = app.broker.call(|reply| Command::GetPolicy(caller.realm, known, None, reply)).await?;
    let digest = active.row.digest;
    let module = app.broker.call(|reply| Command::GetModule(caller.realm, digest, reply)).await?;
    let tried = app.broker.programs().rehearse(digest, Some(module), params.clone()).await;
    tried.ok_or(Refusal::ShuttingDown)??;
    let request = Box::new(SetPolicy {
        subscription,
        module: None,
        params: Some(params),
        checked: Some(digest),
        by: caller.name().to_owned(),
    });
    let entry = caller.does(Action::PolicyParams, &request.subscription);
    let put = app.broker.audited(entry, |reply| Command::SetPolicy(caller.realm, request, reply)).await?;
    Ok(format.put(put, |view| revision_answer(view, format)))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let name = caller.subscription(&subscription)?;
    let view = app.broker.call(|reply| Command::GetPolicy(caller.realm, name, None, reply)).await?;
    Ok(format.ok(&revision_answer(view, format)))
}

pub(super) async fn revisions(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let name = caller.subscription(&subscription)?;
    let page = query.page(|text| text.parse().ok())?;
    let listed = app.broker.call(|reply| Command::ListRevisions(caller.realm, name, page, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(view.number), |view| revision_answer(view, format))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackBody {
    revision: Option<u32>,
}

pub(super) async fn rollback(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<RollbackBody>,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let request = Rollback { subscription, revision: body.revision };
    let to = body.revision.map_or_else(String::new, |revision| format!("to revision {revision}"));
    let entry = caller.does(Action::PolicyRollback, &request.subscription).with(to);
    let put = app.broker.audited(entry, |reply| Command::Rollback(caller.realm, request, reply)).await?;
    Ok(format.ok(&revision_answer(put.value, format)))
}

/// Asks the standard policy whether it takes these parameters.
pub(super) async fn check_standard(app: &App, given: &JsonPayload) -> Result<String, Problem> {
    let params = params_text(&given.0)?;
    let standard = app.broker.standard();
    let module = Some(standard.bytes.to_vec());
    let tried = app.broker.programs().rehearse(standard.digest, module, params.clone()).await;
    tried.ok_or(Refusal::ShuttingDown)??;
    Ok(params)
}

pub(super) fn upload_params(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|given| given != "application/wasm") {
        return Err(Problem::new(ErrorCode::UnsupportedMediaType, "send application/wasm"));
    }
    headers.get(PARAMS).map(|value| params_text(value.as_bytes())).transpose()
}

/// Parameters are a JSON object, without the spaces between its parts, so that equal ones are equal.
pub(super) fn params_text(bytes: &[u8]) -> Result<String, Problem> {
    if bytes.len() > MAX_PARAMS_BYTES {
        let detail = format!("parameters have at most {MAX_PARAMS_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidParams, detail));
    }
    let object: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(bytes);
    let text = object.and_then(|object| serde_json::to_string(&object));
    text.map_err(|error| {
        Problem::new(ErrorCode::InvalidParams, format!("parameters are a JSON object: {error}"))
    })
}

pub(super) fn revision_answer(view: RevisionView, format: Format) -> RevisionAnswer {
    let mut row = view.row;
    let quarantined = row.quarantined.take();
    RevisionAnswer {
        revision: view.number,
        active: view.active,
        decisions: row.decisions,
        faults: row.faults,
        quarantined: quarantined.map(|(at, fault)| QuarantineAnswer { at: WireTime(at), fault }),
        policy: policy_answer(row, format),
    }
}

pub(super) fn policy_answer(row: RevisionRow, format: Format) -> PolicyAnswer {
    PolicyAnswer {
        digest: row.digest.to_string(),
        name: row.name,
        version: row.version,
        params: JsonOut::new(row.params.as_bytes(), format),
        size: row.size,
        trial_fuel: row.trial_fuel,
        created_at: WireTime(row.created_at),
        created_by: row.created_by,
    }
}
