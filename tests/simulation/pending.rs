//! Requests on their way, and what their answers may be.

use std::collections::BTreeMap;

use reprise_broker::domain::decision::Action;
use reprise_broker::domain::delivery::Acked;
use reprise_broker::domain::failure::Failure;
use reprise_broker::domain::id::DeadLetterId;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::quota::Quota;
use reprise_broker::domain::receipt::Receipt;
use reprise_broker::domain::settings::Start;
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{
    Accepted, AckResult, Decided, ExtendResult, Granted, NackResult, Published, Put, Refusal, Replayed,
    RevisionView, SettleError, Sought, SubscriptionView, TopicView,
};
use reprise_broker::store::row::HeadRow;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::model::{
    End, Known, LEAST_ATTEMPT_LIMIT, LONGEST_DELAY, Model, Sent, Subscription, Violation, place_of,
};

pub(crate) type Answer<T> = Receiver<Result<T, Refusal>>;

/// Topics that were asked how far they have come.
pub(crate) type Heads = Vec<(Name, Answer<TopicView>)>;

/// A request whose answer has not come yet.
pub(crate) enum Pending {
    Publish(Name, Vec<Sent>, Answer<Published>),
    Pull(Name, Answer<Vec<Granted>>),
    Ack(Name, Vec<Receipt>, Answer<Vec<AckResult>>),
    Nack(Name, Vec<(Receipt, Failure)>, Answer<Vec<NackResult>>),
    Extend(Name, Vec<Receipt>, Answer<Vec<ExtendResult>>),
    /// With what it found where it is new.
    Put(Name, Heads, Answer<Put<SubscriptionView>>),
    Delete(Name, Answer<()>),
    SetPolicy(Answer<Put<RevisionView>>),
    Replay(Name, DeadLetterId, Answer<Replayed>),
    Discard(Name, DeadLetterId, Answer<()>),
    /// With the topics that it is of, and the subscription just before.
    StartOver(StartOver, Heads, Answer<SubscriptionView>, Answer<Sought>),
}

/// A purge or a seek, and whether one topic was meant.
pub(crate) struct StartOver {
    pub(crate) name: Name,
    pub(crate) to: Start,
    pub(crate) one_topic: bool,
}

/// When answers are looked at.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    pub(crate) syncs: u64,
}

enum Came<T> {
    Yes(Result<T, Refusal>),
    NotYet,
    Never,
}

fn poll<T>(answer: &mut Answer<T>) -> Came<T> {
    match answer.try_recv() {
        Ok(answer) => Came::Yes(answer),
        Err(TryRecvError::Empty) => Came::NotYet,
        Err(TryRecvError::Closed) => Came::Never,
    }
}

