//! Rows of `topics`, `heads`, `subscriptions`, `cursors`, `backlogs` and `revisions`.

use super::delivery::name;
use super::{Damaged, Reader, Row, Writer};
use crate::domain::circuit::Circuit;
use crate::domain::digest::Digest;
use crate::domain::filter::Filter;
use crate::domain::id::{BacklogId, Sequence};
use crate::domain::name::Name;
use crate::domain::pattern::TopicPattern;
use crate::domain::quota::{Quota, Usage};
use crate::domain::settings::{Mode, Ordering, Schema, Start, SubscriptionSettings, TopicSettings};
use crate::domain::time::Timestamp;

/// A topic as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicRow {
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its settings.
    pub settings: TopicSettings,
}

/// How far a topic has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadRow {
    /// The sequence of the next message.
    pub next: Sequence,
    /// Every message below it is gone.
    pub first: Sequence,
    /// What the messages from `first` on count for in a quota.
    pub bytes: u64,
    /// Messages in the outbox on their way here.
    pub incoming: u64,
}

impl HeadRow {
    /// That of a topic without messages.
    pub const fn empty() -> Self {
        Self { next: 1, first: 1, bytes: 0, incoming: 0 }
    }

    /// What it keeps: messages go from the front alone, so that none is missing between.
    pub const fn usage(&self) -> Usage {
        Usage { messages: self.next - self.first, bytes: self.bytes }
    }
}

/// A subscription as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionRow {
    /// Its name.
    pub name: Name,
    /// The topics that it reads; `None` for the one that it has a backlog of.
    pub pattern: Option<TopicPattern>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its settings.
    pub settings: SubscriptionSettings,
    /// The parameters of the standard policy, as JSON text.
    pub retry: String,
    /// The revision that decides.
    pub active_revision: u32,
    /// A policy that is asked beside it, and whose answers are only counted.
    pub shadow: Option<RevisionRow>,
    /// An operator stopped its deliveries.
    pub paused: Option<Paused>,
}

/// Deliveries stopped by an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paused {
    /// Since when.
    pub at: Timestamp,
    /// Why, for people.
    pub reason: String,
    /// Who did it: the token's name.
    pub by: String,
}

/// What a subscription did so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CursorRow {
    /// Whether its deliveries flow.
    pub circuit: Circuit,
    /// The number of the next recorded failure.
    pub recorded: u64,
    /// Every recorded failure below it is gone.
    pub recorded_from: u64,
    /// Answers of the active revision.
    pub decisions: u64,
    /// How often it broke instead.
    pub faults: u64,
}

impl CursorRow {
    /// That of a subscription which has done nothing yet.
    pub const fn new() -> Self {
        Self { circuit: Circuit::Closed, recorded: 1, recorded_from: 1, decisions: 0, faults: 0 }
    }
}

impl Default for CursorRow {
    fn default() -> Self {
        Self::new()
    }
}

/// How far a subscription has come on one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BacklogRow {
    /// Where the rows of its deliveries are.
    pub id: BacklogId,
    /// The first message that it gets.
    pub first: Sequence,
    /// The lowest sequence it never leased.
    pub next: Sequence,
    /// Rows in `delayed` that wait for another attempt.
    pub delayed: u64,
    /// Messages at or above `next` with a row in `leased`, `delayed` or `settled`, each in one of them: what the cursor
    /// has to look out for.
    pub ahead: u64,
    /// Rows in `dead_letters`.
    pub dead: u64,
}

impl BacklogRow {
    /// That of a backlog which begins at `first` and has not moved yet.
    pub const fn at(id: BacklogId, first: Sequence) -> Self {
        Self { id, first, next: first, delayed: 0, ahead: 0, dead: 0 }
    }
}

