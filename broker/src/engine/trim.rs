//! Retention: messages that no subscription needs any more, that are too old or too many, go, oldest first, away from the hot
//! path.

use std::ops::Range;

use super::backlog::{Place, Stored};
use super::state::Subscription;
use super::{Engine, STEP_ROWS, TRIM_EVERY};
use crate::domain::delivery::{Delivery, State};
use crate::domain::id::{BacklogId, Sequence, TopicId};
use crate::domain::message::Message;
use crate::domain::quota::Usage;
use crate::domain::time::Timestamp;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

/// Messages that a look goes over for each subscription, however many there are.
const FEW_ROWS: usize = 10;

/// Messages that have served their time, and when the next one has.
struct Served {
    /// Without their payloads, which nobody reads any more.
    messages: Vec<(Sequence, Message)>,
    /// What they take.
    removed: Usage,
    again: Timestamp,
}

impl Engine {
    /// Looks at a topic again once its messages may have served their time.
    pub(super) fn arm_trim(&mut self, id: TopicId) {
        let now = self.now;
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let surplus = topic.surplus() > 0;
        if topic.trim_at.is_none() && topic.head.first < topic.head.next {
            // The look itself finds when the oldest message has served its time.
            topic.trim_at = Some(now + TRIM_EVERY);
            self.wake_topic(id);
        }
        if surplus {
            self.trim_soon(id);
        }
    }

    pub(super) fn trim(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.apply()?;
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        let (realm, first, backlogs) = (topic.realm, topic.head.first, topic.backlogs.clone());
        let mut needed = topic.head.next;
        // Each has a few rows looked at, together not many more than one step does.
        let share = STEP_ROWS.div_ceil(backlogs.len().max(1)).max(FEW_ROWS);
        let mut more = false;
        for backlog in &backlogs {
            more |= self.pass_filtered(*backlog, share)?;
            needed = needed.min(self.lowest_needed(*backlog, first)?);
        }
        let Served { messages, removed, again } = self.served(id, needed, share)?;
        for (sequence, message) in &messages {
            // It has to go, while some subscription has yet to settle it.
            if *sequence >= needed {
                for backlog in &backlogs {
                    let open = self.backlogs.get(backlog);
                    let open = open.filter(|it| it.may_have_rows(*sequence));
                    if let Some(at) = open.map(|backlog| backlog.place(*sequence)) {
                        self.retire(at, message)?;
                    }
                }
            }
        }
        let next = messages.last().map_or(first, |(sequence, _)| sequence + 1);
        let mut commit = Commit::default();
        for backlog in backlogs {
            self.pass_trimmed(backlog, first..next, &mut commit)?;
        }
        let Some(topic) = self.topics.get_mut(&id) else { return Ok(()) };
        for (sequence, message) in messages {
            commit.delete(Keyspace::Messages, key::message(realm, id, sequence));
            if let Some(at) = message.expires_at {
                commit.delete(Keyspace::Expiries, key::expiry(realm, id, at, sequence));
                topic.expiries.remove(at, sequence);
            }
        }
        topic.head.first = next;
        topic.head.bytes = topic.head.bytes.saturating_sub(removed.bytes);
        self.usage.entry(realm).or_default().remove(removed);
        let again = if more { self.now } else { again };
        topic.trim_at = (next < topic.head.next).then_some(again);
        self.pending.push(commit);
        self.changed_topics.insert(id);
        Ok(())
    }

    /// Nobody waits for what a filter does not let through: the cursor goes on over it, whether anybody pulls or not.
    /// Says whether there is more to look at.
    fn pass_filtered(&mut self, id: BacklogId, most: usize) -> Result<bool, StoreError> {
        let Some((topic, backlog)) = self.topic_of(id).zip(self.backlogs.get(&id)) else { return Ok(false) };
        let subscription = self.subscriptions.get(&backlog.subscription);
        let filters = |it: &&Subscription| it.row.settings.filter.is_some() && !it.is_live();
        let Some(subscription) = subscription.filter(filters) else { return Ok(false) };
        // What lies ahead with a row of its own is left to a pull.
        if backlog.row.ahead > 0 {
            return Ok(false);
        }
        let first = backlog.row.next.max(topic.head.first);
        let mut next = first;
        for read in self.messages_among(backlog.realm, backlog.topic, first..topic.head.next).take(most) {
            let (sequence, message) = read?;
            if subscription.wants(&message) {
                break;
            }
            next = sequence + 1;
        }
        let more = next - first == most as u64;
        if let Some(backlog) = self.backlogs.get_mut(&id) {
            backlog.row.next = next;
            self.changed_backlogs.insert(id);
        }
        Ok(more)
    }

    /// The oldest messages that have served their time: nobody needs them, or they are too old for their topic, or too
    /// many. At most so many that somebody needs.
    fn served(&self, id: TopicId, needed: Sequence, most: usize) -> Result<Served, StoreError> {
        // When the oldest message left has served its time; later looks find the rest.
        let (messages, removed, mut needed_ones) = (Vec::new(), Usage::default(), 0);
        let mut served = Served { messages, removed, again: self.now + TRIM_EVERY };
        let Some(topic) = self.topics.get(&id) else { return Ok(served) };
        let (keep, max_age) = (topic.row.settings.keep_acked, topic.row.settings.max_age);
        let mut surplus = topic.surplus();
        let end = if max_age.is_some() || surplus > 0 { topic.head.next } else { needed };
        for read in self.messages_among(topic.realm, id, topic.head.first..end).take(STEP_ROWS) {
            let (sequence, message) = read?;
            let unneeded = (sequence < needed).then(|| message.published_at + keep);
            let too_old = max_age.map(|age| message.published_at + age);
            let too_many = (surplus > 0).then_some(self.now);
            let Some(goes_at) = [unneeded, too_old, too_many].into_iter().flatten().min() else { break };
            if goes_at > self.now {
                served.again = served.again.max(goes_at);
                break;
            }
            needed_ones += usize::from(sequence >= needed);
            if needed_ones > most {
                served.again = self.now;
                break;
            }
            let bytes = message.kept_bytes();
            served.removed.add(bytes);
            surplus = surplus.saturating_sub(bytes);
            served.messages.push((sequence, Message { payload: bytes::Bytes::new(), ..message }));
        }
        if served.messages.len() == STEP_ROWS {
            served.again = self.now;
        }
        Ok(served)
    }