impl Pending {
    /// Takes the answer if it has come. Gives the request back if it has to wait on.
    pub(crate) fn settle(mut self, model: &mut Model, at: Moment) -> Result<Option<Self>, Violation> {
        let over = match &mut self {
            Self::Publish(topic, sent, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    model.unanswered.extend(sent.drain(..).map(|sent| (topic.clone(), sent)));
                    true
                }
                Came::Yes(answer) => {
                    published(model, topic, std::mem::take(sent), answer, at).map(|()| true)?
                }
            },
            Self::Pull(name, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    if let Some(subscription) = model.subscriptions.get_mut(name) {
                        subscription.lost += 1;
                    }
                    true
                }
                Came::Yes(Ok(granted)) => {
                    model.take_turns(name, &granted, at.now)?;
                    for granted in &granted {
                        model.granted(name, granted, at.now, at.syncs)?;
                    }
                    true
                }
                Came::Yes(Err(_)) => true,
            },
            Self::Ack(name, receipts, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    for receipt in receipts {
                        if let Some(known) = current(model, name, receipt) {
                            known.may.push(End::Acked);
                        }
                    }
                    true
                }
                Came::Yes(Ok(results)) => {
                    for (receipt, result) in receipts.iter().zip(results) {
                        acked(model, name, receipt, result, at)?;
                    }
                    true
                }
                Came::Yes(Err(_)) => true,
            },
            Self::Nack(name, items, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => true,
                Came::Yes(Ok(results)) => {
                    for ((receipt, failure), result) in items.iter().zip(results) {
                        nacked(model, name, receipt, failure, result, at)?;
                    }
                    true
                }
                Came::Yes(Err(_)) => true,
            },
            Self::Extend(name, receipts, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    for receipt in receipts {
                        if let Some(lease) = current(model, name, receipt).and_then(|k| k.lease.as_mut()) {
                            lease.unsure = true;
                        }
                    }
                    true
                }
                Came::Yes(Ok(results)) => {
                    for (receipt, result) in receipts.iter().zip(results) {
                        extended(model, name, receipt, result, at)?;
                    }
                    true
                }
                Came::Yes(Err(_)) => true,
            },
            Self::Put(name, heads, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => true,
                Came::Yes(Ok(put)) => {
                    put_subscription(model, name, put, &read_heads(heads)).map(|()| true)?
                }
                Came::Yes(Err(refusal)) => return Err(format!("{name} was refused: {refusal}")),
            },
            Self::Delete(name, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => true,
                Came::Yes(answer) => {
                    if answer.is_ok() != model.subscriptions.remove(name).is_some() {
                        return Err(format!("deleting {name} gave {answer:?}"));
                    }
                    true
                }
            },
            Self::SetPolicy(answer) => !matches!(poll(answer), Came::NotYet),
            Self::Replay(name, id, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    if let Some(known) = dead(model, name, *id) {
                        known.may_be_replayed = true;
                    }
                    true
                }
                Came::Yes(answer) => replayed(model, name, *id, answer).map(|()| true)?,
            },
            Self::Discard(name, id, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => {
                    if let Some(known) = dead(model, name, *id) {
                        known.end = None;
                        known.may.extend([End::Dead, End::Discarded]);
                    }
                    true
                }
                Came::Yes(answer) => {
                    if let (Ok(()), Some(known)) = (answer, dead(model, name, *id)) {
                        if known.end != Some(End::Dead) {
                            return Err(format!("{id} was discarded, it was {known:?}"));
                        }
                        known.end = Some(End::Discarded);
                    }
                    true
                }
            },
            Self::StartOver(of, heads, before, answer) => match poll(answer) {
                Came::NotYet => false,
                Came::Never => true,
                Came::Yes(answer) => {
                    let sought =
                        answer.map_err(|refusal| format!("{} did not start over: {refusal}", of.name))?;
                    started_over(model, of, &read_heads(heads), before, sought).map(|()| true)?
                }
            },
        };
        Ok((!over).then_some(self))
    }
}

/// How far they had come.
pub(crate) fn read_heads(heads: &mut Heads) -> BTreeMap<Name, HeadRow> {
    let come =
        heads.iter_mut().filter_map(|(topic, head)| Some((topic.clone(), head.try_recv().ok()?.ok()?)));
    come.map(|(topic, view)| (topic, view.head)).collect()
}

fn current<'a>(model: &'a mut Model, name: &Name, receipt: &Receipt) -> Option<&'a mut Known> {
    model.subscriptions.get_mut(name)?.current(receipt)
}

fn dead<'a>(model: &'a mut Model, name: &Name, id: DeadLetterId) -> Option<&'a mut Known> {
    model.subscriptions.get_mut(name)?.deliveries.get_mut(&place_of(id.message()))
}

fn published(
    model: &mut Model,
    topic: &Name,
    sent: Vec<Sent>,
    answer: Result<Published, Refusal>,
    at: Moment,
) -> Result<(), Violation> {
    let answer = answer.map_err(|refusal| format!("a publish was refused: {refusal}"))?;
    for (sent, result) in sent.into_iter().zip(answer.results) {
        if let Some(id) = &sent.id {
            model.named(topic, id, &sent, &result, at.now)?;
        }
        let topic = model.topics.get_mut(topic).ok_or("published to an unknown topic")?;
        let id = match result {
            Ok(Accepted { id, duplicate: false }) => id,
            Ok(Accepted { duplicate: true, .. }) | Err(Refusal::DedupConflict(_)) if sent.id.is_some() => {
                continue;
            }
            Err(Refusal::TopicFull { .. }) if topic.quota != Quota::default() => continue,
            other => return Err(format!("a message was not stored: {other:?}")),
        };
        if !topic.is(id.topic) || topic.messages.insert(id.sequence, sent).is_some() {
            return Err(format!("{id} was given twice"));
        }
    }
    Ok(())
}

