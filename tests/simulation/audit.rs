//! Everything the broker shows, message by message, against the model, and its counters against a recount.

use std::collections::BTreeMap;

use reprise_broker::domain::access::Patterns;
use reprise_broker::domain::dead_letter::{DeadLetterFilter, Facet};
use reprise_broker::domain::decision::Decider;
use reprise_broker::domain::delivery::{Delivery, State};
use reprise_broker::domain::failure::Cause;
use reprise_broker::domain::id::MessageId;
use reprise_broker::domain::limits::MAX_HISTORY;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::quota::{Quota, Usage};
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{
    Command, DeadLetterFacets, DeadLetterQuery, DeadLetterView, DeliveryView, MessageView, Order, Page,
    Refusal, Stands,
};
use reprise_broker::store::row::{Ending, HeadRow};

use super::model::{End, Known, Subscription, Violation, place_of};
use super::records::{self, Histories};
use super::world::{REALM, World};

/// Turns in which it must have done all there is to do at one moment.
const MOST_TURNS: usize = 30;

/// What was counted on one subscription.
#[derive(Default)]
struct Count {
    open: u64,
    leased: u64,
    dead: u64,
}

impl World {
    /// Looks at every message of every topic. Ends without a result if the broker crashes meanwhile.
    pub(crate) fn audit(&mut self) -> Result<(), Violation> {
        self.turn()?;
        self.quiet = true;
        let result = self.settle_down().and_then(|()| self.look_at_everything());
        self.quiet = false;
        result
    }

    /// What was sent may take turns to be done with: deleted rows, the outbox, a cursor that passes others by.
    pub(crate) fn settle_down(&mut self) -> Result<(), Violation> {
        for _ in 0..MOST_TURNS {
            self.turn()?;
            if self.is_idle() {
                return Ok(());
            }
        }
        Err("the broker is never idle".to_owned())
    }

    fn look_at_everything(&mut self) -> Result<(), Violation> {
        let topics: Vec<Name> = self.model.topics.keys().cloned().collect();
        let names: Vec<Name> = self.model.subscriptions.keys().cloned().collect();
        let mut heads = Vec::new();
        for topic in &topics {
            let name = topic.clone();
            heads.push(self.send(|reply| Command::GetTopic(REALM, name, reply)));
        }
        self.turn()?;
        let mut asked = Vec::new();
        let mut kept: BTreeMap<Name, (HeadRow, Usage)> = BTreeMap::new();
        for (topic, mut head) in topics.into_iter().zip(heads) {
            let Ok(view) = head.try_recv() else { return Ok(()) };
            let view = view.map_err(|refusal| format!("{topic}: {refusal}"))?;
            let last = self.model.topics[&topic].messages.keys().next_back().copied().unwrap_or(0);
            if view.head.next <= last {
                return Err(format!("{topic} ends before message {last}"));
            }
            kept.insert(topic.clone(), (view.head, Usage::default()));
            let id = self.model.topics[&topic].id.ok_or_else(|| format!("{topic} has no messages"))?;
            for sequence in 1..view.head.next {
                let id = MessageId { topic: id, sequence };
                let trimmed = sequence < view.head.first;
                let answer = self.send(|reply| Command::GetMessage(REALM, id, reply));
                asked.push((topic.clone(), id, trimmed, answer));
            }
        }
        let mut views = Vec::new();
        for name in &names {
            let asked = name.clone();
            let view = self.send(|reply| Command::GetSubscription(REALM, asked, reply));
            let query = dead_letters_of(name, 10_000);
            let filter = Box::new(query.filter.clone());
            let dead = self.send(|reply| Command::ListDeadLetters(REALM, Box::new(query), reply));
            let facets = self.send(|reply| Command::CountDeadLetters(REALM, filter, Patterns::all(), reply));
            views.push((name.clone(), view, dead, facets));
        }
        let now = self.now;
        let mut histories = Histories::new();
        self.turn()?;
        let mut counts: BTreeMap<Name, Count> = BTreeMap::new();
        for (topic, id, trimmed, mut answer) in asked {
            let Ok(answer) = answer.try_recv() else { return Ok(()) };
            if let Ok(view) = &answer
                && !trimmed
                && let Some((_, counted)) = kept.get_mut(&topic)
            {
                counted.add(view.message.kept_bytes());
            }
            for shown in answer.iter().flat_map(|view: &MessageView| &view.deliveries) {
                records::note(&mut histories, id, shown);
            }
            self.audit_message(&topic, id, trimmed, answer, now, &mut counts)
                .map_err(|why| format!("{id}: {why}"))?;
        }
        self.audit_usage(&kept)?;
        for (name, mut view, mut listed, mut facets) in views {
            let (Ok(Ok(view)), Ok(Ok(listed))) = (view.try_recv(), listed.try_recv()) else { return Ok(()) };
            let Ok(Ok(facets)) = facets.try_recv() else { return Ok(()) };
            audit_facets(&listed.items, facets).map_err(|why| format!("dead letters of {name}: {why}"))?;
            let count = counts.remove(&name).unwrap_or_default();
            let listed = listed.items.len() as u64;
            let reads = self.model.subscriptions.get(&name).map_or(0, |known| known.first.len());
            if view.topics != reads {
                return Err(format!("{name} reads {} topics, and should read {reads}", view.topics));
            }
            let shown = (view.counts.backlog, view.counts.in_flight, view.counts.dead, listed);
            let counted = (count.open, count.leased, listed, count.dead);
            if shown != counted {
                return Err(format!(
                    "{name} shows (backlog, in flight, dead, dead listed) {shown:?}, counted {counted:?}: {:?}",
                    view.cursor
                ));
            }
        }
        self.audit_records(&histories)
    }

