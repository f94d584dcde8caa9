//! Rows of `jobs`.

use super::{Damaged, Reader, Row, Writer};
use crate::domain::dead_letter::DeadLetterFilter;
use crate::domain::failure::Cause;
use crate::domain::id::{DeadLetterId, SubscriptionId, TopicId};
use crate::domain::job::{JobAction, JobPlan, JobProgress, JobState};
use crate::domain::name::Name;
use crate::domain::time::Timestamp;

/// A job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRow {
    /// What it is to do.
    pub plan: JobPlan,
    /// How it stands.
    pub state: JobState,
    /// How far it has come.
    pub progress: JobProgress,
    /// When it was planned.
    pub created_at: Timestamp,
    /// When it was started, the last time.
    pub started_at: Option<Timestamp>,
    /// When it came to an end, or was aborted.
    pub ended_at: Option<Timestamp>,
}

impl Row for JobRow {
    fn write(&self, out: &mut Writer) {
        out.u8(match self.plan.action {
            JobAction::Replay => 0,
            JobAction::Discard => 1,
        });
        write_filter(&self.plan.filter, out);
        out.u32(self.plan.rate);
        out.text(&self.plan.reason);
        out.text(&self.plan.by);
        out.u8(match self.state {
            JobState::Planning => 0,
            JobState::Planned => 1,
            JobState::Running => 2,
            JobState::Done => 3,
            JobState::Aborted => 4,
        });
        let JobProgress { found, sample, done, skipped, at } = &self.progress;
        out.u64(*found);
        out.list(sample, |out, id| write_id(out, *id));
        out.u64(*done);
        out.u64(*skipped);
        out.option(*at, |out, (at, id)| {
            out.time(at);
            write_id(out, id);
        });
        out.time(self.created_at);
        out.option(self.started_at, Writer::time);
        out.option(self.ended_at, Writer::time);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let action = match from.u8()? {
            0 => JobAction::Replay,
            1 => JobAction::Discard,
            _ => return Err(Damaged),
        };
        let filter = read_filter(from)?;
        let plan = JobPlan { action, filter, rate: from.u32()?, reason: from.text()?, by: from.text()? };
        let state = match from.u8()? {
            0 => JobState::Planning,
            1 => JobState::Planned,
            2 => JobState::Running,
            3 => JobState::Done,
            4 => JobState::Aborted,
            _ => return Err(Damaged),
        };
        let progress = JobProgress {
            found: from.u64()?,
            sample: from.list(read_id)?,
            done: from.u64()?,
            skipped: from.u64()?,
            at: from.option(|from| Ok((from.time()?, read_id(from)?)))?,
        };
        Ok(Self {
            plan,
            state,
            progress,
            created_at: from.time()?,
            started_at: from.option(Reader::time)?,
            ended_at: from.option(Reader::time)?,
        })
    }
}

fn write_id(out: &mut Writer, id: DeadLetterId) {
    out.u32(id.subscription.0);
    out.u32(id.topic.0);
    out.u64(id.sequence);
}

fn read_id(from: &mut Reader) -> Result<DeadLetterId, Damaged> {
    let (subscription, topic) = (SubscriptionId(from.u32()?), TopicId(from.u32()?));
    Ok(DeadLetterId { subscription, topic, sequence: from.u64()? })
}

fn write_filter(filter: &DeadLetterFilter, out: &mut Writer) {
    let write_name = |out: &mut Writer, name: &Name| out.text(name.as_str());
    out.option(filter.subscription.as_ref(), write_name);
    out.option(filter.topic.as_ref(), write_name);
    out.option(filter.queue.as_ref(), |out, queue| out.option(queue.as_ref(), write_name));
    out.option(filter.class.as_deref(), Writer::text);
    out.option(filter.cause, |out, cause| out.text(cause.as_str()));
    out.option(filter.revision, Writer::u32);
    out.option(filter.attempts, Writer::u32);
    out.option(filter.reason.as_deref(), Writer::text);
    out.option(filter.text.as_deref(), Writer::text);
    out.pairs(&filter.labels);
    out.pairs(&filter.attributes);
    out.option(filter.since, Writer::time);
    out.option(filter.until, Writer::time);
}

fn read_filter(from: &mut Reader) -> Result<DeadLetterFilter, Damaged> {
    let read_name = |from: &mut Reader| Name::new(&from.text()?).map_err(|_| Damaged);
    let read_cause = |from: &mut Reader| {
        let text = from.text()?;
        Cause::ALL.into_iter().find(|cause| cause.as_str() == text).ok_or(Damaged)
    };
    Ok(DeadLetterFilter {
        subscription: from.option(read_name)?,
        topic: from.option(read_name)?,
        queue: from.option(|from| from.option(read_name))?,
        class: from.option(Reader::text)?,
        cause: from.option(read_cause)?,
        revision: from.option(Reader::u32)?,
        attempts: from.option(Reader::u32)?,
        reason: from.option(Reader::text)?,
        text: from.option(Reader::text)?,
        labels: from.pairs()?,
        attributes: from.pairs()?,
        since: from.option(Reader::time)?,
        until: from.option(Reader::time)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_back() {
        let name = |text| Some(Name::new(text).expect("a name"));
        let filter = DeadLetterFilter {
            subscription: name("s"),
            topic: name("t"),
            queue: Some(None),
            class: Some("timeout".to_owned()),
            cause: Some(Cause::LeaseExpired),
            revision: Some(3),
            attempts: Some(9),
            reason: Some(String::new()),
            text: Some("a b".to_owned()),
            labels: vec![("a".to_owned(), "b".to_owned())],
            attributes: vec![("c".to_owned(), "d".to_owned())],
            since: Some(Timestamp::from_millis(1)),
            until: Some(Timestamp::MAX),
        };
        let id = DeadLetterId { subscription: SubscriptionId(1), topic: TopicId(2), sequence: 3 };
        for (action, state, filter) in [
            (JobAction::Replay, JobState::Planning, DeadLetterFilter::default()),
            (JobAction::Discard, JobState::Running, filter.clone()),
            (
                JobAction::Discard,
                JobState::Planned,
                DeadLetterFilter { queue: Some(name("q")), ..filter.clone() },
            ),
            (JobAction::Replay, JobState::Done, filter.clone()),
            (JobAction::Replay, JobState::Aborted, filter),
        ] {
            let row = JobRow {
                plan: JobPlan { action, filter, rate: 7, reason: "why".to_owned(), by: "who".to_owned() },
                state,
                progress: JobProgress {
                    found: 1,
                    sample: vec![id, id],
                    done: 2,
                    skipped: 3,
                    at: Some((Timestamp::from_millis(5), id)),
                },
                created_at: Timestamp::from_millis(6),
                started_at: None,
                ended_at: Some(Timestamp::from_millis(7)),
            };
            assert_eq!(JobRow::decode(row.encode()).expect("a row"), row);
        }
    }
}
