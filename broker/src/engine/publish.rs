//! Publish: one row a message, whatever the number of subscriptions.

use std::time::Duration;

use super::command::{NewMessage, Publish, Published, Refusal, message_id};
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{RealmId, TopicId};
use crate::domain::limits::MAX_DELAY;
use crate::domain::message::Message;
use crate::domain::time::Timestamp;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, key};

impl Engine {
    pub(super) fn publish(&mut self, realm: RealmId, request: Publish, reply: Reply<Published>) {
        if self.draining {
            return self.answer(reply, Err(Refusal::ShuttingDown));
        }
        let topic = or_refuse!(self, reply, self.topic_id(realm, &request.topic));
        let settings = self.topics.get(&topic).map(|topic| &topic.row.settings);
        let (limit, ttl) = settings.map_or((0, None), |settings| (settings.max_message_bytes, settings.ttl));
        let now = self.now;
        let mut commit = Commit::default();
        let mut results = Vec::with_capacity(request.messages.len());
        for message in request.messages {
            let bytes = message.payload.len();
            results.push(if bytes > limit {
                Err(Refusal::MessageTooLarge { bytes, topic: request.topic.clone(), limit })
            } else if message.deliver_at.is_some_and(|at| at > now + MAX_DELAY) {
                Err(Refusal::TooFarAhead)
            } else {
                let sequence = self.append(topic, accepted(message, ttl, now), &mut commit);
                let gone = || Refusal::TopicNotFound(request.topic.clone());
                sequence.map(|sequence| message_id(topic, sequence)).ok_or_else(gone)
            });
            commit.split_into(&mut self.pending);
        }
        self.pending.push(commit);
        let durability = self.durability;
        self.answer(reply, Ok(Published { results, durability }));
    }

    /// Adds a message behind the last one of its topic; `None` if the topic is gone.
    pub(super) fn append(&mut self, id: TopicId, message: Message, commit: &mut Commit) -> Option<u64> {
        let topic = self.topics.get_mut(&id)?;
        let sequence = topic.head.next;
        topic.head.next += 1;
        commit.put(Keyspace::Messages, key::message(topic.realm, id, sequence), message.encode());
        if let Some(at) = message.expires_at {
            commit.put(Keyspace::Expiries, key::expiry(topic.realm, id, at, sequence), Vec::new());
            topic.expiries.insert(at, sequence);
        }
        if self.changed_topics.insert(id) {
            for subscription in topic.subscriptions.clone() {
                if self.subscriptions.get(&subscription).is_some_and(|s| !s.waiters.is_empty()) {
                    self.ready.insert(subscription);
                }
            }
        }
        self.arm_trim(id);
        if message.expires_at.is_some() {
            self.wake_topic(id);
        }
        Some(sequence)
    }
}

/// A message as the broker keeps it. Its times are broker time.
fn accepted(message: NewMessage, ttl: Option<Duration>, now: Timestamp) -> Message {
    let available_at = message.deliver_at.unwrap_or(now).max(now + message.delay);
    Message {
        published_at: now,
        available_at,
        // Not before it is available: a policy that has it delivered all the same must not shorten the delay.
        expires_at: message.ttl.or(ttl).map(|ttl| available_at.max(now + ttl)),
        hops: 0,
        key: message.key,
        attributes: message.attributes,
        content_type: message.content_type,
        payload: message.payload,
    }
}