    /// What topics and their realm say that they keep is what is there, and no more than they may.
    fn audit_usage(&self, kept: &BTreeMap<Name, (HeadRow, Usage)>) -> Result<(), Violation> {
        let mut total = Usage::default();
        for (topic, (head, counted)) in kept {
            if head.usage() != *counted {
                return Err(format!("{topic} says {:?}, counted {counted:?}", head.usage()));
            }
            let quota = self.model.topics[topic].quota;
            if quota.max_messages.is_some_and(|most| counted.messages > most)
                || quota.max_bytes.is_some_and(|most| counted.bytes > most)
            {
                return Err(format!("{topic} keeps {counted:?}, it may keep {quota:?}"));
            }
            if head.incoming > 0 && quota == Quota::default() {
                return Err(format!("{} forwarded messages wait for {topic}", head.incoming));
            }
            total.messages += counted.messages;
            total.bytes += counted.bytes;
        }
        let realm = self.realm_usage().unwrap_or(total);
        if realm == total { Ok(()) } else { Err(format!("the realm says {realm:?}, counted {total:?}")) }
    }

    fn audit_message(
        &mut self,
        topic: &Name,
        id: MessageId,
        trimmed: bool,
        answer: Result<MessageView, Refusal>,
        now: Timestamp,
        counts: &mut BTreeMap<Name, Count>,
    ) -> Result<(), Violation> {
        let Ok(view) = answer else {
            for (name, subscription) in &self.model.subscriptions {
                if subscription.first.get(topic).is_some_and(|first| id.sequence >= *first) {
                    gone(subscription, id).map_err(|why| format!("on {name}: {why}"))?;
                }
            }
            return Ok(());
        };
        self.model.sees(topic, id, &view.message)?;
        for shown in &view.deliveries {
            let name = shown.subscription.clone();
            let Some(subscription) = self.model.subscriptions.get_mut(&name) else { continue };
            let count = counts.entry(name.clone()).or_default();
            audit_delivery(subscription, topic, id, shown, now, count)
                .map_err(|why| format!("on {name}: {why}; {shown:?}"))?;
        }
        let expected = self.model.subscriptions.values().filter(|s| s.first.contains_key(topic)).count();
        if expected != view.deliveries.len() && !trimmed {
            return Err(format!("{} deliveries on {expected} subscriptions", view.deliveries.len()));
        }
        Ok(())
    }
}

