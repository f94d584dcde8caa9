//! Rows of `leased`, `delayed`, `settled` and `dead_letters`.

use super::{Damaged, Reader, Row, Writer};
use crate::domain::decision::{Action, Decider, Decision, Fault, InputHash, Pause};
use crate::domain::delivery::{Delivery, PastAttempt, State};
use crate::domain::digest::Digest;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::BacklogId;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;

/// The end of a delivery that has a history, for its timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettledRow {
    /// How it ended.
    pub ending: Ending,
    /// When.
    pub at: Timestamp,
    /// Its counters and history.
    pub delivery: Delivery,
}

/// How a delivery ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The consumer succeeded.
    Acked,
    /// A decision dropped it.
    Dropped,
    /// A decision forwarded it.
    Forwarded,
    /// An operator discarded its dead letter.
    Discarded,
    /// It became a dead letter; written only ahead of the cursor, which has to pass it by.
    DeadLettered,
}

/// A delivery given up on, with all that is needed to look into it and to replay it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterRow {
    /// When it was given up.
    pub dead_at: Timestamp,
    /// Which queue of its subscription; `None` is the default one.
    pub queue: Option<Name>,
    /// Why, for people.
    pub reason: String,
    /// Names and values to filter by.
    pub labels: Vec<(String, String)>,
    /// Counters and history.
    pub delivery: Delivery,
    /// A copy: retention does not wait for dead letters.
    pub message: Message,
    /// The backlog that it died in.
    pub backlog: BacklogId,
}

impl Row for Delivery {
    fn write(&self, out: &mut Writer) {
        out.u32(self.attempt);
        out.u32(self.failures);
        out.u32(self.releases);
        out.u32(self.replays);
        out.u32(self.previous_attempts);
        out.u32(self.faults);
        out.flag(self.edited);
        out.flag(self.expiry_waived);
        out.flag(self.ran_out);
        out.option(self.first_leased_at, Writer::time);
        out.blob(&self.memo);
        match &self.state {
            State::Waiting { due_at } => {
                out.u8(0);
                out.time(*due_at);
            }
            State::Leased { leased_at, lease_until } => {
                out.u8(1);
                out.time(*leased_at);
                out.time(*lease_until);
            }
            // Never stored by itself; within an ended delivery only the counters and the history matter.
            State::Deciding { ended_at, .. } => {
                out.u8(0);
                out.time(*ended_at);
            }
        }
        out.list(&self.history, |out, past| past.write(out));
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            attempt: from.u32()?,
            failures: from.u32()?,
            releases: from.u32()?,
            replays: from.u32()?,
            previous_attempts: from.u32()?,
            faults: from.u32()?,
            edited: from.flag()?,
            expiry_waived: from.flag()?,
            ran_out: from.flag()?,
            first_leased_at: from.option(Reader::time)?,
            memo: from.blob()?.to_vec(),
            state: match from.u8()? {
                0 => State::Waiting { due_at: from.time()? },
                1 => State::Leased { leased_at: from.time()?, lease_until: from.time()? },
                _ => return Err(Damaged),
            },
            history: from.list(PastAttempt::read)?,
        })
    }
}

impl Row for PastAttempt {
    fn write(&self, out: &mut Writer) {
        out.u32(self.replay);
        out.u32(self.attempt);
        out.option(self.leased_at, Writer::time);
        out.time(self.ended_at);
        self.failure.write(out);
        self.decision.write(out);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            replay: from.u32()?,
            attempt: from.u32()?,
            leased_at: from.option(Reader::time)?,
            ended_at: from.time()?,
            failure: Failure::read(from)?,
            decision: Decision::read(from)?,
        })
    }
}

impl Row for Cause {
    fn write(&self, out: &mut Writer) {
        out.u8(match self {
            Self::Nacked => 0,
            Self::LeaseExpired => 1,
            Self::Disconnected => 2,
            Self::Released => 3,
            Self::MessageExpired => 4,
        });
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Self::ALL.get(usize::from(from.u8()?)).copied().ok_or(Damaged)
    }
}

impl Row for Pause {
    fn write(&self, out: &mut Writer) {
        out.duration(self.duration);
        out.u32(self.probes);
        out.text(&self.reason);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self { duration: from.duration()?, probes: from.u32()?, reason: from.text()? })
    }
}

