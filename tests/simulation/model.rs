//! What the broker has promised so far, and what that allows it to do next.
//!
//! It knows requests, answers and the answers of policies, and nothing of how the broker keeps its state: where an
//! answer was lost in a crash, both outcomes are allowed from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprise_broker::domain::decision::{Answer, AnswerAction, Decider, Fault};
use reprise_broker::domain::failure::Cause;
use reprise_broker::domain::id::{BacklogId, MessageId, Sequence, SubscriptionId, TopicId};
use reprise_broker::domain::message::Message;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::quota::Quota;
use reprise_broker::domain::receipt::Receipt;
use reprise_broker::domain::settings::{Ordering, Reads, SubscriptionSettings};
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{DeadLetterView, Granted};

use super::names::Names;

/// What went wrong, for the one who reads the failing test.
pub(crate) type Violation = String;

/// The lowest `attempt_limit` in use: below it nothing is dead-lettered natively.
pub(crate) const LEAST_ATTEMPT_LIMIT: u32 = 4;

/// The longest `max_delay` in use.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(20);

/// The longest `dedup_window` in use.
pub(crate) const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// A message: its topic, and its place there.
pub(crate) type Place = (TopicId, Sequence);

/// What a message with this id is known by.
pub(crate) const fn place_of(id: MessageId) -> Place {
    (id.topic, id.sequence)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Acked,
    Dead,
    Dropped,
    Forwarded,
    Discarded,
}

/// What a policy was asked about.
pub(crate) struct Question {
    pub(crate) message: Place,
    pub(crate) payload: String,
    pub(crate) cause: Cause,
    /// The settings are being changed in the same turn.
    pub(crate) changing: bool,
}

/// What is known of one delivery.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) replays: u32,
    /// The last attempt seen in this life.
    pub(crate) attempt: u32,
    /// Attempts seen, each with the number of syncs before it.
    grants: Vec<(u32, u64)>,
    /// After a power cut: attempts above it may have been forgotten.
    floor: Option<u32>,
    /// Pulls of the subscription whose answers were lost, when it was last seen.
    lost: u64,
    pub(crate) lease: Option<Lease>,
    /// When an attempt that ended badly was decided: of which life, which one.
    pub(crate) decided_at: BTreeMap<(u32, u32), Timestamp>,
    /// Not to be delivered before, and the number of syncs when that was decided.
    pub(crate) due: Option<(Timestamp, u64)>,
    pub(crate) end: Option<End>,
    /// Ends that it may have met without an answer to say so.
    pub(crate) may: Vec<End>,
    pub(crate) may_be_replayed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) until: Timestamp,
    /// A nack is on its way, or was lost on it.
    pub(crate) settling: bool,
    /// A power cut may have taken the lease or its deadline.
    pub(crate) unsure: bool,
}

impl Lease {
    /// Nobody else can be granted the delivery.
    pub(crate) fn holds(self, now: Timestamp) -> bool {
        self.until > now && !self.settling && !self.unsure
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) payload: String,
    pub(crate) available_at: Timestamp,
    pub(crate) delay: Duration,
    /// It has a time to live.
    pub(crate) is_mortal: bool,
    /// What its producer calls it.
    pub(crate) id: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Topic {
    /// Known from its first message on.
    pub(crate) id: Option<TopicId>,
    pub(crate) messages: BTreeMap<Sequence, Sent>,
    pub(crate) names: Names,
    pub(crate) quota: Quota,
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) reads: Reads,
    /// The topics that are among them, each from this message on.
    pub(crate) first: BTreeMap<Name, Sequence>,
    pub(crate) settings: SubscriptionSettings,
    pub(crate) deliveries: BTreeMap<Place, Known>,
    /// Every receipt that was seen.
    pub(crate) receipts: Vec<Receipt>,
    /// Pulls whose answers were lost: each may have granted a lease that nobody saw.
    pub(crate) lost: u64,
    /// A policy stopped it until then.
    pub(crate) paused_until: Timestamp,
    id: Option<SubscriptionId>,
    /// Backlogs that receipts named, and the topics that they are of.
    backlogs: BTreeMap<BacklogId, TopicId>,
    /// Those that a purge or a seek ended.
    ended: BTreeSet<BacklogId>,
    /// What a seek brought back: its attempts are numbered anew.
    pub(crate) again: BTreeSet<Place>,
    /// Topics with something to hand out, and the pulls in a row that got none of it.
    pub(crate) passed_by: BTreeMap<Name, usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) topics: BTreeMap<Name, Topic>,
    pub(crate) subscriptions: BTreeMap<Name, Subscription>,
    /// Published, but the answer was lost.
    pub(crate) unanswered: Vec<(Name, Sent)>,
    /// Payloads that a policy sent to the sink, as often as it said so.
    pub(crate) forwards: Vec<String>,
}

