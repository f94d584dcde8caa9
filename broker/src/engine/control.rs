//! What operators do to the flow of a subscription: pause, resume, seek, purge.

use super::backlog::Backlog;
use super::command::Refusal;
use super::subscriptions::SubscriptionView;
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{BacklogId, RealmId, Sequence, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::settings::{InvalidSetting, Start};
use crate::store::row::{BacklogRow, Paused, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Stops the deliveries of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Which one.
    pub subscription: Name,
    /// Why, for people.
    pub reason: String,
    /// Who asks for it.
    pub by: String,
}

/// Starts a subscription again from another point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seek {
    /// Which one.
    pub subscription: Name,
    /// On this topic; `None` is all that it reads.
    pub topic: Option<Name>,
    /// From where.
    pub to: Start,
}

/// Ends what is outstanding on a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    /// Which one.
    pub subscription: Name,
    /// On this topic; `None` is all that it reads.
    pub topic: Option<Name>,
}

/// A subscription that started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sought {
    /// The first message that it gets, where that is one of one topic.
    pub sequence: Option<Sequence>,
    /// Deliveries that were outstanding, and are no more.
    pub ended: u64,
}

/// What a seek or a purge is about.
struct Meant {
    backlogs: Vec<BacklogId>,
    /// Of one topic that was named, here or when the subscription was created: sequences mean something.
    one_topic: bool,
}

impl Engine {
    /// Stops the deliveries of a subscription until it is resumed. Settlements, timers and decisions go on.
    pub(super) fn pause(&mut self, realm: RealmId, request: Pause, reply: Reply<SubscriptionView>) {
        let Pause { subscription, reason, by } = request;
        let paused = Some(Paused { at: self.now, reason, by });
        self.set_paused(realm, &subscription, paused, reply);
    }

    pub(super) fn resume(&mut self, realm: RealmId, name: &Name, reply: Reply<SubscriptionView>) {
        self.set_paused(realm, name, None, reply);
    }

    fn set_paused(
        &mut self,
        realm: RealmId,
        name: &Name,
        paused: Option<Paused>,
        reply: Reply<SubscriptionView>,
    ) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        subscription.row.paused = paused;
        let mut commit = Commit::default();
        commit.put(Keyspace::Subscriptions, key::subscription(realm, id), subscription.row.encode());
        self.pending.push(commit);
        self.touch(id);
        let view = self.subscription_view(id);
        self.answer(reply, view.ok_or_else(|| Refusal::SubscriptionNotFound(name.clone())));
    }

    /// The subscription starts again from another point of its topics, or of one of them: what was outstanding ends, and every message
    /// from there on is delivered as if it had never been.
    pub(super) fn seek(
        &mut self,
        realm: RealmId,
        request: &Seek,
        reply: Reply<Sought>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let Seek { subscription, topic, to } = request;
        let meant = or_refuse!(try self, reply, self.positioned(realm, subscription, topic.as_ref()));
        if !meant.one_topic && matches!(to, Start::Sequence(_)) {
            let reason = "a sequence is of one topic: say which one".to_owned();
            self.answer(reply, Err(InvalidSetting { field: "topic", reason }.into()));
            return Ok(());
        }
        let mut places = Vec::with_capacity(meant.backlogs.len());
        for id in meant.backlogs.iter().copied() {
            let topic = self.backlogs.get(&id).map(|backlog| backlog.topic);
            places.push((id, topic.map_or(Ok(1), |topic| self.position(topic, *to))?));
        }
        self.start_over(meant, places, reply);
        Ok(())
    }

    /// Ends everything that is outstanding; dead letters stay.
    pub(super) fn purge(&mut self, realm: RealmId, request: &Purge, reply: Reply<Sought>) {
        let Purge { subscription, topic } = request;
        let meant = or_refuse!(self, reply, self.positioned(realm, subscription, topic.as_ref()));
        let end = |id| (id, self.topic_of(id).map_or(1, |topic| topic.head.next));
        let places = meant.backlogs.iter().copied().map(end).collect();
        self.start_over(meant, places, reply);
    }

    /// The backlogs of a subscription, or the one of this topic, where it has a position in them.
    fn positioned(&self, realm: RealmId, name: &Name, topic: Option<&Name>) -> Result<Meant, Refusal> {
        let id = self.subscription_id(realm, name)?;
        let unknown = || Refusal::SubscriptionNotFound(name.clone());
        let subscription = self.subscriptions.get(&id).ok_or_else(unknown)?;
        if subscription.is_live() {
            return Err(Refusal::NotForLive(name.clone()));
        }
        let Some(topic) = topic else {
            let backlogs = subscription.backlogs.iter().copied().collect();
            return Ok(Meant { backlogs, one_topic: subscription.row.pattern.is_none() });
        };
        let backlog = self.backlog_on(id, self.topic_id(realm, topic)?);
        let not_read = || Refusal::TopicNotRead { subscription: name.clone(), topic: topic.clone() };
        Ok(Meant { backlogs: vec![backlog.ok_or_else(not_read)?.row.id], one_topic: true })
    }

    /// Gives each of these a new backlog that begins there. The rows of the old ones go in the background.
    fn start_over(&mut self, meant: Meant, places: Vec<(BacklogId, Sequence)>, reply: Reply<Sought>) {
        let sequence = places.first().map(|(_, sequence)| *sequence).filter(|_| meant.one_topic);
        let mut ended = 0;
        for (old, to) in places {
            ended += self.topic_of(old).zip(self.backlogs.get(&old)).map_or(0, |(topic, it)| it.depth(topic));
            let mut commit = Commit::default();
            if let Some(Backlog { realm, subscription, topic, row, .. }) = self.end_backlog(old, &mut commit)
            {
                let row = BacklogRow { dead: row.dead, ..BacklogRow::at(self.new_backlog(), to) };
                self.read_from(realm, subscription, topic, row, &mut commit);
                self.arm_trim(topic);
            }
            commit.split_into(&mut self.pending);
            self.pending.push(commit);
        }
        self.save_counters();
        self.answer(reply, Ok(Sought { sequence, ended }));
    }

    /// Where a subscription begins that starts so. What was published must be applied.
    pub(super) fn position(&self, id: TopicId, start: Start) -> Result<Sequence, StoreError> {
        let Some(topic) = self.topics.get(&id) else { return Ok(1) };
        let (first, next) = (topic.head.first, topic.head.next);
        match start {
            Start::Earliest => Ok(first),
            Start::Latest => Ok(next),
            Start::Sequence(sequence) => Ok(sequence.clamp(first, next)),
            // Messages are in the order of their times, but where the clock was turned back.
            Start::Time(at) => {
                let (mut low, mut high) = (first, next);
                while low < high {
                    let middle = low + (high - low) / 2;
                    let row = self.store.get(Keyspace::Messages, &key::message(topic.realm, id, middle))?;
                    let missing = || StoreError::Corrupt(format!("message {middle} is gone"));
                    if Message::decode(row.ok_or_else(missing)?)?.published_at < at {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                Ok(low)
            }
        }
    }
}
