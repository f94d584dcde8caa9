//! Everything a policy is shown when it is asked. Each field is explained in the policy contract.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::delivery::Delivery;
use super::failure::{Cause, Failure};
use super::id::MessageId;
use super::message::Message;
use super::name::Name;
use super::time::Timestamp;

/// The input of one decision.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the policy contract documents each field")]
pub struct Context {
    pub subscription: Name,
    pub topic: Name,
    pub message: ContextMessage,
    pub failure: Failure,
    pub attempt: u32,
    pub failures: u32,
    pub releases: u32,
    pub replays: u32,
    pub history: Vec<PastFailure>,
    pub first_leased_at: Option<Timestamp>,
    pub now: Timestamp,
    pub seed: u64,
    pub params: Arc<str>,
    pub memo: Vec<u8>,
    pub load: Load,
}

/// What a context holds beside the delivery itself.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the policy contract documents each field")]
pub struct Surroundings {
    pub subscription: Name,
    pub topic: Name,
    pub message: ContextMessage,
    pub now: Timestamp,
    pub seed: u64,
    pub params: Arc<str>,
    pub load: Load,
}

impl Context {
    /// That of a delivery whose attempt has just ended with this failure.
    pub fn of(delivery: &Delivery, failure: &Failure, around: Surroundings) -> Self {
        let Surroundings { subscription, topic, message, now, seed, params, load } = around;
        Self {
            subscription,
            topic,
            message,
            failure: failure.clone(),
            attempt: delivery.attempt,
            failures: delivery.failures_so_far(),
            releases: delivery.releases_so_far(),
            replays: delivery.replays,
            history: delivery.past_failures(),
            first_leased_at: delivery.first_leased_at,
            now,
            seed,
            params,
            memo: delivery.memo.clone(),
            load,
        }
    }
}

impl Context {
    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let message = &self.message;
        let attributes: usize = message.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        size_of::<Self>() + attributes + message.payload.as_ref().map_or(0, Bytes::len)
    }
}

/// What a policy is shown of the message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the policy contract documents each field")]
pub struct ContextMessage {
    pub id: MessageId,
    pub key: Option<String>,
    pub attributes: Vec<(String, String)>,
    pub content_type: Option<String>,
    pub size: u64,
    pub published_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub payload: Option<Bytes>,
}

impl ContextMessage {
    /// This message, with its payload only where the subscription lets its policy see it.
    pub fn new(id: MessageId, message: &Message, inspect_payload: bool) -> Self {
        Self {
            id,
            key: message.key.clone(),
            attributes: message.attributes.clone(),
            content_type: message.content_type.clone(),
            size: message.payload.len() as u64,
            published_at: message.published_at,
            expires_at: message.expires_at,
            payload: inspect_payload.then(|| message.payload.clone()),
        }
    }
}

/// An attempt that ended earlier.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the policy contract documents each field")]
pub struct PastFailure {
    pub attempt: u32,
    pub at: Timestamp,
    pub cause: Cause,
    pub class: String,
    pub delay: Option<Duration>,
}

/// Counters of the subscription; those of events cover the last minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the policy contract documents each field")]
pub struct Load {
    pub acked: u64,
    pub failed: u64,
    pub dead_lettered: u64,
    pub backlog: u64,
    pub in_flight: u64,
    pub consecutive_failures: u64,
}
