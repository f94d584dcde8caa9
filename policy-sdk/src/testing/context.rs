//! One context, with a sensible value for all that a test does not say.

use core::time::Duration;

use crate::duration::whole_millis;
use crate::{Cause, Context, Timestamp, bindings};

/// Broker time where a test does not say: 2026-01-01T00:00:00Z.
pub const NOW: u64 = 1_767_225_600_000;

/// The seed where a test does not say.
pub const SEED: u64 = 42;

/// Builds a [`Context`]. By default: the first attempt of a fresh message was nacked without a class,
/// on an idle subscription.
///
/// ```
/// use reprise_policy::{prelude::*, testing::ContextBuilder};
///
/// let cx = ContextBuilder::new().class("timeout").failures(3).params(r#"{"delay":"1s"}"#).build();
/// assert_eq!((cx.attempt(), cx.failures()), (3, 3));
/// assert_eq!(cx.params().duration("delay"), Some(secs(1)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "ends in `build`"]
pub struct ContextBuilder {
    contract: bindings::Context,
    attempt: Option<u32>,
    failures: Option<u32>,
    releases: Option<u32>,
}

impl Default for ContextBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ContextBuilder {
    /// The default context.
    pub fn new() -> Self {
        Self {
            contract: bindings::Context {
                subscription: "billing".into(),
                message: bindings::Message {
                    id: "m-1".into(),
                    topic: "orders".into(),
                    key: None,
                    attributes: Vec::new(),
                    content_type: None,
                    size: 256,
                    published_at: NOW,
                    expires_at: None,
                    payload: None,
                },
                failure: bindings::Failure {
                    cause: bindings::Cause::Nacked,
                    class: String::new(),
                    code: None,
                    detail: None,
                    retry_after: None,
                },
                attempt: 0,
                failures: 0,
                releases: 0,
                replays: 0,
                history: Vec::new(),
                first_leased_at: Some(NOW),
                now: NOW,
                seed: SEED,
                params: "{}".into(),
                memo: Vec::new(),
                load: bindings::Load {
                    acked: 0,
                    failed: 0,
                    dead_lettered: 0,
                    backlog: 0,
                    in_flight: 0,
                    consecutive_failures: 0,
                },
            },
            attempt: None,
            failures: None,
            releases: None,
        }
    }

    /// Why the policy is asked.
    pub fn cause(mut self, cause: Cause) -> Self {
        self.contract.failure.cause = cause.into_contract();
        self
    }

