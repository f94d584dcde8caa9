//! Everything a policy is shown when it is asked. Each field is explained in the policy contract.

use std::sync::Arc;
use std::time::Duration;

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
    pub message_id: MessageId,
    pub message: Message,
    /// Whether the payload is shown.
    pub inspect_payload: bool,
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
