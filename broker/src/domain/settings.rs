//! What an operator sets on a topic or a subscription, and the bounds of it.

use std::sync::Arc;
use std::time::Duration;

use super::decision::Bounds;
use super::digest::Digest;
use super::filter::Filter;
use super::id::Sequence;
use super::limits as limit;
use super::name::Name;
use super::pattern::TopicPattern;
use super::quota::Quota;
use super::time::Timestamp;

/// Settings of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSettings {
    /// How long a message that no subscription needs any more stays readable, counted from its publish.
    pub keep_acked: Duration,
    /// The largest payload accepted.
    pub max_message_bytes: usize,
    /// The time to live of messages that bring none.
    pub ttl: Option<Duration>,
    /// Messages that are older go, whether they were delivered or not.
    pub max_age: Option<Duration>,
    /// While it keeps more bytes, the oldest messages go, whether they were delivered or not.
    pub retain_bytes: Option<u64>,
    /// How long the ids that publishers give their messages are remembered; zero for not at all.
    pub dedup_window: Duration,
    /// How much it may keep.
    pub quota: Quota,
    /// What its payloads have to follow.
    pub schema: Option<Schema>,
}

/// A JSON Schema as it was written. Who checks payloads says against which one by its digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    text: Arc<str>,
    digest: Digest,
}

impl Schema {
    /// Of this text.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), digest: Digest::of(text.as_bytes()) }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of its text.
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            keep_acked: limit::DEFAULT_KEEP_ACKED,
            max_message_bytes: limit::DEFAULT_MESSAGE_BYTES,
            ttl: None,
            max_age: None,
            retain_bytes: None,
            dedup_window: limit::DEFAULT_DEDUP_WINDOW,
            quota: Quota::default(),
            schema: None,
        }
    }
}

/// How a subscription guarantees delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Leases; at least once.
    #[default]
    Acked,
    /// Settled on delivery: what is handed to a consumer is done with.
    AutoAcked,
    /// To whoever is connected, at most once; nothing is stored.
    Live,
}

impl Mode {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::AutoAcked => "auto_acked",
            Self::Live => "live",
        }
    }

    /// Whether a delivery ends as it is handed out.
    pub const fn settles_on_delivery(self) -> bool {
        !matches!(self, Self::Acked)
    }
}

/// In which order deliveries are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ordering {
    /// As they become available; a failed one holds up nobody.
    #[default]
    None,
    /// Those of one key one after the other, as they were published.
    Key,
}

impl Ordering {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
        }
    }
}

/// Where a subscription begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// At the first message that the topic still holds.
    Earliest,
    /// At the first message published after it.
    #[default]
    Latest,
    /// At this message, or the first after it that the topic still holds.
    Sequence(Sequence),
    /// At the first message published at this moment or later.
    Time(Timestamp),
}

/// What a subscription reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reads {
    /// One topic.
    Topic(Name),
    /// Every topic that the pattern takes, those to come included.
    Topics(TopicPattern),
}

impl Reads {
    /// Whether this topic is among them.
    pub fn takes(&self, topic: &Name) -> bool {
        match self {
            Self::Topic(name) => name == topic,
            Self::Topics(pattern) => pattern.takes(topic),
        }
    }
}

/// Settings of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionSettings {
    /// How it guarantees delivery.
    pub mode: Mode,
    /// Where it began; fixed at its creation.
    pub start: Start,
    /// How long a consumer holds a delivery unless it extends.
    pub lease: Duration,
    /// How long one attempt can hold a delivery in all, extensions included.
    pub max_lease: Duration,
    /// Deliveries under a lease at a time.
    pub max_in_flight: u32,
    /// The shortest retry delay.
    pub min_delay: Duration,
    /// The longest retry delay and pause.
    pub max_delay: Duration,
    /// Attempts after which a delivery is dead-lettered without asking.
    pub attempt_limit: u32,
    /// The first delay after a fault.
    pub fallback_delay: Duration,
    /// Consecutive faults that quarantine a revision.
    pub fault_limit: u32,
    /// Topics that its policy may forward to.
    pub forward_to: Vec<Name>,
    /// Whether its policy is shown payloads.
    pub inspect_payload: bool,
    /// Failures that are kept with what the policy was shown; 0 for none.
    pub record_failures: u32,
    /// How long they are kept.
    pub record_for: Duration,
    /// In which order deliveries are handed out; fixed at its creation.
    pub ordering: Ordering,
    /// Which messages it gets; fixed at its creation.
    pub filter: Option<Filter>,
    /// Every message becomes available so long after it was published.
    pub delivery_delay: Duration,
    /// Deliveries handed out in a second; 0 for as many as there are.
    pub max_rate: u32,
    /// Deliveries that one consumer holds at a time; 0 for no bound of its own.
    pub max_in_flight_per_consumer: u32,
}

