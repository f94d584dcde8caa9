//! What is held in memory of a topic and a subscription.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::HashMap;

use super::command::{Granted, RevisionView};
use super::load::LoadWindow;
use super::order::KeyHash;
use super::recent::Recent;
use super::settle::NackSlot;
use super::shadow::Shadow;
use super::window::Window;
use super::{Refusal, Reply};
use crate::domain::bucket::Bucket;
use crate::domain::context::Load;
use crate::domain::delivery::Delivery;
use crate::domain::id::{BacklogId, RealmId, Sequence, SubscriptionId};
use crate::domain::message::Message;
use crate::domain::receipt::Receipt;
use crate::domain::settings::{Mode, Ordering};
use crate::domain::time::Timestamp;
use crate::store::row::{
    CursorRow, Ending, HeadRow, RecordedChunk, RevisionRow, Row as _, SettledRow, SubscriptionRow, TopicRow,
};
use crate::store::{Commit, Keyspace, key};

pub(super) struct Topic {
    pub(super) realm: RealmId,
    pub(super) row: TopicRow,
    pub(super) head: HeadRow,
    pub(super) subscriptions: Vec<SubscriptionId>,
    /// Times to live that will pass.
    pub(super) expiries: Window,
    /// When to look for messages that nobody needs any more.
    pub(super) trim_at: Option<Timestamp>,
    /// What is set in the engine's wakes.
    pub(super) wake: Option<Timestamp>,
    /// When to look for ids whose window has passed.
    pub(super) forget_at: Option<Timestamp>,
    /// The last of them that was removed.
    pub(super) forgotten: Option<(Timestamp, Sequence)>,
}

impl Topic {
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        [self.expiries.due_at(), self.trim_at, self.forget_at].into_iter().flatten().min()
    }
}

pub(super) struct Subscription {
    pub(super) realm: RealmId,
    pub(super) row: SubscriptionRow,
    pub(super) cursor: CursorRow,
    /// The cursor as it was last written.
    pub(super) saved: CursorRow,
    /// The active revision.
    pub(super) revision: Arc<RevisionRow>,
    /// The highest revision there is.
    pub(super) last_revision: u32,
    /// Deliveries under a lease or being decided.
    pub(super) held: HashMap<Sequence, Held>,
    /// Rows in `leased`: those of the held ones that are or were under a lease.
    pub(super) leased: u64,
    /// When leases run out.
    pub(super) leases: BTreeSet<(Timestamp, Sequence)>,
    /// When delayed deliveries are due.
    pub(super) due: Window,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) load: LoadWindow,
    /// Faults of the active revision since its last good answer.
    pub(super) faults: u32,
    /// The policy that is asked beside the active one.
    pub(super) shadow: Option<Shadow>,
    /// Failures that were decided in this turn, to be recorded.
    pub(super) recording: RecordedChunk,
    /// When recorded failures are looked at for their age.
    pub(super) trim_records_at: Option<Timestamp>,
    /// Deliveries that wait and fresh ones take turns; whose turn it is.
    pub(super) turn: Turn,
    /// The revision that events told of last.
    pub(super) announced: u32,
    /// What may be handed out, where there is a rate.
    pub(super) bucket: Bucket,
    /// Deliveries that each consumer with a name holds.
    pub(super) consumers: HashMap<Arc<str>, u32>,
    /// When the message that the cursor stands at becomes available; before that it need not be looked at.
    pub(super) fresh_at: Option<(Sequence, Timestamp)>,
    /// Until when somebody counts as listening to a live subscription.
    pub(super) connected_until: Timestamp,
    /// What is set in the engine's wakes.
    pub(super) wake: Option<Timestamp>,
}

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

/// A long poll.
pub(super) struct Waiter {
    pub(super) max: usize,
    pub(super) until: Timestamp,
    pub(super) consumer: Option<Arc<str>>,
    pub(super) reply: Reply<Vec<Granted>>,
    pub(super) max_bytes: usize,
}

impl Waiter {
    pub(super) fn answer(self, answer: Result<Vec<Granted>, Refusal>) {
        // Nothing was granted to it: if it has gone, nothing is lost.
        _ = self.reply.send(answer);
    }
}

/// What is delivered next when both are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Due,
    Fresh,
}