/// What a message with this payload is ordered by; a quarter of them by nothing.
pub(crate) fn key_of(payload: &str) -> Option<String> {
    let number = payload.bytes().map(u32::from).sum::<u32>() % 4;
    (number < 3).then(|| format!("k{number}"))
}

impl Subscription {
    /// While a delivery of a key was handed out and has not ended, no other of that key is, on the same topic: no policy
    /// here lets them pass. What a crash may have taken back does not count.
    fn keeps_order(
        &self,
        (topic, sequence): Place,
        first: Sequence,
        sent: &BTreeMap<Sequence, Sent>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let key = |sequence| sent.get(&sequence).and_then(|sent| key_of(&sent.payload));
        let Some(own) = key(sequence) else { return Ok(()) };
        let others = self.deliveries.range((topic, first)..=(topic, Sequence::MAX));
        let others = others.map(|((_, at), known)| (*at, known)).filter(|(at, _)| *at != sequence);
        for (at, other) in others.filter(|(at, _)| key(*at).as_ref() == Some(&own)) {
            // Past the limit of attempts a lease that runs out is the end, and nobody is told.
            let limit = other.attempt >= LEAST_ATTEMPT_LIMIT && other.lease.is_none_or(|it| !it.holds(now));
            let certain =
                other.floor.is_none() && other.lost == self.lost && !other.may_be_replayed && !limit;
            if certain && other.attempt > 0 && other.end.is_none() && other.may.is_empty() {
                return Err(format!("{sequence} while {at} of the same key is out: {other:?}"));
            }
        }
        Ok(())
    }

    pub(crate) fn new(reads: Reads, first: BTreeMap<Name, Sequence>, settings: SubscriptionSettings) -> Self {
        Self {
            reads,
            first,
            settings,
            deliveries: BTreeMap::new(),
            receipts: Vec::new(),
            lost: 0,
            paused_until: Timestamp::default(),
            id: None,
            backlogs: BTreeMap::new(),
            ended: BTreeSet::new(),
            again: BTreeSet::new(),
            passed_by: BTreeMap::new(),
        }
    }

    fn is(&mut self, id: SubscriptionId) -> bool {
        *self.id.get_or_insert(id) == id
    }

    /// The message that a receipt is of.
    pub(crate) fn place(&self, receipt: &Receipt) -> Option<Place> {
        let topic = self.backlogs.get(&receipt.backlog)?;
        Some((*topic, receipt.sequence))
    }

    /// What is outstanding on a topic is so no more, and what comes from `first` on is as if it had never been.
    pub(crate) fn start_over(&mut self, topic: &Name, id: Option<TopicId>, first: Sequence) {
        self.first.insert(topic.clone(), first);
        self.passed_by.clear();
        let of_topic = self.backlogs.iter().filter(|(_, of)| Some(**of) == id);
        self.ended.extend(of_topic.map(|(backlog, _)| *backlog));
        let ended = self.deliveries.iter_mut().filter(|((of, _), _)| Some(*of) == id);
        ended.for_each(|(_, known)| known.lease = None);
        let anew = |(of, sequence): &Place| Some(*of) == id && *sequence >= first;
        let again = self.deliveries.extract_if(.., |place, _| anew(place));
        self.again.extend(again.map(|(place, _)| place));
    }