impl Default for SubscriptionSettings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            start: Start::default(),
            lease: limit::DEFAULT_LEASE,
            max_lease: limit::DEFAULT_MAX_LEASE,
            max_in_flight: limit::DEFAULT_MAX_IN_FLIGHT,
            min_delay: Duration::ZERO,
            max_delay: limit::DEFAULT_MAX_DELAY,
            attempt_limit: limit::DEFAULT_ATTEMPT_LIMIT,
            fallback_delay: limit::DEFAULT_FALLBACK_DELAY,
            fault_limit: limit::DEFAULT_FAULT_LIMIT,
            forward_to: Vec::new(),
            inspect_payload: false,
            record_failures: limit::DEFAULT_RECORD_FAILURES,
            record_for: limit::DEFAULT_RECORD_FOR,
            ordering: Ordering::default(),
            filter: None,
            delivery_delay: Duration::ZERO,
            max_rate: 0,
            max_in_flight_per_consumer: 0,
        }
    }
}

/// A setting out of its bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidSetting {
    /// Which one.
    pub field: &'static str,
    /// What it has to be.
    pub reason: String,
}

impl TopicSettings {
    /// Whether every setting is within its bounds.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        between("keep_acked", self.keep_acked, Duration::ZERO, limit::MAX_DELAY)?;
        let least = Duration::from_millis(1);
        for (field, value) in [("ttl", self.ttl), ("max_age", self.max_age)] {
            value.map_or(Ok(()), |value| between(field, value, least, limit::MAX_DELAY))?;
        }
        number("max_message_bytes", self.max_message_bytes as u64, limit::MAX_MESSAGE_BYTES as u64)?;
        between("dedup_window", self.dedup_window, Duration::ZERO, limit::MAX_DEDUP_WINDOW)?;
        number("retain_bytes", self.retain_bytes.unwrap_or(1), u64::MAX)?;
        self.quota.validate()?;
        if self.schema.as_ref().is_some_and(|schema| schema.text().len() > limit::MAX_SCHEMA_BYTES) {
            return invalid("schema", format!("at most {} bytes", limit::MAX_SCHEMA_BYTES));
        }
        Ok(())
    }
}

impl Quota {
    /// Whether its bounds leave room for anything.
    ///
    /// # Errors
    /// The first one that does not.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        number("max_messages", self.max_messages.unwrap_or(1), u64::MAX)?;
        number("max_bytes", self.max_bytes.unwrap_or(1), u64::MAX)
    }
}

impl SubscriptionSettings {
    /// Whether every setting is within its bounds and they fit each other and what it reads.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn validate(&self, reads: &Reads) -> Result<(), InvalidSetting> {
        between("max_lease", self.max_lease, limit::MIN_LEASE, limit::MAX_LEASE)?;
        between("lease", self.lease, limit::MIN_LEASE, self.max_lease)?;
        number("max_in_flight", self.max_in_flight.into(), limit::MAX_IN_FLIGHT.into())?;
        between("max_delay", self.max_delay, Duration::from_millis(1), limit::MAX_DELAY)?;
        between("min_delay", self.min_delay, Duration::ZERO, self.max_delay)?;
        number("attempt_limit", self.attempt_limit.into(), limit::MAX_ATTEMPT_LIMIT.into())?;
        between("fallback_delay", self.fallback_delay, limit::MIN_FALLBACK_DELAY, limit::MAX_DELAY)?;
        number("fault_limit", self.fault_limit.into(), limit::MAX_FAULT_LIMIT.into())?;
        if self.record_failures > limit::MAX_RECORD_FAILURES {
            return invalid("record_failures", format!("must be from 0 to {}", limit::MAX_RECORD_FAILURES));
        }
        between("record_for", self.record_for, Duration::from_secs(1), limit::MAX_DELAY)?;
        between("delivery_delay", self.delivery_delay, Duration::ZERO, limit::MAX_DELAY)?;
        if self.max_rate > limit::MAX_DELIVERY_RATE {
            return invalid("max_rate", format!("must be from 0 to {}", limit::MAX_DELIVERY_RATE));
        }
        if self.ordering == Ordering::Key && self.mode != Mode::Acked {
            return invalid("ordering", "by key needs mode acked: only there a delivery can fail".to_owned());
        }
        if self.mode == Mode::Live && self.delivery_delay > Duration::ZERO {
            return invalid("delivery_delay", "nothing is kept for later in mode live".to_owned());
        }
        if self.forward_to.len() > limit::MAX_FORWARD_TO {
            return invalid("forward_to", format!("at most {} topics", limit::MAX_FORWARD_TO));
        }
        if self.forward_to.iter().any(|topic| reads.takes(topic)) {
            return invalid("forward_to", "must not name a topic that the subscription reads".to_owned());
        }
        if matches!((reads, self.start), (Reads::Topics(_), Start::Sequence(_))) {
            return invalid("start", "a sequence is of one topic, and there are many".to_owned());
        }
        Ok(())
    }

    /// What a decision of its policy may be.
    pub fn bounds(&self) -> Bounds {
        Bounds { min_delay: self.min_delay, max_delay: self.max_delay, forward_to: self.forward_to.clone() }
    }
}

