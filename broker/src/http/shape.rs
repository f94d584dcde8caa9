//! Shapes that several answers share: lists, messages, decisions, histories.

use serde::Serialize;

use super::body::Format;
use super::cloudevents::{EventBody, is_json};
use super::wire::{BinaryPayload, JsonOut, WireDuration, WireTime, map};
use crate::domain::decision::{Action, Decider, Decision, Fault};
use crate::domain::delivery::{Delivery, PastAttempt};
use crate::domain::digest::hex;
use crate::domain::id::MessageId;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::engine::Listed;

/// A page of a list.
#[derive(Serialize)]
pub(super) struct ListBody<T> {
    pub(super) items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl<A> ListBody<A> {
    /// Each item as `show` has it. The next page begins behind the last one, named by `key`.
    pub(super) fn new<T>(listed: Listed<T>, key: impl FnOnce(&T) -> String, show: impl Fn(T) -> A) -> Self {
        let next = listed.items.last().filter(|_| listed.more).map(key);
        Self { items: listed.items.into_iter().map(show).collect(), next }
    }
}

/// How payloads are given out.
#[derive(serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(super) enum PayloadAs {
    /// JSON as JSON, everything else as bytes.
    #[default]
    Auto,
    /// Always as bytes: base64 in JSON.
    Base64,
    /// Within the message as an event in structured form.
    CloudEvents,
    /// Not at all: only what is around them.
    None,
}

/// A message as it was asked for.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageBody<'a> {
    Own(OwnBody<'a>),
    Event(EventBody<'a>),
}

#[derive(Serialize)]
pub(super) struct OwnBody<'a> {
    id: String,
    topic: &'a str,
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(serialize_with = "pairs")]
    attributes: &'a [(String, String)],
    published_at: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<JsonOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<BinaryPayload>,
}

fn pairs<S: serde::Serializer>(pairs: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    map(pairs, serializer)
}

pub(super) fn message_body<'a>(
    id: MessageId,
    topic: &'a Name,
    message: &'a Message,
    payload_as: PayloadAs,
    format: Format,
) -> MessageBody<'a> {
    if payload_as == PayloadAs::CloudEvents {
        return MessageBody::Event(EventBody::new(id, topic, message, format));
    }
    let is_json = message.content_type.as_deref().is_some_and(is_json);
    let as_json = is_json && payload_as == PayloadAs::Auto;
    let payload = if as_json { JsonOut::new(&message.payload, format) } else { None };
    let shown = payload_as != PayloadAs::None;
    let payload_base64 = (shown && payload.is_none()).then(|| BinaryPayload(message.payload.clone()));
    MessageBody::Own(OwnBody {
        id: id.to_string(),
        topic: topic.as_str(),
        sequence: id.sequence,
        key: message.key.as_deref(),
        attributes: &message.attributes,
        published_at: WireTime(message.published_at),
        expires_at: message.expires_at.map(WireTime),
        content_type: message.content_type.as_deref(),
        payload,
        payload_base64,
    })
}

#[derive(Serialize)]
pub(super) struct DecisionBody {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<WireDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clamped_from: Option<WireDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "owned_pairs")]
    labels: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Later messages of the same key may pass while this one waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    release_key: bool,
    decided_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fuel: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultBody>,
}

#[derive(Serialize)]
struct PauseBody {
    duration: WireDuration,
    probes: u32,
    reason: String,
}

#[derive(Serialize)]
pub(super) struct FaultBody {
    kind: &'static str,
    detail: String,
}

impl From<&Fault> for FaultBody {
    fn from(fault: &Fault) -> Self {
        Self { kind: fault.kind(), detail: fault.to_string() }
    }
}

#[expect(clippy::ptr_arg, reason = "serde hands over a reference to the field")]
fn owned_pairs<S: serde::Serializer>(
    pairs: &Vec<(String, String)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    map(pairs, serializer)
}

pub(super) fn decision_body(subscription: &str, decision: Decision, next: Option<WireTime>) -> DecisionBody {
    let mut body = DecisionBody {
        action: decision.action.as_str(),
        delay: decision.action.delay().map(WireDuration),
        next_attempt_at: next,
        clamped_from: decision.clamped_from.map(WireDuration),
        queue: None,
        reason: None,
        labels: Vec::new(),
        topic: None,
        pause: decision.pause.map(|pause| PauseBody {
            duration: WireDuration(pause.duration),
            probes: pause.probes,
            reason: pause.reason,
        }),
        note: decision.note,
        release_key: decision.release_key,
        decided_by: "policy",
        revision: None,
        digest: None,
        fuel: None,
        input_hash: None,
        fault: None,
    };
    match decision.action {
        Action::Retry { .. } => {}
        Action::DeadLetter { queue, reason, labels } => {
            body.queue = queue.map(|queue| queue_name(subscription, &queue));
            body.reason = Some(reason);
            body.labels = labels;
        }
        Action::Forward { topic } => body.topic = Some(topic.to_string()),
        Action::Drop { reason } => body.reason = Some(reason),
    }
    match decision.decider {
        Decider::Policy { revision, digest, fuel, input } => {
            // A candidate that is no revision has no number.
            body.revision = (revision > 0).then_some(revision);
            body.digest = Some(digest.to_string());
            body.fuel = Some(fuel);
            body.input_hash = Some(hex(&input.0));
        }
        Decider::Fallback { revision, digest, fault } => {
            body.decided_by = "fallback";
            body.revision = (revision > 0).then_some(revision);
            body.digest = Some(digest.to_string());
            body.fault = Some((&fault).into());
        }
        Decider::AttemptLimit => body.decided_by = "attempt_limit",
    }
    body
}

/// A queue's full name.
pub(super) fn queue_name(subscription: &str, queue: &Name) -> String {
    format!("{subscription}/{queue}")
}

/// Counters and history of a delivery.
#[derive(Serialize)]
pub(super) struct HistoryBody {
    attempts: u32,
    failures: u32,
    releases: u32,
    replays: u32,
    previous_attempts: u32,
    /// What is delivered is not what was published.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    edited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_leased_at: Option<WireTime>,
    history: Vec<AttemptBody>,
}

#[derive(Serialize)]
struct AttemptBody {
    attempt: u32,
    replay: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    leased_at: Option<WireTime>,
    ended_at: WireTime,
    cause: &'static str,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<WireDuration>,
    decision: DecisionBody,
}

pub(super) fn history_body(subscription: &str, delivery: Delivery) -> HistoryBody {
    HistoryBody {
        attempts: delivery.attempt,
        failures: delivery.failures,
        releases: delivery.releases,
        replays: delivery.replays,
        previous_attempts: delivery.previous_attempts,
        edited: delivery.edited,
        first_leased_at: delivery.first_leased_at.map(WireTime),
        history: delivery.history.into_iter().map(|past| attempt_body(subscription, past)).collect(),
    }
}

fn attempt_body(subscription: &str, past: PastAttempt) -> AttemptBody {
    AttemptBody {
        attempt: past.attempt,
        replay: past.replay,
        leased_at: past.leased_at.map(WireTime),
        ended_at: WireTime(past.ended_at),
        cause: past.failure.cause.as_str(),
        class: past.failure.class,
        code: past.failure.code,
        detail: past.failure.detail,
        retry_after: past.failure.retry_after.map(WireDuration),
        decision: decision_body(subscription, past.decision, None),
    }
}
