//! Reading without taking: the messages of a topic, and what is outstanding on a subscription.

use std::ops::Range;

use super::command::{Browse, Browsed, Listed, Page, Peek, Peeked, Peeks, message_id};
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::message::Message;
use crate::store::row::Row as _;
use crate::store::{Keyspace, StoreError, key};

/// Bytes of messages on one page, give or take one message.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Messages that one look at a subscription passes by: a page may come back short, and still have a next one.
const LOOKED_AT: usize = 1_000;

impl Engine {
    /// The messages of a topic in the order they were published.
    pub(super) fn browse(
        &mut self,
        realm: RealmId,
        request: &Browse,
        reply: Reply<Listed<Browsed>>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let id = or_refuse!(try self, reply, self.topic_id(realm, &request.topic));
        let first = self.topics.get(&id).map_or(0, |topic| topic.head.first);
        let from = match request.page.after {
            Some(after) => after.saturating_add(1).max(first),
            None => self.position(id, request.from)?,
        };
        let mut listed = Listed { items: Vec::new(), more: false };
        let mut bytes = 0;
        for read in self.messages_among(realm, id, from..Sequence::MAX) {
            if listed.items.len() == request.page.limit || bytes > PAGE_BYTES {
                listed.more = true;
                break;
            }
            let (sequence, message) = read?;
            bytes += message.bytes();
            let (id, topic) = (message_id(id, sequence), request.topic.clone());
            listed.items.push(Browsed { id, topic, message });
        }
        self.answer(reply, Ok(listed));
        Ok(())
    }

    /// What a subscription has yet to settle, in the order of its topic.
    pub(super) fn peek(
        &mut self,
        realm: RealmId,
        request: &Peek,
        reply: Reply<Peeks>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let id = or_refuse!(try self, reply, self.subscription_id(realm, &request.subscription));
        let (items, next) = self.outstanding(id, &request.page)?;
        self.answer(reply, Ok(Peeks { items, next }));
        Ok(())
    }

    fn outstanding(
        &self,
        id: SubscriptionId,
        page: &Page<Sequence>,
    ) -> Result<(Vec<Peeked>, Option<Sequence>), StoreError> {
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok((Vec::new(), None)) };
        let Some(topic) = self.topics.get(&subscription.row.topic) else { return Ok((Vec::new(), None)) };
        let after = page.after.map_or(0, |after| after.saturating_add(1));
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut last = None;
        for (looked_at, sequence) in self.open_sequences(id, after)?.into_iter().enumerate() {
            if found.len() == page.limit || bytes > PAGE_BYTES || looked_at == LOOKED_AT {
                return Ok((found, last));
            }
            last = Some(sequence);
            let at = subscription.place(id, sequence);
            let row = self.store.get(
                Keyspace::Messages,
                &key::message(subscription.realm, subscription.row.topic, sequence),
            )?;
            bytes += row.as_ref().map_or(0, |row| row.len());
            let kept = row.map(Message::decode).transpose()?;
            let Some((delivery, copy)) = self.inspect(at, kept.as_ref())? else { continue };
            if !delivery.stands.is_outstanding() {
                continue;
            }
            let Some(message) = copy.or(kept) else { continue };
            let topic = topic.row.name.clone();
            let message = Browsed { id: message_id(subscription.row.topic, sequence), topic, message };
            found.push(Peeked { message, delivery });
        }
        Ok((found, None))
    }

    /// Sequences that may be outstanding, from this one on, in order; one more than is ever looked at.
    fn open_sequences(&self, id: SubscriptionId, from: Sequence) -> Result<Vec<Sequence>, StoreError> {
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(Vec::new()) };
        let end = self.topic_of(id).map_or(0, |topic| topic.head.next);
        let mut open: Vec<_> =
            subscription.held.keys().copied().filter(|sequence| *sequence >= from).collect();
        let (realm, backlog) = (subscription.realm, subscription.row.backlog);
        let range = key::delivery(realm, backlog, from)..key::delivery(realm, backlog, Sequence::MAX);
        for row in self.store.scan(Keyspace::Delayed, range).take(LOOKED_AT + 1) {
            open.extend(key::read_sequence(&row?.0));
        }
        let fresh = subscription.cursor.next.max(from)..end;
        open.extend(fresh.take(LOOKED_AT + 1));
        open.sort_unstable();
        open.dedup();
        open.truncate(LOOKED_AT + 1);
        Ok(open)
    }

    /// The messages of a topic that have these sequences.
    pub(super) fn messages_among(
        &self,
        realm: RealmId,
        id: TopicId,
        among: Range<Sequence>,
    ) -> impl Iterator<Item = Result<(Sequence, Message), StoreError>> {
        let range = key::message(realm, id, among.start)..key::message(realm, id, among.end);
        self.store.scan(Keyspace::Messages, range).map(|row| {
            let (key, value) = row?;
            let sequence =
                key::read_sequence(&key).ok_or_else(|| StoreError::short_key(Keyspace::Messages))?;
            Ok((sequence, Message::decode(value)?))
        })
    }
}
