//! A context as the guest sees it, and the hash over exactly that.

use std::time::Duration;

use crate::domain::context::{Context, PastFailure};
use crate::domain::decision::InputHash;
use crate::domain::failure::Cause;
use crate::domain::limits::MAX_CONTEXT_HISTORY;

use super::contract::types;

/// What a context needs beside itself to be lent to a guest: its nested lists in the contract's shape.
pub(super) struct Input<'a> {
    context: &'a Context,
    message_id: String,
    attributes: Vec<types::EntryParam<'a>>,
    history: Vec<types::PastFailure<'a>>,
}

impl<'a> Input<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let attributes = context.message.attributes.iter();
        let skipped = context.history.len().saturating_sub(MAX_CONTEXT_HISTORY);
        Self {
            context,
            message_id: context.message.id.to_string(),
            attributes: attributes.map(|(name, value)| types::EntryParam { name, value }).collect(),
            history: context.history[skipped..].iter().map(past_failure).collect(),
        }
    }

    /// The guest's view. Nothing is copied.
    pub(super) fn lend(&self) -> types::Context<'_> {
        let context = self.context;
        types::Context {
            subscription: context.subscription.as_str(),
            message: self.message(),
            failure: self.failure(),
            attempt: context.attempt,
            failures: context.failures,
            releases: context.releases,
            replays: context.replays,
            history: &self.history,
            first_leased_at: context.first_leased_at.map(|at| at.as_millis()),
            now: context.now.as_millis(),
            seed: context.seed,
            params: &context.params,
            memo: &context.memo,
            load: types::Load {
                acked: context.load.acked,
                failed: context.load.failed,
                dead_lettered: context.load.dead_lettered,
                backlog: context.load.backlog,
                in_flight: context.load.in_flight,
                consecutive_failures: context.load.consecutive_failures,
            },
        }
    }

    fn message(&self) -> types::Message<'_> {
        let message = &self.context.message;
        types::Message {
            id: &self.message_id,
            topic: self.context.topic.as_str(),
            key: message.key.as_deref(),
            attributes: &self.attributes,
            content_type: message.content_type.as_deref(),
            size: message.size,
            published_at: message.published_at.as_millis(),
            expires_at: message.expires_at.map(|at| at.as_millis()),
            payload: message.payload.as_deref(),
        }
    }

    fn failure(&self) -> types::Failure<'_> {
        let failure = &self.context.failure;
        types::Failure {
            cause: cause(failure.cause),
            class: &failure.class,
            code: failure.code.as_deref(),
            detail: failure.detail.as_deref(),
            retry_after: failure.retry_after.map(millis),
        }
    }
}

fn past_failure(past: &PastFailure) -> types::PastFailure<'_> {
    types::PastFailure {
        attempt: past.attempt,
        at: past.at.as_millis(),
        cause: cause(past.cause),
        class: &past.class,
        delay: past.delay.map(millis),
    }
}

const fn cause(cause: Cause) -> types::Cause {
    match cause {
        Cause::Nacked => types::Cause::Nacked,
        Cause::LeaseExpired => types::Cause::LeaseExpired,
        Cause::Disconnected => types::Cause::Disconnected,
        Cause::Released => types::Cause::Released,
        Cause::MessageExpired => types::Cause::MessageExpired,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Named in every encoding, so that another shape of the context can never hash like this one.
const SHAPE: &str = "reprise:policy/policy@0.1.0 context";

/// Hashes a view. The encoding is the fields in the order of the contract: numbers as 8 bytes, little
/// endian; texts, bytes and lists after their length; options after a 0 or 1; a cause as its place in the
/// contract. So two views hash alike exactly if they are equal.
pub(super) fn hash(view: &types::Context<'_>) -> InputHash {
    let mut bytes = Encoding(Vec::with_capacity(TYPICAL_BYTES));
    bytes.text(SHAPE).text(view.subscription);
    message(&mut bytes, &view.message);
    let failure = &view.failure;
    bytes.number(failure.cause as u64).text(failure.class);
    bytes.option(failure.code, Encoding::text).option(failure.detail, Encoding::text);
    bytes.option(failure.retry_after, Encoding::number);
    for count in [view.attempt, view.failures, view.releases, view.replays] {
        bytes.number(count.into());
    }
    bytes.number(view.history.len() as u64);
    for past in view.history {
        bytes.number(past.attempt.into()).number(past.at).number(past.cause as u64).text(past.class);
        bytes.option(past.delay, Encoding::number);
    }
    bytes.option(view.first_leased_at, Encoding::number).number(view.now).number(view.seed);
    bytes.text(view.params).bytes(view.memo);
    let load = &view.load;
    for counter in [load.acked, load.failed, load.dead_lettered, load.backlog, load.in_flight] {
        bytes.number(counter);
    }
    bytes.number(load.consecutive_failures);
    let digest = blake3::hash(&bytes.0);
    let mut half = [0; 16];
    half.copy_from_slice(&digest.as_bytes()[..16]);
    InputHash(half)
}

/// A context without a payload fits; a larger one grows the buffer.
const TYPICAL_BYTES: usize = 2048;

fn message(bytes: &mut Encoding, message: &types::Message<'_>) {
    bytes.text(message.id).text(message.topic).option(message.key, Encoding::text);
    bytes.number(message.attributes.len() as u64);
    for entry in message.attributes {
        bytes.text(entry.name).text(entry.value);
    }
    bytes.option(message.content_type, Encoding::text);
    bytes.number(message.size).number(message.published_at);
    bytes.option(message.expires_at, Encoding::number).option(message.payload, Encoding::bytes);
}

struct Encoding(Vec<u8>);

impl Encoding {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64).0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn option<V>(&mut self, value: Option<V>, put: fn(&mut Self, V) -> &mut Self) -> &mut Self {
        self.0.push(u8::from(value.is_some()));
        match value {
            Some(value) => put(self, value),
            None => self,
        }
    }
}
