//! Jobs: many dead letters replayed or discarded, a few in each turn. What a step did and how far it came are one commit,
//! so that a crash repeats nothing and leaves nothing out.

use std::ops::Bound;
use std::time::Duration;

use super::command::{Listed, Page, Refusal};
use super::dead_index::{Matches, Order, Search};
use super::dead_letters::DeadLetterEdit;
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::bucket::Bucket;
use crate::domain::id::RealmId;
use crate::domain::job::{JobAction, JobId, JobPlan, JobProgress, JobState};
use crate::domain::limits::{MAX_JOBS, MAX_OPEN_JOBS};
use crate::domain::time::Timestamp;
use crate::store::row::{JobRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Dead letters that one step replays or discards: each is some dozens of rows.
const STEP_LETTERS: usize = 100;
/// Dead letters that one step of a plan counts, at most.
const STEP_COUNTED: usize = 5_000;
/// Dead letters that a plan shows.
const SAMPLE: usize = 10;

/// A job in memory.
pub(super) struct Job {
    row: JobRow,
    /// What its rate still allows.
    bucket: Bucket,
}

/// A job as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Everything else.
    pub row: JobRow,
}

impl Job {
    const fn new(row: JobRow, now: Timestamp) -> Self {
        Self { bucket: Bucket::full(row.plan.rate, now), row }
    }
}

impl Engine {
    /// Plans a job, and counts what it is about as far as one step goes.
    pub(super) fn plan_job(
        &mut self,
        realm: RealmId,
        mut plan: JobPlan,
        reply: Reply<JobView>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        or_refuse!(try self, reply, self.expect_realm(realm));
        _ = or_refuse!(try self, reply, self.search(realm, &plan.filter, Patterns::all())?);
        or_refuse!(try self, reply, self.room_for_a_job(realm));
        // What is given up from now on is given up later, and none of its business.
        let end = self.now + Duration::from_millis(1);
        self.now = end;
        plan.filter.until = plan.filter.until.map_or(Some(end), |until| Some(until.min(end)));
        let last = self.jobs.range(jobs_of(realm)).next_back().map_or(0, |((_, id), _)| id.0);
        let id = JobId(last + 1);
        let row = JobRow {
            plan,
            state: JobState::Planning,
            progress: JobProgress::default(),
            created_at: self.now,
            started_at: None,
            ended_at: None,
        };
        self.add_job(realm, id, row);
        self.step_job(realm, id)?;
        self.get_job(realm, id, reply);
        Ok(())
    }

    /// The oldest of those that have ended make room.
    fn room_for_a_job(&mut self, realm: RealmId) -> Result<(), Refusal> {
        let ended = |state| matches!(state, JobState::Done | JobState::Aborted);
        let all = self.jobs.range(jobs_of(realm)).map(|(key, job)| (*key, job.row.state));
        let (ended, open): (Vec<_>, Vec<_>) = all.partition(|(_, state)| ended(*state));
        if open.len() >= MAX_OPEN_JOBS {
            return Err(Refusal::LimitReached { what: "jobs that have not ended", limit: MAX_OPEN_JOBS });
        }
        let mut commit = Commit::default();
        for (job, _) in ended.into_iter().rev().skip(MAX_JOBS - 1) {
            commit.delete(Keyspace::Jobs, key::job(job.0, job.1));
            self.jobs.remove(&job);
        }
        self.pending.push(commit);
        Ok(())
    }

    pub(super) fn get_job(&mut self, realm: RealmId, id: JobId, reply: Reply<JobView>) {
        let job = self.jobs.get(&(realm, id)).ok_or(Refusal::JobNotFound);
        let view = job.map(|job| JobView { id, row: job.row.clone() });
        self.answer(reply, view);
    }

