//! Ids that producers give their messages: within the window each is stored once, through every crash.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use reprise_broker::domain::dedup::{DedupKey, Fingerprint};
use reprise_broker::domain::id::{MessageId, Sequence};
use reprise_broker::domain::name::Name;
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{Accepted, Refusal};

use super::model::{Model, Sent, Violation};
use super::random::Random;

/// What was published to one topic under ids.
#[derive(Debug)]
pub(crate) struct Names {
    window: Duration,
    known: BTreeMap<String, Named>,
}

#[derive(Debug)]
struct Named {
    payload: String,
    /// The last message that was stored under it, and when.
    stored: Option<(Sequence, Timestamp)>,
}

pub(crate) fn key(id: &str, payload: &str) -> DedupKey {
    DedupKey { id: Fingerprint::of(id.as_bytes()), payload: Fingerprint::of(payload.as_bytes()) }
}

impl Names {
    pub(crate) const fn new(window: Duration) -> Self {
        Self { window, known: BTreeMap::new() }
    }

    /// An id for a message, sometimes one that was used before: then mostly with the payload of that time.
    pub(crate) fn pick(&mut self, random: &mut Random, payload: &mut String) -> Option<String> {
        if random.percent(60) {
            return None;
        }
        if !self.known.is_empty() && random.percent(60) {
            // A producer tries again soon.
            let place = self.known.len() - 1 - random.below(self.known.len().min(6));
            let (id, named) = self.known.iter().nth(place)?;
            if random.percent(80) {
                payload.clone_from(&named.payload);
            }
            return Some(id.clone());
        }
        let id = format!("{:06}", self.known.len());
        self.known.insert(id.clone(), Named { payload: payload.clone(), stored: None });
        Some(id)
    }

    /// Windows that have passed stay so when the clock is turned back.
    pub(crate) fn clock_went_back(&mut self, from: Timestamp) {
        for named in self.known.values_mut() {
            named.stored = named.stored.filter(|(_, at)| *at + self.window > from);
        }
    }

    /// The message that any other with this id is a duplicate of.
    fn current(&self, id: &str, now: Timestamp) -> Option<Sequence> {
        let (sequence, at) = self.known.get(id)?.stored?;
        (at + self.window > now).then_some(sequence)
    }
}

impl Model {
    /// An item of a publish that carried an id was answered.
    pub(crate) fn named(
        &mut self,
        name: &Name,
        id: &str,
        sent: &Sent,
        result: &Result<Accepted, Refusal>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let topic = self.topics.get_mut(name).ok_or("an unknown topic")?;
        let current = topic.names.current(id, now);
        let expect = |found: MessageId| match current {
            Some(sequence) if sequence != found.sequence => {
                Err(format!("{id} is message {sequence} of {name}, and not {found}"))
            }
            _ => Ok(()),
        };
        match result {
            Ok(Accepted { id: found, duplicate: true }) => {
                expect(*found)?;
                let original = match topic.messages.entry(found.sequence) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        // The answer to the first of them was lost.
                        let of = |(to, other): &(Name, Sent)| to == name && other.payload == sent.payload;
                        let first = self.unanswered.iter().position(of);
                        let first = first.ok_or_else(|| format!("{found} is a duplicate of nothing"))?;
                        place.insert(self.unanswered.remove(first).1)
                    }
                };
                let original = &original.payload;
                if *original != sent.payload {
                    return Err(format!("{} was taken for {original}, which is {found}", sent.payload));
                }
            }
            Ok(Accepted { id: stored, duplicate: false }) => {
                if let Some(sequence) = current {
                    return Err(format!("{id} of {name} was stored as {sequence} and again as {stored}"));
                }
                let stored = Some((stored.sequence, now));
                topic.names.known.insert(id.to_owned(), Named { payload: sent.payload.clone(), stored });
            }
            Err(Refusal::DedupConflict(found)) => {
                expect(*found)?;
                let original = topic.messages.get(&found.sequence);
                if original.is_some_and(|original| original.payload == sent.payload) {
                    return Err(format!("{id} of {name} conflicts with itself: {found}"));
                }
            }
            Err(refusal) => {
                if let Some(sequence) = current {
                    return Err(format!("{id} is message {sequence} of {name}, and was refused: {refusal}"));
                }
            }
        }
        Ok(())
    }
}
