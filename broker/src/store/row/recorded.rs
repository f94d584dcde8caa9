//! Rows of `recorded`: the failures of one subscription that were decided in one turn, one behind the other.
//!
//! ```text
//! row  format u8 | number of the first u64 | number of the last u64 | when that was decided u64 | failure ...
//! ```
//!
//! What stands before the failures has a fixed length, so that it can be filled in when they are complete, and read
//! without them.

use bytes::Bytes;

use super::super::StoreError;
use super::{Damaged, FORMAT, Reader, Row, Writer};
use crate::domain::context::{Context, ContextMessage, Load, PastFailure};
use crate::domain::decision::{Answer, AnswerAction, Evaluation, Fault, InputHash, Pause};
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{MessageId, TopicId};
use crate::domain::record::RecordedFailure;
use crate::domain::time::Timestamp;

use super::delivery::name;

/// The failures of one row, in the order of their numbers. Their parameters are left out: they are those of the
/// revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedRow(pub Vec<RecordedFailure>);

/// Which failures a row holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordedSpan {
    /// The number of the first.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// When the last was decided.
    pub newest: Timestamp,
}

impl RecordedSpan {
    const BYTES: usize = 24;

    fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.first, self.last, self.newest.as_millis()];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let mut number = || from.array().map(u64::from_be_bytes);
        Ok(Self { first: number()?, last: number()?, newest: Timestamp::from_millis(number()?) })
    }
}

impl RecordedRow {
    /// What a row holds, without reading it all.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it does not begin like one.
    pub fn span(row: &Bytes) -> Result<RecordedSpan, StoreError> {
        let mut from = Reader { bytes: row.clone() };
        let span = from.u8().and_then(|format| match format {
            FORMAT => RecordedSpan::read(&mut from),
            _ => Err(Damaged),
        });
        span.map_err(|Damaged| StoreError::Corrupt("a row of recorded failures has no beginning".to_owned()))
    }
}

/// A row in the making, of failures that need not be kept in memory meanwhile.
#[derive(Default)]
pub struct RecordedChunk {
    /// The row so far, but for its span.
    row: Vec<u8>,
    span: RecordedSpan,
    /// What the last row took: the next is likely to be of its kind.
    usual: usize,
}

impl RecordedChunk {
    /// Puts a failure behind the others, whose numbers go up one by one. Everything but the parameters is kept.
    pub fn push(&mut self, number: u64, revision: u32, context: &Context, evaluation: &Evaluation) {
        if self.row.is_empty() {
            self.row = Vec::with_capacity(self.usual);
            self.row.push(FORMAT);
            self.row.extend([0; RecordedSpan::BYTES]);
            self.span.first = number;
        }
        (self.span.last, self.span.newest) = (number, context.now);
        let mut out = Writer { bytes: std::mem::take(&mut self.row) };
        write_record(&mut out, revision, context, evaluation);
        self.row = out.bytes;
    }

    /// Its size so far.
    pub fn bytes(&self) -> usize {
        self.row.len()
    }

    /// The number of the first failure, and the row; `None` if there is nothing in it. Begins anew.
    pub fn take(&mut self) -> Option<(u64, Bytes)> {
        let mut row = std::mem::take(&mut self.row);
        let span = row.get_mut(1..=RecordedSpan::BYTES)?;
        span.copy_from_slice(&self.span.bytes());
        self.usual = row.len();
        Some((self.span.first, row.into()))
    }
}

