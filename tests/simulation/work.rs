//! Random work: what producers, consumers and operators do in one turn.

use std::time::Duration;

use reprise_broker::domain::failure::{Cause, Failure};
use reprise_broker::domain::name::Name;
use reprise_broker::domain::pattern::TopicPattern;
use reprise_broker::domain::receipt::Receipt;
use reprise_broker::domain::settings::{Ordering, Reads, Start};
use reprise_broker::engine::{
    Ack, Command, Extend, Nack, NewMessage, Publish, Pull, PutSubscription, Replace, SetPolicy,
    SubscriptionChange,
};

use super::audit::dead_letters_of;
use super::model::{LEAST_ATTEMPT_LIMIT, LONGEST_DELAY, Sent, Violation, key_of};
use super::names;
use super::pending::Pending;
use super::policies::{POLICIES, SINK};
use super::world::{REALM, World};

const TOPICS: [&str; 3] = ["shop.orders", "shop.mails", SINK];
const SUBSCRIPTIONS: [(&str, &str); 7] = [
    ("a", "shop.orders"),
    ("b", "shop.orders"),
    ("c", "shop.mails"),
    ("d", "shop.mails"),
    ("e", SINK),
    ("f", "shop.*"),
    ("g", ">"),
];
const CLASSES: [&str; 4] = ["", "timeout", "invalid", "junk"];

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// The topics that a subscription reads.
fn reads(text: &str) -> Reads {
    TopicPattern::parse(text).map_or_else(|_| Reads::Topic(name(text)), Reads::Topics)
}

/// A message with this payload. An attribute tells it to whoever is not shown the payload.
pub(crate) fn message(payload: &str) -> NewMessage {
    NewMessage {
        key: key_of(payload),
        attributes: vec![("payload".to_owned(), payload.to_owned())],
        payload: payload.to_owned().into(),
        ..NewMessage::default()
    }
}

impl World {
    /// The topics, with a message in each that gives its id away, and some of the subscriptions.
    pub(crate) fn set_up(&mut self) -> Result<(), Violation> {
        for topic in TOPICS {
            self.create_topic(&name(topic))?;
        }
        for (subscription, topic) in SUBSCRIPTIONS {
            // Some seeds are left to those that read one topic.
            let many = matches!(reads(topic), Reads::Topics(_));
            if self.random.percent(if many { 50 } else { 80 }) {
                self.put_subscription(subscription, topic)?;
            }
        }
        self.turn()
    }

    /// One request of some kind.
    pub(crate) fn request(&mut self) -> Result<(), Violation> {
        match self.random.below(102) {
            0..22 => self.publish(),
            22..52 => self.pull(),
            52..68 => self.ack(),
            68..82 => self.nack(),
            82..88 => self.extend(),
            88..93 => self.operate_on_dead_letters()?,
            93..96 => self.set_policy(),
            96..99 => self.change()?,
            99 => self.create_or_delete()?,
            100 => self.create_or_delete_topic()?,
            _ if self.random.percent(40) => self.start_over()?,
            _ => {}
        }
        Ok(())
    }

    fn publish(&mut self) {
        let topics: Vec<Name> = self.model.topics.keys().filter(|it| it.as_str() != SINK).cloned().collect();
        let topic = self.random.pick(&topics);
        let mut messages = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..=self.random.below(4) {
            let mut payload = format!("{:016x}", self.random.next());
            let names = self.model.topics.get_mut(&topic).map(|topic| &mut topic.names);
            let id = names.and_then(|names| names.pick(&mut self.random, &mut payload));
            // Of several with the same payload, whose answers were lost, nobody can tell which is stored.
            let delay = if id.is_none() && self.random.percent(25) {
                self.random.millis(1, 8_000)
            } else {
                Duration::ZERO
            };
            let ttl = self.random.percent(30).then(|| self.random.millis(1, 10_000));
            let dedup = id.as_deref().map(|id| names::key(id, &payload));
            sent.push(Sent {
                payload: payload.clone(),
                available_at: self.now + delay,
                delay,
                is_mortal: ttl.is_some(),
                id,
            });
            messages.push(NewMessage { delay, ttl, dedup, ..message(&payload) });
        }
        let request = Publish { topic: topic.clone(), messages, checked: None };
        let answer = self.send(|reply| Command::Publish(REALM, request, reply));
        self.pending.push(Pending::Publish(topic, sent, answer));
    }

    pub(crate) fn some_subscription(&mut self) -> Option<Name> {
        let names: Vec<Name> = self.model.subscriptions.keys().cloned().collect();
        (!names.is_empty()).then(|| self.random.pick(&names))
    }