impl Subscription {
    pub(super) fn wakes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let lease = self.leases.first().map(|(at, _)| *at);
        let circuit = self.cursor.circuit.opens_at();
        let waiter = self.waiters.iter().map(|waiter| waiter.until).min();
        // What is due already was looked at when it became so, and is again when there is room for it.
        let due = self.due.due_at();
        let fresh = self.fresh_at.map(|(_, at)| at);
        let rate = self.row.settings.max_rate;
        let token = (rate > 0).then(|| self.bucket.next_at(rate));
        let waited_for = [due, fresh, token].into_iter().flatten();
        let waited_for = waited_for.filter(|at| *at > now && !self.waiters.is_empty()).min();
        [lease, circuit, waiter, waited_for, self.trim_records_at].into_iter().flatten().min()
    }

    /// The place of one of its deliveries.
    pub(super) fn place(&self, subscription: SubscriptionId, sequence: Sequence) -> Place {
        Place { subscription, backlog: self.row.backlog, sequence }
    }

    /// Whether its deliveries are in the order of their keys.
    pub(super) fn is_ordered(&self) -> bool {
        self.row.settings.ordering == Ordering::Key
    }

    /// Whether it keeps nothing on disk.
    pub(super) fn is_live(&self) -> bool {
        self.row.settings.mode == Mode::Live
    }

    /// Whether its filter lets a message through.
    pub(super) fn wants(&self, message: &Message) -> bool {
        self.row.settings.filter.as_ref().is_none_or(|filter| filter.matches(&message.attributes))
    }

    /// When a fresh message can be handed out.
    pub(super) fn available_at(&self, message: &Message) -> Timestamp {
        message.available_at.max(message.published_at + self.row.settings.delivery_delay)
    }

    /// How many more deliveries may be handed out now.
    pub(super) fn room(&mut self, now: Timestamp) -> usize {
        let settings = &self.row.settings;
        let tokens = match settings.max_rate {
            0 => usize::MAX,
            rate => self.bucket.available(rate, now),
        };
        if self.row.paused.is_some() {
            return 0;
        }
        let allowed = self.cursor.circuit.allows(settings.max_in_flight) as usize;
        allowed.saturating_sub(self.held.len()).min(tokens)
    }

    /// How many of them this consumer may be given.
    pub(super) fn room_of(&self, consumer: Option<&str>) -> usize {
        match (self.row.settings.max_in_flight_per_consumer, consumer) {
            (0, _) | (_, None) => usize::MAX,
            (most, Some(name)) => {
                let holds = self.consumers.get(name).copied().unwrap_or(0);
                most.saturating_sub(holds) as usize
            }
        }
    }

    /// Deliveries that have not ended: those that were never leased, leased ones and delayed ones.
    pub(super) fn backlog(&self, topic: &Topic) -> u64 {
        if self.is_live() && self.waiters.is_empty() {
            // Nothing waits for whoever is not there.
            return 0;
        }
        let fresh = topic.head.next.saturating_sub(self.cursor.next).saturating_sub(self.cursor.ahead);
        fresh + self.leased + self.cursor.delayed
    }

    pub(super) fn load(&mut self, topic: &Topic, now: Timestamp) -> Load {
        let events = self.load.sum(now);
        Load {
            acked: events.acked,
            failed: events.failed,
            dead_lettered: events.dead_lettered,
            backlog: self.backlog(topic),
            in_flight: self.leased,
            consecutive_failures: self.load.consecutive_failures,
        }
    }

    pub(super) fn revision_view(&self) -> RevisionView {
        let mut row = (*self.revision).clone();
        (row.decisions, row.faults) = (self.cursor.decisions, self.cursor.faults);
        RevisionView { number: self.row.active_revision, active: true, row }
    }

    /// Takes a delivery into memory. Its rows are written already, or are in the commit at hand.
    pub(super) fn hold(&mut self, sequence: Sequence, held: Held) {
        if let Some(until) = held.delivery.lease_until() {
            self.leases.insert((until, sequence));
        }
        if let Some(consumer) = &held.consumer {
            *self.consumers.entry(Arc::clone(consumer)).or_default() += 1;
        }
        self.held.insert(sequence, held);
    }

    /// Takes it out again.
    pub(super) fn let_go(&mut self, sequence: Sequence) -> Option<Held> {
        let held = self.held.remove(&sequence)?;
        if let Some(until) = held.delivery.lease_until() {
            self.leases.remove(&(until, sequence));
        }
        if let Some(consumer) = &held.consumer
            && let Some(holds) = self.consumers.get_mut(consumer)
        {
            *holds -= 1;
            if *holds == 0 {
                self.consumers.remove(consumer);
            }
        }
        Some(held)
    }

    /// Adds the row of a lease.
    pub(super) fn store_leased(&mut self, at: Place, delivery: &Delivery, commit: &mut Commit) {
        commit.put(Keyspace::Leased, at.key(self.realm), delivery.encode());
        self.leased += 1;
        self.cursor.ahead += self.is_ahead(at);
    }

    /// Adds the rows of a delivery that waits until `due_at`.
    pub(super) fn store_delayed(
        &mut self,
        at: Place,
        delivery: &Delivery,
        due_at: Timestamp,
        commit: &mut Commit,
    ) {
        commit.put(Keyspace::Delayed, at.key(self.realm), delivery.encode());
        self.cursor.delayed += 1;
        self.cursor.ahead += self.is_ahead(at);
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
        commit.put(Keyspace::Delayed, at.key(self.realm), delivery.encode());
        self.cursor.delayed += 1;
        self.cursor.ahead += self.is_ahead(at);
        self.store_turn(at, key, commit);
    }

    /// Adds the row that gives a delivery its turn once no other of its key is in its way.
    pub(super) fn store_turn(&self, at: Place, key: KeyHash, commit: &mut Commit) {
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
                self.cursor.delayed = self.cursor.delayed.saturating_sub(1);
            }
        }
        self.cursor.ahead = self.cursor.ahead.saturating_sub(self.is_ahead(at));
    }

    /// 1 if the cursor has yet to come to it: then it counts among those that have a row of their own there.
    fn is_ahead(&self, at: Place) -> u64 {
        u64::from(at.sequence >= self.cursor.next)
    }

    /// Removes what marks the end of a dead letter that lives again, where the cursor has yet to pass it by: its
    /// row among the delayed ones does that from now on.
    pub(super) fn unmark_end(&mut self, at: Place, commit: &mut Commit) {
        commit.delete(Keyspace::Settled, at.key(self.realm));
        self.cursor.ahead = self.cursor.ahead.saturating_sub(self.is_ahead(at));
    }

    /// Writes the end of a delivery down, where it has a history to show or the cursor has yet to pass it. `kept` is
    /// where the topic begins: what ended before it has no message left to show it with.
    pub(super) fn store_end(&mut self, at: Place, end: End, kept: Sequence, commit: &mut Commit) {
        let End { ending, now, mut delivery } = end;
        if delivery.replays > 0 {
            commit.delete(Keyspace::Replayed, at.key(self.realm));
        }
        let ahead = at.sequence >= self.cursor.next;
        self.cursor.ahead += self.is_ahead(at);
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
