//! Pull: who waits is served, first come first, within the limits of the subscription and of the turn.

use std::sync::Arc;
use std::time::Duration;

use super::backlog::Place;
use super::command::Refusal;
use super::state::{Subscription, Waiter};
use super::take::{Batch, TURN_ROWS, Taker};
use super::{Engine, Reply, or_refuse};
use crate::domain::delivery::Delivery;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{MessageId, RealmId, SubscriptionId};
use crate::domain::limits::{LIVE_LINGER, MAX_PULL_BYTES, MAX_WAIT, MAX_WAITERS};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError};

/// Asks for deliveries, and waits for the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pull {
    /// From where.
    pub subscription: Name,
    /// At most so many.
    pub max: usize,
    /// How long to wait if there are none.
    pub wait: Duration,
    /// Who asks, where consumers are told apart.
    pub consumer: Option<Arc<str>>,
    /// Payload bytes, give or take one message.
    pub max_bytes: usize,
}

/// A delivery under a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Which lease.
    pub receipt: Receipt,
    /// Failures so far.
    pub failures: u32,
    /// Until when it is held; `None` if it was settled as it was handed out.
    pub lease_until: Option<Timestamp>,
    /// The topic's name.
    pub topic: Name,
    /// The message's id.
    pub id: MessageId,
    /// The message.
    pub message: Arc<Message>,
}

/// Deliveries granted in one turn, over all subscriptions.
const TURN_DELIVERIES: usize = 4_000;
/// Payload bytes granted in one turn, give or take one answer.
const TURN_BYTES: usize = 64 * 1024 * 1024;

/// Deliveries on their way to the one who waits for them, once their leases are applied.
pub(super) struct Delivered {
    reply: Reply<Vec<Granted>>,
    granted: Vec<Granted>,
    /// What they were before, where they were settled as they were granted.
    settled: Vec<Delivery>,
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
        if subscription.is_live()
            && subscription.waiters.is_empty()
            && subscription.connected_until <= self.now
        {
            // Nobody listened: what was published meanwhile is not for whoever comes now.
            self.begin_live(id);
        }
        let Pull { max, max_bytes, consumer, .. } = request;
        let max_bytes = max_bytes.clamp(1, MAX_PULL_BYTES);
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        subscription.waiters.push_back(Waiter { max, max_bytes, until, consumer, reply });
        self.touch(id);
    }

    /// Every cursor of a live subscription goes to the end of its topic.
    pub(super) fn begin_live(&mut self, id: SubscriptionId) {
        let backlogs = self.subscriptions.get(&id).map(|subscription| subscription.backlogs.clone());
        for id in backlogs.into_iter().flatten() {
            let Some(backlog) = self.backlogs.get_mut(&id) else { continue };
            backlog.row.next = self.topics.get(&backlog.topic).map_or(1, |topic| topic.head.next);
            self.look_at(id);
        }
    }

    /// Answers the waiting pulls of a subscription, first come first served, as far as there is anything for them.
    pub(super) fn serve(&mut self, id: SubscriptionId, budget: &mut Budget) -> Result<(), StoreError> {
        loop {
            let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
            subscription.waiters.retain(|waiter| !waiter.reply.is_closed());
            if subscription.is_live() && !subscription.waiters.is_empty() {
                subscription.connected_until = self.now + LIVE_LINGER;
            }
            if self.draining || subscription.waiters.is_empty() {
                break;
            }
            if budget.is_spent() {
                self.ready.insert(id);
                break;
            }
            let room = subscription.room(self.now).min(budget.deliveries);
            // Whoever holds all that it may stands in nobody's way.
            let Some((place, want)) = subscription.first_with_room(room) else { break };
            let Some(waiter) = subscription.waiters.get(place) else { break };
            let taker = Taker { consumer: waiter.consumer.clone(), max_bytes: waiter.max_bytes };
            let Batch { granted, settled, looked_at, .. } = self.take(id, want, taker)?;
            budget.rows = budget.rows.saturating_sub(looked_at);
            let Some(subscription) = self.subscriptions.get_mut(&id) else { break };
            if granted.is_empty() {
                if subscription.active.is_empty() {
                    break;
                }
                // The cursor only passed by what it could not grant: on it goes, as far as a turn goes.
                continue;
            }
            budget.spend(&granted);
            subscription.bucket.take(granted.len());
            if let Some(waiter) = subscription.waiters.remove(place) {
                self.deliveries.push(Delivered { reply: waiter.reply, granted, settled });
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

    /// Gives deliveries to the one who waited, now that their leases are written. Whoever has gone meanwhile
    /// never saw them: they are given back without fault.
    pub(super) fn hand_out(&mut self, delivered: Delivered) -> Result<(), StoreError> {
        let Delivered { reply, granted, settled } = delivered;
        if let Err(Ok(unseen)) = reply.send(Ok(granted)) {
            let mut settled = settled.into_iter();
            for granted in unseen {
                if let Some(delivery) = settled.next() {
                    self.give_back(&granted, &delivery);
                    continue;
                }
                let failure = Failure::of(Cause::Released);
                // Not stale: nobody else has seen the receipt.
                _ = self.fail(granted.receipt, failure, None)?;
            }
        }
        Ok(())
    }

    /// What was settled as it was handed out, to somebody who had gone: it is delivered to the next one.
    fn give_back(&mut self, granted: &Granted, delivery: &Delivery) {
        let at = Place::of(&granted.receipt);
        let now = self.now;
        if self.subscriptions.get(&at.subscription).is_none_or(Subscription::is_live) {
            return;
        }
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return };
        let mut commit = Commit::default();
        // Where its end was marked for the cursor to pass by, its row among the delayed ones does that from now on.
        backlog.unmark_end(at, &mut commit);
        if delivery.replays > 0 {
            commit.put(Keyspace::Replayed, at.key(backlog.realm), granted.message.encode());
        }
        backlog.store_delayed(at, delivery, now, &mut commit);
        self.pending.push(commit);
        self.touch_at(at);
    }
}

impl Subscription {
    /// The first waiting pull that can be given anything, and how much of this room.
    fn first_with_room(&self, room: usize) -> Option<(usize, usize)> {
        let want = |waiter: &Waiter| waiter.max.min(room).min(self.room_of(waiter.consumer.as_deref()));
        let waiters = self.waiters.iter().enumerate();
        waiters.map(|(place, waiter)| (place, want(waiter))).find(|(_, want)| *want > 0)
    }
}

/// What one turn may still grant.
pub(super) struct Budget {
    deliveries: usize,
    bytes: usize,
    rows: usize,
}

impl Budget {
    pub(super) const fn of_a_turn() -> Self {
        Self { deliveries: TURN_DELIVERIES, bytes: TURN_BYTES, rows: TURN_ROWS }
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.deliveries == 0 || self.bytes == 0 || self.rows == 0
    }

    fn spend(&mut self, granted: &[Granted]) {
        let bytes: usize = granted.iter().map(|granted| granted.message.payload.len()).sum();
        self.deliveries = self.deliveries.saturating_sub(granted.len());
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