fn acked(
    model: &mut Model,
    name: &Name,
    receipt: &Receipt,
    result: AckResult,
    at: Moment,
) -> Result<(), Violation> {
    let Some(subscription) = model.subscriptions.get_mut(name) else { return Ok(()) };
    let unseen = subscription.place(receipt).is_some_and(|place| subscription.unseen(place) > 0);
    let Some(known) = subscription.current(receipt) else {
        return if result.is_ok() { Err(format!("an old receipt acked: {receipt:?}")) } else { Ok(()) };
    };
    match result {
        Ok(Acked { late }) => {
            let lease = known.lease.ok_or_else(|| format!("acked after it was settled: {receipt:?}"))?;
            if let Some(end) = known.end {
                return Err(format!("acked after it ended as {end:?}: {receipt:?}"));
            }
            if late && lease.holds(at.now) {
                return Err(format!("acked late before {:?}: {receipt:?}", lease.until));
            }
            known.end = Some(End::Acked);
            Ok(())
        }
        Err(SettleError::StaleReceipt) => {
            let over = known.end.is_some() || !known.may.is_empty() || known.attempt >= LEAST_ATTEMPT_LIMIT;
            match known.lease {
                Some(lease) if !over && !unseen && !lease.settling && !lease.unsure => {
                    Err(format!("stale at {:?}, though nobody settled it: {known:?}", at.now))
                }
                _ => Ok(()),
            }
        }
        Err(error) => Err(format!("an ack of {receipt:?} gave {error}")),
    }
}

fn nacked(
    model: &mut Model,
    name: &Name,
    receipt: &Receipt,
    failure: &Failure,
    result: NackResult,
    at: Moment,
) -> Result<(), Violation> {
    let Some(subscription) = model.subscriptions.get_mut(name) else { return Ok(()) };
    let Some(known) = subscription.current(receipt) else {
        if result.is_err() {
            return Ok(());
        }
        let known = subscription.place(receipt).and_then(|place| subscription.deliveries.get(&place));
        // The answer waited for other items, and the delivery went on meanwhile.
        let went_on = |known: &Known| {
            known.replays > receipt.replays
                || known.decided_at.contains_key(&(receipt.replays, receipt.attempt))
                || (known.end == Some(End::Discarded) && subscription.is_over(receipt))
        };
        if known.map_or(subscription.is_over(receipt), went_on) {
            return Ok(());
        }
        return Err(format!("an old receipt nacked: {receipt:?}, {known:?}"));
    };
    let Decided { decision, next_attempt_at } = match result {
        Ok(decided) => decided,
        // Whether it held is looked at by the audit: nacks after a lease ran out are a race that either side may win.
        Err(SettleError::StaleReceipt) => return Ok(()),
        Err(error) => return Err(format!("a nack of {receipt:?} gave {error}")),
    };
    if known.lease.take().is_none() {
        return Err(format!("nacked after it was settled: {receipt:?}, {failure:?}"));
    }
    let decided_at = known.decided_at.get(&(receipt.replays, receipt.attempt)).copied();
    if let (Some(pause), Some(decided_at)) = (&decision.pause, decided_at) {
        subscription.paused_until = subscription.paused_until.max(decided_at + pause.duration);
    }
    let Some(known) = subscription.current(receipt) else { return Ok(()) };
    match decision.action {
        Action::Retry { delay } => {
            // The answer waited for the other items of its batch, the delay did not.
            let decided_at = decided_at.unwrap_or(at.now);
            if next_attempt_at != Some(decided_at + delay) || delay > LONGEST_DELAY {
                return Err(format!(
                    "a retry after {delay:?} at {decided_at:?} is due at {next_attempt_at:?}"
                ));
            }
            // The time to live may have passed meanwhile: then the policy's next answer says when.
            Ok(())
        }
        // The answer waited for other items, and an operator was faster.
        Action::DeadLetter { .. } if known.end == Some(End::Discarded) => Ok(()),
        Action::DeadLetter { .. } => {
            known.may.push(End::Dead);
            known.ends(End::Dead)
        }
        Action::Forward { .. } => known.ends(End::Forwarded),
        Action::Drop { .. } => known.ends(End::Dropped),
    }
}