    fn pull(&mut self) {
        let Some(subscription) = self.some_subscription() else { return };
        let wait = if self.random.percent(50) { Duration::ZERO } else { self.random.millis(1, 5_000) };
        let (max, max_bytes) = (1 + self.random.below(6), 1 << self.random.below(12));
        let request = Pull { subscription: subscription.clone(), max, wait, max_bytes, consumer: None };
        let answer = self.send(|reply| Command::Pull(REALM, request, reply));
        if self.random.percent(5) {
            // The consumer is gone before anything reaches it.
            drop(answer);
            if let Some(subscription) = self.model.subscriptions.get_mut(&subscription) {
                subscription.lost += 1;
            }
        } else {
            self.pending.push(Pending::Pull(subscription, answer));
        }
    }

    /// Receipts of one subscription: mostly the latest ones, sometimes any, even of another subscription.
    fn some_receipts(&mut self) -> Option<(Name, Vec<Receipt>)> {
        let subscription = self.some_subscription()?;
        let other = if self.random.percent(3) { self.some_subscription()? } else { subscription.clone() };
        let receipts = &self.model.subscriptions.get(&other)?.receipts;
        if receipts.is_empty() {
            return None;
        }
        let recent = if self.random.percent(80) { receipts.len().min(8) } else { receipts.len() };
        let recent = receipts[receipts.len() - recent..].to_vec();
        let picked = (0..=self.random.below(4)).map(|_| self.random.pick(&recent)).collect();
        (other == subscription || self.model.subscriptions.contains_key(&other))
            .then_some((subscription, picked))
    }

    fn ack(&mut self) {
        let Some((subscription, receipts)) = self.some_receipts() else { return };
        let receipts = self.of(&subscription, receipts);
        let request = Ack { subscription: subscription.clone(), receipts: receipts.clone() };
        let answer = self.send(|reply| Command::Ack(REALM, request, reply));
        self.pending.push(Pending::Ack(subscription, receipts, answer));
    }

    /// A foreign receipt is sent on its own: all that may come of it is a refusal.
    fn of(&mut self, subscription: &Name, receipts: Vec<Receipt>) -> Vec<Receipt> {
        let known =
            self.model.subscriptions.get(subscription).map(|s| s.receipts.clone()).unwrap_or_default();
        let (own, foreign): (Vec<_>, Vec<_>) =
            receipts.into_iter().partition(|receipt| known.contains(receipt));
        if !foreign.is_empty() {
            let request = Ack { subscription: subscription.clone(), receipts: foreign };
            drop(self.send(|reply| Command::Ack(REALM, request, reply)));
        }
        own
    }

    fn nack(&mut self) {
        let Some((subscription, receipts)) = self.some_receipts() else { return };
        let receipts = self.of(&subscription, receipts);
        let mut items = Vec::new();
        for receipt in receipts {
            let mut failure =
                Failure::of(if self.random.percent(25) { Cause::Released } else { Cause::Nacked });
            if failure.cause == Cause::Nacked {
                failure.class = self.random.pick(&CLASSES).to_owned();
                failure.retry_after = self.random.percent(10).then(|| self.random.millis(0, 30_000));
            }
            let lease = self.model.subscriptions.get_mut(&subscription).and_then(|s| s.current(&receipt));
            if let Some(lease) = lease.and_then(|known| known.lease.as_mut()) {
                lease.settling = true;
            }
            items.push((receipt, failure));
        }
        let request = Nack { subscription: subscription.clone(), items: items.clone() };
        let answer = self.send(|reply| Command::Nack(REALM, request, reply));
        self.pending.push(Pending::Nack(subscription, items, answer));
    }

    fn extend(&mut self) {
        let Some((subscription, receipts)) = self.some_receipts() else { return };
        let receipts = self.of(&subscription, receipts);
        let mut items = Vec::new();
        for receipt in &receipts {
            let lease = self.random.percent(80).then(|| self.random.millis(0, 15_000));
            items.push((*receipt, lease));
        }
        let request = Extend { subscription: subscription.clone(), items };
        let answer = self.send(|reply| Command::Extend(REALM, request, reply));
        self.pending.push(Pending::Extend(subscription, receipts, answer));
    }

    fn operate_on_dead_letters(&mut self) -> Result<(), Violation> {
        let Some(subscription) = self.some_subscription() else { return Ok(()) };
        let replays = self.random.percent(70);
        self.turn()?;
        self.settle_dead_letters(&subscription, 2, replays)
    }

    /// Replays or discards the first few.
    pub(crate) fn settle_dead_letters(
        &mut self,
        subscription: &Name,
        limit: usize,
        replays: bool,
    ) -> Result<(), Violation> {
        let query = dead_letters_of(subscription, limit);
        let Some(Ok(listed)) = self.call(|reply| Command::ListDeadLetters(REALM, Box::new(query), reply))?
        else {
            return Ok(());
        };
        for view in listed.items {
            self.model.dead(subscription, &view)?;
            let (name, id) = (subscription.clone(), view.id);
            if replays {
                let answer = self.send(|reply| Command::ReplayDeadLetter(REALM, id, Box::default(), reply));
                self.pending.push(Pending::Replay(name, id, answer));
            } else {
                let answer = self.send(|reply| Command::DiscardDeadLetter(REALM, id, reply));
                self.pending.push(Pending::Discard(name, id, answer));
            }
        }
        Ok(())
    }

