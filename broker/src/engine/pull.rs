//! Pull: who waits is granted what is due and what is fresh, in turn, within the lease limits.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::command::{Granted, Pull, Refusal, message_id};
use super::state::{Held, Place, Stored, Turn, Waiter};
use super::{Engine, Reply, or_refuse};
use crate::domain::delivery::Delivery;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{RealmId, Sequence, SubscriptionId};
use crate::domain::limits::{MAX_PULL_BYTES, MAX_WAIT, MAX_WAITERS};
use crate::domain::message::Message;
use crate::domain::receipt::Receipt;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

/// Deliveries granted in one turn, over all subscriptions.
const TURN_DELIVERIES: usize = 4_000;
/// Payload bytes granted in one turn, give or take one answer.
const TURN_BYTES: usize = 64 * 1024 * 1024;
/// Messages that the cursor passes at a time beyond those that it grants: delayed, expired or settled ones.
const PASS_ROWS: usize = 1_000;
/// Rows that the lease of a delivery that waited changes.
const CHANGES_OF_A_LEASE: usize = 3;

/// Deliveries on their way to the one who waits for them, once their leases are applied.
pub(super) struct Delivered {
    subscription: SubscriptionId,
    reply: Reply<Vec<Granted>>,
    granted: Vec<Granted>,
}

impl Engine {
    pub(super) fn pull(&mut self, realm: RealmId, request: Pull, reply: Reply<Vec<Granted>>) {
        if self.draining {
            return self.answer(reply, Ok(Vec::new()));
        }
        let id = or_refuse!(self, reply, self.subscription_id(realm, &request.subscription));
        let until = self.now + request.wait.min(MAX_WAIT);
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        if subscription.waiters.len() >= MAX_WAITERS {
            // Those who have gone are found when there is something for them; here they are in the way.
            subscription.waiters.retain(|waiter| !waiter.reply.is_closed());
        }
        if subscription.waiters.len() >= MAX_WAITERS {
            return self.answer(reply, Err(Refusal::TooManyWaiters(MAX_WAITERS)));
        }
        let max_bytes = request.max_bytes.clamp(1, MAX_PULL_BYTES);
        subscription.waiters.push_back(Waiter { max: request.max, until, reply, max_bytes });
        self.touch(id);
    }

    /// Answers the waiting pulls of a subscription, first come first served, as far as there is anything for them.
    pub(super) fn serve(&mut self, id: SubscriptionId, budget: &mut Budget) -> Result<(), StoreError> {
        loop {
            self.fill_due(id)?;
            let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
            subscription.waiters.retain(|waiter| !waiter.reply.is_closed());
            let Some(waiter) = subscription.waiters.front() else { break };
            let allowed = subscription.cursor.circuit.allows(subscription.row.settings.max_in_flight);
            let free = (allowed as usize).saturating_sub(subscription.held.len());
            let want = waiter.max.min(free).min(budget.deliveries);
            let max_bytes = waiter.max_bytes;
            if want == 0 || budget.is_spent() || self.draining {
                if budget.is_spent() {
                    self.ready.insert(id);
                }
                break;
            }
            let mut commit = Commit::with_capacity(want * CHANGES_OF_A_LEASE);
            let (granted, more) = self.take(id, want, max_bytes, &mut commit)?;
            self.pending.push(commit);
            self.changed_subscriptions.insert(id);
            if more && granted.is_empty() {
                // The cursor only passed by what it could not grant: go on in the next turn.
                self.ready.insert(id);
            }
            if granted.is_empty() {
                break;
            }
            budget.spend(&granted);
            let Some(subscription) = self.subscriptions.get_mut(&id) else { break };
            if let Some(waiter) = subscription.waiters.pop_front() {
                self.deliveries.push(Delivered { subscription: id, reply: waiter.reply, granted });
            }
        }
        self.dismiss(id);
        Ok(())
    }

    /// Pulls that have waited long enough get an empty answer.
    fn dismiss(&mut self, id: SubscriptionId) {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let (over, on): (Vec<_>, Vec<_>) =
            subscription.waiters.drain(..).partition(|waiter| waiter.until <= now);
        subscription.waiters.extend(on);
        for waiter in over {
            waiter.answer(Ok(Vec::new()));
        }
        self.changed_subscriptions.insert(id);
    }

