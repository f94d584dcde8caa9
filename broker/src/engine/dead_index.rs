//! What dead letters are found and counted by, and how: a row for each term of each of them, in the order of their ends.

use std::collections::BTreeMap;
use std::ops::Range;

use super::command::Refusal;
use super::{Engine, STEP_ROWS};
use crate::domain::access::Patterns;
use crate::domain::dead_letter::{DeadLetterFilter, Facet, Term};
use crate::domain::id::{DeadLetterId, RealmId, SubscriptionId};
use crate::domain::time::Timestamp;
use crate::store::row::{DeadLetterRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Rows that one search looks at: what it found then may be short, and goes on behind the last.
const LOOKED_AT: usize = 5_000;
/// How many dead letters have a term that is not counted, as far as the choice of where to begin goes.
const SUPPOSED: u64 = 1_000;

/// Where a dead letter is among the others.
pub type DeadPlace = (Timestamp, DeadLetterId);

/// How many dead letters have each value of each facet.
pub(super) type Tallies = BTreeMap<Facet, BTreeMap<Vec<u8>, u64>>;

type TermHash = [u8; 16];

/// Which one comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The one that was given up first.
    #[default]
    Oldest,
    /// The one that was given up last.
    Newest,
}

/// What to look for.
pub(super) struct Search {
    /// Its rows are gone through.
    first: TermHash,
    /// What is found there must be among these too.
    others: Vec<TermHash>,
    since: Timestamp,
    until: Timestamp,
    /// Only those of subscriptions that these allow.
    among: Patterns,
}

/// What a search found.
pub(super) struct Matches {
    pub(super) places: Vec<DeadPlace>,
    /// Where it goes on: behind this one.
    pub(super) next: Option<DeadPlace>,
}

impl Engine {
    /// Adds what a dead letter is found by.
    pub(super) fn index_dead(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        row: &DeadLetterRow,
        commit: &mut Commit,
    ) {
        for (hash, term) in terms(id, row) {
            commit.put(Keyspace::DeadTerms, key::dead_term(realm, &hash, row.dead_at, id), Vec::new());
            self.tally(realm, id.subscription, &term, 1);
        }
    }

    /// Removes it again.
    pub(super) fn unindex_dead(
        &mut self,
        realm: RealmId,
        id: DeadLetterId,
        row: &DeadLetterRow,
        commit: &mut Commit,
    ) {
        for (hash, term) in terms(id, row) {
            commit.delete(Keyspace::DeadTerms, key::dead_term(realm, &hash, row.dead_at, id));
            self.tally(realm, id.subscription, &term, -1);
        }
    }

    fn tally(&mut self, realm: RealmId, subscription: SubscriptionId, term: &Term, change: i64) {
        let Some((facet, value)) = term.facet() else { return };
        for of in [None, Some(subscription)] {
            let key = key::dead_tally(realm, of, facet as u8, &value);
            *self.tallies.entry(key).or_default() += change;
        }
    }

    /// Writes how many there are by now.
    pub(super) fn save_tallies(&mut self, commit: &mut Commit) -> Result<(), StoreError> {
        for (key, change) in std::mem::take(&mut self.tallies) {
            let count = self.tallied(&key)?.saturating_add_signed(change);
            match count {
                0 => commit.delete(Keyspace::DeadTallies, key),
                _ => commit.put(Keyspace::DeadTallies, key, count.to_be_bytes().to_vec()),
            }
            commit.split_into(&mut self.pending);
        }
        Ok(())
    }

    fn tallied(&self, key: &[u8]) -> Result<u64, StoreError> {
        let row = self.store.get(Keyspace::DeadTallies, key)?;
        row.map_or(Ok(0), |count| read_count(&count))
    }

