//! Ack, nack, release and extend: what a consumer says about its leases.

use std::time::Duration;

use foldhash::HashMap;

use super::backlog::{Backlog, End, Held, Place, Stored};
use super::order::KeyHash;
use super::state::Subscription;
use super::{Answer, Engine, Reply, or_refuse};
use crate::domain::decision::Decision;
use crate::domain::delivery::{Acked, Delivery, ExtendError, Stale, State};
use crate::domain::failure::Failure;
use crate::domain::id::{RealmId, SubscriptionId};
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::row::{Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError};

/// Settles deliveries as done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Whose.
    pub subscription: Name,
    /// Which leases.
    pub receipts: Vec<Receipt>,
}

/// What became of one receipt of an ack.
pub type AckResult = Result<Acked, SettleError>;

/// Ends attempts badly, or gives them back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// Whose.
    pub subscription: Name,
    /// Which leases, and why.
    pub items: Vec<(Receipt, Failure)>,
}

/// What became of one item of a nack.
pub type NackResult = Result<Decided, SettleError>;

/// A decision that was committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// What was decided.
    pub decision: Decision,
    /// When the next attempt is due, after a retry.
    pub next_attempt_at: Option<Timestamp>,
}

/// Moves the deadlines of leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extend {
    /// Whose.
    pub subscription: Name,
    /// Which leases, and how long from now; `None` is the subscription's lease.
    pub items: Vec<(Receipt, Option<Duration>)>,
}

/// What became of one item of an extend: the new deadline.
pub type ExtendResult = Result<Timestamp, SettleError>;

/// Why one item of a batch failed. The delivery is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettleError {
    /// Not a receipt of this subscription.
    #[error("not a receipt of this subscription")]
    InvalidReceipt,
    /// The lease is over.
    #[error("the lease of this receipt is over: it was settled, ran out, or was granted again")]
    StaleReceipt,
    /// The attempt would hold the delivery too long.
    #[error("the lease cannot last longer than max_lease in all")]
    MaxLease {
        /// The latest moment it can be extended to.
        until: Timestamp,
    },
}

impl From<Stale> for SettleError {
    fn from(Stale: Stale) -> Self {
        Self::StaleReceipt
    }
}

impl From<ExtendError> for SettleError {
    fn from(error: ExtendError) -> Self {
        match error {
            ExtendError::Stale => Self::StaleReceipt,
            ExtendError::MaxLease { until } => Self::MaxLease { until },
        }
    }
}

impl Engine {
    pub(super) fn ack(
        &mut self,
        realm: RealmId,
        request: Ack,
        reply: Reply<Vec<AckResult>>,
    ) -> Result<(), StoreError> {
        let id = or_refuse!(try self, reply, self.subscription_id(realm, &request.subscription));
        let mut commit = Commit::with_capacity(2 * request.receipts.len());
        let mut results = Vec::with_capacity(request.receipts.len());
        let ordered = self.subscriptions.get(&id).is_some_and(Subscription::is_ordered);
        for receipt in request.receipts {
            if ordered {
                // Two of them may be of one key, and the end of one looks for the next among the rows.
                self.pending.push(std::mem::take(&mut commit));
                self.apply()?;
            }
            results.push(self.ack_one(id, receipt, &mut commit)?);
            commit.split_into(&mut self.pending);
        }
        self.pending.push(commit);
        self.answer(reply, Ok(results));
        Ok(())
    }

    fn ack_one(
        &mut self,
        id: SubscriptionId,
        receipt: Receipt,
        commit: &mut Commit,
    ) -> Result<AckResult, StoreError> {
        let now = self.now;
        let at = Place::of(&receipt);
        let backlog = match self.backlog_of(id, &receipt) {
            Ok(backlog) => backlog,
            Err(error) => return Ok(Err(error)),
        };
        let Some(held) = backlog.held.get(&receipt.sequence) else {
            return self.ack_late(at, receipt, commit);
        };
        let acked = match held.delivery.ack(receipt.replays, receipt.attempt) {
            Ok(acked) => {
                Acked { late: acked.late || held.delivery.lease_until().is_some_and(|at| at <= now) }
            }
            Err(stale) => return Ok(Err(stale.into())),
        };
        if let Some(held) = self.let_go(at) {
            let Held { delivery, stored, key, .. } = held;
            self.end_acked(at, delivery, stored, key, commit)?;
        }
        Ok(Ok(acked))
    }

