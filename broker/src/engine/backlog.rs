//! The outstanding deliveries of a subscription on one topic: in memory, and which rows each has on disk.

use std::sync::Arc;

use foldhash::HashMap;

use super::order::KeyHash;
use super::recent::Recent;
use super::settle::NackSlot;
use super::state::Topic;
use super::window::Window;
use crate::domain::delivery::Delivery;
use crate::domain::id::{BacklogId, DeadLetterId, MessageId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::row::{BacklogRow, Ending, Row as _, SettledRow};
use crate::store::{Commit, Keyspace, key};

/// What a subscription has yet to settle of one topic. One with a pattern has many of these.
pub(super) struct Backlog {
    pub(super) realm: RealmId,
    pub(super) subscription: SubscriptionId,
    pub(super) topic: TopicId,
    pub(super) row: BacklogRow,
    /// The row as it was last written.
    pub(super) saved: BacklogRow,
    /// Deliveries under a lease or being decided.
    pub(super) held: HashMap<Sequence, Held>,
    /// Rows in `leased`: those of the held ones that are or were under a lease.
    pub(super) leased: u64,
    /// When delayed deliveries are due.
    pub(super) due: Window,
    /// Deliveries that wait and fresh ones take turns; whose turn it is.
    pub(super) turn: Turn,
    /// When the message that the cursor stands at becomes available; before that it need not be looked at.
    pub(super) fresh_at: Option<(Sequence, Timestamp)>,
    /// No delivery that is blocked by its key has a sequence below this. Rows that were there and are gone would have to
    /// be waded through again by each search for the first one.
    pub(super) blocked_from: Recent<KeyHash, Sequence>,
    /// From where the topic begins up to this, no delivery waits: another search need not wade through what is left of
    /// those that did.
    pub(super) delayed_from: Sequence,
    /// What its subscription counts of it.
    pub(super) counted: Counts,
    /// What is set in the engine's wakes.
    pub(super) wake: Option<Timestamp>,
}

/// Keys whose first blocked delivery is searched from where it may be, those that were lately.
const BUSY_KEYS: usize = 1_024;

/// A delivery in memory, and how it stands on disk.
pub(super) struct Held {
    pub(super) delivery: Delivery,
    pub(super) stored: Stored,
    /// When its message's time to live passes; known once the policy was asked or the lease granted here.
    pub(super) expires_at: Option<Timestamp>,
    /// Who waits for the decision.
    pub(super) nack: Option<NackSlot>,
    /// What it is ordered by; known where the subscription is ordered.
    pub(super) key: Option<KeyHash>,
    /// Who holds the lease, by the name that it gave.
    pub(super) consumer: Option<Arc<str>>,
}

impl Held {
    /// In memory without anybody who waits or holds it.
    pub(super) fn new(delivery: Delivery, stored: Stored) -> Self {
        Self { delivery, stored, expires_at: None, nack: None, key: None, consumer: None }
    }
}

/// The rows that a delivery has on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// One in `leased`.
    Leased,
    /// One in `delayed` and one in `due`, or in `blocked` while others of its key are in its way.
    Delayed { due_at: Timestamp },
}

/// What is delivered next when both are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Due,
    Fresh,
}

impl Backlog {
    pub(super) fn new(
        realm: RealmId,
        subscription: SubscriptionId,
        topic: TopicId,
        row: BacklogRow,
        due: Window,
    ) -> Self {
        Self {
            realm,
            subscription,
            topic,
            saved: row.clone(),
            row,
            held: HashMap::default(),
            leased: 0,
            due,
            turn: Turn::Due,
            fresh_at: None,
            blocked_from: Recent::new(BUSY_KEYS, |_| 1),
            delayed_from: 0,
            counted: Counts::default(),
            wake: None,
        }
    }

    /// The key of its row.
    pub(super) fn key(&self) -> Vec<u8> {
        key::backlog_of(self.realm, self.subscription, self.topic)
    }

    /// The place of one of its deliveries.
    pub(super) fn place(&self, sequence: Sequence) -> Place {
        Place { subscription: self.subscription, backlog: self.row.id, sequence }
    }

    /// The message of one of its deliveries.
    pub(super) fn message_id(&self, sequence: Sequence) -> MessageId {
        MessageId { topic: self.topic, sequence }
    }

