//! Dead letters: list, count, inspect, replay, discard.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::backlog::{End, Place};
use super::command::{Page, Refusal};
use super::dead_index::{DeadPlace, Matches, Order};
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::dead_letter::{DeadLetterFilter, Facet};
use crate::domain::id::{BacklogId, DeadLetterId, MessageId, RealmId, SubscriptionId, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::store::row::{DeadLetterRow, Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Bytes of rows that one list request reads, give or take one row.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Values of a facet that are shown, those that most have.
const SHOWN_VALUES: usize = 50;
/// Dead letters that are counted one by one, where no tally says how many there are.
const COUNTED: usize = 2_000;

/// Which dead letters to list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterQuery {
    /// Those that match this.
    pub filter: DeadLetterFilter,
    /// In which order.
    pub order: Order,
    /// Which page.
    pub page: Page<DeadPlace>,
    /// Only those of subscriptions that these allow.
    pub among: Patterns,
}

/// A page of dead letters. It can be short, even empty, and still have a next one: a search looks at a bounded number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterList {
    /// In order.
    pub items: Vec<DeadLetterView>,
    /// Where the next page begins: behind this one.
    pub next: Option<DeadPlace>,
}

/// How many dead letters there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterFacets {
    /// All of them.
    pub total: u64,
    /// Whether that is all, and not only as far as they were counted.
    pub complete: bool,
    /// How many have each value, those that most have first.
    pub facets: BTreeMap<Facet, Vec<(String, u64)>>,
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

/// What is to be changed of a message as its dead letter is replayed; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadLetterEdit {
    /// What it says.
    pub payload: Option<bytes::Bytes>,
    /// What that is.
    pub content_type: Option<String>,
    /// All of its attributes.
    pub attributes: Option<Vec<(String, String)>>,
}

