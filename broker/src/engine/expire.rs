//! What happens because time passed: leases run out, times to live pass, circuits half-open.

use std::time::Duration;

use super::backlog::{Held, Place, Stored};
use super::window::Window;
use super::{Engine, STEP_ROWS};
use crate::domain::delivery::{Delivery, State};
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{BacklogId, Sequence, SubscriptionId, TopicId};
use crate::domain::time::Timestamp;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, Store, StoreError, key};

/// How often a message whose time to live has passed is looked at again while it is still outstanding.
const EXPIRE_AGAIN: Duration = Duration::from_secs(30);

impl Engine {
    pub(super) fn tick_subscription(&mut self, id: SubscriptionId) -> Result<(), StoreError> {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        subscription.cursor.circuit.tick(now);
        let ran_out = subscription.leases.iter().take_while(|(until, ..)| *until <= now).take(STEP_ROWS);
        let ran_out: Vec<Place> = ran_out
            .map(|(_, backlog, sequence)| Place { subscription: id, backlog: *backlog, sequence: *sequence })
            .collect();
        self.apply_before_ends(ran_out.iter().copied())?;
        for at in ran_out {
            if let Some(receipt) = self.held(at).map(|held| at.receipt(&held.delivery)) {
                // Never stale: it is what is held.
                _ = self.fail(receipt, Failure::of(Cause::LeaseExpired), None)?;
            }
        }
        self.trim_records(id)?;
        self.touch(id);
        Ok(())
    }

    /// Asks the policies about messages whose time to live has passed, on every subscription that still waits
    /// to deliver them. A leased one is left to its consumer.
    pub(super) fn expire_messages(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.fill_expiries(id)?;
        let mut looked_at = 0;
        // One message more may be looked at on every subscription of the topic.
        while looked_at < STEP_ROWS {
            self.apply()?;
            let Some(topic) = self.topics.get_mut(&id) else { return Ok(()) };
            let Some((at, sequence)) = topic.expiries.first().filter(|(at, _)| *at <= self.now) else {
                return Ok(());
            };
            topic.expiries.remove(at, sequence);
            let (realm, backlogs) = (topic.realm, topic.backlogs.clone());
            let mut open = false;
            looked_at += backlogs.len().max(1);
            for backlog in backlogs {
                if let Some(at) = self.backlogs.get(&backlog).map(|it| it.place(sequence)) {
                    open |= self.expire_delivery(at)?;
                }
            }
            let mut commit = Commit::default();
            commit.delete(Keyspace::Expiries, key::expiry(realm, id, at, sequence));
            if open {
                // Until it is decided, in case the broker dies before that.
                let again = self.now + EXPIRE_AGAIN;
                commit.put(Keyspace::Expiries, key::expiry(realm, id, again, sequence), Vec::new());
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.expiries.insert(again, sequence);
                }
            }
            self.pending.push(commit);
        }
        Ok(())
    }

    /// Whether the time to live still matters to this delivery.
    fn expire_delivery(&mut self, at: Place) -> Result<bool, StoreError> {
        let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(false) };
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(false) };
        if let Some(held) = backlog.held.get(&at.sequence) {
            return Ok(!held.delivery.expiry_waived);
        }
        let key = at.key(backlog.realm);
        if let Some(row) = self.store.get(Keyspace::Delayed, &key)? {
            return self.expire_waiting(at, Delivery::decode(row)?);
        }
        // In the order of keys it has its turn first.
        let passes = subscription.is_live() || subscription.is_ordered();
        let fresh = at.sequence >= backlog.row.next && !passes;
        if fresh && self.store.get(Keyspace::Settled, &key)?.is_none() && self.is_wanted(at)? {
            // The cursor has yet to come by: from here on the delivery is an exception with rows of its own.
            let delivery = Delivery::new(self.now);
            let mut commit = Commit::default();
            if let Some(backlog) = self.backlogs.get_mut(&at.backlog) {
                backlog.store_delayed(at, &delivery, self.now, &mut commit);
            }
            self.pending.push(commit);
            return self.expire_waiting(at, delivery);
        }
        Ok(false)
    }

    /// Whether the filter of the subscription lets this message of the topic through.
    fn is_wanted(&self, at: Place) -> Result<bool, StoreError> {
        let filtering =
            self.subscriptions.get(&at.subscription).filter(|it| it.row.settings.filter.is_some());
        let Some(subscription) = filtering else { return Ok(true) };
        Ok(subscription.wants(&*self.message(at, 0)?))
    }

    /// Asks about a delivery that waits, with its rows as they are on disk or pending. Says whether the time to
    /// live matters to it.
    pub(super) fn expire_waiting(&mut self, at: Place, mut delivery: Delivery) -> Result<bool, StoreError> {
        let State::Waiting { due_at } = delivery.state else { return Ok(false) };
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(false) };
        if delivery.expire(self.now).is_err() {
            return Ok(false);
        }
        backlog.due.remove(due_at, at.sequence);
        self.hold(at, Held::new(delivery, Stored::Delayed { due_at }));
        self.touch_at(at);
        self.decide(at)?;
        Ok(true)
    }

    fn fill_expiries(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.apply()?;
        let Some(topic) = self.topics.get_mut(&id) else { return Ok(()) };
        if topic.expiries.is_drained() {
            let prefix = key::topic(topic.realm, id);
            let entries = next_entries(&*self.store, Keyspace::Expiries, prefix, &topic.expiries)?;
            topic.expiries.fill(entries);
        }
        Ok(())
    }

    /// Reads on in the due-time index if memory holds nothing more of it. Between transitions only.
    pub(super) fn fill_due(&mut self, id: BacklogId) -> Result<usize, StoreError> {
        if !self.backlogs.get(&id).is_some_and(|backlog| backlog.due.is_drained()) {
            return Ok(0);
        }
        self.apply()?;
        let mut read = 0;
        if let Some(backlog) = self.backlogs.get_mut(&id) {
            let prefix = key::backlog(backlog.realm, id);
            let entries = next_entries(&*self.store, Keyspace::Due, prefix, &backlog.due)?;
            // What is being decided keeps its row until then, and must not be taken once more.
            let held = entries.iter().filter(|(_, sequence)| backlog.held.contains_key(sequence));
            let held: Vec<_> = held.copied().collect();
            read = entries.len();
            backlog.due.fill(entries);
            for (due_at, sequence) in held {
                backlog.due.remove(due_at, sequence);
            }
        }
        Ok(read)
    }
}

/// The next entries of an index whose keys are `prefix | at u64 | sequence u64`, behind the window's horizon.
fn next_entries(
    store: &dyn Store,
    keyspace: Keyspace,
    prefix: Vec<u8>,
    window: &Window,
) -> Result<Vec<(Timestamp, Sequence)>, StoreError> {
    let mut range = key::prefixed(prefix);
    if let Some((at, sequence)) = window.horizon() {
        range.start.extend_from_slice(&at.as_millis().to_be_bytes());
        range.start.extend_from_slice(&(sequence + 1).to_be_bytes());
    }
    let rows = store.scan(keyspace, range).take(Window::BATCH);
    rows.map(|row| {
        let (key, _) = row?;
        let entry = key::read_moment(&key).zip(key::read_sequence(&key));
        entry.ok_or_else(|| StoreError::short_key(keyspace))
    })
    .collect()
}
