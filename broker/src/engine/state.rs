//! What is held in memory of a topic and a subscription.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::HashMap;

use super::command::{Granted, RevisionView};
use super::load::LoadWindow;
use super::recent::Recent;
use super::settle::NackSlot;
use super::shadow::Shadow;
use super::window::Window;
use super::{Refusal, Reply};
use crate::domain::context::Load;
use crate::domain::delivery::Delivery;
use crate::domain::id::{RealmId, Sequence, SubscriptionId};
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
}

/// The rows that a delivery has on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// One in `leased`.
    Leased,
    /// One in `delayed` and one in `due`.
    Delayed { due_at: Timestamp },
}

/// A long poll.
pub(super) struct Waiter {
    pub(super) max: usize,
    pub(super) until: Timestamp,
    pub(super) reply: Reply<Vec<Granted>>,
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
        let due = self.due.due_at().filter(|at| *at > now && !self.waiters.is_empty());
        [lease, circuit, waiter, due, self.trim_records_at].into_iter().flatten().min()
    }

    /// Deliveries that have not ended: those that were never leased, leased ones and delayed ones.
    pub(super) fn backlog(&self, topic: &Topic) -> u64 {
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
        self.held.insert(sequence, held);
    }

    /// Takes it out again.
    pub(super) fn let_go(&mut self, sequence: Sequence) -> Option<Held> {
        let held = self.held.remove(&sequence)?;
        if let Some(until) = held.delivery.lease_until() {
            self.leases.remove(&(until, sequence));
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
        commit.put(Keyspace::Due, key::due(self.realm, at.subscription, due_at, at.sequence), Vec::new());
        self.due.insert(due_at, at.sequence);
        self.cursor.delayed += 1;
        self.cursor.ahead += self.is_ahead(at);
    }

    /// Removes the rows that a delivery has, and what memory has of them.
    pub(super) fn unstore(
        &mut self,
        at: Place,
        stored: Stored,
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
                commit.delete(Keyspace::Due, key::due(self.realm, at.subscription, due_at, at.sequence));
                self.due.remove(due_at, at.sequence);
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
    pub(super) sequence: Sequence,
}

impl Place {
    pub(super) fn key(self, realm: RealmId) -> Vec<u8> {
        key::delivery(realm, self.subscription, self.sequence)
    }
}