    /// An ack for a lease that ran out and was decided, while nobody else holds the delivery.
    fn ack_late(
        &mut self,
        at: Place,
        receipt: Receipt,
        commit: &mut Commit,
    ) -> Result<AckResult, StoreError> {
        // The rows have to be as the items before this one left them.
        self.pending.push(std::mem::take(commit));
        self.apply()?;
        let (realm, ordered) = match self.subscriptions.get(&at.subscription) {
            Some(subscription) => (subscription.realm, subscription.is_ordered()),
            None => return Ok(Err(SettleError::InvalidReceipt)),
        };
        let Some(row) = self.store.get(Keyspace::Delayed, &at.key(realm))? else {
            return Ok(Err(SettleError::StaleReceipt));
        };
        let delivery = Delivery::decode(row)?;
        let (acked, due_at) = match (delivery.ack(receipt.replays, receipt.attempt), &delivery.state) {
            (Ok(acked), State::Waiting { due_at }) => (acked, *due_at),
            _ => return Ok(Err(SettleError::StaleReceipt)),
        };
        let key = if ordered { self.key_of(at, &*self.message(at, delivery.replays)?) } else { None };
        self.end_acked(at, delivery, Stored::Delayed { due_at }, key, commit)?;
        Ok(Ok(acked))
    }

    fn end_acked(
        &mut self,
        at: Place,
        delivery: Delivery,
        stored: Stored,
        key: Option<KeyHash>,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        self.unlock(at, key, commit)?;
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else { return Ok(()) };
        backlog.unstore(at, stored, key, &mut self.waiting, commit);
        if let State::Leased { leased_at, .. } = delivery.state {
            subscription.cursor.circuit.acked(leased_at);
        }
        backlog.store_end(at, End { ending: Ending::Acked, now, delivery }, kept, commit);
        subscription.load.acked(now);
        self.touch_at(at);
        Ok(())
    }

    /// Whoever ends a delivery may look for others among the rows, which have to be there: for the next of its key where
    /// deliveries are ordered, for an earlier dead letter where there are some.
    pub(super) fn apply_before_ends(
        &mut self,
        ends: impl IntoIterator<Item = Place>,
    ) -> Result<(), StoreError> {
        let looks = |at: Place| {
            self.subscriptions.get(&at.subscription).is_some_and(Subscription::is_ordered)
                || self.backlogs.get(&at.backlog).is_some_and(|it| it.row.dead > 0)
        };
        if ends.into_iter().any(looks) { self.apply() } else { Ok(()) }
    }

    pub(super) fn nack(
        &mut self,
        realm: RealmId,
        request: Nack,
        reply: Reply<Vec<NackResult>>,
    ) -> Result<(), StoreError> {
        let id = or_refuse!(try self, reply, self.subscription_id(realm, &request.subscription));
        self.apply_before_ends(request.items.iter().map(|(receipt, _)| Place::of(receipt)))?;
        let batch = self.nacks.open(request.items.len(), reply, &mut self.answers);
        for (index, (receipt, failure)) in request.items.into_iter().enumerate() {
            let slot = NackSlot { batch, index };
            if let Err(error) = self.nack_one(id, receipt, failure, slot)? {
                self.nacks.fill(slot, Err(error), &mut self.answers);
            }
        }
        Ok(())
    }