impl Row for Failure {
    fn write(&self, out: &mut Writer) {
        self.cause.write(out);
        out.text(&self.class);
        out.option(self.code.as_deref(), Writer::text);
        out.option(self.detail.as_deref(), Writer::text);
        out.option(self.retry_after, Writer::duration);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            cause: Cause::read(from)?,
            class: from.text()?,
            code: from.option(Reader::text)?,
            detail: from.option(Reader::text)?,
            retry_after: from.option(Reader::duration)?,
        })
    }
}

impl Row for Decision {
    fn write(&self, out: &mut Writer) {
        self.action.write(out);
        out.option(self.clamped_from, Writer::duration);
        out.option(self.pause.as_ref(), |out, pause| pause.write(out));
        out.option(self.note.as_deref(), Writer::text);
        out.flag(self.release_key);
        self.decider.write(out);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            action: Action::read(from)?,
            clamped_from: from.option(Reader::duration)?,
            pause: from.option(Pause::read)?,
            // The delivery keeps the memo; a past decision has given it away.
            memo: Vec::new(),
            note: from.option(Reader::text)?,
            release_key: from.flag()?,
            decider: Decider::read(from)?,
        })
    }
}

impl Row for Action {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Retry { delay } => {
                out.u8(0);
                out.duration(*delay);
            }
            Self::DeadLetter { queue, reason, labels } => {
                out.u8(1);
                out.option(queue.as_ref(), |out, queue| out.text(queue.as_str()));
                out.text(reason);
                out.pairs(labels);
            }
            Self::Forward { topic } => {
                out.u8(2);
                out.text(topic.as_str());
            }
            Self::Drop { reason } => {
                out.u8(3);
                out.text(reason);
            }
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(match from.u8()? {
            0 => Self::Retry { delay: from.duration()? },
            1 => Self::DeadLetter { queue: from.option(name)?, reason: from.text()?, labels: from.pairs()? },
            2 => Self::Forward { topic: name(from)? },
            3 => Self::Drop { reason: from.text()? },
            _ => return Err(Damaged),
        })
    }
}

impl Row for Decider {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Policy { revision, digest, fuel, input } => {
                out.u8(0);
                out.u32(*revision);
                out.bytes.extend_from_slice(&digest.0);
                out.u64(*fuel);
                out.bytes.extend_from_slice(&input.0);
            }
            Self::Fallback { revision, digest, fault } => {
                out.u8(1);
                out.u32(*revision);
                out.bytes.extend_from_slice(&digest.0);
                fault.write(out);
            }
            Self::AttemptLimit => out.u8(2),
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(match from.u8()? {
            0 => Self::Policy {
                revision: from.u32()?,
                digest: Digest(from.array()?),
                fuel: from.u64()?,
                input: InputHash(from.array()?),
            },
            1 => Self::Fallback {
                revision: from.u32()?,
                digest: Digest(from.array()?),
                fault: Fault::read(from)?,
            },
            2 => Self::AttemptLimit,
            _ => return Err(Damaged),
        })
    }
}

impl Row for Fault {
    fn write(&self, out: &mut Writer) {
        let (tag, text) = match self {
            Self::Trap(text) => (0, text.as_str()),
            Self::Fuel => (1, ""),
            Self::Time => (2, ""),
            Self::Memory => (3, ""),
            Self::BadAnswer(text) => (4, text.as_str()),
            Self::NotLoaded(text) => (5, text.as_str()),
        };
        out.u8(tag);
        out.text(text);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let (tag, text) = (from.u8()?, from.text()?);
        Ok(match tag {
            0 => Self::Trap(text),
            1 => Self::Fuel,
            2 => Self::Time,
            3 => Self::Memory,
            4 => Self::BadAnswer(text),
            5 => Self::NotLoaded(text),
            _ => return Err(Damaged),
        })
    }
}

impl Row for SettledRow {
    fn write(&self, out: &mut Writer) {
        out.u8(match self.ending {
            Ending::Acked => 0,
            Ending::Dropped => 1,
            Ending::Forwarded => 2,
            Ending::Discarded => 3,
            Ending::DeadLettered => 4,
        });
        out.time(self.at);
        self.delivery.write(out);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let ending = match from.u8()? {
            0 => Ending::Acked,
            1 => Ending::Dropped,
            2 => Ending::Forwarded,
            3 => Ending::Discarded,
            4 => Ending::DeadLettered,
            _ => return Err(Damaged),
        };
        Ok(Self { ending, at: from.time()?, delivery: Delivery::read(from)? })
    }
}

