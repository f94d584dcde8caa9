//! What a pull takes: what is due and what is fresh, in turn, from one topic after the other.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::backlog::{Backlog, End, Held, Place, Stored, Turn};
use super::order::KeyHash;
use super::pull::Granted;
use crate::domain::delivery::{Delivery, State};
use crate::domain::id::{BacklogId, RealmId, Sequence, SubscriptionId};
use crate::domain::message::Message;
use crate::domain::time::Timestamp;
use crate::store::row::{Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Messages that the cursor passes at a time beyond those that it grants: delayed, expired, settled or filtered ones.
const PASS_ROWS: usize = 1_000;
/// Messages looked at in one turn, over all subscriptions: give or take one subscription's.
pub(super) const TURN_ROWS: usize = 20_000;
/// What it costs to find that another of its key is outstanding, in messages looked at.
const COST_OF_A_BLOCK: usize = 4;
/// Rows that the lease of a delivery that waited changes.
const CHANGES_OF_A_LEASE: usize = 3;

/// Whoever a pull is for, and the payload bytes that it takes.
pub(super) struct Taker {
    pub(super) consumer: Option<Arc<str>>,
    pub(super) max_bytes: usize,
}

/// Leases being granted to one pull.
pub(super) struct Batch {
    pub(super) granted: Vec<Granted>,
    pub(super) settled: Vec<Delivery>,
    taker: Taker,
    bytes: usize,
    pub(super) looked_at: usize,
}

impl Batch {
    fn takes(&self, want: usize) -> bool {
        self.granted.len() < want && self.bytes < self.taker.max_bytes
    }
}

impl Engine {
    /// Grants up to `want` leases, from one active backlog after the other: the next pull begins behind the last.
    pub(super) fn take(
        &mut self,
        id: SubscriptionId,
        want: usize,
        taker: Taker,
    ) -> Result<Batch, StoreError> {
        let granted = Vec::with_capacity(want);
        let mut batch = Batch { granted, settled: Vec::new(), taker, bytes: 0, looked_at: 0 };
        let active = self.subscriptions.get(&id).map_or(0, |it| it.active.len());
        for _ in 0..active {
            if !batch.takes(want) || batch.looked_at >= TURN_ROWS {
                break;
            }
            let Some(subscription) = self.subscriptions.get_mut(&id) else { break };
            let Some(next) = subscription.active_behind(subscription.last_taken) else { break };
            subscription.last_taken = next;
            batch.looked_at += 1;
            self.take_from(next, want, &mut batch)?;
            // The next one may apply what this one left to be written.
            self.changed_backlogs.insert(next);
            self.changed_subscriptions.insert(id);
            self.look_at(next);
        }
        Ok(batch)
    }

    /// Redeliveries and fresh messages share them, so that neither starves the other.
    fn take_from(&mut self, id: BacklogId, want: usize, batch: &mut Batch) -> Result<(), StoreError> {
        batch.looked_at += self.fill_due(id)?;
        let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(()) };
        let first = backlog.turn;
        backlog.turn = match first {
            Turn::Due => Turn::Fresh,
            Turn::Fresh => Turn::Due,
        };
        let left = want - batch.granted.len();
        let share = batch.granted.len() + left.div_ceil(2);
        let likely = left.min(usize::try_from(backlog.counted.backlog).unwrap_or(left));
        let mut commit = Commit::with_capacity(likely * CHANGES_OF_A_LEASE);
        match first {
            Turn::Due => {
                self.take_due(id, share, batch, &mut commit)?;
                self.take_fresh(id, want, batch, &mut commit)?;
                self.take_due(id, want, batch, &mut commit)?;
            }
            Turn::Fresh => {
                self.take_fresh(id, share, batch, &mut commit)?;
                self.take_due(id, want, batch, &mut commit)?;
                self.take_fresh(id, want, batch, &mut commit)?;
            }
        }
        if !commit.is_empty() {
            self.pending.push(commit);
        }
        Ok(())
    }

    fn take_due(
        &mut self,
        id: BacklogId,
        want: usize,
        batch: &mut Batch,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let now = self.now;
        let mut held_up = 0;
        while batch.takes(want) {
            if held_up == PASS_ROWS {
                return Ok(());
            }
            let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(()) };
            let Some((due_at, sequence)) = backlog.due.first().filter(|(at, _)| *at <= now) else {
                return Ok(());
            };
            batch.looked_at += 1;
            let (at, realm) = (backlog.place(sequence), backlog.realm);
            let mut delivery = self.waiting_delivery(at, realm)?;
            let message = self.message(at, delivery.replays)?;
            if message.is_expired(now) && !delivery.expiry_waived {
                self.pending.push(std::mem::take(commit));
                self.touch_at(at);
                self.apply_before_ends([at])?;
                self.expire_waiting(at, delivery)?;
                held_up += 1;
                continue;
            }
            let key = self.key_of(at, &message);
            if !self.lock(at, realm, key, commit)? {
                self.block(at, due_at, key, commit);
                batch.looked_at += COST_OF_A_BLOCK;
                held_up += 1;
                continue;
            }
            let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(()) };
            if delivery.grant(now, subscription.row.settings.lease).is_err() {
                return Err(StoreError::Corrupt(format!("delivery {sequence} is not due as its index says")));
            }
            let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(()) };
            backlog.unstore(at, Stored::Delayed { due_at }, None, &mut self.waiting, commit);
            self.hand_over(at, delivery, message, key, batch, commit);
            commit.split_into(&mut self.pending);
        }
        Ok(())
    }

    /// A delivery that is due, while another of its key is outstanding, waits for that one instead.
    fn block(&mut self, at: Place, due_at: Timestamp, key: Option<KeyHash>, commit: &mut Commit) {
        let Some((key, backlog)) = key.zip(self.backlogs.get_mut(&at.backlog)) else { return };
        backlog.unstore_due(at, due_at, commit);
        backlog.store_turn(at, key, commit);
        commit.split_into(&mut self.pending);
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
        id: BacklogId,
        want: usize,
        batch: &mut Batch,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        if !batch.takes(want) {
            return Ok(());
        }
        let Some(backlog) = self.backlogs.get(&id) else { return Ok(()) };
        let Some(topic) = self.topics.get(&backlog.topic) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get(&backlog.subscription) else { return Ok(()) };
        // What the topic no longer holds is not waited for.
        let (next, end) = (backlog.row.next.max(topic.head.first), topic.head.next);
        if next >= end || backlog.waits_for(next, self.now) {
            return Ok(());
        }
        let left = want - batch.granted.len();
        let passes = backlog.row.ahead > 0 || subscription.row.settings.filter.is_some();
        let limit = if passes { left + PASS_ROWS } else { left };
        let limit = limit.min(usize::try_from(end - next).unwrap_or(limit));
        let range =
            key::message(backlog.realm, backlog.topic, next)..key::message(backlog.realm, backlog.topic, end);
        let mut room = batch.taker.max_bytes - batch.bytes;
        let mut read = Vec::with_capacity(limit);
        for row in self.store.scan(Keyspace::Messages, range).take(limit) {
            let (key, value) = row?;
            let sequence =
                key::read_sequence(&key).ok_or_else(|| StoreError::short_key(Keyspace::Messages))?;
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
        batch.looked_at += read.len();
        let exceptions = self.exceptions(id, next..=*last)?;
        for (sequence, value) in read {
            if !batch.takes(want) {
                return Ok(());
            }
            let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(()) };
            let Some(subscription) = self.subscriptions.get(&backlog.subscription) else { return Ok(()) };
            let at = backlog.place(sequence);
            if exceptions.contains(&sequence) {
                backlog.pass_by(sequence);
                continue;
            }
            let message = Message::decode(value)?;
            if !subscription.wants(&message) {
                backlog.row.next = sequence + 1;
                continue;
            }
            let delay = subscription.row.settings.delivery_delay;
            if backlog.stands_before(sequence, &message, delay, self.now) {
                return Ok(());
            }
            self.pass(at, Arc::new(message), batch, commit)?;
            commit.split_into(&mut self.pending);
        }
        Ok(())
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
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(()) };
        backlog.row.next = at.sequence + 1;
        // Never longer than its delay, even if the clock was turned back over a restart.
        let delay = message.available_at.since(message.published_at);
        let due_at = message.available_at.min(now + delay);
        let expired = message.is_expired(now);
        if subscription.is_live() && (expired || due_at > now) {
            // Nothing is kept for later.
            return Ok(());
        }
        let mut delivery = Delivery::new(if expired { now } else { due_at });
        let (realm, lease) = (backlog.realm, subscription.row.settings.lease);
        let key = self.key_of(at, &message).filter(|_| expired || due_at <= now);
        let has_turn = self.lock(at, realm, key, commit)?;
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        if !has_turn {
            key.into_iter().for_each(|key| backlog.store_blocked(at, key, &delivery, commit));
            batch.looked_at += COST_OF_A_BLOCK;
            return Ok(());
        }
        if expired {
            backlog.store_delayed(at, &delivery, now, commit);
            self.pending.push(std::mem::take(commit));
            return self.expire_waiting(at, delivery).map(|_| ());
        }
        if due_at > now {
            backlog.store_delayed(at, &delivery, due_at, commit);
            return Ok(());
        }
        if delivery.grant(now, lease).is_ok() {
            self.hand_over(at, delivery, message, key, batch, commit);
        }
        Ok(())
    }

    /// A delivery that was granted goes to whoever asked: under a lease, or for good.
    fn hand_over(
        &mut self,
        at: Place,
        delivery: Delivery,
        message: Arc<Message>,
        key: Option<KeyHash>,
        batch: &mut Batch,
        commit: &mut Commit,
    ) {
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else { return };
        let Some(topic) = self.topics.get(&backlog.topic) else { return };
        let topic = topic.row.name.clone();
        let receipt = at.receipt(&delivery);
        let (failures, lease_until) = (delivery.failures, delivery.lease_until());
        batch.bytes += message.payload.len();
        let id = backlog.message_id(at.sequence);
        let settles = subscription.row.settings.mode.settles_on_delivery();
        if settles {
            let before = Delivery { attempt: delivery.attempt.saturating_sub(1), ..delivery.clone() };
            batch.settled.push(Delivery { state: State::Waiting { due_at: now }, ..before });
            let end = End { ending: Ending::Acked, now, delivery };
            backlog.store_end(at, end, kept, commit);
            subscription.load.acked(now);
            subscription.cursor.circuit.acked(now);
        } else {
            backlog.store_leased(at, &delivery, commit);
            if delivery.replays == 0 {
                self.messages.insert(id, Arc::clone(&message));
            }
            let consumer = batch.taker.consumer.clone();
            self.hold(at, Held { key, consumer, ..Held::new(delivery, Stored::Leased) });
        }
        batch.granted.push(Granted {
            receipt,
            failures,
            lease_until: lease_until.filter(|_| !settles),
            topic,
            id,
            message,
        });
    }

    /// Sequences among these, which the cursor has yet to pass, that have a row of their own. The rows must be applied,
    /// except for those that move from one keyspace into another.
    fn exceptions(
        &self,
        id: BacklogId,
        among: RangeInclusive<Sequence>,
    ) -> Result<BTreeSet<Sequence>, StoreError> {
        let mut found = BTreeSet::new();
        let Some(backlog) = self.backlogs.get(&id).filter(|it| it.row.ahead > 0) else { return Ok(found) };
        let realm = backlog.realm;
        let range = key::delivery(realm, id, *among.start())..key::delivery(realm, id, among.end() + 1);
        for keyspace in [Keyspace::Leased, Keyspace::Delayed, Keyspace::Settled] {
            for row in self.store.scan(keyspace, range.clone()) {
                found.extend(key::read_sequence(&row?.0));
            }
        }
        Ok(found)
    }
}

impl Backlog {
    /// The cursor comes to a message that has a row of its own already, or has ended.
    fn pass_by(&mut self, sequence: Sequence) {
        self.row.next = sequence + 1;
        self.row.ahead = self.row.ahead.saturating_sub(1);
    }

    /// Whether the cursor is known to wait for this message.
    fn waits_for(&self, sequence: Sequence, now: Timestamp) -> bool {
        self.fresh_at.is_some_and(|(at, until)| at == sequence && until > now)
    }

    /// Whether the cursor has to wait for this message, and with it for all that were published later.
    fn stands_before(
        &mut self,
        sequence: Sequence,
        message: &Message,
        delay: Duration,
        now: Timestamp,
    ) -> bool {
        // Never longer than the delay, even if the clock was turned back over a restart.
        let until = match self.fresh_at {
            Some((at, until)) if at == sequence => until,
            _ => (message.published_at + delay).min(now + delay),
        };
        let waits = until > now;
        self.fresh_at = waits.then_some((sequence, until));
        waits
    }
}