    fn nack_one(
        &mut self,
        id: SubscriptionId,
        receipt: Receipt,
        failure: Failure,
        slot: NackSlot,
    ) -> Result<Result<(), SettleError>, StoreError> {
        match self.backlog_of(id, &receipt) {
            Ok(_) => self.fail(receipt, failure, Some(slot)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Ends a lease badly and asks the policy, or decides where none is to be asked.
    pub(super) fn fail(
        &mut self,
        receipt: Receipt,
        failure: Failure,
        nack: Option<NackSlot>,
    ) -> Result<Result<(), SettleError>, StoreError> {
        let now = self.now;
        let at = Place::of(&receipt);
        let held = self.backlogs.get_mut(&at.backlog).and_then(|it| it.held.get_mut(&at.sequence));
        let Some(held) = held else { return Ok(Err(SettleError::StaleReceipt)) };
        let lease_until = held.delivery.lease_until();
        let counts = failure.cause.is_failure();
        if let Err(stale) = held.delivery.fail(receipt.replays, receipt.attempt, failure, now) {
            return Ok(Err(stale.into()));
        }
        held.nack = nack;
        if let Some(subscription) = self.subscriptions.get_mut(&at.subscription) {
            lease_until.map(|until| subscription.leases.remove(&(until, at.backlog, at.sequence)));
            if counts {
                subscription.load.failed(now);
            }
        }
        self.decide(at)?;
        Ok(Ok(()))
    }

    pub(super) fn extend(&mut self, realm: RealmId, request: Extend, reply: Reply<Vec<ExtendResult>>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, &request.subscription));
        let mut commit = Commit::default();
        let mut results = Vec::with_capacity(request.items.len());
        for (receipt, lease) in request.items {
            results.push(self.extend_one(id, receipt, lease, &mut commit));
            commit.split_into(&mut self.pending);
        }
        self.pending.push(commit);
        self.touch(id);
        self.answer(reply, Ok(results));
    }

    fn extend_one(
        &mut self,
        id: SubscriptionId,
        receipt: Receipt,
        lease: Option<Duration>,
        commit: &mut Commit,
    ) -> ExtendResult {
        let now = self.now;
        let at = Place::of(&receipt);
        self.backlog_of(id, &receipt)?;
        let subscription = self.subscriptions.get_mut(&id).ok_or(SettleError::InvalidReceipt)?;
        let backlog = self.backlogs.get_mut(&at.backlog).ok_or(SettleError::StaleReceipt)?;
        let settings = &subscription.row.settings;
        let held = backlog.held.get_mut(&at.sequence).ok_or(SettleError::StaleReceipt)?;
        let old = held.delivery.lease_until();
        let lease = lease.unwrap_or(settings.lease);
        let until = held.delivery.extend(receipt.replays, receipt.attempt, now, lease, settings.max_lease)?;
        if let Some(old) = old {
            subscription.leases.remove(&(old, at.backlog, at.sequence));
        }
        subscription.leases.insert((until, at.backlog, at.sequence));
        commit.put(Keyspace::Leased, at.key(backlog.realm), held.delivery.encode());
        Ok(until)
    }

    /// The backlog of a receipt, if that is of this subscription and of nothing that a seek or a purge has ended.
    fn backlog_of(&self, id: SubscriptionId, receipt: &Receipt) -> Result<&Backlog, SettleError> {
        if receipt.subscription != id {
            return Err(SettleError::InvalidReceipt);
        }
        self.backlogs.get(&receipt.backlog).ok_or(SettleError::StaleReceipt)
    }
}

/// Nacks whose items are not all decided yet: an answer goes out when the last one is.
#[derive(Default)]
pub(super) struct Nacks {
    batches: HashMap<u64, NackBatch>,
    next: u64,
}

struct NackBatch {
    results: Vec<Option<NackResult>>,
    missing: usize,
    reply: Reply<Vec<NackResult>>,
}

/// Where the result of one nacked delivery goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NackSlot {
    batch: u64,
    index: usize,
}

impl Nacks {
    fn open(&mut self, items: usize, reply: Reply<Vec<NackResult>>, answers: &mut Vec<Answer>) -> u64 {
        let batch = self.next;
        self.next += 1;
        if items == 0 {
            answers.push(Box::new(move || _ = reply.send(Ok(Vec::new()))));
        } else {
            let results = vec![None; items];
            self.batches.insert(batch, NackBatch { results, missing: items, reply });
        }
        batch
    }

    /// One item has its result, which becomes durable with everything changed so far.
    pub(super) fn fill(&mut self, slot: NackSlot, result: NackResult, answers: &mut Vec<Answer>) {
        let Some(batch) = self.batches.get_mut(&slot.batch) else { return };
        let Some(place) = batch.results.get_mut(slot.index) else { return };
        if place.replace(result).is_none() {
            batch.missing -= 1;
        }
        if batch.missing == 0
            && let Some(batch) = self.batches.remove(&slot.batch)
        {
            let results = batch.results.into_iter().flatten().collect();
            answers.push(Box::new(move || _ = batch.reply.send(Ok(results))));
        }
    }

    /// The delivery went away while it was being decided.
    pub(super) fn stale(&mut self, slot: Option<NackSlot>, answers: &mut Vec<Answer>) {
        if let Some(slot) = slot {
            self.fill(slot, Err(SettleError::StaleReceipt), answers);
        }
    }

    pub(super) fn decided(&mut self, slot: Option<NackSlot>, decided: Decided, answers: &mut Vec<Answer>) {
        if let Some(slot) = slot {
            self.fill(slot, Ok(decided), answers);
        }
    }
}