    /// Grants up to `want` leases. Redeliveries and fresh messages share them, so that neither starves the other.
    /// Also says whether there is more to look at.
    fn take(
        &mut self,
        id: SubscriptionId,
        want: usize,
        max_bytes: usize,
        commit: &mut Commit,
    ) -> Result<(Vec<Granted>, bool), StoreError> {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok((Vec::new(), false)) };
        let first = subscription.turn;
        subscription.turn = match first {
            Turn::Due => Turn::Fresh,
            Turn::Fresh => Turn::Due,
        };
        let mut batch = Batch { granted: Vec::with_capacity(want), bytes: 0, max_bytes, more: false };
        let share = want.div_ceil(2);
        match first {
            Turn::Due => {
                self.take_due(id, share, &mut batch, commit)?;
                self.take_fresh(id, want, &mut batch, commit)?;
                self.take_due(id, want, &mut batch, commit)?;
            }
            Turn::Fresh => {
                self.take_fresh(id, share, &mut batch, commit)?;
                self.take_due(id, want, &mut batch, commit)?;
                self.take_fresh(id, want, &mut batch, commit)?;
            }
        }
        let fresh = self.subscriptions.get(&id).zip(self.topic_of(id));
        let more = batch.more || fresh.is_some_and(|(s, topic)| s.cursor.next < topic.head.next);
        Ok((batch.granted, more))
    }

    fn take_due(
        &mut self,
        id: SubscriptionId,
        want: usize,
        batch: &mut Batch,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let now = self.now;
        while batch.takes(want) {
            let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
            batch.more |= subscription.due.is_drained();
            let Some((due_at, sequence)) = subscription.due.first().filter(|(at, _)| *at <= now) else {
                return Ok(());
            };
            let at = Place { subscription: id, sequence };
            let realm = subscription.realm;
            let mut delivery = self.waiting_delivery(at, realm)?;
            let message = self.message(at, delivery.replays)?;
            if message.is_expired(now) && !delivery.expiry_waived {
                self.pending.push(std::mem::take(commit));
                self.expire_waiting(at, delivery)?;
                batch.more = true;
                continue;
            }
            let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
            if delivery.grant(now, subscription.row.settings.lease).is_err() {
                return Err(StoreError::Corrupt(format!("delivery {sequence} is not due as its index says")));
            }
            subscription.unstore(at, Stored::Delayed { due_at }, &mut self.waiting, commit);
            self.lease(at, delivery, message, batch, commit);
            commit.split_into(&mut self.pending);
        }
        Ok(())
    }

    /// A delivery that waits, from memory or from its row.
    fn waiting_delivery(&mut self, at: Place, realm: RealmId) -> Result<Delivery, StoreError> {
        if let Some(delivery) = self.waiting.remove(&at) {
            return Ok(delivery);
        }
        let gone = || StoreError::Corrupt(format!("due delivery {} is gone", at.sequence));
        let row = self.store.get(Keyspace::Delayed, &at.key(realm))?;
        Delivery::decode(row.ok_or_else(gone)?)
    }

    /// Lets the cursor move on over messages that nobody has seen.
    fn take_fresh(
        &mut self,
        id: SubscriptionId,
        want: usize,
        batch: &mut Batch,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        if !batch.takes(want) {
            return Ok(());
        }
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        let Some(topic) = self.topics.get(&subscription.row.topic) else { return Ok(()) };
        let (next, end) = (subscription.cursor.next, topic.head.next);
        if next >= end {
            return Ok(());
        }
        let left = want - batch.granted.len();
        let limit = if subscription.cursor.ahead > 0 { left + PASS_ROWS } else { left };
        let range = key::message(subscription.realm, subscription.row.topic, next)
            ..key::message(subscription.realm, subscription.row.topic, end);
        let mut room = batch.max_bytes - batch.bytes;
        let mut read = Vec::with_capacity(limit);
        for row in self.store.scan(Keyspace::Messages, range).take(limit) {
            let (key, value) = row?;
            let sequence = key::read_sequence(&key);
            let sequence =
                sequence.ok_or_else(|| StoreError::Corrupt("a key of messages is too short".to_owned()))?;
            let bytes = value.len();
            read.push((sequence, value));
            // What is read beyond is read in vain.
            if bytes >= room {
                break;
            }
            room -= bytes;
        }
        let Some((last, _)) = read.last() else {
            return Err(StoreError::Corrupt(format!("messages from {next} on are gone")));
        };
        let exceptions = self.exceptions(id, next..=*last)?;
        for (sequence, value) in read {
            if !batch.takes(want) {
                return Ok(());
            }
            let at = Place { subscription: id, sequence };
            if exceptions.contains(&sequence) {
                self.pass_by(at);
            } else {
                self.pass(at, Arc::new(Message::decode(value)?), batch, commit)?;
                commit.split_into(&mut self.pending);
            }
        }
        Ok(())
    }

    /// The cursor comes to a message that has a row of its own already, or has ended.
    fn pass_by(&mut self, at: Place) {
        if let Some(subscription) = self.subscriptions.get_mut(&at.subscription) {
            subscription.cursor.next = at.sequence + 1;
            subscription.cursor.ahead = subscription.cursor.ahead.saturating_sub(1);
        }
    }

    /// The cursor comes to a message: it grants it, or leaves rows behind that bring it back in time.
    fn pass(
        &mut self,
        at: Place,
        message: Arc<Message>,
        batch: &mut Batch,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else { return Ok(()) };
        subscription.cursor.next = at.sequence + 1;
        // Never longer than its delay, even if the clock was turned back over a restart.
        let delay = message.available_at.since(message.published_at);
        let due_at = message.available_at.min(now + delay);
        let expired = message.is_expired(now);
        let mut delivery = Delivery::new(if expired { now } else { due_at });
        if expired {
            subscription.store_delayed(at, &delivery, now, commit);
            self.pending.push(std::mem::take(commit));
            return self.expire_waiting(at, delivery).map(|_| ());
        }
        if due_at > now {
            subscription.store_delayed(at, &delivery, due_at, commit);
            return Ok(());
        }
        if delivery.grant(now, subscription.row.settings.lease).is_ok() {
            self.lease(at, delivery, message, batch, commit);
        }
        Ok(())
    }

    fn lease(
        &mut self,
        at: Place,
        delivery: Delivery,
        message: Arc<Message>,
        batch: &mut Batch,
        commit: &mut Commit,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else { return };
        let Some(topic) = self.topics.get(&subscription.row.topic) else { return };
        subscription.store_leased(at, &delivery, commit);
        let receipt = Receipt {
            subscription: at.subscription,
            sequence: at.sequence,
            replays: delivery.replays,
            attempt: delivery.attempt,
        };
        batch.bytes += message.payload.len();
        let id = message_id(subscription.row.topic, at.sequence);
        if delivery.replays == 0 {
            self.messages.insert(id, Arc::clone(&message));
        }
        batch.granted.push(Granted {
            receipt,
            failures: delivery.failures,
            lease_until: delivery.lease_until().unwrap_or(self.now),
            topic: topic.row.name.clone(),
            id,
            message,
        });
        let expires_at = None;
        subscription.hold(at.sequence, Held { delivery, stored: Stored::Leased, expires_at, nack: None });
    }

    /// Sequences among these, which the cursor has yet to pass, that have a row of their own. The rows must be applied,
    /// except for those that move from one keyspace into another.
    fn exceptions(
        &self,
        id: SubscriptionId,
        among: RangeInclusive<Sequence>,
    ) -> Result<BTreeSet<Sequence>, StoreError> {
        let mut found = BTreeSet::new();
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(found) };
        if subscription.cursor.ahead == 0 {
            return Ok(found);
        }
        let range = key::delivery(subscription.realm, id, *among.start())
            ..key::delivery(subscription.realm, id, among.end() + 1);
        for keyspace in [Keyspace::Leased, Keyspace::Delayed, Keyspace::Settled] {
            for row in self.store.scan(keyspace, range.clone()) {
                found.extend(key::read_sequence(&row?.0));
            }
        }
        Ok(found)
    }

    /// Gives deliveries to the one who waited, now that their leases are written. Whoever has gone meanwhile
    /// never saw them: they are given back without fault.
    pub(super) fn hand_out(&mut self, delivered: Delivered) -> Result<(), StoreError> {
        let Delivered { subscription, reply, granted } = delivered;
        if let Err(Ok(unseen)) = reply.send(Ok(granted)) {
            for granted in unseen {
                let failure = Failure::of(Cause::Released);
                // Not stale: nobody else has seen the receipt.
                _ = self.fail(subscription, granted.receipt, failure, None)?;
            }
        }
        Ok(())
    }
}

/// What one turn may still grant.
pub(super) struct Budget {
    deliveries: usize,
    bytes: usize,
}

impl Budget {
    pub(super) const fn of_a_turn() -> Self {
        Self { deliveries: TURN_DELIVERIES, bytes: TURN_BYTES }
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.deliveries == 0 || self.bytes == 0
    }

    fn spend(&mut self, granted: &[Granted]) {
        let bytes: usize = granted.iter().map(|granted| granted.message.payload.len()).sum();
        self.deliveries = self.deliveries.saturating_sub(granted.len());
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Leases being granted to one pull.
struct Batch {
    granted: Vec<Granted>,
    bytes: usize,
    max_bytes: usize,
    more: bool,
}

impl Batch {
    fn takes(&self, want: usize) -> bool {
        self.granted.len() < want && self.bytes < self.max_bytes
    }
}
