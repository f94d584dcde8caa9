//! Dead letters: list, inspect, replay, discard.

use super::backlog::{End, Place};
use super::command::{Page, Refusal};
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::id::{BacklogId, DeadLetterId, MessageId, RealmId, SubscriptionId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::store::row::{DeadLetterRow, Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Rows that one list request looks at: a page may come back short, with a cursor to go on from.
const LOOKED_AT: usize = 10_000;

/// Bytes of rows that one list request reads, give or take one row.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Which dead letters to list, oldest first within each subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterQuery {
    /// Of this subscription; `None` is all of them.
    pub subscription: Option<Name>,
    /// Of this queue.
    pub queue: Option<Name>,
    /// Whose last failure has this class.
    pub class: Option<String>,
    /// Which page.
    pub page: Page<DeadLetterId>,
    /// Only those of subscriptions that these allow.
    pub among: Patterns,
}

/// A page of dead letters. It can be short, even empty, and still have a next one: filters look at a bounded number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterList {
    /// In order.
    pub items: Vec<DeadLetterView>,
    /// Where the next page begins: behind this one.
    pub next: Option<DeadLetterId>,
}

/// A dead letter as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterView {
    /// Its id.
    pub id: DeadLetterId,
    /// The subscription that gave it up.
    pub subscription: Name,
    /// The topic of its message.
    pub topic: Name,
    /// The id of its message.
    pub message_id: MessageId,
    /// Everything else.
    pub row: DeadLetterRow,
}

/// A dead letter that went back to its subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Its message.
    pub message_id: MessageId,
    /// How often it was replayed by now.
    pub replays: u32,
}

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
            let next = DeadLetterId { sequence: after.sequence.saturating_add(1), ..after };
            let next = key::dead_letter(realm, next);
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
        let at = or_refuse!(try self, reply, self.place_of(id));
        if row.backlog != at.backlog && self.is_outstanding(at, realm)? {
            self.answer(reply, Err(Refusal::Outstanding(id.message())));
            return Ok(());
        }
        let marked = self.is_marked(at, realm, row.backlog)?;
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let delivery = row.delivery.replayed(now);
        let message = Message { expires_at: None, available_at: row.message.published_at, ..row.message };
        let mut commit = Commit::default();
        commit.delete(Keyspace::DeadLetters, key::dead_letter(realm, id));
        commit.put(Keyspace::Replayed, at.key(realm), message.encode());
        backlog.row.dead = backlog.row.dead.saturating_sub(1);
        if marked {
            backlog.unmark_end(at, &mut commit);
        }
        backlog.store_delayed(at, &delivery, now, &mut commit);
        let replayed = Replayed { message_id: id.message(), replays: delivery.replays };
        self.pending.push(commit);
        self.touch_at(at);
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
        let at = or_refuse!(try self, reply, self.place_of(id));
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let mut commit = Commit::default();
        commit.delete(Keyspace::DeadLetters, key::dead_letter(realm, id));
        backlog.row.dead = backlog.row.dead.saturating_sub(1);
        // What died before a seek has ended there; it says nothing about the message's life since.
        if row.backlog == at.backlog {
            // Ahead of the cursor another end is marked already.
            backlog.unmark_end(at, &mut commit);
            let end = End { ending: Ending::Discarded, now, delivery: row.delivery };
            backlog.store_end(at, end, kept, &mut commit);
        }
        self.pending.push(commit);
        self.touch_at(at);
        self.answer(reply, Ok(()));
        Ok(())
    }

    /// Where the message of a dead letter is delivered, if it is.
    fn place_of(&self, id: DeadLetterId) -> Result<Place, Refusal> {
        let backlog = self.backlog_on(id.subscription, id.topic).ok_or(Refusal::DeadLetterNotFound)?;
        Ok(backlog.place(id.sequence))
    }

    /// Whether a seek brought the message back, and it is on its way.
    fn is_outstanding(&self, at: Place, realm: RealmId) -> Result<bool, StoreError> {
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(false) };
        let key = at.key(realm);
        if backlog.held.contains_key(&at.sequence) || self.store.get(Keyspace::Delayed, &key)?.is_some() {
            return Ok(true);
        }
        let fresh = at.sequence >= backlog.row.next;
        Ok(fresh && self.store.get(Keyspace::Settled, &key)?.is_none())
    }

    /// Whether a row marks the end of the delivery that the cursor has yet to pass by.
    fn is_marked(&self, at: Place, realm: RealmId, died_in: BacklogId) -> Result<bool, StoreError> {
        let passed = self.backlogs.get(&at.backlog).is_none_or(|it| at.sequence < it.row.next);
        let marked = || Ok(self.store.get(Keyspace::Settled, &at.key(realm))?.is_some());
        if died_in == at.backlog || passed { Ok(true) } else { marked() }
    }

    pub(super) fn read_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
    ) -> Result<Option<DeadLetterRow>, StoreError> {
        self.apply()?;
        let row = self.store.get(Keyspace::DeadLetters, &key::dead_letter(realm, id))?;
        row.map(DeadLetterRow::decode).transpose()
    }

    /// `None` if its subscription is being deleted.
    fn dead_letter_view(&self, id: DeadLetterId, row: DeadLetterRow) -> Option<DeadLetterView> {
        let subscription = self.subscriptions.get(&id.subscription)?;
        let topic = self.topics.get(&id.topic)?;
        Some(DeadLetterView {
            id,
            subscription: subscription.row.name.clone(),
            topic: topic.row.name.clone(),
            message_id: id.message(),
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
    let parts =
        key::read_owner(key).map(SubscriptionId).zip(key::read_topic(key)).zip(key::read_sequence(key));
    let ((subscription, topic), sequence) =
        parts.ok_or_else(|| StoreError::short_key(Keyspace::DeadLetters))?;
    Ok(DeadLetterId { subscription, topic, sequence })
}
