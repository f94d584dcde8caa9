//! Topics that come and go below the subscriptions that read them, and subscriptions that start over.

use std::time::Duration;

use reprise_broker::domain::id::MessageId;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::quota::Quota;
use reprise_broker::domain::settings::{Reads, Start, TopicSettings};
use reprise_broker::engine::{Command, Publish, Purge, PutTopic, Refusal, Seek};

use super::audit::gone;
use super::model::{End, LONGEST_WINDOW, Sent, Topic, Violation};
use super::names::Names;
use super::pending::{Pending, StartOver};
use super::policies::SINK;
use super::work::{message, name};
use super::world::{REALM, World};

/// The topic that is not always there. Nobody reads it by name.
pub(crate) const LATER: &str = "shop.later";

impl World {
    /// A topic, with a message in it that gives its id away.
    pub(crate) fn create_topic(&mut self, topic: &Name) -> Result<(), Violation> {
        let keep_acked = self.random.pick(&[Duration::ZERO, Duration::from_secs(30)]);
        let window = self.random.pick(&[Duration::ZERO, Duration::from_secs(3), LONGEST_WINDOW]);
        // Few messages are forwarded, and some of them are to wait.
        let few = if topic.as_str() == SINK { 2 } else { 12 };
        let max_messages = self.random.pick(&[None, Some(few)]);
        let max_bytes = self.random.pick(&[None, Some(400)]);
        let quota = Quota { max_messages, max_bytes };
        let settings = TopicSettings { keep_acked, dedup_window: window, quota, ..TopicSettings::default() };
        let request = PutTopic { name: topic.clone(), settings };
        let mut answer = None;
        while answer.is_none() {
            // Once more, if a crash took the answer.
            let request = request.clone();
            answer = self.call(|reply| Command::PutTopic(REALM, request, reply))?;
        }
        answer.transpose().map_err(|refusal| format!("{topic} was refused: {refusal}"))?;
        let new = Topic { id: None, messages: [].into(), names: Names::new(window), quota };
        self.model.topics.insert(topic.clone(), new);
        let readers = self.model.subscriptions.values_mut().filter(|it| it.reads.takes(topic));
        readers.for_each(|reader| _ = reader.first.insert(topic.clone(), 1));
        while self.model.topics.get(topic).is_some_and(|topic| topic.id.is_none()) {
            let payload = format!("the first of {topic}");
            let messages = vec![message(&payload)];
            let sent =
                Sent { payload, available_at: self.now, delay: Duration::ZERO, is_mortal: false, id: None };
            let request = Publish { topic: topic.clone(), messages, checked: None };
            let answer = self.send(|reply| Command::Publish(REALM, request, reply));
            self.pending.push(Pending::Publish(topic.clone(), vec![sent], answer));
            self.turn()?;
        }
        Ok(())
    }

    pub(crate) fn create_or_delete_topic(&mut self) -> Result<(), Violation> {
        let topic = name(LATER);
        if self.model.topics.contains_key(&topic) {
            let readers = self.model.subscriptions.iter().filter(|(_, it)| it.first.contains_key(&topic));
            for reader in readers.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                // Or it would hardly ever be settled.
                self.pull_and_ack(&reader)?;
            }
            self.delete_topic(&topic, false)
        } else {
            self.create_topic(&topic)
        }
    }

    /// Deletes a topic, unless something of it is left to settle.
    pub(crate) fn delete_topic(&mut self, topic: &Name, settled: bool) -> Result<(), Violation> {
        // What was sent to it comes first.
        self.turn()?;
        let mut answer = None;
        let mut lost = !self.model.topics.contains_key(topic);
        while answer.is_none() {
            let asked = topic.clone();
            answer = self.call(|reply| Command::DeleteTopic(REALM, asked, reply))?;
            lost |= answer.is_none();
        }
        let is_read = self.model.subscriptions.values().any(|it| it.first.contains_key(topic));
        match answer {
            Some(Err(Refusal::TopicUnsettled(_))) if is_read && !settled => Ok(()),
            Some(Err(Refusal::TopicNotFound(_))) if lost => self.is_deleted(topic),
            Some(Ok(())) => self.is_deleted(topic),
            other => Err(format!("deleting {topic} gave {other:?}")),
        }
    }

    /// Whoever read it has settled it.
    fn is_deleted(&mut self, topic: &Name) -> Result<(), Violation> {
        let Some(deleted) = self.model.topics.remove(topic) else { return Ok(()) };
        self.model.unanswered.retain(|(to, _)| to != topic);
        for (name, subscription) in &mut self.model.subscriptions {
            let (Some(first), Some(id)) = (subscription.first.remove(topic), deleted.id) else { continue };
            for (sequence, _) in deleted.messages.range(first..) {
                gone(subscription, MessageId { topic: id, sequence: *sequence })
                    .map_err(|why| format!("{sequence} of {topic} on {name}: {why}"))?;
                let known = &subscription.deliveries[&(id, *sequence)];
                let is_dead = known.end == Some(End::Dead) && !known.may_be_replayed;
                if is_dead && known.may.iter().all(|end| *end == End::Dead) {
                    return Err(format!("{topic} went with dead letter {sequence} of {name}: {known:?}"));
                }
            }
        }
        Ok(())
    }

    /// Ends what is outstanding on a subscription, on one of its topics or on all, and goes on at the end or from elsewhere.
    /// Dead letters would outlive it, under rules of their own: they are discarded first, and policies keep quiet, so that
    /// there are no others.
    pub(crate) fn start_over(&mut self) -> Result<(), Violation> {
        let Some(subscription) = self.some_subscription() else { return Ok(()) };
        self.quiet = true;
        let result = self.start_over_quietly(&subscription);
        self.quiet = false;
        result
    }

    fn start_over_quietly(&mut self, name: &Name) -> Result<(), Violation> {
        self.turn()?;
        let Some(subscription) = self.model.subscriptions.get(name) else { return Ok(()) };
        let topics: Vec<Name> = subscription.first.keys().cloned().collect();
        let by_name = matches!(subscription.reads, Reads::Topic(_));
        // The same one every time: what had no answer may have been.
        let topic = self.random.percent(50).then(|| self.random.pick(&topics));
        let one_topic = by_name || topic.is_some();
        let purges = self.random.percent(40);
        let to = match self.random.below(3) {
            _ if purges => Start::Latest,
            0 if one_topic => Start::Sequence(1 + self.random.next() % 30),
            1 => Start::Latest,
            _ => Start::Earliest,
        };
        while self.model.subscriptions.contains_key(name) {
            let lives = self.lives;
            self.settle_dead_letters(name, 1_000, false)?;
            self.turn()?;
            if self.lives == lives {
                let asked = name.clone();
                let before = self.send(|reply| Command::GetSubscription(REALM, asked, reply));
                let (subscription, of) = (name.clone(), topic.clone());
                let answer = self.send(|reply| match purges {
                    true => Command::Purge(REALM, Purge { subscription, topic: of }, reply),
                    false => Command::Seek(REALM, Seek { subscription, topic: of, to }, reply),
                });
                let among = |it: &Name| topics.contains(it) && topic.as_ref().is_none_or(|topic| topic == it);
                let heads = self.ask_heads(among);
                self.orphan_asks(name, heads.iter().map(|(topic, _)| topic));
                let of = StartOver { name: name.clone(), to, one_topic };
                self.pending.push(Pending::StartOver(of, heads, before, answer));
                self.turn()?;
            }
            if self.lives == lives {
                break;
            }
            // Once more, as the answer went with the broker.
        }
        Ok(())
    }
}
