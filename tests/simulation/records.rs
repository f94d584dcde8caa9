//! Recorded failures, against the histories of the deliveries, and asked again.

use std::collections::{BTreeMap, BTreeSet};

use reprise_broker::domain::decision::Decider;
use reprise_broker::domain::failure::Cause;
use reprise_broker::domain::id::MessageId;
use reprise_broker::domain::name::Name;
use reprise_broker::engine::{Command, DeliveryView, Page, RecordedView};

use super::model::{Place, Violation, place_of};
use super::policies::POLICIES;
use super::world::{REALM, World};

/// A decision: which message, life and attempt, and whether its time to live had passed, which is none of the attempt's.
type Decision = (Place, u32, u32, bool);

/// What the histories say that policies were asked, by subscription.
pub(crate) type Histories = BTreeMap<Name, BTreeSet<Decision>>;

/// How many failures this subscription keeps: the same all its life, so that what is missing can be told.
pub(crate) fn kept(subscription: &Name) -> u32 {
    if subscription.as_str() == "b" { 4 } else { 10_000 }
}

/// Notes what a history says.
pub(crate) fn note(histories: &mut Histories, id: MessageId, shown: &DeliveryView) {
    let Some(delivery) = &shown.delivery else { return };
    let decisions = histories.entry(shown.subscription.clone()).or_default();
    for past in &delivery.history {
        if past.decision.decider != Decider::AttemptLimit {
            let expired = past.failure.cause == Cause::MessageExpired;
            decisions.insert((place_of(id), past.replay, past.attempt, expired));
        }
    }
}

impl World {
    /// Every decision in a history is recorded once, whatever crashed in between, and gives the same answer again.
    pub(crate) fn audit_records(&mut self, histories: &Histories) -> Result<(), Violation> {
        for name in self.model.subscriptions.keys().cloned().collect::<Vec<_>>() {
            let page = Page { after: None, limit: 100_000 };
            let asked = name.clone();
            let mut answer = self.send(|reply| Command::ListRecorded(REALM, asked, page, reply));
            self.turn()?;
            let Ok(Ok(listed)) = answer.try_recv() else { continue };
            let history = histories.get(&name).cloned().unwrap_or_default();
            let again = self.model.subscriptions.get(&name).map(|it| it.again.clone()).unwrap_or_default();
            audit(&name, &listed.items, &history, &again)
                .map_err(|why| format!("records of {name}: {why}"))?;
        }
        Ok(())
    }
}

fn audit(
    name: &Name,
    records: &[RecordedView],
    history: &BTreeSet<Decision>,
    again: &BTreeSet<Place>,
) -> Result<(), Violation> {
    let newest = records.first().map_or(0, |view| view.failure.number);
    let mut recorded = BTreeSet::new();
    for (view, number) in records.iter().zip((1..=newest).rev()) {
        let failure = &view.failure;
        let context = &failure.context;
        if failure.number != number {
            return Err(format!("{number} is missing"));
        }
        let expired = context.failure.cause == Cause::MessageExpired;
        let place = place_of(context.message.id);
        let is_new = recorded.insert((place, context.replays, context.attempt, expired));
        if !is_new && !again.contains(&place) {
            return Err(format!("one decision is there twice: {failure:?}"));
        }
        if POLICIES.decide(view.digest, context) != failure.evaluation {
            return Err(format!("it gives another answer: {failure:?}"));
        }
    }
    if records.len() > kept(name) as usize {
        return Err(format!("{} are kept, {} are wanted", records.len(), kept(name)));
    }
    match history.difference(&recorded).next() {
        Some(missing) if newest <= u64::from(kept(name)) => Err(format!("{missing:?} is not there")),
        _ => Ok(()),
    }
}
