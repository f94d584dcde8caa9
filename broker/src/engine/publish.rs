//! Publish: one row a message, whatever the number of subscriptions.

use std::time::Duration;

use super::command::Refusal;
use super::{Durability, Engine, Reply, or_refuse};
use crate::domain::dedup::DedupKey;
use crate::domain::digest::Digest;
use crate::domain::id::{MessageId, RealmId, TopicId};
use crate::domain::limits::MAX_DELAY;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::settings::Schema;
use crate::domain::time::Timestamp;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

/// Publishes messages, those that the topic takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Where to.
    pub topic: Name,
    /// In order.
    pub messages: Vec<NewMessage>,
    /// The schema that they were found to follow.
    pub checked: Option<Digest>,
}

/// Messages that were not checked against the schema of their topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unchecked {
    /// What they have to be checked against, if anything.
    pub schema: Option<Schema>,
    /// As they came.
    pub messages: Vec<NewMessage>,
}

/// A message before the broker has accepted it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is documented at the message")]
pub struct NewMessage {
    pub key: Option<String>,
    pub attributes: Vec<(String, String)>,
    pub content_type: Option<String>,
    pub payload: bytes::Bytes,
    /// Not delivered before this has passed.
    pub delay: Duration,
    /// Not delivered before this moment of broker time.
    pub deliver_at: Option<Timestamp>,
    /// Given to the policy as expired when this and the delay have passed.
    pub ttl: Option<Duration>,
    /// What its publisher calls it.
    pub dedup: Option<DedupKey>,
}

impl NewMessage {
    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| 64 + name.len() + value.len()).sum();
        size_of::<Self>() + self.payload.len() + attributes
    }
}

/// A message that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Its id.
    pub id: MessageId,
    /// It was published before, under the same id of its publisher's.
    pub duplicate: bool,
}

/// What became of messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// In the order of the request.
    pub results: Vec<Result<Accepted, Refusal>>,
    /// What the broker waited for.
    pub durability: Durability,
}

impl Engine {
    pub(super) fn publish(
        &mut self,
        realm: RealmId,
        request: Publish,
        reply: Reply<Published>,
    ) -> Result<(), StoreError> {
        if self.draining {
            self.answer(reply, Err(Refusal::ShuttingDown));
            return Ok(());
        }
        let topic = or_refuse!(try self, reply, self.topic_id(realm, &request.topic));
        let schema = self.topics.get(&topic).and_then(|topic| topic.row.settings.schema.as_ref());
        if schema.map(Schema::digest) != request.checked {
            let unchecked = Unchecked { schema: schema.cloned(), messages: request.messages };
            self.answer(reply, Err(Refusal::SchemaDiffers(Box::new(unchecked))));
            return Ok(());
        }
        let mut commit = Commit::default();
        let mut results = Vec::with_capacity(request.messages.len());
        for message in request.messages {
            results.push(self.publish_one(topic, &request.topic, message, &mut commit)?);
            commit.split_into(&mut self.pending);
        }
        self.pending.push(commit);
        let durability = self.durability;
        self.answer(reply, Ok(Published { results, durability }));
        Ok(())
    }

    /// A message that is known by its id comes first: it was accepted, whatever has changed since.
    fn publish_one(
        &mut self,
        id: TopicId,
        name: &Name,
        message: NewMessage,
        commit: &mut Commit,
    ) -> Result<Result<Accepted, Refusal>, StoreError> {
        let now = self.now;
        let gone = || Refusal::TopicNotFound(name.clone());
        let Some(topic) = self.topics.get(&id) else { return Ok(Err(gone())) };
        let settings = &topic.row.settings;
        let (window, limit, ttl) = (settings.dedup_window, settings.max_message_bytes, settings.ttl);
        // Without a window nothing is remembered.
        let dedup = message.dedup.filter(|_| !window.is_zero());
        let known = dedup.map(|key| self.published_as(id, &key)).transpose()?.flatten();
        if let Some((row, key)) = known.zip(dedup).filter(|(row, _)| row.at + window > now) {
            let original = MessageId { topic: id, sequence: row.sequence };
            let same = row.payload == key.payload;
            let answer = Accepted { id: original, duplicate: true };
            return Ok(if same { Ok(answer) } else { Err(Refusal::DedupConflict(original)) });
        }
        let bytes = message.payload.len();
        if bytes > limit {
            return Ok(Err(Refusal::MessageTooLarge { bytes, topic: name.clone(), limit }));
        }
        if message.deliver_at.is_some_and(|at| at > now + MAX_DELAY) {
            return Ok(Err(Refusal::TooFarAhead));
        }
        let message = accepted(message, ttl, now);
        if let Err(refusal) = self.has_room(id, message.kept_bytes()) {
            self.trim_soon(id);
            return Ok(Err(refusal));
        }
        let Some(sequence) = self.append(id, message, commit) else { return Ok(Err(gone())) };
        if let Some(key) = dedup {
            self.remember(id, &key, sequence, known, commit);
        }
        Ok(Ok(Accepted { id: MessageId { topic: id, sequence }, duplicate: false }))
    }

    /// Adds a message behind the last one of its topic; `None` if the topic is gone.
    pub(super) fn append(&mut self, id: TopicId, message: Message, commit: &mut Commit) -> Option<u64> {
        let topic = self.topics.get_mut(&id)?;
        let sequence = topic.head.next;
        topic.head.next += 1;
        let bytes = message.kept_bytes();
        topic.head.bytes += bytes;
        self.usage.entry(topic.realm).or_default().add(bytes);
        commit.put(Keyspace::Messages, key::message(topic.realm, id, sequence), message.encode());
        if let Some(at) = message.expires_at {
            commit.put(Keyspace::Expiries, key::expiry(topic.realm, id, at, sequence), Vec::new());
            topic.expiries.insert(at, sequence);
        }
        self.changed_topics.insert(id);
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
