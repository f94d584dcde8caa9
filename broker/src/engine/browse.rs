//! Reading without taking: the messages of a topic, and what is outstanding on a subscription.

use std::collections::BTreeMap;
use std::ops::Range;

use super::backlog::{Backlog, Place};
use super::command::{Listed, Page};
use super::inspect::DeliveryView;
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{MessageId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::settings::Start;
use crate::store::row::Row as _;
use crate::store::{Keyspace, StoreError, key};

/// Reads messages of a topic, oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Browse {
    /// Which topic.
    pub topic: Name,
    /// Where to begin, where no page came before.
    pub from: Start,
    /// Which page.
    pub page: Page<Sequence>,
}

/// A message of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Browsed {
    /// Its id.
    pub id: MessageId,
    /// The topic's name.
    pub topic: Name,
    /// The message.
    pub message: Message,
}

/// Reads what is outstanding on a subscription, topic by topic, oldest message first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peek {
    /// Which subscription.
    pub subscription: Name,
    /// Which page.
    pub page: Page<MessageId>,
}

/// A message that is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peeked {
    /// The message.
    pub message: Browsed,
    /// How it stands.
    pub delivery: DeliveryView,
}

/// A page of what is outstanding. It can be short, even empty, and still have a next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peeks {
    /// In order.
    pub items: Vec<Peeked>,
    /// Where the next page begins: behind this one.
    pub next: Option<MessageId>,
}

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
            let (id, topic) = (MessageId { topic: id, sequence }, request.topic.clone());
            listed.items.push(Browsed { id, topic, message });
        }
        self.answer(reply, Ok(listed));
        Ok(())
    }

    /// What a subscription has yet to settle, topic by topic in the order of each.
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
        page: &Page<MessageId>,
    ) -> Result<(Vec<Peeked>, Option<MessageId>), StoreError> {
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok((Vec::new(), None)) };
        let backlogs = subscription.backlogs.iter().filter_map(|id| self.backlogs.get(id));
        let outstanding = backlogs.filter(|it| self.topics.get(&it.topic).is_some_and(|of| it.depth(of) > 0));
        let by_topic: BTreeMap<TopicId, &Backlog> = outstanding.map(|it| (it.topic, it)).collect();
        let first = page.after.map_or(TopicId(0), |after| after.topic);
        let (mut found, mut bytes) = (Vec::new(), 0);
        let (mut last, mut looked_at) = (None, 0);
        for (topic, backlog) in by_topic.range(first..) {
            let after = page.after.filter(|after| after.topic == *topic);
            let from = after.map_or(0, |after| after.sequence.saturating_add(1));
            for sequence in self.open_sequences(backlog, from)? {
                if found.len() == page.limit || bytes > PAGE_BYTES || looked_at == LOOKED_AT {
                    return Ok((found, last));
                }
                looked_at += 1;
                last = Some(backlog.message_id(sequence));
                let row = key::message(backlog.realm, backlog.topic, sequence);
                let row = self.store.get(Keyspace::Messages, &row)?;
                bytes += row.as_ref().map_or(0, |row| row.len());
                found.extend(self.peeked(backlog.place(sequence), row.map(Message::decode).transpose()?)?);
            }
        }
        Ok((found, None))
    }

    fn peeked(&self, at: Place, kept: Option<Message>) -> Result<Option<Peeked>, StoreError> {
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(None) };
        let Some(topic) = self.topics.get(&backlog.topic) else { return Ok(None) };
        let Some((delivery, copy)) = self.inspect(at, kept.as_ref())? else { return Ok(None) };
        if !delivery.stands.is_outstanding() {
            return Ok(None);
        }
        let (id, topic) = (backlog.message_id(at.sequence), topic.row.name.clone());
        let message = copy.or(kept).map(|message| Browsed { id, topic, message });
        Ok(message.map(|message| Peeked { message, delivery }))
    }

    /// Sequences that may be outstanding, from this one on, in order; one more than is ever looked at.
    fn open_sequences(&self, backlog: &Backlog, from: Sequence) -> Result<Vec<Sequence>, StoreError> {
        let end = self.topics.get(&backlog.topic).map_or(0, |topic| topic.head.next);
        let mut open: Vec<_> = backlog.held.keys().copied().filter(|sequence| *sequence >= from).collect();
        let (realm, id) = (backlog.realm, backlog.row.id);
        let range = key::delivery(realm, id, from)..key::delivery(realm, id, Sequence::MAX);
        for row in self.store.scan(Keyspace::Delayed, range).take(LOOKED_AT + 1) {
            open.extend(key::read_sequence(&row?.0));
        }
        let fresh = backlog.row.next.max(from)..end;
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
