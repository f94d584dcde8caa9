//! Dead letters: list, inspect, replay, discard.

use super::command::{DeadLetterList, DeadLetterQuery, DeadLetterView, Refusal, Replayed, message_id};
use super::state::{End, Place};
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{DeadLetterId, RealmId, SubscriptionId};
use crate::domain::message::Message;
use crate::store::row::{DeadLetterRow, Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Rows that one list request looks at: a page may come back short, with a cursor to go on from.
const LOOKED_AT: usize = 10_000;

/// Bytes of rows that one list request reads, give or take one row.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

impl Engine {
    pub(super) fn list_dead_letters(
        &mut self,
        realm: RealmId,
        query: &DeadLetterQuery,
        reply: Reply<DeadLetterList>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let mut range = match &query.subscription {
            Some(name) => {
                let id = or_refuse!(try self, reply, self.subscription_id(realm, name));
                key::prefixed(key::subscription(realm, id))
            }
            None => key::prefixed(key::realm(realm)),
        };
        if let Some(after) = query.page.after {
            let next = key::delivery(realm, after.subscription, after.sequence.saturating_add(1));
            range.start = range.start.max(next);
        }
        let mut listed = DeadLetterList { items: Vec::new(), next: None };
        let (mut last, mut bytes) = (None, 0);
        for (looked_at, row) in self.store.scan(Keyspace::DeadLetters, range).enumerate() {
            let (key, value) = row?;
            if listed.items.len() == query.page.limit || looked_at == LOOKED_AT || bytes > PAGE_BYTES {
                listed.next = last;
                break;
            }
            let id = dead_letter_id(&key)?;
            last = Some(id);
            bytes += value.len();
            // A list shows no payloads, and a page of them would be large.
            let mut row = DeadLetterRow::decode(value)?;
            row.message.payload = bytes::Bytes::new();
            let view = self.dead_letter_view(id, row);
            listed.items.extend(view.filter(|view| matches(view, query)));
        }
        self.answer(reply, Ok(listed));
        Ok(())
    }

    pub(super) fn get_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        reply: Reply<DeadLetterView>,
    ) -> Result<(), StoreError> {
        let found = self.read_dead_letter(realm, id)?;
        let view = found.and_then(|row| self.dead_letter_view(id, row));
        self.answer(reply, view.ok_or(Refusal::DeadLetterNotFound));
        Ok(())
    }

    /// Moves it back to its subscription in one commit: a new life with attempts from 1, without a time to live.
    pub(super) fn replay_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        reply: Reply<Replayed>,
    ) -> Result<(), StoreError> {
        let found = self.read_dead_letter(realm, id)?;
        let row = or_refuse!(try self, reply, found.ok_or(Refusal::DeadLetterNotFound));
        let now = self.now;
        let at = place(id);
        let subscription = self.subscriptions.get_mut(&at.subscription);
        let subscription = or_refuse!(try self, reply, subscription.ok_or(Refusal::DeadLetterNotFound));
        let delivery = row.delivery.replayed(now);
        let message = Message { expires_at: None, available_at: row.message.published_at, ..row.message };
        let mut commit = Commit::default();
        commit.delete(Keyspace::DeadLetters, at.key(realm));
        commit.put(Keyspace::Replayed, at.key(realm), message.encode());
        subscription.cursor.dead = subscription.cursor.dead.saturating_sub(1);
        subscription.unmark_end(at, &mut commit);
        subscription.store_delayed(at, &delivery, now, &mut commit);
        let replayed = Replayed {
            message_id: message_id(subscription.row.topic, at.sequence),
            replays: delivery.replays,
        };
        self.pending.push(commit);
        self.touch(at.subscription);
        self.answer(reply, Ok(replayed));
        Ok(())
    }

    pub(super) fn discard_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        reply: Reply<()>,
    ) -> Result<(), StoreError> {
        let found = self.read_dead_letter(realm, id)?;
        let row = or_refuse!(try self, reply, found.ok_or(Refusal::DeadLetterNotFound));
        let (now, kept) = (self.now, self.kept_from(id.subscription));
        let at = place(id);
        let subscription = self.subscriptions.get_mut(&at.subscription);
        let subscription = or_refuse!(try self, reply, subscription.ok_or(Refusal::DeadLetterNotFound));
        let mut commit = Commit::default();
        commit.delete(Keyspace::DeadLetters, at.key(realm));
        subscription.cursor.dead = subscription.cursor.dead.saturating_sub(1);
        // Ahead of the cursor another end is marked already.
        subscription.unmark_end(at, &mut commit);
        let end = End { ending: Ending::Discarded, now, delivery: row.delivery };
        subscription.store_end(at, end, kept, &mut commit);
        self.pending.push(commit);
        self.touch(at.subscription);
        self.answer(reply, Ok(()));
        Ok(())
    }

    pub(super) fn read_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
    ) -> Result<Option<DeadLetterRow>, StoreError> {
        self.apply()?;
        let row = self.store.get(Keyspace::DeadLetters, &place(id).key(realm))?;
        row.map(DeadLetterRow::decode).transpose()
    }

    /// `None` if its subscription is being deleted.
    fn dead_letter_view(&self, id: DeadLetterId, row: DeadLetterRow) -> Option<DeadLetterView> {
        let subscription = self.subscriptions.get(&id.subscription)?;
        let topic = self.topics.get(&subscription.row.topic)?;
        Some(DeadLetterView {
            id,
            subscription: subscription.row.name.clone(),
            topic: topic.row.name.clone(),
            message_id: message_id(subscription.row.topic, id.sequence),
            row,
        })
    }
}

fn matches(view: &DeadLetterView, query: &DeadLetterQuery) -> bool {
    let queue = query.queue.is_none() || view.row.queue == query.queue;
    let last = view.row.delivery.history.last();
    let class =
        query.class.as_ref().is_none_or(|class| last.is_some_and(|past| past.failure.class == *class));
    queue && class && query.among.allow(&view.subscription)
}

fn dead_letter_id(key: &[u8]) -> Result<DeadLetterId, StoreError> {
    let parts = key::read_owner(key).map(SubscriptionId).zip(key::read_sequence(key));
    let (subscription, sequence) =
        parts.ok_or_else(|| StoreError::Corrupt("a key of dead_letters is too short".to_owned()))?;
    Ok(DeadLetterId { subscription, sequence })
}

const fn place(id: DeadLetterId) -> Place {
    Place { subscription: id.subscription, sequence: id.sequence }
}