    /// What one of its deliveries is called once it is given up.
    pub(super) fn dead_letter_id(&self, sequence: Sequence) -> DeadLetterId {
        DeadLetterId { subscription: self.subscription, topic: self.topic, sequence }
    }

    /// When it has something to hand out: a moment that has passed if it has already, `None` if nothing waits.
    pub(super) fn next_at(&self, topic: &Topic, now: Timestamp) -> Option<Timestamp> {
        let next = self.row.next.max(topic.head.first);
        let fresh = (next < topic.head.next).then_some(match self.fresh_at {
            Some((at, until)) if at == next => until,
            _ => now,
        });
        fresh.into_iter().chain(self.due.due_at()).min()
    }

    /// Deliveries that have not ended: those that were never leased, leased ones and delayed ones.
    pub(super) fn depth(&self, topic: &Topic) -> u64 {
        let fresh = topic.head.next.saturating_sub(self.row.next).saturating_sub(self.row.ahead);
        fresh + self.leased + self.row.delayed
    }

    /// Whether a delivery that nobody replayed may have rows beside its message.
    pub(super) fn may_have_rows(&self, sequence: Sequence) -> bool {
        let passed = sequence < self.row.next || self.row.ahead > 0;
        passed && (!self.held.is_empty() || self.row.delayed > 0)
    }

    /// What there is to do here.
    pub(super) fn counts(&self, topic: &Topic) -> Counts {
        Counts {
            backlog: self.depth(topic),
            in_flight: self.leased,
            delayed: self.row.delayed,
            dead: self.row.dead,
        }
    }

    /// Adds the row of a lease.
    pub(super) fn store_leased(&mut self, at: Place, delivery: &Delivery, commit: &mut Commit) {
        commit.put(Keyspace::Leased, at.key(self.realm), delivery.encode());
        self.leased += 1;
        self.row.ahead += self.is_ahead(at);
    }

    /// Adds the rows of a delivery that waits until `due_at`.
    pub(super) fn store_delayed(
        &mut self,
        at: Place,
        delivery: &Delivery,
        due_at: Timestamp,
        commit: &mut Commit,
    ) {
        self.store_waiting(at, delivery, commit);
        self.store_due(at, due_at, commit);
    }

    /// Adds the row that brings a delivery back at `due_at`.
    pub(super) fn store_due(&mut self, at: Place, due_at: Timestamp, commit: &mut Commit) {
        commit.put(Keyspace::Due, key::due(self.realm, at.backlog, due_at, at.sequence), Vec::new());
        self.due.insert(due_at, at.sequence);
    }

    /// Removes it again.
    pub(super) fn unstore_due(&mut self, at: Place, due_at: Timestamp, commit: &mut Commit) {
        commit.delete(Keyspace::Due, key::due(self.realm, at.backlog, due_at, at.sequence));
        self.due.remove(due_at, at.sequence);
    }

    /// Adds the rows of a delivery that waits until no other of its key is in its way.
    pub(super) fn store_blocked(
        &mut self,
        at: Place,
        key: KeyHash,
        delivery: &Delivery,
        commit: &mut Commit,
    ) {
        self.store_waiting(at, delivery, commit);
        self.store_turn(at, key, commit);
    }

    fn store_waiting(&mut self, at: Place, delivery: &Delivery, commit: &mut Commit) {
        commit.put(Keyspace::Delayed, at.key(self.realm), delivery.encode());
        self.row.delayed += 1;
        self.row.ahead += self.is_ahead(at);
        self.delayed_from = self.delayed_from.min(at.sequence);
    }

    /// Adds the row that gives a delivery its turn once no other of its key is in its way.
    pub(super) fn store_turn(&mut self, at: Place, key: KeyHash, commit: &mut Commit) {
        if self.blocked_from.get(&key).is_some_and(|from| *from > at.sequence) {
            self.blocked_from.insert(key, at.sequence);
        }
        commit.put(Keyspace::Blocked, key::blocked(self.realm, at.backlog, &key.0, at.sequence), Vec::new());
    }