    /// What a filter looks for. Everything must be applied.
    pub(super) fn search(
        &self,
        realm: RealmId,
        filter: &DeadLetterFilter,
        among: Patterns,
    ) -> Result<Result<Search, Refusal>, StoreError> {
        let wanted = match self.wanted(realm, filter) {
            Ok(wanted) => wanted,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut by_count = Vec::with_capacity(wanted.len());
        for term in wanted {
            let count = match term.facet() {
                Some((facet, value)) => self.tallied(&key::dead_tally(realm, None, facet as u8, &value))?,
                None if term == Term::Any => u64::MAX,
                None => SUPPOSED,
            };
            by_count.push((count, hash(&term)));
        }
        // The fewest rows are gone through.
        by_count.sort_unstable();
        let mut terms = by_count.into_iter().map(|(_, hash)| hash);
        let first = terms.next().unwrap_or(hash(&Term::Any));
        Ok(Ok(Search {
            first,
            others: terms.collect(),
            since: filter.since.unwrap_or_default(),
            until: filter.until.unwrap_or(Timestamp::from_millis(u64::MAX)),
            among,
        }))
    }

    fn wanted(&self, realm: RealmId, filter: &DeadLetterFilter) -> Result<Vec<Term>, Refusal> {
        let DeadLetterFilter { subscription, topic, queue, class, cause, revision, attempts, .. } = filter;
        let subscription = subscription.as_ref().map(|name| self.subscription_id(realm, name)).transpose()?;
        let topic = topic.as_ref().map(|name| self.topic_id(realm, name)).transpose()?;
        let mut terms = Vec::new();
        terms.extend(subscription.map(Term::Subscription));
        terms.extend(topic.map(Term::Topic));
        terms.extend(queue.clone().map(Term::Queue));
        terms.extend(class.clone().map(Term::Class));
        terms.extend(cause.map(Term::Cause));
        terms.extend(revision.map(Term::Revision));
        terms.extend(attempts.map(Term::Attempts));
        terms.extend(filter.reason.clone().map(Term::Reason));
        terms.extend(filter.text.as_deref().into_iter().flat_map(Term::words));
        terms.extend(filter.labels.iter().cloned().map(|(name, value)| Term::Label(name, value)));
        terms.extend(filter.attributes.iter().cloned().map(|(name, value)| Term::Attribute(name, value)));
        if terms.is_empty() {
            terms.push(Term::Any);
        }
        Ok(terms)
    }

    /// The next `most` dead letters behind `after`. Everything must be applied.
    pub(super) fn matching(
        &self,
        realm: RealmId,
        search: &Search,
        order: Order,
        after: Option<DeadPlace>,
        most: usize,
    ) -> Result<Matches, StoreError> {
        let range = search.range(realm, order, after);
        let rows = match order {
            Order::Oldest => self.store.scan(Keyspace::DeadTerms, range),
            Order::Newest => self.store.scan_back(Keyspace::DeadTerms, range),
        };
        let mut found = Matches { places: Vec::new(), next: None };
        let mut last = None;
        for (looked_at, row) in rows.enumerate() {
            if found.places.len() == most || looked_at == LOOKED_AT {
                found.next = last;
                break;
            }
            let place = key::read_dead_term(&row?.0);
            let place = place.ok_or_else(|| StoreError::short_key(Keyspace::DeadTerms))?;
            last = Some(place);
            if self.has_all(realm, search, place)? {
                found.places.push(place);
            }
        }
        Ok(found)
    }

    fn has_all(&self, realm: RealmId, search: &Search, (at, id): DeadPlace) -> Result<bool, StoreError> {
        // Those of a subscription that was deleted are on their way out.
        let subscription = self.subscriptions.get(&id.subscription);
        if !subscription.is_some_and(|it| search.among.allow(&it.row.name)) {
            return Ok(false);
        }
        for other in &search.others {
            if self.store.get(Keyspace::DeadTerms, &key::dead_term(realm, other, at, id))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many have each value of each facet, of one subscription or of all; how many there are; and whether these are all
    /// values.
    pub(super) fn tallies_of(
        &self,
        realm: RealmId,
        subscription: Option<SubscriptionId>,
    ) -> Result<(Tallies, u64, bool), StoreError> {
        let (mut tallies, mut complete) = (Tallies::new(), true);
        for facet in Facet::ALL {
            let (values, whole) = self.counts_of(realm, subscription, facet)?;
            complete &= whole;
            tallies.insert(facet, values);
        }
        // Each is in one queue.
        let total = tallies.get(&Facet::Queue).map_or(0, |queues| queues.values().sum());
        Ok((tallies, total, complete))
    }

    fn counts_of(
        &self,
        realm: RealmId,
        subscription: Option<SubscriptionId>,
        facet: Facet,
    ) -> Result<(BTreeMap<Vec<u8>, u64>, bool), StoreError> {
        let range = key::prefixed(key::dead_tally(realm, subscription, facet as u8, &[]));
        let mut counts = BTreeMap::new();
        for row in self.store.scan(Keyspace::DeadTallies, range) {
            if counts.len() == STEP_ROWS {
                return Ok((counts, false));
            }
            let (key, count) = row?;
            let value =
                key::read_tallied(&key).ok_or_else(|| StoreError::short_key(Keyspace::DeadTallies))?;
            counts.insert(value.to_vec(), read_count(&count)?);
        }
        Ok((counts, true))
    }

    /// What a search finds there, term by term.
    pub(super) fn facets_of(&self, realm: RealmId, places: &[DeadPlace]) -> Result<Tallies, StoreError> {
        let mut counts = Tallies::new();
        for (_, id) in places {
            let Some(row) = self.dead_letter(realm, *id)? else { continue };
            for (facet, value) in terms(*id, &row).values().filter_map(Term::facet) {
                *counts.entry(facet).or_default().entry(value).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// The row of a dead letter. Everything must be applied.
    pub(super) fn dead_letter(
        &self,
        realm: RealmId,
        id: DeadLetterId,
    ) -> Result<Option<DeadLetterRow>, StoreError> {
        let row = self.store.get(Keyspace::DeadLetters, &key::dead_letter(realm, id))?;
        row.map(DeadLetterRow::decode).transpose()
    }
}

impl Search {
    fn range(&self, realm: RealmId, order: Order, after: Option<DeadPlace>) -> Range<Vec<u8>> {
        let moment =
            |at: Timestamp| [key::term(realm, &self.first), at.as_millis().to_be_bytes().to_vec()].concat();
        let mut range = moment(self.since)..moment(self.until);
        if let Some((at, id)) = after {
            let place = key::dead_term(realm, &self.first, at, id);
            match order {
                Order::Oldest => range.start = range.start.max([place, vec![0]].concat()),
                Order::Newest => range.end = range.end.min(place),
            }
        }
        // A cursor may be of another time than is asked for.
        range.end = range.end.max(range.start.clone());
        range
    }
}

/// What a dead letter is found by.
fn terms(id: DeadLetterId, row: &DeadLetterRow) -> BTreeMap<TermHash, Term> {
    let last = row.delivery.history.last();
    let labels = row.labels.iter().cloned();
    let attributes = row.message.attributes.iter().cloned();
    let terms = [
        Term::Any,
        Term::Subscription(id.subscription),
        Term::Topic(id.topic),
        Term::Queue(row.queue.clone()),
        Term::Attempts(row.delivery.attempt),
        Term::Reason(row.reason.clone()),
    ]
    .into_iter()
    .chain(last.into_iter().flat_map(Term::of_failure))
    .chain(labels.map(|(name, value)| Term::Label(name, value)))
    .chain(attributes.map(|(name, value)| Term::Attribute(name, value)))
    .chain(Term::words(&row.reason));
    terms.map(|term| (hash(&term), term)).collect()
}

fn hash(term: &Term) -> TermHash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(term.text().as_bytes()).as_bytes()[..16]);
    hash
}

fn read_count(bytes: &[u8]) -> Result<u64, StoreError> {
    let damaged = |_| StoreError::Corrupt("a tally of dead letters is not a number".to_owned());
    bytes.try_into().map(u64::from_be_bytes).map_err(damaged)
}