/// One revision of a subscription's policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionRow {
    /// The module.
    pub digest: Digest,
    /// Its parameters, as JSON text.
    pub params: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// What the policy says of itself.
    pub name: String,
    /// What the policy says of itself.
    pub version: String,
    /// Size of the module in bytes; 0 for the built-in one.
    pub size: u64,
    /// The most fuel that a trial decision burnt.
    pub trial_fuel: u64,
    /// Who made it: the token's name.
    pub created_by: String,
    /// Answers it gave, up to when another revision last took over.
    pub decisions: u64,
    /// How often it broke instead.
    pub faults: u64,
    /// When it was taken out of service after too many faults, and the last of them.
    pub quarantined: Option<(Timestamp, String)>,
}

impl Row for TopicRow {
    fn write(&self, out: &mut Writer) {
        out.text(self.name.as_str());
        out.time(self.created_at);
        out.duration(self.settings.keep_acked);
        out.u64(self.settings.max_message_bytes as u64);
        out.option(self.settings.ttl, Writer::duration);
        out.option(self.settings.max_age, Writer::duration);
        out.option(self.settings.retain_bytes, Writer::u64);
        out.duration(self.settings.dedup_window);
        self.settings.quota.write(out);
        out.option(self.settings.schema.as_ref(), |out, schema| out.text(schema.text()));
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            name: name(from)?,
            created_at: from.time()?,
            settings: TopicSettings {
                keep_acked: from.duration()?,
                max_message_bytes: usize::try_from(from.u64()?).map_err(|_| Damaged)?,
                ttl: from.option(Reader::duration)?,
                max_age: from.option(Reader::duration)?,
                retain_bytes: from.option(Reader::u64)?,
                dedup_window: from.duration()?,
                quota: Quota::read(from)?,
                schema: from.option(|from| Ok(Schema::new(&from.text()?)))?,
            },
        })
    }
}

impl Row for Quota {
    fn write(&self, out: &mut Writer) {
        out.option(self.max_messages, Writer::u64);
        out.option(self.max_bytes, Writer::u64);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self { max_messages: from.option(Reader::u64)?, max_bytes: from.option(Reader::u64)? })
    }
}

impl Row for HeadRow {
    fn write(&self, out: &mut Writer) {
        out.u64(self.next);
        out.u64(self.first);
        out.u64(self.bytes);
        out.u64(self.incoming);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let (next, first) = (from.u64()?, from.u64()?);
        if first > next {
            return Err(Damaged);
        }
        Ok(Self { next, first, bytes: from.u64()?, incoming: from.u64()? })
    }
}

impl Row for SubscriptionRow {
    fn write(&self, out: &mut Writer) {
        out.text(self.name.as_str());
        out.option(self.pattern.as_ref(), |out, pattern| out.text(pattern.as_str()));
        out.time(self.created_at);
        self.settings.write(out);
        out.text(&self.retry);
        out.u32(self.active_revision);
        out.option(self.shadow.as_ref(), |out, shadow| shadow.write(out));
        out.option(self.paused.as_ref(), |out, paused| {
            out.time(paused.at);
            out.text(&paused.reason);
            out.text(&paused.by);
        });
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            name: name(from)?,
            pattern: from
                .option(Reader::text)?
                .map(|text| TopicPattern::parse(&text))
                .transpose()
                .map_err(|_| Damaged)?,
            created_at: from.time()?,
            settings: SubscriptionSettings::read(from)?,
            retry: from.text()?,
            active_revision: from.u32()?,
            shadow: from.option(RevisionRow::read)?,
            paused: from
                .option(|from| Ok(Paused { at: from.time()?, reason: from.text()?, by: from.text()? }))?,
        })
    }
}