impl Row for DeadLetterRow {
    fn write(&self, out: &mut Writer) {
        out.time(self.dead_at);
        out.option(self.queue.as_ref(), |out, queue| out.text(queue.as_str()));
        out.text(&self.reason);
        out.pairs(&self.labels);
        self.delivery.write(out);
        self.message.write(out);
        out.u32(self.backlog.0);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            dead_at: from.time()?,
            queue: from.option(name)?,
            reason: from.text()?,
            labels: from.pairs()?,
            delivery: Delivery::read(from)?,
            message: Message::read(from)?,
            backlog: BacklogId(from.u32()?),
        })
    }
}

pub(super) fn name(from: &mut Reader) -> Result<Name, Damaged> {
    Name::new(&from.text()?).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    fn past(cause: Cause, action: Action, decider: Decider) -> PastAttempt {
        PastAttempt {
            replay: 1,
            attempt: 2,
            leased_at: Some(Timestamp::from_millis(4)),
            ended_at: Timestamp::from_millis(5),
            failure: Failure {
                cause,
                class: "timeout".to_owned(),
                code: Some("504".to_owned()),
                detail: Some("slow".to_owned()),
                retry_after: Some(Duration::from_millis(1_500)),
            },
            decision: Decision {
                action,
                clamped_from: Some(Duration::MAX),
                pause: Some(Pause { duration: Duration::from_secs(1), probes: 2, reason: "open".to_owned() }),
                memo: Vec::new(),
                note: Some("n".to_owned()),
                release_key: true,
                decider,
            },
        }
    }

    /// A delivery with every variant there is in its history.
    fn delivery() -> Delivery {
        let queue = Name::new("invalid").expect("a name");
        let labels = vec![("class".to_owned(), "timeout".to_owned())];
        let digest = Digest([9; 32]);
        let policy = Decider::Policy { revision: 3, digest, fuel: 4_000, input: InputHash([1; 16]) };
        let fallback = |fault| Decider::Fallback { revision: 3, digest, fault };
        let retry = || Action::Retry { delay: Duration::from_millis(1) };
        let mut delivery = Delivery::new(Timestamp::from_millis(9));
        delivery.attempt = 7;
        delivery.memo = vec![0, 255];
        delivery.history = vec![
            past(Cause::Nacked, retry(), policy),
            past(Cause::LeaseExpired, retry(), fallback(Fault::Trap("t".to_owned()))),
            past(Cause::Disconnected, retry(), fallback(Fault::Fuel)),
            past(Cause::Released, retry(), fallback(Fault::Time)),
            past(Cause::MessageExpired, retry(), fallback(Fault::Memory)),
            past(
                Cause::Nacked,
                Action::Forward { topic: queue.clone() },
                fallback(Fault::BadAnswer("b".to_owned())),
            ),
            past(
                Cause::Nacked,
                Action::Drop { reason: "d".to_owned() },
                fallback(Fault::NotLoaded("l".to_owned())),
            ),
            past(
                Cause::Nacked,
                Action::DeadLetter { queue: Some(queue), reason: "r".to_owned(), labels },
                Decider::AttemptLimit,
            ),
        ];
        delivery
    }

    #[test]
    fn deliveries_read_back_in_each_stored_state() {
        let mut delivery = delivery();
        assert_eq!(Delivery::decode(delivery.encode()).expect("a row"), delivery);
        delivery.state =
            State::Leased { leased_at: Timestamp::from_millis(1), lease_until: Timestamp::from_millis(2) };
        assert_eq!(Delivery::decode(delivery.encode()).expect("a row"), delivery);
    }

    #[test]
    fn endings_and_dead_letters_read_back() {
        use Ending::{Acked, DeadLettered, Discarded, Dropped, Forwarded};
        for ending in [Acked, Dropped, Forwarded, Discarded, DeadLettered] {
            let row = SettledRow { ending, at: Timestamp::from_millis(1), delivery: delivery() };
            assert_eq!(SettledRow::decode(row.encode()).expect("a row"), row);
        }
        let now = Timestamp::from_millis(3);
        let row = DeadLetterRow {
            dead_at: now,
            queue: Some(Name::new("q").expect("a name")),
            reason: "r".to_owned(),
            labels: vec![("a".to_owned(), "b".to_owned())],
            delivery: delivery(),
            message: Message {
                published_at: now,
                available_at: now,
                expires_at: None,
                hops: 0,
                key: None,
                attributes: Vec::new(),
                content_type: None,
                payload: Bytes::from_static(b"p"),
            },
            backlog: BacklogId(3),
        };
        assert_eq!(DeadLetterRow::decode(row.encode()).expect("a row"), row);
    }
}