    /// A delivery ends as its message goes. One that was replayed has its own copy, and stays.
    fn retire(&mut self, at: Place, message: &Message) -> Result<(), StoreError> {
        if self.subscriptions.get(&at.subscription).is_some_and(Subscription::is_ordered) {
            // The next of its key may be among those that are retired too. Nothing of an ordered subscription lies ahead of
            // the cursor, where a crash could make it begin anew.
            self.apply()?;
        }
        let key = self.key_of(at, message);
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(()) };
        let (replays, stored) = match backlog.held.get(&at.sequence) {
            Some(held) => (held.delivery.replays, held.stored),
            None => {
                let row = self.store.get(Keyspace::Delayed, &at.key(backlog.realm))?;
                let Some(delivery) = row.map(Delivery::decode).transpose()? else { return Ok(()) };
                let State::Waiting { due_at } = delivery.state else { return Ok(()) };
                (delivery.replays, Stored::Delayed { due_at })
            }
        };
        if replays > 0 {
            return Ok(());
        }
        if let Some(held) = self.let_go(at) {
            self.nacks.stale(held.nack, &mut self.answers);
        }
        let mut commit = Commit::default();
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        backlog.unstore(at, stored, key, &mut self.waiting, &mut commit);
        self.unlock(at, key, &mut commit)?;
        self.pending.push(commit);
        self.touch_at(at);
        Ok(())
    }

    /// What is left in a backlog of messages that go: ends that were kept to be shown, and the way of its cursor.
    fn pass_trimmed(
        &mut self,
        id: BacklogId,
        gone: Range<Sequence>,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(()) };
        let (realm, next) = (backlog.realm, backlog.row.next);
        let range = |from| key::delivery(realm, id, from)..key::delivery(realm, id, gone.end);
        for row in self.store.scan(Keyspace::Settled, range(gone.start)) {
            let (key, _) = row?;
            if key::read_sequence(&key).is_some_and(|sequence| sequence >= next) {
                backlog.row.ahead = backlog.row.ahead.saturating_sub(1);
            }
            commit.delete(Keyspace::Settled, key.to_vec());
            commit.split_into(&mut self.pending);
        }
        self.changed_backlogs.insert(id);
        if next >= gone.end || self.subscriptions.get(&backlog.subscription).is_none_or(Subscription::is_live)
        {
            return Ok(());
        }
        // Replayed ones stay, behind the cursor from now on.
        let held = backlog.held.iter().filter(|(sequence, _)| (next..gone.end).contains(sequence));
        let mut kept = held.filter(|(_, held)| held.stored == Stored::Leased).count() as u64;
        for row in self.store.scan(Keyspace::Delayed, range(next)) {
            let (_, value) = row?;
            kept += u64::from(Delivery::decode(value)?.replays > 0);
        }
        backlog.row.ahead = backlog.row.ahead.saturating_sub(kept);
        backlog.row.next = gone.end;
        Ok(())
    }

    /// Every message below it has ended in this backlog. `first` is where the topic begins: rows before it
    /// were deleted, and a scan must not walk over what is left of them.
    fn lowest_needed(&mut self, id: BacklogId, first: Sequence) -> Result<Sequence, StoreError> {
        let Some(backlog) = self.backlogs.get_mut(&id) else { return Ok(Sequence::MAX) };
        if self.subscriptions.get(&backlog.subscription).is_none_or(Subscription::is_live) {
            return Ok(Sequence::MAX);
        }
        let mut lowest = backlog.row.next;
        // A replayed delivery has its own copy of the message.
        let held = backlog.held.iter().filter(|(_, held)| held.delivery.replays == 0);
        if let Some(held) = held.map(|(sequence, _)| *sequence).min() {
            lowest = lowest.min(held);
        }
        if backlog.row.delayed > 0 {
            let from = first.max(backlog.delayed_from).min(lowest);
            let range = key::delivery(backlog.realm, id, from)..key::delivery(backlog.realm, id, lowest);
            if let Some(row) = self.store.scan(Keyspace::Delayed, range).next() {
                lowest = key::read_sequence(&row?.0).map_or(lowest, |sequence| lowest.min(sequence));
            }
            backlog.delayed_from = backlog.delayed_from.max(lowest);
        }
        Ok(lowest)
    }

    pub(super) fn tick_topic(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.expire_messages(id)?;
        if self.topics.get(&id).is_some_and(|topic| topic.trim_at.is_some_and(|at| at <= self.now)) {
            self.trim(id)?;
        }
        if self.topics.get(&id).is_some_and(|topic| topic.forget_at.is_some_and(|at| at <= self.now)) {
            self.forget_ids(id)?;
        }
        self.wake_topic(id);
        Ok(())
    }
}
