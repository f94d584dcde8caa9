//! `/v1/subscriptions/{s}/policy/failures`: what was decided, and what the policy was shown.

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::auth::{May, need};
use super::body::Format;
use super::query::{Asked, PageQuery, cursor};
use super::shape::{FaultBody, ListBody};
use super::wire::{WireDuration, WireTime};
use super::{App, ErrorCode, Problem};
use crate::domain::access::Scope;
use crate::domain::audit::Action;
use crate::domain::context::Context;
use crate::domain::decision::{Answer, AnswerAction, Fault};
use crate::engine::{Command, Page, RecordedView};

#[derive(Serialize)]
struct RecordedAnswer {
    number: u64,
    at: WireTime,
    message_id: String,
    attempt: u32,
    failures: u32,
    cause: &'static str,
    class: String,
    revision: u32,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultBody>,
    fuel: u64,
}

/// What the policy said, before the subscription's bounds were applied.
#[derive(Serialize)]
struct AnswerBody {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<WireDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path(subscription): Path<String>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let page = query.page(|text| text.parse().ok())?;
    let listed =
        app.broker.call(|reply| Command::ListRecorded(caller.realm, subscription, page, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(view.failure.number), answer)))
}

/// One of them, as a case for the policy's own `fixtures/`.
pub(super) async fn fixture(
    State(app): State<App>,
    caller: May<need::Policies>,
    Path((subscription, number)): Path<(String, String)>,
    format: Format,
) -> Result<Response, Problem> {
    let subscription = caller.subscription(&subscription)?;
    let unknown =
        || Problem::new(ErrorCode::RecordNotFound, "there is no such recorded failure, or it is gone");
    let number: u64 = number.parse().map_err(|_| unknown())?;
    let page = Page { after: Some(number.saturating_add(1)), limit: 1 };
    let listed =
        app.broker.call(|reply| Command::ListRecorded(caller.realm, subscription, page, reply)).await?;
    let found = listed.items.into_iter().next().filter(|view| view.failure.number == number);
    let found = found.ok_or_else(unknown)?;
    let context = &found.failure.context;
    if context.message.payload.is_some() {
        // Without what the policy was shown it would be another case.
        caller.must(&[Scope::ReadPayload])?;
        let entry = caller.does(Action::PayloadRead, context.message.id).with(context.subscription.as_str());
        app.broker.call(|reply| Command::Audit(Box::new(entry), reply)).await?;
    }
    Ok(format.ok(&case(&found)?))
}

fn answer(view: RecordedView) -> RecordedAnswer {
    let failure = view.failure;
    let (answer, fault) = match failure.evaluation.result {
        Ok(answer) => (Some(answer_body(answer)), None),
        Err(fault) => (None, Some((&fault).into())),
    };
    RecordedAnswer {
        number: failure.number,
        at: WireTime(failure.context.now),
        message_id: failure.context.message.id.to_string(),
        attempt: failure.context.attempt,
        failures: failure.context.failures,
        cause: failure.context.failure.cause.as_str(),
        class: failure.context.failure.class,
        revision: failure.revision,
        digest: view.digest.to_string(),
        answer,
        fault,
        fuel: failure.evaluation.fuel,
    }
}

fn answer_body(answer: Answer) -> AnswerBody {
    let mut body =
        AnswerBody { action: "", delay: None, queue: None, topic: None, reason: None, note: answer.note };
    match answer.action {
        AnswerAction::Retry { delay } => (body.action, body.delay) = ("retry", Some(WireDuration(delay))),
        AnswerAction::DeadLetter { queue, reason, .. } => {
            (body.action, body.queue, body.reason) = ("dead_letter", queue, Some(reason));
        }
        AnswerAction::Forward { topic } => (body.action, body.topic) = ("forward", Some(topic)),
        AnswerAction::Drop { reason } => (body.action, body.reason) = ("drop", Some(reason)),
    }
    body
}