/// The dead letters of a subscription, at most so many.
pub(crate) fn dead_letters_of(name: &Name, limit: usize) -> DeadLetterQuery {
    let filter = DeadLetterFilter { subscription: Some(name.clone()), ..DeadLetterFilter::default() };
    let page = Page { after: None, limit };
    DeadLetterQuery { filter, order: Order::Oldest, page, among: Patterns::all() }
}

/// What is tallied must be what is there.
fn audit_facets(listed: &[DeadLetterView], tallied: DeadLetterFacets) -> Result<(), Violation> {
    let mut counted: BTreeMap<Facet, BTreeMap<String, u64>> =
        Facet::ALL.into_iter().map(|facet| (facet, BTreeMap::new())).collect();
    for view in listed {
        let row = &view.row;
        let mut count = |facet: Facet, value: String| {
            *counted.entry(facet).or_default().entry(value).or_default() += 1;
        };
        count(Facet::Subscription, view.subscription.to_string());
        count(Facet::Topic, view.topic.to_string());
        count(Facet::Queue, row.queue.as_ref().map_or_else(String::new, Name::to_string));
        count(Facet::Reason, row.reason.clone());
        row.labels.iter().for_each(|(name, value)| count(Facet::Label, format!("{name}={value}")));
        if let Some(last) = row.delivery.history.last() {
            count(Facet::Class, last.failure.class.clone());
            count(Facet::Cause, last.failure.cause.as_str().to_owned());
            last.decision
                .decider
                .revision()
                .into_iter()
                .for_each(|it| count(Facet::Revision, it.to_string()));
        }
    }
    let shown = tallied.facets.into_iter().map(|(facet, values)| (facet, values.into_iter().collect()));
    let shown: BTreeMap<_, BTreeMap<String, u64>> = shown.collect();
    if (tallied.total, tallied.complete) != (listed.len() as u64, true) || shown != counted {
        return Err(format!("tallied {shown:?}, counted {counted:?}"));
    }
    Ok(())
}

/// A message that is gone must have ended here.
pub(crate) fn gone(subscription: &Subscription, id: MessageId) -> Result<(), Violation> {
    let known = subscription.deliveries.get(&place_of(id));
    match known {
        Some(known) if known.end.is_some() || !known.may.is_empty() => Ok(()),
        _ => Err(format!("it is gone, and had not ended: {known:?}")),
    }
}

fn audit_delivery(
    subscription: &mut Subscription,
    topic: &Name,
    id: MessageId,
    shown: &DeliveryView,
    now: Timestamp,
    count: &mut Count,
) -> Result<(), Violation> {
    let before = subscription.first.get(topic).is_none_or(|first| id.sequence < *first);
    if before || shown.stands == Stands::NotSubscribed {
        let right = before && shown.stands == Stands::NotSubscribed;
        return if right { Ok(()) } else { Err("it is subscribed to the wrong messages".to_owned()) };
    }
    let place = place_of(id);
    let unseen = subscription.unseen(place) > 0;
    let known = subscription.deliveries.entry(place).or_default();
    if let Some(delivery) = &shown.delivery {
        if delivery.replays > known.replays && known.may_be_replayed {
            known.relive(delivery.replays);
        }
        recount(delivery, &shown.stands)?;
        let floor = known.floor();
        if delivery.replays != known.replays || delivery.attempt < floor {
            return Err(format!("its attempts went back: {known:?}"));
        }
    }
    match &shown.stands {
        Stands::Ended(ending) => {
            let end = match ending {
                Ending::Acked => End::Acked,
                Ending::Dropped => End::Dropped,
                Ending::Forwarded => End::Forwarded,
                Ending::Discarded => End::Discarded,
                // The mark that a dead letter ahead of the cursor leaves when it is discarded.
                Ending::DeadLettered => known.end.unwrap_or(End::Discarded),
            };
            known.ends(end)
        }
        Stands::DeadLettered { .. } => {
            count.dead += 1;
            let last = shown.delivery.as_ref().and_then(|delivery| delivery.history.last());
            if last.is_some_and(|past| past.decision.decider == Decider::AttemptLimit) {
                known.may.push(End::Dead);
            }
            known.ends(End::Dead)
        }
        _ if known.end.is_some() => Err(format!("it ended and is back: {known:?}")),
        stands => {
            count.open += 1;
            audit_open(known, stands, shown.delivery.as_ref(), now, unseen, count)
        }
    }
}