impl Row for RecordedRow {
    fn write(&self, out: &mut Writer) {
        let span = |(first, last): (&RecordedFailure, &RecordedFailure)| RecordedSpan {
            first: first.number,
            last: last.number,
            newest: last.context.now,
        };
        let span = self.0.first().zip(self.0.last()).map(span).unwrap_or_default();
        out.bytes.extend(span.bytes());
        for failure in &self.0 {
            write_record(out, failure.revision, &failure.context, &failure.evaluation);
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let span = RecordedSpan::read(from)?;
        let mut failures = Vec::new();
        for number in span.first..=span.last {
            let revision = from.u32()?;
            let context = read_context(from)?;
            let evaluation = read_evaluation(from)?;
            failures.push(RecordedFailure { number, revision, context, evaluation });
        }
        Ok(Self(failures))
    }
}

fn write_record(out: &mut Writer, revision: u32, context: &Context, evaluation: &Evaluation) {
    out.u32(revision);
    write_context(out, context);
    write_evaluation(out, evaluation);
}

fn write_context(out: &mut Writer, context: &Context) {
    out.text(context.subscription.as_str());
    out.text(context.topic.as_str());
    let message = &context.message;
    out.u32(message.id.topic.0);
    out.u64(message.id.sequence);
    out.option(message.key.as_deref(), Writer::text);
    out.pairs(&message.attributes);
    out.option(message.content_type.as_deref(), Writer::text);
    out.u64(message.size);
    out.time(message.published_at);
    out.option(message.expires_at, Writer::time);
    out.option(message.payload.as_deref(), Writer::blob);
    context.failure.write(out);
    for count in [context.attempt, context.failures, context.releases, context.replays] {
        out.u32(count);
    }
    out.list(&context.history, |out, past| {
        out.u32(past.attempt);
        out.time(past.at);
        past.cause.write(out);
        out.text(&past.class);
        out.option(past.delay, Writer::duration);
    });
    out.option(context.first_leased_at, Writer::time);
    out.time(context.now);
    out.u64(context.seed);
    out.blob(&context.memo);
    let load = &context.load;
    for count in [load.acked, load.failed, load.dead_lettered, load.backlog, load.in_flight] {
        out.u64(count);
    }
    out.u64(load.consecutive_failures);
}

fn read_context(from: &mut Reader) -> Result<Context, Damaged> {
    Ok(Context {
        subscription: name(from)?,
        topic: name(from)?,
        message: ContextMessage {
            id: MessageId { topic: TopicId(from.u32()?), sequence: from.u64()? },
            key: from.option(Reader::text)?,
            attributes: from.pairs()?,
            content_type: from.option(Reader::text)?,
            size: from.u64()?,
            published_at: from.time()?,
            expires_at: from.option(Reader::time)?,
            payload: from.option(Reader::blob)?,
        },
        failure: Failure::read(from)?,
        attempt: from.u32()?,
        failures: from.u32()?,
        releases: from.u32()?,
        replays: from.u32()?,
        history: from.list(|from| {
            Ok(PastFailure {
                attempt: from.u32()?,
                at: from.time()?,
                cause: Cause::read(from)?,
                class: from.text()?,
                delay: from.option(Reader::duration)?,
            })
        })?,
        first_leased_at: from.option(Reader::time)?,
        now: from.time()?,
        seed: from.u64()?,
        params: "".into(),
        memo: from.blob()?.to_vec(),
        load: Load {
            acked: from.u64()?,
            failed: from.u64()?,
            dead_lettered: from.u64()?,
            backlog: from.u64()?,
            in_flight: from.u64()?,
            consecutive_failures: from.u64()?,
        },
    })
}

fn write_evaluation(out: &mut Writer, evaluation: &Evaluation) {
    match &evaluation.result {
        Ok(answer) => {
            out.u8(0);
            answer.write(out);
        }
        Err(fault) => {
            out.u8(1);
            fault.write(out);
        }
    }
    out.u64(evaluation.fuel);
    out.bytes.extend_from_slice(&evaluation.input.0);
}

fn read_evaluation(from: &mut Reader) -> Result<Evaluation, Damaged> {
    let result = match from.u8()? {
        0 => Ok(Answer::read(from)?),
        1 => Err(Fault::read(from)?),
        _ => return Err(Damaged),
    };
    Ok(Evaluation { result, fuel: from.u64()?, input: InputHash(from.array()?) })
}

impl Row for Answer {
    fn write(&self, out: &mut Writer) {
        match &self.action {
            AnswerAction::Retry { delay } => {
                out.u8(0);
                out.duration(*delay);
            }
            AnswerAction::DeadLetter { queue, reason, labels } => {
                out.u8(1);
                out.option(queue.as_deref(), Writer::text);
                out.text(reason);
                out.pairs(labels);
            }
            AnswerAction::Forward { topic } => {
                out.u8(2);
                out.text(topic);
            }
            AnswerAction::Drop { reason } => {
                out.u8(3);
                out.text(reason);
            }
        }
        out.option(self.pause.as_ref(), |out, pause| pause.write(out));
        out.option(self.memo.as_deref(), Writer::blob);
        out.option(self.note.as_deref(), Writer::text);
        out.flag(self.release_key);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let action = match from.u8()? {
            0 => AnswerAction::Retry { delay: from.duration()? },
            1 => AnswerAction::DeadLetter {
                queue: from.option(Reader::text)?,
                reason: from.text()?,
                labels: from.pairs()?,
            },
            2 => AnswerAction::Forward { topic: from.text()? },
            3 => AnswerAction::Drop { reason: from.text()? },
            _ => return Err(Damaged),
        };
        Ok(Self {
            action,
            pause: from.option(Pause::read)?,
            memo: from.option(|from| Ok(from.blob()?.to_vec()))?,
            note: from.option(Reader::text)?,
            release_key: from.flag()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::domain::name::Name;

    fn context() -> Context {
        let at = Timestamp::from_millis;
        let text = |text: &str| Some(text.to_owned());
        Context {
            subscription: Name::new("billing").expect("a name"),
            topic: Name::new("orders").expect("a name"),
            message: ContextMessage {
                id: MessageId { topic: TopicId(3), sequence: 9 },
                key: text("k"),
                attributes: vec![("a".to_owned(), "b".to_owned())],
                content_type: text("text/plain"),
                size: 77,
                published_at: at(1),
                expires_at: Some(at(2)),
                payload: Some(Bytes::from_static(b"\0\xff")),
            },
            failure: Failure { retry_after: Some(Duration::MAX), ..Failure::of(Cause::LeaseExpired) },
            attempt: 4,
            failures: 3,
            releases: 2,
            replays: 1,
            history: vec![PastFailure {
                attempt: 1,
                at: at(5),
                cause: Cause::Released,
                class: "c".to_owned(),
                delay: Some(Duration::from_millis(1)),
            }],
            first_leased_at: Some(at(6)),
            now: at(7),
            seed: u64::MAX,
            params: "".into(),
            memo: vec![1, 2],
            load: Load {
                acked: 1,
                failed: 2,
                dead_lettered: 3,
                backlog: 4,
                in_flight: 5,
                consecutive_failures: 6,
            },
        }
    }

    /// Every kind of answer and every fault, written one by one and read back as one row.
    #[test]
    fn records_read_back() {
        let pause = Pause { duration: Duration::from_secs(1), probes: 2, reason: "down".to_owned() };
        let text = || "x".to_owned();
        let answers = [
            AnswerAction::Retry { delay: Duration::MAX },
            AnswerAction::DeadLetter { queue: Some(text()), reason: text(), labels: vec![(text(), text())] },
            AnswerAction::Forward { topic: text() },
            AnswerAction::Drop { reason: text() },
        ];
        let answers = answers.map(|action| {
            Ok(Answer {
                action,
                pause: Some(pause.clone()),
                memo: Some(vec![7]),
                note: Some(text()),
                release_key: true,
            })
        });
        let faults = [Fault::Trap(text()), Fault::Fuel, Fault::Time, Fault::Memory, Fault::BadAnswer(text())];
        let results = answers.into_iter().chain(faults.map(Err));
        let mut chunk = RecordedChunk::default();
        assert!(chunk.take().is_none());
        let failures: Vec<_> = (40..)
            .zip(results)
            .map(|(number, result)| {
                let evaluation = Evaluation { result, fuel: 4_000, input: InputHash([5; 16]) };
                chunk.push(number, 2, &context(), &evaluation);
                RecordedFailure { number, revision: 2, context: context(), evaluation }
            })
            .collect();
        let (first, row) = chunk.take().expect("a row");
        assert_eq!(first, 40);
        let last = 39 + failures.len() as u64;
        let span = RecordedSpan { first: 40, last, newest: context().now };
        assert_eq!(RecordedRow::span(&row).expect("a span"), span);
        assert_eq!(row, RecordedRow(failures.clone()).encode());
        assert_eq!(RecordedRow::decode(row).expect("a row").0, failures);
        assert_eq!(chunk.bytes(), 0);
    }
}
