//! What a policy sees: the delivery, the failure, and the world as data.
//!
//! The types here are views of the contract's records with durations and instants typed; reading
//! one copies nothing. They do not know where the data comes from.

use core::time::Duration;

use crate::{Params, Random, Timestamp, bindings};

/// Why the policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The consumer said that it failed.
    Nacked,
    /// The lease ran out without an answer.
    LeaseExpired,
    /// A streaming consumer vanished while it held the lease.
    Disconnected,
    /// The consumer gave the delivery back without fault.
    Released,
    /// The message's time to live passed before it was acked.
    MessageExpired,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 5] =
        [Cause::Nacked, Cause::LeaseExpired, Cause::Disconnected, Cause::Released, Cause::MessageExpired];

    /// Whether it counts as a failure: true for all but `Released` and `MessageExpired`.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Nacked | Self::LeaseExpired | Self::Disconnected)
    }

    /// Its name on the wire, such as `lease_expired`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nacked => "nacked",
            Self::LeaseExpired => "lease_expired",
            Self::Disconnected => "disconnected",
            Self::Released => "released",
            Self::MessageExpired => "message_expired",
        }
    }

    fn from_contract(cause: bindings::Cause) -> Self {
        match cause {
            bindings::Cause::Nacked => Self::Nacked,
            bindings::Cause::LeaseExpired => Self::LeaseExpired,
            bindings::Cause::Disconnected => Self::Disconnected,
            bindings::Cause::Released => Self::Released,
            bindings::Cause::MessageExpired => Self::MessageExpired,
        }
    }

    #[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
    pub(crate) fn into_contract(self) -> bindings::Cause {
        match self {
            Self::Nacked => bindings::Cause::Nacked,
            Self::LeaseExpired => bindings::Cause::LeaseExpired,
            Self::Disconnected => bindings::Cause::Disconnected,
            Self::Released => bindings::Cause::Released,
            Self::MessageExpired => bindings::Cause::MessageExpired,
        }
    }
}

/// Everything known when a decision is due.
#[derive(Clone, Debug)]
pub struct Context {
    contract: bindings::Context,
}

impl Context {
    pub(crate) fn from_contract(contract: bindings::Context) -> Self {
        Self { contract }
    }

    /// The subscription's name.
    #[must_use]
    pub fn subscription(&self) -> &str {
        &self.contract.subscription
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        Message(&self.contract.message)
    }

    /// Why this attempt ended badly.
    #[must_use]
    pub fn failure(&self) -> Failure<'_> {
        Failure(&self.contract.failure)
    }

    /// Leases granted so far, from 1; 0 when the message expired before its first lease.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.contract.attempt
    }

    /// Attempts that failed, this one included; a released one has not. What limits and backoffs go
    /// by.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.contract.failures
    }

    /// Attempts that were given back without fault, this one included.
    #[must_use]
    pub fn releases(&self) -> u32 {
        self.contract.releases
    }

    /// Times this delivery came back from the dead letters.
    #[must_use]
    pub fn replays(&self) -> u32 {
        self.contract.replays
    }

    /// Earlier attempts that ended badly, oldest first, at most the last 16. This one is not among
    /// them.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = PastFailure<'_>> + ExactSizeIterator {
        self.contract.history.iter().map(PastFailure)
    }

    /// When the first lease was granted; none if there was none.
    #[must_use]
    pub fn first_leased_at(&self) -> Option<Timestamp> {
        self.contract.first_leased_at.map(Timestamp::from_millis)
    }

    /// Broker time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.contract.now)
    }

    /// Time since the first lease was granted; zero if there was none.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.first_leased_at().map_or(Duration::ZERO, |first| self.now().since(first))
    }

    /// Time until the message expires: zero once it has, none if it never does.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let expires = self.message().expires_at()?;
        Some(expires.since(self.now()))
    }

    /// 64 random bits, drawn once per attempt and recorded.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.contract.seed
    }

    /// A stream of random numbers from the seed. Each call starts the same stream again.
    #[must_use]
    pub fn random(&self) -> Random {
        Random::new(self.contract.seed)
    }

    /// The parameters of this revision.
    #[must_use]
    pub fn params(&self) -> Params<'_> {
        Params::trusted(&self.contract.params)
    }

    /// What the last decision on this delivery asked to keep; empty at first.
    #[must_use]
    pub fn memo(&self) -> &[u8] {
        &self.contract.memo
    }

    /// How the subscription fares.
    #[must_use]
    pub fn load(&self) -> Load<'_> {
        Load(&self.contract.load)
    }
}

/// The message of the delivery.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(&'a bindings::Message);

impl<'a> Message<'a> {
    /// Its id, unchanged for life.
    #[must_use]
    pub fn id(self) -> &'a str {
        &self.0.id
    }

    /// The topic it was published to.
    #[must_use]
    pub fn topic(self) -> &'a str {
        &self.0.topic
    }

    /// Its key.
    #[must_use]
    pub fn key(self) -> Option<&'a str> {
        self.0.key.as_deref()
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(self, name: &str) -> Option<&'a str> {
        self.attributes().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Every attribute with its value.
    pub fn attributes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.attributes.iter().map(|entry| (entry.name.as_str(), entry.value.as_str()))
    }

    /// The media type of the payload.
    #[must_use]
    pub fn content_type(self) -> Option<&'a str> {
        self.0.content_type.as_deref()
    }

    /// Payload size in bytes.
    #[must_use]
    pub fn size(self) -> u64 {
        self.0.size
    }

    /// When it was published.
    #[must_use]
    pub fn published_at(self) -> Timestamp {
        Timestamp::from_millis(self.0.published_at)
    }

    /// When its time to live ends; none if it has none.
    #[must_use]
    pub fn expires_at(self) -> Option<Timestamp> {
        self.0.expires_at.map(Timestamp::from_millis)
    }

    /// The payload, where the subscription sets `inspect_payload`.
    #[must_use]
    pub fn payload(self) -> Option<&'a [u8]> {
        self.0.payload.as_deref()
    }
}

