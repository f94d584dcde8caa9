//! A policy is tried before it is trusted: on one context per cause, an ordinary one, and one of extremes.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::context::{Context, ContextMessage, Load, PastFailure};
use crate::domain::decision::Answer;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{MessageId, TopicId};
use crate::domain::limits::{MAX_CLASS_BYTES, MAX_CONTEXT_HISTORY, MAX_DETAIL_BYTES, MAX_MEMO_BYTES};
use crate::domain::name::Name;
use crate::domain::time::Timestamp;

use super::program::Program;
use super::refusal::Refusal;

/// How a policy did in its trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rehearsal {
    /// The most fuel that one decision burnt.
    pub fuel: u64,
    /// What it answered, for the subscription to check against its bounds.
    pub answers: Vec<Answer>,
}

impl Program {
    /// Tries these params: the policy must accept them and decide every standard context.
    ///
    /// # Errors
    /// [`Refusal::Params`] with the policy's words, or [`Refusal::Fault`].
    pub fn rehearse(&self, params: &str) -> Result<Rehearsal, Refusal> {
        let broke = |call: String| |fault| Refusal::Fault { call, fault };
        self.check(params).map_err(broke("check".to_owned()))?.map_err(Refusal::Params)?;
        let mut rehearsal = Rehearsal { fuel: 0, answers: Vec::new() };
        for (call, context) in standard_contexts(params) {
            let evaluation = self.decide(&context);
            rehearsal.fuel = rehearsal.fuel.max(evaluation.fuel);
            rehearsal.answers.push(evaluation.result.map_err(broke(format!("decide, {call}")))?);
        }
        Ok(rehearsal)
    }
}

/// What every policy is tried on, each with a name: a first failure by each cause, the fourth failure of a
/// busy subscription, and a context in which everything is large. They never change.
pub fn standard_contexts(params: &str) -> Vec<(String, Context)> {
    let params: Arc<str> = params.into();
    let name = Name::new("rehearsal").expect("nine letters are a name");
    let first = |cause: Cause| (format!("first {}", cause.as_str()), first_failure(&name, cause, &params));
    let mut contexts: Vec<_> = Cause::ALL.into_iter().map(first).collect();
    contexts.push(("fourth nacked".to_owned(), fourth_failure(&name, &params)));
    contexts.push(("extremes".to_owned(), extremes(&name, &params)));
    contexts
}

/// An ordinary moment; which one does not matter, but it must not change.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn first_failure(name: &Name, cause: Cause, params: &Arc<str>) -> Context {
    let published_at = Timestamp::from_millis(NOW.as_millis() - 1_000);
    let message = ContextMessage {
        id: MessageId { topic: TopicId(1), sequence: 1 },
        key: None,
        attributes: Vec::new(),
        content_type: None,
        size: 2,
        published_at,
        expires_at: (cause == Cause::MessageExpired).then_some(NOW),
        payload: None,
    };
    Context {
        subscription: name.clone(),
        topic: name.clone(),
        message,
        failure: Failure::of(cause),
        attempt: 1,
        failures: u32::from(cause.is_failure()),
        releases: u32::from(cause == Cause::Released),
        replays: 0,
        history: Vec::new(),
        first_leased_at: Some(published_at),
        now: NOW,
        seed: 0x5EED,
        params: params.clone(),
        memo: Vec::new(),
        load: Load::default(),
    }
}

fn fourth_failure(name: &Name, params: &Arc<str>) -> Context {
    let first = first_failure(name, Cause::Nacked, params);
    let text = |text: &str| Some(text.to_owned());
    let attributes = [
        ("tenant", "acme"),
        ("region", "eu-west-1"),
        ("trace", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("kind", "order.created"),
    ];
    let past = |attempt| PastFailure {
        attempt,
        at: Timestamp::from_millis(NOW.as_millis() - 10_000 + u64::from(attempt) * 1_000),
        cause: Cause::Nacked,
        class: "timeout".to_owned(),
        delay: Some(Duration::from_millis(1_500)),
    };
    Context {
        message: ContextMessage {
            key: text("customer-42"),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            content_type: text("application/json"),
            ..first.message
        },
        failure: Failure {
            class: "timeout".to_owned(),
            code: text("504"),
            detail: text("upstream timed out after 3 seconds"),
            ..first.failure
        },
        attempt: 4,
        failures: 4,
        history: (1..=3).map(past).collect(),
        load: Load { acked: 60_000, failed: 600, backlog: 3_000, in_flight: 200, ..Load::default() },
        ..first
    }
}

fn extremes(name: &Name, params: &Arc<str>) -> Context {
    let first = first_failure(name, Cause::Nacked, params);
    let class = "x".repeat(MAX_CLASS_BYTES);
    let past = PastFailure {
        attempt: u32::MAX - 1,
        at: NOW,
        cause: Cause::LeaseExpired,
        class: class.clone(),
        delay: Some(Duration::MAX),
    };
    let failure = Failure {
        cause: Cause::Nacked,
        class: class.clone(),
        code: Some(class.clone()),
        detail: Some("x".repeat(MAX_DETAIL_BYTES)),
        retry_after: Some(Duration::MAX),
    };
    let message = ContextMessage {
        expires_at: Some(Timestamp::MAX),
        key: Some(class.clone()),
        attributes: vec![(class.clone(), String::new()), (String::new(), class.clone())],
        content_type: Some(class),
        ..first.message
    };
    let max = u64::MAX;
    Context {
        message,
        failure,
        attempt: u32::MAX,
        failures: u32::MAX,
        releases: u32::MAX,
        replays: u32::MAX,
        history: vec![past; MAX_CONTEXT_HISTORY],
        // An unset clock: ages come out as negative where nobody saturates.
        first_leased_at: Some(Timestamp::MAX),
        now: Timestamp::default(),
        seed: max,
        memo: vec![0xFF; MAX_MEMO_BYTES],
        load: Load {
            acked: max,
            failed: max,
            dead_lettered: max,
            backlog: max,
            in_flight: max,
            consecutive_failures: max,
        },
        ..first
    }
}
