//! Which topics a subscription reads: a backlog begins with each of them, and ends with it.

use super::Engine;
use super::backlog::{Backlog, Counts};
use super::command::Refusal;
use super::state::Subscription;
use super::topics::behind;
use super::window::Window;
use crate::domain::id::{BacklogId, RealmId, SubscriptionId, TopicId};
use crate::domain::limits::{MAX_PATTERN_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS_PER_TOPIC};
use crate::domain::name::Name;
use crate::domain::settings::Reads;
use crate::store::key::Owner;
use crate::store::row::{BacklogRow, Row as _};
use crate::store::{Commit, Keyspace};

impl Engine {
    /// The topics that a subscription is to read, unless too many do already.
    pub(super) fn topics_for(&self, realm: RealmId, reads: &Reads) -> Result<Vec<TopicId>, Refusal> {
        match reads {
            Reads::Topic(name) => {
                let id = self.topic_id(realm, name)?;
                let readers = self.topics.get(&id).into_iter().flat_map(|topic| &topic.backlogs);
                let subscriptions = readers.filter_map(|id| self.backlogs.get(id)).map(|it| it.subscription);
                let by_name = subscriptions.filter(|id| !self.with_patterns.contains(&(realm, *id)));
                if by_name.count() >= MAX_SUBSCRIPTIONS_PER_TOPIC {
                    let limit = MAX_SUBSCRIPTIONS_PER_TOPIC;
                    return Err(Refusal::LimitReached { what: "subscriptions that name one topic", limit });
                }
                Ok(vec![id])
            }
            Reads::Topics(pattern) => {
                if self.with_patterns_in(realm).count() >= MAX_PATTERN_SUBSCRIPTIONS {
                    let limit = MAX_PATTERN_SUBSCRIPTIONS;
                    return Err(Refusal::LimitReached { what: "subscriptions with a pattern", limit });
                }
                let topics = self.topic_names.range(behind(realm, None));
                let topics = topics.take_while(|((of, _), _)| *of == realm);
                Ok(topics.filter(|((_, name), _)| pattern.takes(name)).map(|(_, id)| *id).collect())
            }
        }
    }

    fn with_patterns_in(&self, realm: RealmId) -> impl Iterator<Item = SubscriptionId> {
        let ids = (realm, SubscriptionId(0))..=(realm, SubscriptionId(u32::MAX));
        self.with_patterns.range(ids).map(|(_, id)| *id)
    }

    /// What a subscription reads, by name.
    pub(super) fn reads(&self, subscription: &Subscription) -> Option<Reads> {
        match &subscription.row.pattern {
            Some(pattern) => Some(Reads::Topics(pattern.clone())),
            None => {
                let topic = self.topic_of(*subscription.backlogs.first()?)?;
                Some(Reads::Topic(topic.row.name.clone()))
            }
        }
    }

    /// A topic was created: whoever has a pattern for its name reads it from its first message on.
    pub(super) fn join_patterns(&mut self, realm: RealmId, name: &Name, topic: TopicId) {
        let pattern = |id: &SubscriptionId| self.subscriptions.get(id)?.row.pattern.as_ref();
        let joining = self.with_patterns_in(realm);
        let joining: Vec<_> = joining.filter(|id| pattern(id).is_some_and(|it| it.takes(name))).collect();
        let mut commit = Commit::default();
        for id in joining {
            let row = BacklogRow::at(self.new_backlog(), 1);
            self.read_from(realm, id, topic, row, &mut commit);
        }
        self.pending.push(commit);
    }

    /// A subscription reads a topic, with a new backlog that begins where this row says.
    pub(super) fn read_from(
        &mut self,
        realm: RealmId,
        id: SubscriptionId,
        topic: TopicId,
        row: BacklogRow,
        commit: &mut Commit,
    ) {
        let backlog = Backlog::new(realm, id, topic, row, Window::empty());
        commit.put(Keyspace::Backlogs, backlog.key(), backlog.row.encode());
        self.add_backlog(backlog);
        commit.split_into(&mut self.pending);
    }

    /// A number that no backlog had. Whoever takes one saves the counters.
    pub(super) fn new_backlog(&mut self) -> BacklogId {
        let id = BacklogId(self.next_backlog);
        self.next_backlog += 1;
        id
    }

    /// Takes a backlog into memory.
    pub(super) fn add_backlog(&mut self, backlog: Backlog) {
        let (id, subscription) = (backlog.row.id, backlog.subscription);
        if let Some(topic) = self.topics.get_mut(&backlog.topic) {
            topic.backlogs.push(id);
        }
        if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
            subscription.backlogs.insert(id);
        }
        self.backlogs.insert(id, backlog);
        self.look_at(id);
        self.touch(subscription);
    }

    /// What is outstanding there is so no more; its rows go in the background.
    pub(super) fn end_backlog(&mut self, id: BacklogId, commit: &mut Commit) -> Option<Backlog> {
        let mut backlog = self.backlogs.remove(&id)?;
        for (sequence, mut held) in std::mem::take(&mut backlog.held) {
            self.nacks.stale(held.nack.take(), &mut self.answers);
            if let Some(subscription) = self.subscriptions.get_mut(&backlog.subscription) {
                subscription.count_out(backlog.place(sequence), &held);
            }
        }
        if let Some(wake) = backlog.wake {
            self.wakes.remove(&(wake, Owner::Backlog(id)));
        }
        if let Some(topic) = self.topics.get_mut(&backlog.topic) {
            topic.backlogs.retain(|other| *other != id);
        }
        if let Some(subscription) = self.subscriptions.get_mut(&backlog.subscription) {
            subscription.backlogs.remove(&id);
            subscription.active.remove(&id);
            subscription.counts.replace(backlog.counted, Counts::default());
        }
        commit.delete(Keyspace::Backlogs, backlog.key());
        self.doom(backlog.realm, Owner::Backlog(id), commit);
        self.touch(backlog.subscription);
        Some(backlog)
    }

    /// A topic is about to go. Who reads it by name stands in its way; who reads it by a pattern does so while there is
    /// anything left to settle.
    pub(super) fn leave_topic(&mut self, id: TopicId, commit: &mut Commit) -> Result<(), Refusal> {
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        for backlog in topic.backlogs.iter().filter_map(|id| self.backlogs.get(id)) {
            let Some(subscription) = self.subscriptions.get(&backlog.subscription) else { continue };
            if subscription.row.pattern.is_none() {
                return Err(Refusal::TopicInUse(topic.row.name.clone()));
            }
            if !subscription.is_live() && (backlog.depth(topic) > 0 || backlog.row.dead > 0) {
                return Err(Refusal::TopicUnsettled(topic.row.name.clone()));
            }
        }
        for backlog in topic.backlogs.clone() {
            self.end_backlog(backlog, commit);
        }
        Ok(())
    }
}