    /// Removes the rows that a delivery has, and what memory has of them.
    pub(super) fn unstore(
        &mut self,
        at: Place,
        stored: Stored,
        key: Option<KeyHash>,
        waiting: &mut Recent<Place, Delivery>,
        commit: &mut Commit,
    ) {
        match stored {
            Stored::Leased => {
                commit.delete(Keyspace::Leased, at.key(self.realm));
                self.leased = self.leased.saturating_sub(1);
            }
            Stored::Delayed { due_at } => {
                commit.delete(Keyspace::Delayed, at.key(self.realm));
                self.unstore_due(at, due_at, commit);
                if let Some(key) = key {
                    // It may have waited for others of its key instead.
                    let blocked = key::blocked(self.realm, at.backlog, &key.0, at.sequence);
                    commit.delete(Keyspace::Blocked, blocked);
                }
                waiting.remove(&at);
                self.row.delayed = self.row.delayed.saturating_sub(1);
            }
        }
        self.row.ahead = self.row.ahead.saturating_sub(self.is_ahead(at));
    }

    /// 1 if the cursor has yet to come to it: then it counts among those that have a row of their own there.
    fn is_ahead(&self, at: Place) -> u64 {
        u64::from(at.sequence >= self.row.next)
    }

    /// Removes what marks the end of a dead letter that lives again, where the cursor has yet to pass it by: its
    /// row among the delayed ones does that from now on.
    pub(super) fn unmark_end(&mut self, at: Place, commit: &mut Commit) {
        commit.delete(Keyspace::Settled, at.key(self.realm));
        self.row.ahead = self.row.ahead.saturating_sub(self.is_ahead(at));
    }

    /// Writes the end of a delivery down, where it has a history to show or the cursor has yet to pass it. `kept` is
    /// where the topic begins: what ended before it has no message left to show it with.
    pub(super) fn store_end(&mut self, at: Place, end: End, kept: Sequence, commit: &mut Commit) {
        let End { ending, now, mut delivery } = end;
        if delivery.replays > 0 {
            commit.delete(Keyspace::Replayed, at.key(self.realm));
        }
        let ahead = at.sequence >= self.row.next;
        self.row.ahead += self.is_ahead(at);
        if ending == Ending::DeadLettered {
            // A dead letter carries its own history.
            delivery.history.clear();
        }
        if ahead || (at.sequence >= kept && !delivery.history.is_empty()) {
            let row = SettledRow { ending, at: now, delivery };
            commit.put(Keyspace::Settled, at.key(self.realm), row.encode());
        }
    }
}

/// Deliveries of a subscription, on all of its topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Those that could be pulled now, leased ones and delayed ones.
    pub backlog: u64,
    /// Those that are or were under a lease, and are not decided yet.
    pub in_flight: u64,
    /// Those that wait for another attempt.
    pub delayed: u64,
    /// Those given up on.
    pub dead: u64,
}

impl Counts {
    /// One part of these was `old` and is `new` now.
    pub(super) fn replace(&mut self, old: Self, new: Self) {
        let replace = |sum: &mut u64, old: u64, new: u64| *sum = *sum + new - old;
        replace(&mut self.backlog, old.backlog, new.backlog);
        replace(&mut self.in_flight, old.in_flight, new.in_flight);
        replace(&mut self.delayed, old.delayed, new.delayed);
        replace(&mut self.dead, old.dead, new.dead);
    }
}

/// The end of a delivery.
pub(super) struct End {
    pub(super) ending: Ending,
    pub(super) now: Timestamp,
    pub(super) delivery: Delivery,
}

/// A delivery's place: its message on a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) subscription: SubscriptionId,
    pub(super) backlog: BacklogId,
    pub(super) sequence: Sequence,
}

impl Place {
    pub(super) fn key(self, realm: RealmId) -> Vec<u8> {
        key::delivery(realm, self.backlog, self.sequence)
    }

    /// Of the lease that a receipt proves.
    pub(super) const fn of(receipt: &Receipt) -> Self {
        Self { subscription: receipt.subscription, backlog: receipt.backlog, sequence: receipt.sequence }
    }

    /// The receipt of its current lease.
    pub(super) const fn receipt(self, delivery: &Delivery) -> Receipt {
        Receipt {
            subscription: self.subscription,
            backlog: self.backlog,
            sequence: self.sequence,
            replays: delivery.replays,
            attempt: delivery.attempt,
        }
    }
}
