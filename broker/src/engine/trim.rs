//! Retention: messages that no subscription needs any more go, oldest first, away from the hot path.

use super::{Engine, STEP_ROWS, TRIM_EVERY};
use crate::domain::id::{Sequence, SubscriptionId, TopicId};
use crate::domain::message::Message;
use crate::domain::quota::Usage;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

impl Engine {
    /// Looks at a topic again once its messages may have served their time.
    pub(super) fn arm_trim(&mut self, id: TopicId) {
        let now = self.now;
        if let Some(topic) = self.topics.get_mut(&id)
            && topic.trim_at.is_none()
            && topic.head.first < topic.head.next
        {
            // The look itself finds when the oldest message has served its time.
            topic.trim_at = Some(now + TRIM_EVERY);
            self.wake_topic(id);
        }
    }

    pub(super) fn trim(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.apply()?;
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        let (realm, first) = (topic.realm, topic.head.first);
        let mut needed = topic.head.next;
        for subscription in &topic.subscriptions {
            needed = needed.min(self.lowest_needed(*subscription, first)?);
        }
        let keep = topic.row.settings.keep_acked;
        let mut commit = Commit::default();
        let mut expired = Vec::new();
        let mut removed = Usage::default();
        let mut next = first;
        // When the oldest message left has served its time; later looks find the rest.
        let mut again = self.now + TRIM_EVERY;
        let range = key::message(realm, id, first)..key::message(realm, id, needed);
        for row in self.store.scan(Keyspace::Messages, range).take(STEP_ROWS) {
            let (key, value) = row?;
            let message = Message::decode(value)?;
            let goes_at = message.published_at + keep;
            if goes_at > self.now {
                again = again.max(goes_at);
                break;
            }
            let sequence = key::read_sequence(&key).unwrap_or(next);
            next = sequence + 1;
            commit.delete(Keyspace::Messages, key.to_vec());
            if let Some(at) = message.expires_at {
                commit.delete(Keyspace::Expiries, key::expiry(realm, id, at, sequence));
                expired.push((at, sequence));
            }
            removed.add(message.kept_bytes());
        }
        if removed.messages == STEP_ROWS as u64 {
            again = self.now;
        }
        for subscription in &topic.subscriptions {
            let range = key::delivery(realm, *subscription, first)..key::delivery(realm, *subscription, next);
            for row in self.store.scan(Keyspace::Settled, range) {
                commit.delete(Keyspace::Settled, row?.0.to_vec());
                commit.split_into(&mut self.pending);
            }
        }
        self.pending.push(commit);
        if let Some(topic) = self.topics.get_mut(&id) {
            for (at, sequence) in expired {
                topic.expiries.remove(at, sequence);
            }
            topic.head.first = next;
            topic.head.bytes = topic.head.bytes.saturating_sub(removed.bytes);
            self.usage.entry(realm).or_default().remove(removed);
            topic.trim_at = (next < topic.head.next).then_some(again);
            self.changed_topics.insert(id);
        }
        Ok(())
    }

    /// Every message below it has ended on this subscription. `first` is where the topic begins: rows before it
    /// were deleted, and a scan must not walk over what is left of them.
    fn lowest_needed(&self, id: SubscriptionId, first: Sequence) -> Result<Sequence, StoreError> {
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(Sequence::MAX) };
        let mut lowest = subscription.cursor.next;
        // A replayed delivery has its own copy of the message.
        let held = subscription.held.iter().filter(|(_, held)| held.delivery.replays == 0);
        if let Some(held) = held.map(|(sequence, _)| *sequence).min() {
            lowest = lowest.min(held);
        }
        if subscription.cursor.delayed > 0 {
            let range =
                key::delivery(subscription.realm, id, first)..key::delivery(subscription.realm, id, lowest);
            if let Some(row) = self.store.scan(Keyspace::Delayed, range).next() {
                lowest = key::read_sequence(&row?.0).map_or(lowest, |sequence| lowest.min(sequence));
            }
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