impl DeadLetterEdit {
    fn made(self, message: Message) -> Message {
        Message {
            payload: self.payload.unwrap_or(message.payload),
            content_type: self.content_type.or(message.content_type),
            attributes: self.attributes.unwrap_or(message.attributes),
            ..message
        }
    }
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
        query: DeadLetterQuery,
        reply: Reply<DeadLetterList>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let DeadLetterQuery { filter, order, page, among } = query;
        let search = or_refuse!(try self, reply, self.search(realm, &filter, among)?);
        let Matches { places, mut next } = self.matching(realm, &search, order, page.after, page.limit)?;
        let (mut items, mut bytes) = (Vec::with_capacity(places.len()), 0);
        for (found, (at, id)) in places.iter().enumerate() {
            let Some(mut row) = self.dead_letter(realm, *id)? else { continue };
            bytes += row.message.bytes();
            // A list shows no payloads, and a page of them would be large.
            row.message.payload = bytes::Bytes::new();
            items.extend(self.dead_letter_view(*id, row));
            if bytes > PAGE_BYTES && found + 1 < places.len() {
                next = Some((*at, *id));
                break;
            }
        }
        self.answer(reply, Ok(DeadLetterList { items, next }));
        Ok(())
    }

    /// How many there are: by the tallies, or one by one where these do not tell.
    pub(super) fn count_dead_letters(
        &mut self,
        realm: RealmId,
        filter: &DeadLetterFilter,
        among: &Patterns,
        reply: Reply<DeadLetterFacets>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let of_subscription =
            DeadLetterFilter { subscription: filter.subscription.clone(), ..Default::default() };
        let (counts, total, complete) = if *filter == of_subscription && filter.is_within(among) {
            let of = filter.subscription.as_ref().map(|name| self.subscription_id(realm, name));
            self.tallies_of(realm, or_refuse!(try self, reply, of.transpose()))?
        } else {
            let search = or_refuse!(try self, reply, self.search(realm, filter, among.clone())?);
            let Matches { places, next } = self.matching(realm, &search, Order::Newest, None, COUNTED)?;
            (self.facets_of(realm, &places)?, places.len() as u64, next.is_none())
        };
        let facets = counts.into_iter().map(|(facet, values)| (facet, self.most(facet, values))).collect();
        self.answer(reply, Ok(DeadLetterFacets { total, complete, facets }));
        Ok(())
    }

    /// The values that most have, as people see them.
    fn most(&self, facet: Facet, values: BTreeMap<Vec<u8>, u64>) -> Vec<(String, u64)> {
        let shown = values.into_iter().filter_map(|(value, count)| Some((self.shown(facet, &value)?, count)));
        let mut most: Vec<_> = shown.collect();
        most.sort_by_key(|(_, count)| Reverse(*count));
        most.truncate(SHOWN_VALUES);
        most
    }

    /// `None` for the number of something that was deleted.
    fn shown(&self, facet: Facet, value: &[u8]) -> Option<String> {
        let number = || value.try_into().ok().map(u32::from_be_bytes);
        match facet {
            Facet::Subscription => {
                Some(self.subscriptions.get(&SubscriptionId(number()?))?.row.name.to_string())
            }
            Facet::Topic => Some(self.topics.get(&TopicId(number()?))?.row.name.to_string()),
            Facet::Revision => Some(number()?.to_string()),
            _ => Some(String::from_utf8_lossy(value).into_owned()),
        }
    }

    pub(super) fn get_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        reply: Reply<DeadLetterView>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let found = self.dead_letter(realm, id)?;
        let view = found.and_then(|row| self.dead_letter_view(id, row));
        self.answer(reply, view.ok_or(Refusal::DeadLetterNotFound));
        Ok(())
    }

    pub(super) fn replay_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        edit: DeadLetterEdit,
        reply: Reply<Replayed>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let replayed = self.replay(realm, id, edit)?;
        self.answer(reply, replayed);
        Ok(())
    }

    /// Moves it back to its subscription in one commit: a new life with attempts from 1, without a time to live. What was
    /// written of it must be applied.
    pub(super) fn replay(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        edit: DeadLetterEdit,
    ) -> Result<Result<Replayed, Refusal>, StoreError> {
        let Some(row) = self.dead_letter(realm, id)? else { return Ok(Err(Refusal::DeadLetterNotFound)) };
        let Some(at) = self.place_of(id) else { return Ok(Err(Refusal::DeadLetterNotFound)) };
        if row.backlog != at.backlog && self.is_outstanding(at, realm)? {
            return Ok(Err(Refusal::Outstanding(id.message())));
        }
        if let Err(refusal) = self.check_edit(id, &edit) {
            return Ok(Err(refusal));
        }
        let marked = self.is_marked(at, realm, row.backlog)?;
        let mut commit = Commit::default();
        self.exhume(realm, id, &row, &mut commit);
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else {
            return Ok(Err(Refusal::DeadLetterNotFound));
        };
        let mut delivery = row.delivery.replayed(self.now);
        delivery.edited |= edit != DeadLetterEdit::default();
        let message = Message { expires_at: None, available_at: row.message.published_at, ..row.message };
        commit.put(Keyspace::Replayed, at.key(realm), edit.made(message).encode());
        if marked {
            backlog.unmark_end(at, &mut commit);
        }
        backlog.store_delayed(at, &delivery, self.now, &mut commit);
        self.pending.push(commit);
        self.touch_at(at);
        Ok(Ok(Replayed { message_id: id.message(), replays: delivery.replays }))
    }

    /// A message that is changed is one that its topic takes.
    fn check_edit(&self, id: DeadLetterId, edit: &DeadLetterEdit) -> Result<(), Refusal> {
        let Some((topic, payload)) = self.topics.get(&id.topic).zip(edit.payload.as_ref()) else {
            return Ok(());
        };
        let (bytes, limit) = (payload.len(), topic.row.settings.max_message_bytes);
        if bytes <= limit {
            return Ok(());
        }
        Err(Refusal::MessageTooLarge { bytes, topic: topic.row.name.clone(), limit })
    }

    pub(super) fn discard_dead_letter(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        reply: Reply<()>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let discarded = self.discard(realm, id)?;
        self.answer(reply, discarded);
        Ok(())
    }

    /// Gives it up for good. What was written of it must be applied.
    pub(super) fn discard(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let Some(row) = self.dead_letter(realm, id)? else { return Ok(Err(Refusal::DeadLetterNotFound)) };
        let Some(at) = self.place_of(id) else { return Ok(Err(Refusal::DeadLetterNotFound)) };
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        let mut commit = Commit::default();
        self.exhume(realm, id, &row, &mut commit);
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else {
            return Ok(Err(Refusal::DeadLetterNotFound));
        };
        // What died before a seek has ended there; it says nothing about the message's life since.
        if row.backlog == at.backlog {
            // Ahead of the cursor another end is marked already.
            backlog.unmark_end(at, &mut commit);
            let end = End { ending: Ending::Discarded, now, delivery: row.delivery };
            backlog.store_end(at, end, kept, &mut commit);
        }
        self.pending.push(commit);
        self.touch_at(at);
        Ok(Ok(()))
    }

    /// It is a dead letter no more.
    fn exhume(&mut self, realm: RealmId, id: DeadLetterId, row: &DeadLetterRow, commit: &mut Commit) {
        commit.delete(Keyspace::DeadLetters, key::dead_letter(realm, id));
        self.unindex_dead(realm, id, row, commit);
        let backlog = self.backlog_on(id.subscription, id.topic).map(|backlog| backlog.row.id);
        if let Some(backlog) = backlog.and_then(|id| self.backlogs.get_mut(&id)) {
            backlog.row.dead = backlog.row.dead.saturating_sub(1);
        }
    }

    /// Where the message of a dead letter is delivered, if it is.
    fn place_of(&self, id: DeadLetterId) -> Option<Place> {
        Some(self.backlog_on(id.subscription, id.topic)?.place(id.sequence))
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

/// The id in a key of `dead_letters`.
pub(super) fn dead_letter_id(key: &[u8]) -> Result<DeadLetterId, StoreError> {
    let parts =
        key::read_owner(key).map(SubscriptionId).zip(key::read_topic(key)).zip(key::read_sequence(key));
    let ((subscription, topic), sequence) =
        parts.ok_or_else(|| StoreError::short_key(Keyspace::DeadLetters))?;
    Ok(DeadLetterId { subscription, topic, sequence })
}