impl Row for SubscriptionSettings {
    fn write(&self, out: &mut Writer) {
        out.u8(match self.mode {
            Mode::Acked => 0,
            Mode::AutoAcked => 1,
            Mode::Live => 2,
        });
        match self.start {
            Start::Earliest => out.u8(0),
            Start::Latest => out.u8(1),
            Start::Sequence(sequence) => {
                out.u8(2);
                out.u64(sequence);
            }
            Start::Time(at) => {
                out.u8(3);
                out.time(at);
            }
        }
        out.duration(self.lease);
        out.duration(self.max_lease);
        out.u32(self.max_in_flight);
        out.duration(self.min_delay);
        out.duration(self.max_delay);
        out.u32(self.attempt_limit);
        out.duration(self.fallback_delay);
        out.u32(self.fault_limit);
        out.list(&self.forward_to, |out, topic| out.text(topic.as_str()));
        out.flag(self.inspect_payload);
        out.u32(self.record_failures);
        out.duration(self.record_for);
        out.u8(match self.ordering {
            Ordering::None => 0,
            Ordering::Key => 1,
        });
        out.option(self.filter.as_ref(), |out, filter| out.text(filter.as_str()));
        out.duration(self.delivery_delay);
        out.u32(self.max_rate);
        out.u32(self.max_in_flight_per_consumer);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            mode: match from.u8()? {
                0 => Mode::Acked,
                1 => Mode::AutoAcked,
                2 => Mode::Live,
                _ => return Err(Damaged),
            },
            start: match from.u8()? {
                0 => Start::Earliest,
                1 => Start::Latest,
                2 => Start::Sequence(from.u64()?),
                3 => Start::Time(from.time()?),
                _ => return Err(Damaged),
            },
            lease: from.duration()?,
            max_lease: from.duration()?,
            max_in_flight: from.u32()?,
            min_delay: from.duration()?,
            max_delay: from.duration()?,
            attempt_limit: from.u32()?,
            fallback_delay: from.duration()?,
            fault_limit: from.u32()?,
            forward_to: from.list(name)?,
            inspect_payload: from.flag()?,
            record_failures: from.u32()?,
            record_for: from.duration()?,
            ordering: match from.u8()? {
                0 => Ordering::None,
                1 => Ordering::Key,
                _ => return Err(Damaged),
            },
            filter: from
                .option(Reader::text)?
                .map(|text| Filter::parse(&text))
                .transpose()
                .map_err(|_| Damaged)?,
            delivery_delay: from.duration()?,
            max_rate: from.u32()?,
            max_in_flight_per_consumer: from.u32()?,
        })
    }
}

impl Row for CursorRow {
    fn write(&self, out: &mut Writer) {
        match &self.circuit {
            Circuit::Closed => out.u8(0),
            Circuit::Open { until, probes, reason } => {
                out.u8(1);
                out.time(*until);
                out.u32(*probes);
                out.text(reason);
            }
            Circuit::HalfOpen { since, probes, reason } => {
                out.u8(2);
                out.time(*since);
                out.u32(*probes);
                out.text(reason);
            }
        }
        for count in [self.recorded, self.recorded_from, self.decisions, self.faults] {
            out.u64(count);
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            circuit: match from.u8()? {
                0 => Circuit::Closed,
                1 => Circuit::Open { until: from.time()?, probes: from.u32()?, reason: from.text()? },
                2 => Circuit::HalfOpen { since: from.time()?, probes: from.u32()?, reason: from.text()? },
                _ => return Err(Damaged),
            },
            recorded: from.u64()?,
            recorded_from: from.u64()?,
            decisions: from.u64()?,
            faults: from.u64()?,
        })
    }
}

impl Row for BacklogRow {
    fn write(&self, out: &mut Writer) {
        out.u32(self.id.0);
        for count in [self.first, self.next, self.delayed, self.ahead, self.dead] {
            out.u64(count);
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            id: BacklogId(from.u32()?),
            first: from.u64()?,
            next: from.u64()?,
            delayed: from.u64()?,
            ahead: from.u64()?,
            dead: from.u64()?,
        })
    }
}