fn extended(
    model: &mut Model,
    name: &Name,
    receipt: &Receipt,
    result: ExtendResult,
    at: Moment,
) -> Result<(), Violation> {
    let Some(subscription) = model.subscriptions.get_mut(name) else { return Ok(()) };
    let unseen = subscription.place(receipt).is_some_and(|place| subscription.unseen(place) > 0);
    let Some(known) = subscription.current(receipt) else {
        return if result.is_ok() { Err(format!("an old receipt extended: {receipt:?}")) } else { Ok(()) };
    };
    match result {
        Ok(until) => {
            let lease = known.lease.as_mut().filter(|lease| lease.unsure || lease.until > at.now);
            let lease = lease.ok_or_else(|| format!("extended after it was over: {receipt:?}"))?;
            lease.until = until;
            Ok(())
        }
        Err(SettleError::StaleReceipt) => {
            let over = known.end.is_some() || !known.may.is_empty();
            if !over && !unseen && known.lease.is_some_and(|lease| lease.holds(at.now)) {
                return Err(format!("a live lease was stale to extend: {known:?}"));
            }
            Ok(())
        }
        Err(SettleError::MaxLease { .. }) => Ok(()),
        Err(error) => Err(format!("an extend of {receipt:?} gave {error}")),
    }
}

pub(crate) fn put_subscription(
    model: &mut Model,
    name: &Name,
    put: Put<SubscriptionView>,
    heads: &BTreeMap<Name, HeadRow>,
) -> Result<(), Violation> {
    let SubscriptionView { row, reads, topics, .. } = put.value;
    match model.subscriptions.get_mut(name) {
        Some(known) if !put.created && known.reads == reads => known.settings = row.settings,
        None if put.created => {
            let latest = row.settings.start == Start::Latest;
            let begin = |head: &HeadRow| if latest { head.next } else { head.first };
            let taken = heads.iter().filter(|(topic, _)| reads.takes(topic));
            let first: BTreeMap<_, _> = taken.map(|(topic, head)| (topic.clone(), begin(head))).collect();
            if topics != first.len() {
                return Err(format!("{name} reads {topics} topics, and not {first:?}"));
            }
            model.subscriptions.insert(name.clone(), Subscription::new(reads, first, row.settings));
        }
        known => return Err(format!("{name} was put, created: {}, known: {}", put.created, known.is_some())),
    }
    Ok(())
}

fn started_over(
    model: &mut Model,
    StartOver { name, to, one_topic }: &StartOver,
    heads: &BTreeMap<Name, HeadRow>,
    before: &mut Answer<SubscriptionView>,
    sought: Sought,
) -> Result<(), Violation> {
    let subscription = model.subscriptions.get_mut(name).ok_or("an unknown subscription started over")?;
    let outstanding = before.try_recv().ok().and_then(Result::ok).map_or(0, |view| view.counts.backlog);
    let all = heads.len() == subscription.first.len();
    let begin = |head: &HeadRow| match to {
        Start::Sequence(sequence) => (*sequence).clamp(head.first, head.next),
        Start::Earliest => head.first,
        _ => head.next,
    };
    let alone = heads.values().next().filter(|_| *one_topic).map(begin);
    if sought.ended > outstanding || (all && sought.ended < outstanding) || sought.sequence != alone {
        return Err(format!("{sought:?} of {name} on {heads:?}: {outstanding} were outstanding"));
    }
    for (topic, head) in heads {
        let id = model.topics.get(topic).and_then(|topic| topic.id);
        subscription.start_over(topic, id, begin(head));
    }
    Ok(())
}

fn replayed(
    model: &mut Model,
    name: &Name,
    id: DeadLetterId,
    answer: Result<Replayed, Refusal>,
) -> Result<(), Violation> {
    let (Ok(replayed), Some(known)) = (answer, dead(model, name, id)) else { return Ok(()) };
    if known.end != Some(End::Dead) || replayed.replays != known.replays + 1 {
        return Err(format!("{replayed:?} of {known:?}"));
    }
    known.relive(replayed.replays);
    Ok(())
}