fn between(
    field: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), InvalidSetting> {
    if value < least || value > most {
        let (least, most) = (humantime::format_duration(least), humantime::format_duration(most));
        return invalid(field, format!("must be from {least} to {most}"));
    }
    Ok(())
}

fn number(field: &'static str, value: u64, most: u64) -> Result<(), InvalidSetting> {
    if value == 0 || value > most {
        return invalid(field, format!("must be from 1 to {most}"));
    }
    Ok(())
}

fn invalid(field: &'static str, reason: String) -> Result<(), InvalidSetting> {
    Err(InvalidSetting { field, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_every_bound_holds() {
        let topic = Reads::Topic(Name::new("orders").expect("a name"));
        let good = SubscriptionSettings::default();
        assert_eq!(good.validate(&topic), Ok(()));
        assert_eq!(TopicSettings::default().validate(), Ok(()));
        type Breaks = fn(&mut SubscriptionSettings);
        let breaks: [(&str, Breaks); 18] = [
            ("lease", |s| s.lease = Duration::ZERO),
            ("lease", |s| s.lease = s.max_lease + Duration::from_secs(1)),
            ("max_lease", |s| s.max_lease = Duration::MAX),
            ("max_in_flight", |s| s.max_in_flight = 0),
            ("max_in_flight", |s| s.max_in_flight = u32::MAX),
            ("max_delay", |s| s.max_delay = Duration::MAX),
            ("min_delay", |s| s.min_delay = s.max_delay + Duration::from_secs(1)),
            ("attempt_limit", |s| s.attempt_limit = 0),
            ("fallback_delay", |s| s.fallback_delay = Duration::ZERO),
            ("fault_limit", |s| s.fault_limit = 0),
            ("record_failures", |s| s.record_failures = u32::MAX),
            ("record_for", |s| s.record_for = Duration::ZERO),
            ("delivery_delay", |s| s.delivery_delay = Duration::MAX),
            ("max_rate", |s| s.max_rate = u32::MAX),
            ("ordering", |s| (s.ordering, s.mode) = (Ordering::Key, Mode::AutoAcked)),
            ("delivery_delay", |s| (s.delivery_delay, s.mode) = (Duration::from_secs(1), Mode::Live)),
            ("forward_to", |s| s.forward_to = vec![Name::new("orders").expect("a name")]),
            ("forward_to", |s| {
                s.forward_to = vec![Name::new("x").expect("a name"); limit::MAX_FORWARD_TO + 1]
            }),
        ];
        for (field, break_it) in breaks {
            let mut settings = good.clone();
            break_it(&mut settings);
            assert_eq!(settings.validate(&topic).map_err(|e| e.field), Err(field));
        }
        let topics = Reads::Topics(TopicPattern::parse("orders.>").expect("a pattern"));
        assert_eq!(good.validate(&topics), Ok(()));
        let start = SubscriptionSettings { start: Start::Sequence(1), ..good.clone() };
        assert_eq!(start.validate(&topics).map_err(|e| e.field), Err("start"));
        let loops = vec![Name::new("orders.eu").expect("a name")];
        let forward = SubscriptionSettings { forward_to: loops, ..good };
        assert_eq!(forward.validate(&topics).map_err(|e| e.field), Err("forward_to"));
    }
}