fn audit_open(
    known: &Known,
    stands: &Stands,
    delivery: Option<&Delivery>,
    now: Timestamp,
    unseen: bool,
    count: &mut Count,
) -> Result<(), Violation> {
    let holds = known.may.is_empty() && known.lease.is_some_and(|lease| lease.holds(now));
    match stands {
        Stands::Leased { until } => {
            count.leased += 1;
            let ours = delivery.is_some_and(|delivery| delivery.attempt == known.attempt);
            if ours && holds && known.lease.is_some_and(|lease| lease.until != *until) {
                return Err(format!("its lease should last until {:?}", known.lease));
            }
            if !ours && (holds || !unseen) && known.floor() == known.attempt {
                return Err(format!("somebody else holds it: {known:?}"));
            }
            Ok(())
        }
        Stands::Deciding => {
            let leased =
                |delivery: &Delivery| matches!(&delivery.state, State::Deciding { leased_at: Some(_), .. });
            count.leased += u64::from(delivery.is_some_and(leased));
            if holds { Err(format!("it is decided under a lease: {known:?}")) } else { Ok(()) }
        }
        _ if holds => Err(format!("its lease is gone: {known:?}")),
        Stands::Ready if known.due.is_some_and(|(due, _)| due > now) => {
            Err(format!("it is ready too early: {known:?}"))
        }
        Stands::Delayed { until } if known.due.is_some_and(|(due, _)| due > *until) => {
            Err(format!("it is due too early: {known:?}"))
        }
        _ => Ok(()),
    }
}

/// The counters of a delivery must be what its history says, and each attempt must have ended once at most.
fn recount(delivery: &Delivery, stands: &Stands) -> Result<(), Violation> {
    if delivery.history.len() == MAX_HISTORY {
        return Ok(());
    }
    let of_attempts = || delivery.history.iter().filter(|past| past.failure.cause != Cause::MessageExpired);
    let ended = |matches: fn(Cause) -> bool| {
        let of_life = of_attempts().filter(|past| past.replay == delivery.replays);
        of_life.filter(|past| matches(past.failure.cause)).count() as u32
    };
    let (failures, releases) = (ended(Cause::is_failure), ended(|cause| cause == Cause::Released));
    if (failures, releases) != (delivery.failures, delivery.releases) {
        return Err(format!("its history has {failures} failures and {releases} releases"));
    }
    let mut attempts: Vec<_> = of_attempts().map(|past| (past.replay, past.attempt)).collect();
    let total = attempts.len();
    attempts.dedup();
    if attempts.len() != total {
        return Err("an attempt ended twice".to_owned());
    }
    let under_lease =
        matches!(delivery.state, State::Leased { .. } | State::Deciding { leased_at: Some(_), .. });
    let ended = matches!(stands, Stands::Ended(_) | Stands::DeadLettered { .. });
    if !ended && delivery.attempt != failures + releases + u32::from(under_lease) {
        return Err(format!("{} attempts, {failures} failed and {releases} given back", delivery.attempt));
    }
    Ok(())
}