    fn set_policy(&mut self) {
        let Some(subscription) = self.some_subscription() else { return };
        let request = SetPolicy {
            subscription,
            module: Some(POLICIES.wheel.clone()),
            params: None,
            checked: None,
            by: "operator".to_owned(),
        };
        let answer = self.send(|reply| Command::SetPolicy(REALM, Box::new(request), reply));
        self.pending.push(Pending::SetPolicy(answer));
    }

    fn change(&mut self) -> Result<(), Violation> {
        if let Some(subscription) = self.some_subscription()
            && let Some((name, topic)) = SUBSCRIPTIONS.iter().find(|(name, _)| *name == subscription.as_str())
        {
            self.put_subscription(name, topic)?;
        }
        Ok(())
    }

    fn create_or_delete(&mut self) -> Result<(), Violation> {
        let (subscription, topic) = self.random.pick(&SUBSCRIPTIONS);
        let subscription_name = name(subscription);
        if self.uncertain.contains(&subscription_name) {
            return Ok(());
        }
        if self.model.subscriptions.contains_key(&subscription_name) {
            let asked = subscription_name.clone();
            let answer = self.send(|reply| Command::DeleteSubscription(REALM, asked, reply));
            self.pending.push(Pending::Delete(subscription_name.clone(), answer));
            self.uncertain.insert(subscription_name);
        } else {
            self.put_subscription(subscription, topic)?;
        }
        Ok(())
    }

    /// Creates a subscription, or changes its settings at random.
    fn put_subscription(&mut self, subscription: &str, topics: &str) -> Result<(), Violation> {
        let (subscription, reads) = (name(subscription), reads(topics));
        if !self.model.subscriptions.contains_key(&subscription) {
            // No answer says where it begins, and it may be lost: nothing else happens to its topics meanwhile.
            self.turn()?;
        }
        if !self.uncertain.insert(subscription.clone()) {
            return Ok(());
        }
        let new = !self.model.subscriptions.contains_key(&subscription);
        let seconds = Duration::from_secs;
        let retry = format!(
            r#"{{"max_attempts":{},"delay":{},"jitter":"{}","on_expired":"{}","classes":{{"invalid":{{"action":"dead_letter"}},"junk":{{"action":"drop"}}}}}}"#,
            1 + self.random.below(6),
            self.random.pick(&["0", "1", "3"]),
            self.random.pick(&["none", "full", "equal"]),
            self.random.pick(&["dead_letter", "drop", "retry"]),
        );
        let ends = reads.takes(&name(SINK));
        let forwards = !ends && self.random.percent(60);
        // Where it begins is fixed once it is there.
        let mut start = self.random.pick(&[Start::Earliest, Start::Latest]);
        if ends {
            // What is forwarded comes at any time.
            start = Start::Earliest;
        }
        let change = SubscriptionChange {
            start: new.then_some(start),
            ordering: new.then_some(if ["b", "d", "g"].contains(&subscription.as_str()) {
                Ordering::Key
            } else {
                Ordering::None
            }),
            lease: Some(self.random.pick(&[seconds(1), seconds(4), seconds(10)])),
            max_lease: Some(self.random.pick(&[seconds(10), seconds(30)])),
            max_in_flight: Some(self.random.pick(&[2, 6, 1_000])),
            min_delay: Some(self.random.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(700)])),
            max_delay: Some(self.random.pick(&[seconds(2), LONGEST_DELAY])),
            attempt_limit: Some(self.random.pick(&[LEAST_ATTEMPT_LIMIT, 7, 1_000])),
            fallback_delay: Some(self.random.pick(&[seconds(1), seconds(3)])),
            fault_limit: Some(self.random.pick(&[2, 1_000])),
            forward_to: Some(if forwards { vec![name(SINK)] } else { Vec::new() }),
            inspect_payload: Some(self.random.percent(20)),
            record_failures: Some(super::records::kept(&subscription)),
            ..SubscriptionChange::default()
        };
        let request = PutSubscription {
            name: subscription.clone(),
            reads: Some(reads.clone()),
            change,
            replace: Replace::Named,
            retry: Some(retry),
        };
        let answer = self.send(|reply| Command::PutSubscription(REALM, Box::new(request), reply));
        let heads = self.ask_heads(|topic| new && reads.takes(topic));
        self.pending.push(Pending::Put(subscription, heads, answer));
        if new { self.turn() } else { Ok(()) }
    }
}
