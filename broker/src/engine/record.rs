//! Recorded failures: what a policy was shown and what it answered, kept by count and age, so that another policy can
//! be tried on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::command::{Listed, Page, Refusal};
use super::state::Subscription;
use super::{Engine, Reply, or_refuse};
use crate::domain::context::Context;
use crate::domain::decision::Evaluation;
use crate::domain::digest::Digest;
use crate::domain::id::{RealmId, SubscriptionId};
use crate::domain::limits::MAX_RECORDED_PAYLOAD_BYTES;
use crate::domain::name::Name;
use crate::domain::record::RecordedFailure;
use crate::domain::time::Timestamp;
use crate::store::row::{RecordedRow, RecordedSpan, RevisionRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// A row is written when it has grown to this, or when the turn ends.
const ROW_BYTES: usize = 64 * 1024;
/// Rows that one look removes.
const TRIM_ROWS: usize = 256;
/// Surplus records that are left alone at least.
const TRIM_SLACK: u64 = 64;
/// Contexts of one page, give or take one: payloads may be among them.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// How often the oldest ones are looked at for their age, at most.
const TRIM_EVERY: Duration = Duration::from_secs(60 * 60);

/// A recorded failure as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedView {
    /// The module that answered.
    pub digest: Digest,
    /// What it was shown, parameters included, and what it answered.
    pub failure: RecordedFailure,
}

impl Subscription {
    /// The row that the records of this turn make, for the commit at hand.
    pub(super) fn flush_records(&mut self, id: SubscriptionId, commit: &mut Commit) {
        if let Some((first, row)) = self.recording.take() {
            commit.put(Keyspace::Recorded, key::recorded(self.realm, id, first), row);
        }
    }

    /// Records below this are surplus.
    fn recorded_surplus(&self) -> u64 {
        self.cursor.recorded.saturating_sub(self.row.settings.record_failures.into())
    }

    /// When the oldest records are looked at again.
    pub(super) fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        let some = self.cursor.recorded_from < self.cursor.recorded;
        some.then(|| now + self.row.settings.record_for.min(TRIM_EVERY))
    }
}

impl Engine {
    /// Keeps what was asked and answered, in the batch of the decision itself.
    pub(super) fn record(
        &mut self,
        id: SubscriptionId,
        revision: u32,
        context: &Context,
        evaluation: &Evaluation,
    ) {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let payload = context.message.payload.as_ref().map_or(0, |payload| payload.len());
        if subscription.row.settings.record_failures == 0 || payload > MAX_RECORDED_PAYLOAD_BYTES {
            return;
        }
        subscription.recording.push(subscription.cursor.recorded, revision, context, evaluation);
        subscription.cursor.recorded += 1;
        if subscription.recording.bytes() >= ROW_BYTES {
            let mut commit = Commit::default();
            subscription.flush_records(id, &mut commit);
            self.pending.push(commit);
        }
        // Now and then, not with each decision: whole rows are read for it.
        let slack = u64::from(subscription.row.settings.record_failures) / 8 + TRIM_SLACK;
        if subscription.cursor.recorded_from + slack < subscription.recorded_surplus() {
            subscription.trim_records_at = Some(now);
        } else if subscription.trim_records_at.is_none() {
            subscription.trim_records_at = subscription.look_again(now);
        }
    }

    /// Removes rows of records that are too many or too old. A row goes when all of its records may.
    pub(super) fn trim_records(&mut self, id: SubscriptionId) -> Result<(), StoreError> {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        if subscription.trim_records_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let surplus = subscription.recorded_surplus();
        self.apply()?;
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        let (realm, from) = (subscription.realm, subscription.cursor.recorded_from);
        let keep = subscription.row.settings.record_for;
        let range = key::recorded(realm, id, from)..key::recorded(realm, id, subscription.cursor.recorded);
        let mut commit = Commit::default();
        let mut next = from;
        let mut rows = 0;
        for row in self.store.scan(Keyspace::Recorded, range).take(TRIM_ROWS) {
            let (key, value) = row?;
            rows += 1;
            let RecordedSpan { last, newest, .. } = RecordedRow::span(&value)?;
            if last >= surplus && newest + keep > now {
                break;
            }
            commit.delete(Keyspace::Recorded, key.to_vec());
            next = last + 1;
        }
        self.pending.push(commit);
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        subscription.cursor.recorded_from = next;
        let full = rows == TRIM_ROWS;
        subscription.trim_records_at = if full { Some(now) } else { subscription.look_again(now) };
        self.changed_subscriptions.insert(id);
        Ok(())
    }

    /// A page of recorded failures, newest first.
    pub(super) fn list_recorded(
        &mut self,
        realm: RealmId,
        name: &Name,
        page: &Page<u64>,
        reply: Reply<Listed<RecordedView>>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        if self.draining {
            // Backtests read page by page: this ends them.
            self.answer(reply, Err(Refusal::ShuttingDown));
            return Ok(());
        }
        let id = or_refuse!(try self, reply, self.subscription_id(realm, name));
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        let keep = subscription.row.settings.record_for;
        let from = subscription.cursor.recorded_from.max(subscription.recorded_surplus());
        let end = page.after.unwrap_or(u64::MAX);
        let mut found = Vec::new();
        let (mut bytes, mut more) = (0, false);
        // The row that holds the oldest one to be shown may begin before it.
        let range = key::recorded(realm, id, 0)..key::recorded(realm, id, end);
        'rows: for row in self.store.scan_back(Keyspace::Recorded, range) {
            for failure in RecordedRow::decode(row?.1)?.0.into_iter().rev() {
                let old = failure.context.now + keep <= self.now;
                if failure.number < from || old {
                    break 'rows;
                }
                if failure.number >= end {
                    continue;
                }
                if found.len() == page.limit || bytes > PAGE_BYTES {
                    more = true;
                    break 'rows;
                }
                bytes += failure.context.bytes();
                found.push(failure);
            }
        }
        let items = self.with_revisions(realm, id, found)?;
        self.answer(reply, Ok(Listed { items, more }));
        Ok(())
    }

    /// Each with the revision that answered, whose parameters it was shown.
    fn with_revisions(
        &self,
        realm: RealmId,
        id: SubscriptionId,
        failures: Vec<RecordedFailure>,
    ) -> Result<Vec<RecordedView>, StoreError> {
        let mut revisions = BTreeMap::new();
        let mut views = Vec::with_capacity(failures.len());
        for mut failure in failures {
            let (digest, params) = match revisions.get(&failure.revision) {
                Some(known) => known,
                None => {
                    let row = self.read_revision(realm, id, failure.revision)?;
                    let row = row.ok_or_else(|| {
                        StoreError::Corrupt(format!("revision {} of a record is gone", failure.revision))
                    })?;
                    let known = (row.digest, Arc::from(row.params.as_str()));
                    revisions.entry(failure.revision).or_insert(known)
                }
            };
            failure.context.params = Arc::clone(params);
            views.push(RecordedView { digest: *digest, failure });
        }
        Ok(views)
    }

    /// A revision of a subscription.
    pub(super) fn read_revision(
        &self,
        realm: RealmId,
        id: SubscriptionId,
        number: u32,
    ) -> Result<Option<RevisionRow>, StoreError> {
        let row = self.store.get(Keyspace::Revisions, &key::revision(realm, id, number))?;
        row.map(RevisionRow::decode).transpose()
    }
}