    /// Whether a purge or a seek has ended what it was granted for.
    pub(crate) fn is_over(&self, receipt: &Receipt) -> bool {
        self.ended.contains(&receipt.backlog)
    }

    /// The delivery that a receipt is current for, as far as is known.
    pub(crate) fn current(&mut self, receipt: &Receipt) -> Option<&mut Known> {
        if self.id != Some(receipt.subscription) || self.is_over(receipt) {
            return None;
        }
        let place = self.place(receipt)?;
        let known = self.deliveries.get_mut(&place)?;
        // Where later attempts may have been forgotten, it may be the current one again.
        let current = known.floor()..=known.attempt;
        (known.replays == receipt.replays && current.contains(&receipt.attempt)).then_some(known)
    }

    /// Leases that somebody holds, on all topics.
    fn held(&self, now: Timestamp) -> usize {
        let open = self.deliveries.values().filter(|known| known.end.is_none() && known.may.is_empty());
        open.filter(|known| known.lease.is_some_and(|lease| lease.holds(now))).count()
    }

    /// Whether a lease that nobody saw may have followed the last one seen.
    pub(crate) fn unseen(&self, place: Place) -> u64 {
        self.lost - self.deliveries.get(&place).map_or(0, |known| known.lost)
    }
}

impl Topic {
    pub(crate) fn is(&mut self, id: TopicId) -> bool {
        *self.id.get_or_insert(id) == id
    }
}

impl Known {
    pub(crate) fn relive(&mut self, replays: u32) {
        let decided_at = std::mem::take(&mut self.decided_at);
        *self = Self { replays, lost: self.lost, decided_at, ..Self::default() };
    }

    /// Attempts up to here are never granted again, and never forgotten.
    pub(crate) fn floor(&self) -> u32 {
        self.floor.unwrap_or(self.attempt)
    }

    /// Whether an end can be, that no answer told of.
    pub(crate) fn ends(&mut self, end: End) -> Result<(), Violation> {
        match self.end {
            Some(known) if known != end => Err(format!("it ended as {known:?}, and now as {end:?}")),
            None if !self.may.contains(&end) => Err(format!("it ended as {end:?}, which nobody asked for")),
            _ => {
                self.end = Some(end);
                Ok(())
            }
        }
    }

    fn lose_power(&mut self, syncs: u64) {
        let durable = |stamp: u64| syncs > stamp;
        if self.grants.last().is_some_and(|(_, stamp)| !durable(*stamp)) {
            let kept = self.grants.iter().rev().find(|(_, stamp)| durable(*stamp));
            self.floor = Some(kept.map_or(0, |(attempt, _)| *attempt).min(self.floor.unwrap_or(u32::MAX)));
            if let Some(lease) = &mut self.lease {
                lease.unsure = true;
            }
        }
        if self.due.is_some_and(|(_, stamp)| !durable(stamp)) {
            self.due = None;
        }
    }
}

impl Model {
    /// Every message that is known to be a subscription's.
    pub(crate) fn places(&self, subscription: &Subscription) -> Vec<(TopicId, Sequence)> {
        let mut places = Vec::new();
        for (name, first) in &subscription.first {
            let topic = self.topics.get(name);
            let Some((topic, id)) = topic.and_then(|topic| Some((topic, topic.id?))) else { continue };
            places.extend(topic.messages.range(*first..).map(|(sequence, _)| (id, *sequence)));
        }
        places
    }