    /// The newest first.
    pub(super) fn list_jobs(
        &mut self,
        realm: RealmId,
        page: &Page<JobId>,
        among: &Patterns,
        reply: Reply<Listed<JobView>>,
    ) {
        let (start, mut end) = jobs_of(realm);
        if let Some(after) = page.after {
            end = Bound::Excluded((realm, after));
        }
        let jobs = self.jobs.range((start, end)).rev();
        let mut found = jobs.filter(|(_, job)| job.row.plan.filter.is_within(among));
        let view = |((_, id), job): (&(RealmId, JobId), &Job)| JobView { id: *id, row: job.row.clone() };
        let items = found.by_ref().take(page.limit).map(view).collect();
        let more = found.next().is_some();
        self.answer(reply, Ok(Listed { items, more }));
    }

    /// Sets a planned job to work, or one that was aborted to work again.
    pub(super) fn start_job(&mut self, realm: RealmId, id: JobId, reply: Reply<JobView>) {
        let now = self.now;
        let job = or_refuse!(self, reply, self.jobs.get_mut(&(realm, id)).ok_or(Refusal::JobNotFound));
        match job.row.state {
            JobState::Running => {}
            JobState::Planned | JobState::Aborted => {
                job.row.state = JobState::Running;
                (job.row.started_at, job.row.ended_at) = (Some(now), None);
                job.bucket = Bucket::full(job.row.plan.rate, now);
            }
            state => return self.answer(reply, Err(Refusal::JobState(state.as_str()))),
        }
        self.save_job(realm, id);
        self.get_job(realm, id, reply);
    }

    /// Stops a job where it is.
    pub(super) fn abort_job(&mut self, realm: RealmId, id: JobId, reply: Reply<JobView>) {
        let job = or_refuse!(self, reply, self.jobs.get_mut(&(realm, id)).ok_or(Refusal::JobNotFound));
        match job.row.state {
            JobState::Aborted => {}
            JobState::Planning | JobState::Planned | JobState::Running => {
                if job.row.state == JobState::Planning {
                    // It counted up to there, and did nothing.
                    job.row.progress.at = None;
                }
                self.end_job(realm, id, JobState::Aborted);
            }
            state => return self.answer(reply, Err(Refusal::JobState(state.as_str()))),
        }
        self.save_job(realm, id);
        self.get_job(realm, id, reply);
    }

    /// Lets the next job that has something to do take a step.
    pub(super) fn run_jobs(&mut self) -> Result<(), StoreError> {
        let behind = self.busy_jobs.range((Bound::Excluded(self.last_job), Bound::Unbounded));
        let mut jobs = behind.chain(self.busy_jobs.range(..=self.last_job));
        let next = jobs.find(|job| self.job_at(job).is_some_and(|at| at <= self.now)).copied();
        if let Some((realm, id)) = next {
            self.last_job = (realm, id);
            self.apply()?;
            self.step_job(realm, id)?;
        }
        Ok(())
    }

    /// When a job has something to do.
    pub(super) fn jobs_at(&self) -> Option<Timestamp> {
        self.busy_jobs.iter().filter_map(|job| self.job_at(job)).min()
    }

    fn job_at(&self, job: &(RealmId, JobId)) -> Option<Timestamp> {
        self.jobs.get(job).map(|job| job.next_at(self.now))
    }

    /// Takes a job into memory.
    pub(super) fn add_job(&mut self, realm: RealmId, id: JobId, row: JobRow) {
        self.jobs.insert((realm, id), Job::new(row, self.now));
        self.note_job(realm, id);
    }

    /// Nobody goes through jobs that have nothing to do.
    fn note_job(&mut self, realm: RealmId, id: JobId) {
        if self.jobs.get(&(realm, id)).is_some_and(|job| job.row.state.is_busy()) {
            self.busy_jobs.insert((realm, id));
        } else {
            self.busy_jobs.remove(&(realm, id));
        }
    }

