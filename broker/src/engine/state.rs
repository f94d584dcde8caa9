//! What is held in memory of a topic and a subscription.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::HashMap;

use super::backlog::{Counts, Held, Place};
use super::load::LoadWindow;
use super::policies::RevisionView;
use super::pull::Granted;
use super::shadow::Shadow;
use super::window::Window;
use super::{Refusal, Reply};
use crate::domain::bucket::Bucket;
use crate::domain::id::{BacklogId, RealmId, Sequence};
use crate::domain::message::Message;
use crate::domain::settings::{Mode, Ordering};
use crate::domain::time::Timestamp;
use crate::store::row::{CursorRow, HeadRow, RecordedChunk, RevisionRow, SubscriptionRow, TopicRow};

pub(super) struct Topic {
    pub(super) realm: RealmId,
    pub(super) row: TopicRow,
    pub(super) head: HeadRow,
    /// Those of the subscriptions that read it.
    pub(super) backlogs: Vec<BacklogId>,
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
    /// Bytes that it keeps beyond what it should.
    pub(super) fn surplus(&self) -> u64 {
        self.row.settings.retain_bytes.map_or(0, |most| self.head.bytes.saturating_sub(most))
    }

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
    /// One for each topic that it reads.
    pub(super) backlogs: BTreeSet<BacklogId>,
    /// Those with something to hand out, paused or not.
    pub(super) active: BTreeSet<BacklogId>,
    /// The one that a pull took from last.
    pub(super) last_taken: BacklogId,
    /// Deliveries under a lease or being decided, in all backlogs.
    pub(super) holds: usize,
    /// What its backlogs count together, each when it was looked at last.
    pub(super) counts: Counts,
    /// When leases run out.
    pub(super) leases: BTreeSet<(Timestamp, BacklogId, Sequence)>,
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
    /// The revision that events told of last.
    pub(super) announced: u32,
    /// What may be handed out, where there is a rate.
    pub(super) bucket: Bucket,
    /// Deliveries that each consumer with a name holds.
    pub(super) consumers: HashMap<Arc<str>, u32>,
    /// Until when somebody counts as listening to a live subscription.
    pub(super) connected_until: Timestamp,
    /// What is set in the engine's wakes.
    pub(super) wake: Option<Timestamp>,
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

impl Subscription {
    pub(super) fn wakes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let lease = self.leases.first().map(|(at, ..)| *at);
        let circuit = self.cursor.circuit.opens_at();
        let waiter = self.waiters.iter().map(|waiter| waiter.until).min();
        // Whoever waits for the next token; what comes without one is looked at as it comes.
        let rate = self.row.settings.max_rate;
        let token = (rate > 0).then(|| self.bucket.next_at(rate));
        let token = token.filter(|at| *at > now && !self.waiters.is_empty());
        [lease, circuit, waiter, token, self.trim_records_at].into_iter().flatten().min()
    }

    /// The next backlog with something to hand out, behind this one and round again.
    pub(super) fn active_behind(&self, last: BacklogId) -> Option<BacklogId> {
        let behind = self.active.range((Bound::Excluded(last), Bound::Unbounded)).next();
        behind.or_else(|| self.active.first()).copied()
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
        allowed.saturating_sub(self.holds).min(tokens)
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

    pub(super) fn revision_view(&self) -> RevisionView {
        let mut row = (*self.revision).clone();
        (row.decisions, row.faults) = (self.cursor.decisions, self.cursor.faults);
        RevisionView { number: self.row.active_revision, active: true, row }
    }

    /// One of its deliveries is held from now on.
    pub(super) fn count_in(&mut self, at: Place, held: &Held) {
        self.holds += 1;
        if let Some(until) = held.delivery.lease_until() {
            self.leases.insert((until, at.backlog, at.sequence));
        }
        if let Some(consumer) = &held.consumer {
            *self.consumers.entry(Arc::clone(consumer)).or_default() += 1;
        }
    }

    /// One of its deliveries is held no more.
    pub(super) fn count_out(&mut self, at: Place, held: &Held) {
        self.holds = self.holds.saturating_sub(1);
        if let Some(until) = held.delivery.lease_until() {
            self.leases.remove(&(until, at.backlog, at.sequence));
        }
        if let Some(consumer) = &held.consumer
            && let Some(holds) = self.consumers.get_mut(consumer)
        {
            *holds -= 1;
            if *holds == 0 {
                self.consumers.remove(consumer);
            }
        }
    }
}