    /// The message a consumer or an inspection shows must be one that was published.
    pub(crate) fn sees(&mut self, topic: &Name, id: MessageId, message: &Message) -> Result<(), Violation> {
        let payload = String::from_utf8_lossy(&message.payload).into_owned();
        let known = self.topics.get_mut(topic).ok_or_else(|| format!("an unknown topic {topic}"))?;
        if !known.is(id.topic) {
            return Err(format!("message {id} is not of topic {topic}"));
        }
        if let Some(sent) = known.messages.get(&id.sequence) {
            if sent.payload != payload {
                return Err(format!("{id} holds {payload} and not {}", sent.payload));
            }
            return Ok(());
        }
        let sent = if message.hops > 0 {
            if !self.forwards.contains(&payload) {
                return Err(format!("{payload} was forwarded, which no policy asked for"));
            }
            // A forwarded message never waits.
            Sent {
                payload,
                available_at: Timestamp::default(),
                delay: Duration::ZERO,
                is_mortal: false,
                id: None,
            }
        } else {
            let place = self.unanswered.iter().position(|(to, sent)| to == topic && sent.payload == payload);
            let place = place.ok_or_else(|| format!("{id} holds {payload}, which nobody published"))?;
            self.unanswered.remove(place).1
        };
        known.messages.insert(id.sequence, sent);
        Ok(())
    }

    pub(crate) fn granted(
        &mut self,
        name: &Name,
        granted: &Granted,
        now: Timestamp,
        syncs: u64,
    ) -> Result<(), Violation> {
        self.sees(&granted.topic, granted.id, &granted.message)?;
        let (receipt, place) = (granted.receipt, place_of(granted.id));
        let topic = self.topics.get(&granted.topic).ok_or("a lease of an unknown topic")?;
        let available_at = topic.messages.get(&receipt.sequence).map(|sent| sent.available_at);
        let subscription = self.subscriptions.get_mut(name).ok_or("a lease of an unknown subscription")?;
        let first = subscription.first.get(&granted.topic).copied().filter(|first| place.1 >= *first);
        let (Some(first), true) = (first, subscription.is(receipt.subscription)) else {
            return Err(format!("{receipt:?} is not of this subscription"));
        };
        subscription.backlogs.entry(receipt.backlog).or_insert(place.0);
        if subscription.place(&receipt) != Some(place) || subscription.is_over(&receipt) {
            return Err(format!("{receipt:?} is not of {}", granted.id));
        }
        if subscription.paused_until > now {
            return Err(format!("granted at {now:?}, it is paused until {:?}", subscription.paused_until));
        }
        if subscription.settings.ordering == Ordering::Key {
            subscription.keeps_order(place, first, &topic.messages, now)?;
        }
        let unseen = subscription.unseen(place);
        let known = subscription.deliveries.entry(place).or_default();
        if receipt.replays > known.replays && known.may_be_replayed {
            known.relive(receipt.replays);
        }
        if receipt.replays != known.replays {
            return Err(format!("{receipt:?} after life {}", known.replays));
        }
        if let Some(end) = known.end {
            return Err(format!("it ended as {end:?} and came back: {receipt:?}"));
        }
        let floor = known.floor();
        if receipt.attempt <= floor || u64::from(receipt.attempt) > u64::from(known.attempt) + 1 + unseen {
            return Err(format!("attempt {} after {} (at least {floor})", receipt.attempt, known.attempt));
        }
        if let Some(lease) = known.lease.filter(|lease| lease.holds(now)) {
            return Err(format!("granted to two: {receipt:?} while {lease:?} at {now:?}"));
        }
        let first = available_at.filter(|_| receipt.replays == 0 && receipt.attempt == 1);
        let due = known.due.map(|(due, _)| due).or(first);
        if let Some(due) = due.filter(|due| *due > now) {
            return Err(format!("{receipt:?} granted at {now:?}, it is due at {due:?}: {known:?}"));
        }
        let until = granted.lease_until.ok_or_else(|| format!("delivered without a lease: {granted:?}"))?;
        if granted.failures >= receipt.attempt || until <= now {
            return Err(format!("a lease that makes no sense: {granted:?}"));
        }
        known.grants.retain(|(attempt, _)| *attempt < receipt.attempt);
        known.grants.push((receipt.attempt, syncs));
        known.attempt = receipt.attempt;
        known.floor = None;
        known.lost = subscription.lost;
        known.lease = Some(Lease { until, settling: false, unsure: false });
        known.may.clear();
        subscription.receipts.push(receipt);
        let (held, most) = (subscription.held(now), subscription.settings.max_in_flight as usize);
        if held > most {
            return Err(format!("{receipt:?} is one of {held} leases, and {most} are allowed"));
        }
        Ok(())
    }