impl Row for RevisionRow {
    fn write(&self, out: &mut Writer) {
        out.bytes.extend_from_slice(&self.digest.0);
        out.text(&self.params);
        out.time(self.created_at);
        out.text(&self.name);
        out.text(&self.version);
        out.u64(self.size);
        out.u64(self.trial_fuel);
        out.text(&self.created_by);
        out.u64(self.decisions);
        out.u64(self.faults);
        out.option(self.quarantined.as_ref(), |out, (at, fault)| {
            out.time(*at);
            out.text(fault);
        });
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            digest: Digest(from.array()?),
            params: from.text()?,
            created_at: from.time()?,
            name: from.text()?,
            version: from.text()?,
            size: from.u64()?,
            trial_fuel: from.u64()?,
            created_by: from.text()?,
            decisions: from.u64()?,
            faults: from.u64()?,
            quarantined: from.option(|from| Ok((from.time()?, from.text()?)))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn reads_back<R: Row + PartialEq + Debug>(row: &R) {
        assert_eq!(&R::decode(row.encode()).expect("a row"), row);
    }

    #[test]
    fn configuration_reads_back() {
        let name = Name::new("orders").expect("a name");
        let at = Timestamp::from_millis(1);
        reads_back(&TopicRow { name: name.clone(), created_at: at, settings: TopicSettings::default() });
        let second = Some(std::time::Duration::from_secs(1));
        let quota = Quota { max_messages: Some(1), max_bytes: Some(u64::MAX) };
        let schema = Some(Schema::new("{}"));
        let settings = TopicSettings {
            ttl: second,
            max_age: second,
            retain_bytes: Some(7),
            quota,
            schema,
            ..TopicSettings::default()
        };
        reads_back(&TopicRow { name: name.clone(), created_at: at, settings });
        reads_back(&HeadRow { next: u64::MAX, first: 1, bytes: 2, incoming: 3 });
        reads_back(&HeadRow::empty());
        assert!(HeadRow::decode(HeadRow { first: 2, ..HeadRow::empty() }.encode()).is_err());
        let revision = RevisionRow {
            digest: Digest([3; 32]),
            params: "{}".to_owned(),
            created_at: at,
            name: "standard".to_owned(),
            version: "0.1.0".to_owned(),
            size: 7,
            trial_fuel: 4_000,
            created_by: "operator".to_owned(),
            decisions: 5,
            faults: 6,
            quarantined: Some((at, "trap".to_owned())),
        };
        reads_back(&revision);
        let row = SubscriptionRow {
            name: name.clone(),
            pattern: None,
            created_at: at,
            settings: SubscriptionSettings { forward_to: vec![name], ..SubscriptionSettings::default() },
            retry: "{}".to_owned(),
            active_revision: 1,
            shadow: Some(revision),
            paused: Some(Paused { at, reason: "deploy".to_owned(), by: "operator".to_owned() }),
        };
        reads_back(&row);
        let pattern = Some(TopicPattern::parse("orders.*").expect("a pattern"));
        reads_back(&SubscriptionRow { pattern, ..row.clone() });
        let filter = Filter::parse("tenant = acme").expect("a filter");
        let starts = [Start::Earliest, Start::Latest, Start::Sequence(7), Start::Time(at)];
        let modes = [Mode::Acked, Mode::AutoAcked, Mode::Live, Mode::Acked];
        for (start, mode) in starts.into_iter().zip(modes) {
            let (ordering, filter) = (Ordering::Key, Some(filter.clone()));
            let settings = SubscriptionSettings { start, mode, ordering, filter, ..row.settings.clone() };
            reads_back(&SubscriptionRow { settings, paused: None, ..row.clone() });
        }
    }

    #[test]
    fn cursors_read_back_with_each_circuit() {
        let reason = || "429".to_owned();
        for circuit in [
            Circuit::Closed,
            Circuit::Open { until: Timestamp::MAX, probes: 1, reason: reason() },
            Circuit::HalfOpen { since: Timestamp::from_millis(4), probes: 3, reason: reason() },
        ] {
            let mut row = CursorRow { circuit, ..CursorRow::new() };
            (row.recorded, row.recorded_from, row.decisions, row.faults) = (9, 8, 7, 6);
            reads_back(&row);
        }
        reads_back(&BacklogRow {
            next: u64::MAX,
            delayed: 1,
            ahead: 2,
            dead: 3,
            ..BacklogRow::at(BacklogId(5), 9)
        });
    }
}