    /// The kind of error.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.contract.failure.class = class.into();
        self
    }

    /// The consumer's error code.
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.contract.failure.code = Some(code.into());
        self
    }

    /// The consumer's error text.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.contract.failure.detail = Some(detail.into());
        self
    }

    /// The consumer's hint of how long to wait.
    pub fn retry_after(mut self, hint: Duration) -> Self {
        self.contract.failure.retry_after = Some(whole_millis(hint));
        self
    }

    /// The attempt's number. Default: failures and releases together.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Attempts that failed, this one included. Default: 1 if the cause is a failure, else 0.
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = Some(failures);
        self
    }

    /// Attempts given back, this one included. Default: 1 if the cause is `Released`, else 0.
    pub fn releases(mut self, releases: u32) -> Self {
        self.releases = Some(releases);
        self
    }

    /// Times it came back from the dead letters.
    pub fn replays(mut self, replays: u32) -> Self {
        self.contract.replays = replays;
        self
    }

    /// Adds an earlier nacked attempt that was answered by this delay.
    pub fn past(self, class: impl Into<String>, delay: Duration) -> Self {
        self.past_cause(Cause::Nacked, class, Some(delay))
    }

    /// Adds an earlier attempt of any cause.
    pub fn past_cause(mut self, cause: Cause, class: impl Into<String>, delay: Option<Duration>) -> Self {
        let attempt = self.contract.history.len() as u32 + 1;
        self.contract.history.push(bindings::PastFailure {
            attempt,
            at: self.contract.now,
            cause: cause.into_contract(),
            class: class.into(),
            delay: delay.map(whole_millis),
        });
        self
    }

    /// The first lease was granted this long ago.
    pub fn first_leased(mut self, ago: Duration) -> Self {
        let at = self.contract.now.saturating_sub(whole_millis(ago));
        self.contract.first_leased_at = Some(at);
        self
    }

    /// No lease was ever granted.
    pub fn never_leased(mut self) -> Self {
        self.contract.first_leased_at = None;
        self
    }

    /// It was published this long ago.
    pub fn published(mut self, ago: Duration) -> Self {
        self.contract.message.published_at = self.contract.now.saturating_sub(whole_millis(ago));
        self
    }

    /// The message expires this long from now.
    pub fn expires_in(mut self, left: Duration) -> Self {
        let at = self.contract.now.saturating_add(whole_millis(left));
        self.contract.message.expires_at = Some(at);
        self
    }

    /// The message expired this long ago, and that is why the policy is asked.
    pub fn expired(mut self, ago: Duration) -> Self {
        let at = self.contract.now.saturating_sub(whole_millis(ago));
        self.contract.message.expires_at = Some(at);
        self.cause(Cause::MessageExpired)
    }

    /// Broker time. Say it before the moments counted from it.
    pub fn now(mut self, now: Timestamp) -> Self {
        self.contract.now = now.as_millis();
        self
    }

    /// The random bits.
    pub fn seed(mut self, seed: u64) -> Self {
        self.contract.seed = seed;
        self
    }

    /// The parameters, as JSON text.
    pub fn params(mut self, json: impl Into<String>) -> Self {
        self.contract.params = json.into();
        self
    }

    /// What the last decision kept.
    pub fn memo(mut self, memo: impl Into<Vec<u8>>) -> Self {
        self.contract.memo = memo.into();
        self
    }

    /// Acks and failures of the last minute.
    pub fn load(mut self, acked: u64, failed: u64) -> Self {
        self.contract.load.acked = acked;
        self.contract.load.failed = failed;
        self
    }

    /// Ready, leased and delayed deliveries, and how many of them are leased.
    pub fn backlog(mut self, backlog: u64, in_flight: u64) -> Self {
        self.contract.load.backlog = backlog;
        self.contract.load.in_flight = in_flight;
        self
    }

    /// Failures since the last ack.
    pub fn consecutive_failures(mut self, failures: u64) -> Self {
        self.contract.load.consecutive_failures = failures;
        self
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.contract.message.attributes.push(bindings::Entry { name: name.into(), value: value.into() });
        self
    }

    /// The payload, and its size.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        self.contract.message.size = payload.len() as u64;
        self.contract.message.payload = Some(payload);
        self
    }

    /// Anything the other methods do not reach, in the contract's own record.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut bindings::Context)) -> Self {
        change(&mut self.contract);
        self
    }

    pub(crate) fn contract(self) -> bindings::Context {
        let cause = self.contract.failure.cause;
        let failed = matches!(
            cause,
            bindings::Cause::Nacked | bindings::Cause::LeaseExpired | bindings::Cause::Disconnected
        );
        let failures = self.failures.unwrap_or(u32::from(failed));
        let releases = self.releases.unwrap_or(u32::from(cause == bindings::Cause::Released));
        bindings::Context {
            attempt: self.attempt.unwrap_or(failures.saturating_add(releases)),
            failures,
            releases,
            ..self.contract
        }
    }

    /// The context.
    #[must_use]
    pub fn build(self) -> Context {
        Context::from_contract(self.contract())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a test does not say follows from what it says.
    #[test]
    fn counters_follow_the_cause() {
        let counters = |builder: ContextBuilder| {
            let cx = builder.build();
            (cx.attempt(), cx.failures(), cx.releases())
        };
        assert_eq!(counters(ContextBuilder::new()), (1, 1, 0));
        assert_eq!(counters(ContextBuilder::new().cause(Cause::Released)), (1, 0, 1));
        assert_eq!(counters(ContextBuilder::new().cause(Cause::MessageExpired)), (0, 0, 0));
        assert_eq!(counters(ContextBuilder::new().failures(3).releases(2)), (5, 3, 2));
        assert_eq!(counters(ContextBuilder::new().failures(3).attempt(9)), (9, 3, 0));
    }
}