    /// Everything must be applied.
    fn step_job(&mut self, realm: RealmId, id: JobId) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get(&(realm, id)) else { return Ok(()) };
        match self.search(realm, &job.row.plan.filter, Patterns::all())? {
            Ok(search) if job.row.state == JobState::Planning => self.count_for(realm, id, &search)?,
            Ok(search) => self.work_on(realm, id, &search)?,
            // What it was about is gone.
            Err(_) => self.end_job(realm, id, JobState::Done),
        }
        self.save_job(realm, id);
        Ok(())
    }

    fn count_for(&mut self, realm: RealmId, id: JobId, search: &Search) -> Result<(), StoreError> {
        let after = self.jobs.get(&(realm, id)).and_then(|job| job.row.progress.at);
        let Matches { places, next } = self.matching(realm, search, Order::Oldest, after, STEP_COUNTED)?;
        let Some(job) = self.jobs.get_mut(&(realm, id)) else { return Ok(()) };
        let JobProgress { found, sample, at, .. } = &mut job.row.progress;
        *found += places.len() as u64;
        sample.extend(places.iter().map(|(_, id)| *id).take(SAMPLE - sample.len()));
        *at = next;
        if next.is_none() {
            job.row.state = JobState::Planned;
        }
        Ok(())
    }

    fn work_on(&mut self, realm: RealmId, id: JobId, search: &Search) -> Result<(), StoreError> {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&(realm, id)) else { return Ok(()) };
        let (action, after) = (job.row.plan.action, job.row.progress.at);
        let most = match job.row.plan.rate {
            0 => STEP_LETTERS,
            rate => job.bucket.available(rate, now).min(STEP_LETTERS),
        };
        if most == 0 {
            return Ok(());
        }
        let Matches { places, next } = self.matching(realm, search, Order::Oldest, after, most)?;
        let (mut done, mut skipped) = (0, 0);
        for (_, letter) in &places {
            let result = match action {
                JobAction::Replay => self.replay(realm, *letter, DeadLetterEdit::default())?.map(|_| ()),
                JobAction::Discard => self.discard(realm, *letter)?,
            };
            match result {
                Ok(()) => done += 1,
                Err(_) => skipped += 1,
            }
        }
        let Some(job) = self.jobs.get_mut(&(realm, id)) else { return Ok(()) };
        job.bucket.take(places.len());
        let progress = &mut job.row.progress;
        (progress.done, progress.skipped) = (progress.done + done, progress.skipped + skipped);
        progress.at = next.or(places.last().copied()).or(progress.at);
        if next.is_none() {
            self.end_job(realm, id, JobState::Done);
        }
        Ok(())
    }

    fn end_job(&mut self, realm: RealmId, id: JobId, state: JobState) {
        if let Some(job) = self.jobs.get_mut(&(realm, id)) {
            job.row.state = state;
            job.row.ended_at = Some(self.now);
        }
    }

    fn save_job(&mut self, realm: RealmId, id: JobId) {
        if let Some(job) = self.jobs.get(&(realm, id)) {
            let mut commit = Commit::default();
            commit.put(Keyspace::Jobs, key::job(realm, id), job.row.encode());
            self.pending.push(commit);
        }
        self.note_job(realm, id);
    }

    /// Those of a realm that goes.
    pub(super) fn remove_jobs(&mut self, realm: RealmId, commit: &mut Commit) {
        let jobs: Vec<_> = self.jobs.range(jobs_of(realm)).map(|(job, _)| *job).collect();
        for job in jobs {
            commit.delete(Keyspace::Jobs, key::job(job.0, job.1));
            self.jobs.remove(&job);
            self.busy_jobs.remove(&job);
        }
    }
}

impl Job {
    /// When it can take its next step.
    fn next_at(&self, now: Timestamp) -> Timestamp {
        match (self.row.state, self.row.plan.rate) {
            (JobState::Running, rate) if rate > 0 => self.bucket.next_at(rate),
            _ => now,
        }
    }
}

type Jobs = (Bound<(RealmId, JobId)>, Bound<(RealmId, JobId)>);

fn jobs_of(realm: RealmId) -> Jobs {
    (Bound::Included((realm, JobId(0))), Bound::Included((realm, JobId(u32::MAX))))
}