    /// A policy's answer is handed to the broker, which may use it or, after a crash, never have seen it.
    pub(crate) fn answered(
        &mut self,
        name: &Name,
        receipt: Receipt,
        result: &Result<Answer, Fault>,
        asked: &Question,
        now: Timestamp,
        syncs: u64,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else { return };
        if !subscription.is(receipt.subscription) {
            return;
        }
        let settings = &subscription.settings;
        let known = subscription.deliveries.entry(asked.message).or_default();
        if asked.cause != Cause::MessageExpired {
            known.decided_at.insert((receipt.replays, receipt.attempt), now);
        }
        let fault = Duration::from_secs(1);
        let mut delay = None;
        match result.as_ref().map(|answer| &answer.action) {
            Ok(AnswerAction::Retry { delay: asked }) => {
                delay = Some((*asked).max(settings.min_delay).min(settings.max_delay));
            }
            Ok(AnswerAction::DeadLetter { .. }) => known.may.push(End::Dead),
            Ok(AnswerAction::Drop { .. }) => known.may.push(End::Dropped),
            Ok(AnswerAction::Forward { topic }) => {
                let listed = settings.forward_to.iter().any(|listed| listed.as_str() == topic);
                if listed || asked.changing {
                    known.may.push(End::Forwarded);
                    self.forwards.push(asked.payload.clone());
                } else {
                    delay = Some(fault);
                }
            }
            Err(_) => delay = Some(fault),
        }
        let delay = delay.filter(|_| !asked.changing);
        known.due = delay.map(|delay| (now + delay, syncs));
    }

    /// A dead letter is listed.
    pub(crate) fn dead(&mut self, name: &Name, view: &DeadLetterView) -> Result<(), Violation> {
        let Some(subscription) = self.subscriptions.get_mut(name) else { return Ok(()) };
        let known = subscription.deliveries.entry(place_of(view.message_id)).or_default();
        let delivery = &view.row.delivery;
        if delivery.replays > known.replays && known.may_be_replayed {
            known.relive(delivery.replays);
        }
        if delivery.history.last().is_some_and(|past| past.decision.decider == Decider::AttemptLimit) {
            known.may.push(End::Dead);
        }
        known.ends(End::Dead).map_err(|why| format!("{} on {name}: {why}; {known:?}", view.id))
    }

    /// The broker stopped while it took these answers in.
    pub(crate) fn may_have_missed(&mut self, answered: &[(Name, Place)]) {
        for (name, place) in answered {
            let known = self.subscriptions.get_mut(name).and_then(|s| s.deliveries.get_mut(place));
            if let Some(known) = known {
                known.due = None;
            }
        }
    }

    /// The clock was turned back while the broker was away: it may shorten leases and waits, so that none lasts for ever.
    /// No message waits longer than its delay.
    pub(crate) fn clock_went_back(&mut self, from: Timestamp, to: Timestamp) {
        self.topics.values_mut().for_each(|topic| topic.names.clock_went_back(from));
        let known = self.topics.values_mut().flat_map(|topic| topic.messages.values_mut());
        for sent in known.chain(self.unanswered.iter_mut().map(|(_, sent)| sent)) {
            sent.available_at = sent.available_at.min(to + sent.delay);
        }
        for subscription in self.subscriptions.values_mut() {
            if subscription.paused_until <= from {
                subscription.paused_until = Timestamp::default();
            }
            let leases = subscription.deliveries.values_mut().filter_map(|known| known.lease.as_mut());
            leases.for_each(|lease| lease.unsure = true);
        }
    }

    /// What was not synced may be forgotten.
    pub(crate) fn lose_power(&mut self, syncs: u64) {
        for subscription in self.subscriptions.values_mut() {
            subscription.deliveries.values_mut().for_each(|known| known.lose_power(syncs));
        }
    }
}