/// In the format that the README of the policy SDK documents.
fn case(view: &RecordedView) -> Result<Value, Problem> {
    let failure = &view.failure;
    let context = &failure.context;
    let params: Value = serde_json::from_str(&context.params)
        .map_err(|error| Problem::new(ErrorCode::Internal, format!("recorded params: {error}")))?;
    let mut case = json!({
        "name": format!("{} of {}, failure {}", failure.number, context.subscription, context.failures),
        "params": params,
        "context": context_value(context)?,
    });
    case["expect"] = expectation(&failure.evaluation.result);
    Ok(case)
}

fn expectation(result: &Result<Answer, Fault>) -> Value {
    let Ok(answer) = result else {
        // How it broke then is no wish; what is wished for, the author says.
        return json!({ "action": "retry" });
    };
    let mut expect = match &answer.action {
        AnswerAction::Retry { delay } => json!({ "action": "retry", "delay": WireDuration(*delay) }),
        AnswerAction::DeadLetter { queue, reason, labels } => {
            let labels: Map<_, _> =
                labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            json!({ "action": "dead_letter", "queue": queue, "reason_contains": reason, "labels": labels })
        }
        AnswerAction::Forward { topic } => json!({ "action": "forward", "topic": topic }),
        AnswerAction::Drop { reason } => json!({ "action": "drop", "reason_contains": reason }),
    };
    expect["pause"] = json!(answer.pause.as_ref().map(|pause| WireDuration(pause.duration)));
    expect
}

fn context_value(context: &Context) -> Result<Value, Problem> {
    let text = |what: &str, bytes: &[u8]| {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| {
            let detail = format!("the {what} of this failure is not text, which a fixture cannot hold");
            Problem::new(ErrorCode::RecordNotFound, detail)
        })
    };
    let message = &context.message;
    let attributes: Map<_, _> =
        message.attributes.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    let mut shown = json!({
        "id": message.id.to_string(),
        "topic": context.topic.as_str(),
        "attributes": attributes,
        "size": message.size,
        "published_at": message.published_at.as_millis(),
    });
    put(&mut shown, "key", message.key.clone());
    put(&mut shown, "content_type", message.content_type.clone());
    put(&mut shown, "expires_at", message.expires_at.map(|at| at.as_millis()));
    put(&mut shown, "payload", message.payload.as_ref().map(|bytes| text("payload", bytes)).transpose()?);
    let mut failure = json!({
        "cause": context.failure.cause.as_str(),
        "class": context.failure.class,
    });
    put(&mut failure, "code", context.failure.code.clone());
    put(&mut failure, "detail", context.failure.detail.clone());
    put(&mut failure, "retry_after", context.failure.retry_after.map(WireDuration));
    let history = context.history.iter().map(|past| {
        let mut item = json!({
            "attempt": past.attempt,
            "at": past.at.as_millis(),
            "cause": past.cause.as_str(),
            "class": past.class,
        });
        put(&mut item, "delay", past.delay.map(WireDuration));
        item
    });
    let load = &context.load;
    Ok(json!({
        "subscription": context.subscription.as_str(),
        "message": shown,
        "failure": failure,
        "attempt": context.attempt,
        "failures": context.failures,
        "releases": context.releases,
        "replays": context.replays,
        "history": history.collect::<Vec<_>>(),
        "first_leased_at": context.first_leased_at.map(|at| at.as_millis()),
        "now": context.now.as_millis(),
        "seed": context.seed,
        "memo": text("memo", &context.memo)?,
        "load": {
            "acked": load.acked,
            "failed": load.failed,
            "dead_lettered": load.dead_lettered,
            "backlog": load.backlog,
            "in_flight": load.in_flight,
            "consecutive_failures": load.consecutive_failures,
        },
    }))
}

/// Optional fields are left out.
fn put<T: Serialize>(object: &mut Value, field: &str, value: Option<T>) {
    if let Some(value) = value {
        object[field] = json!(value);
    }
}