/// What can be asked of a failure, be it this one or an earlier one.
macro_rules! failure {
    ($name:ident) => {
        impl<'a> $name<'a> {
            /// What happened.
            #[must_use]
            pub fn cause(self) -> Cause {
                Cause::from_contract(self.0.cause)
            }

            /// The kind of error in the consumer's words; empty when it gave none.
            #[must_use]
            pub fn class(self) -> &'a str {
                &self.0.class
            }

            /// Whether the class is this one, or starts like it where the pattern ends in `*`:
            /// `is("timeout")`, `is("http_5*")`.
            #[must_use]
            pub fn is(self, pattern: &str) -> bool {
                match pattern.strip_suffix('*') {
                    Some(prefix) => self.class().starts_with(prefix),
                    None => self.class() == pattern,
                }
            }
        }
    };
}

failure!(Failure);
failure!(PastFailure);

/// Why an attempt ended badly.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a>(&'a bindings::Failure);

impl<'a> Failure<'a> {
    /// Whether [`is`](Self::is) holds for any of the patterns.
    #[must_use]
    pub fn is_any(self, patterns: &[&str]) -> bool {
        patterns.iter().any(|pattern| self.is(pattern))
    }

    /// The consumer's error code, such as an HTTP status.
    #[must_use]
    pub fn code(self) -> Option<&'a str> {
        self.0.code.as_deref()
    }

    /// The consumer's error text.
    #[must_use]
    pub fn detail(self) -> Option<&'a str> {
        self.0.detail.as_deref()
    }

    /// The consumer's hint of how long to wait.
    #[must_use]
    pub fn retry_after(self) -> Option<Duration> {
        self.0.retry_after.map(Duration::from_millis)
    }
}

/// An attempt that ended badly earlier.
#[derive(Clone, Copy, Debug)]
pub struct PastFailure<'a>(&'a bindings::PastFailure);

impl<'a> PastFailure<'a> {
    /// Its number.
    #[must_use]
    pub fn attempt(self) -> u32 {
        self.0.attempt
    }

    /// When it ended.
    #[must_use]
    pub fn at(self) -> Timestamp {
        Timestamp::from_millis(self.0.at)
    }

    /// The delay that was decided then; none if the answer was not a retry.
    #[must_use]
    pub fn delay(self) -> Option<Duration> {
        self.0.delay.map(Duration::from_millis)
    }
}

/// Counters of the subscription. Those of events cover the last minute.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a>(&'a bindings::Load);

impl Load<'_> {
    /// Acks in the last minute.
    #[must_use]
    pub fn acked(self) -> u64 {
        self.0.acked
    }

    /// Failures in the last minute.
    #[must_use]
    pub fn failed(self) -> u64 {
        self.0.failed
    }

    /// Dead letters in the last minute.
    #[must_use]
    pub fn dead_lettered(self) -> u64 {
        self.0.dead_lettered
    }

    /// Ready, leased and delayed deliveries.
    #[must_use]
    pub fn backlog(self) -> u64 {
        self.0.backlog
    }

    /// Leased deliveries.
    #[must_use]
    pub fn in_flight(self) -> u64 {
        self.0.in_flight
    }

    /// Failures since the last ack, over all deliveries.
    #[must_use]
    pub fn consecutive_failures(self) -> u64 {
        self.0.consecutive_failures
    }

    /// Attempts that ended in the last minute, well or badly.
    #[must_use]
    pub fn ended(self) -> u64 {
        self.acked().saturating_add(self.failed())
    }

    /// The share of attempts that failed in the last minute, from 0 to 1; 0 when none ended.
    /// Look at [`ended`](Self::ended) too: one failure of one attempt is a ratio of 1.
    #[must_use]
    pub fn failure_ratio(self) -> f64 {
        match self.ended() {
            0 => 0.0,
            ended => self.failed() as f64 / ended as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::secs;
    use crate::testing::ContextBuilder;

    /// Classes match exactly, or by prefix before a star.
    #[test]
    fn classes_match_exactly_or_by_prefix() {
        let cx = ContextBuilder::new().class("http_503").build();
        assert!(cx.failure().is("http_503") && cx.failure().is("http_5*") && cx.failure().is("*"));
        assert!(!cx.failure().is("http_5") && !cx.failure().is("HTTP_503"));
        assert!(cx.failure().is_any(&["timeout", "http_*"]));
        assert!(!cx.failure().is_any(&[]));
    }

    /// Spans of time never go below zero, and none means none.
    #[test]
    fn spans_stop_at_zero() {
        let cx = ContextBuilder::new().first_leased(secs(90)).expires_in(secs(10)).build();
        assert_eq!(cx.elapsed(), secs(90));
        assert_eq!(cx.time_left(), Some(secs(10)));
        let cx = ContextBuilder::new().expired(secs(10)).build();
        assert_eq!(cx.time_left(), Some(Duration::ZERO));
        assert_eq!(ContextBuilder::new().build().time_left(), None);
    }

    /// The ratio is a number even where nothing ended or the counters are absurd.
    #[test]
    fn failure_ratio_is_always_a_ratio() {
        let ratio = |acked, failed| {
            let cx = ContextBuilder::new().load(acked, failed).build();
            cx.load().failure_ratio()
        };
        assert_eq!(ratio(0, 0), 0.0);
        assert_eq!(ratio(3, 1), 0.25);
        assert_eq!(ratio(0, 1), 1.0);
        assert!((0.0..=1.0).contains(&ratio(u64::MAX, u64::MAX)));
    }
}
