//! What operators do to the flow of a subscription: pause, resume, seek, purge.

use super::command::{Pause, Refusal, Seek, Sought, SubscriptionView};
use super::state::Subscription;
use super::window::Window;
use super::{Engine, Reply, or_refuse};
use crate::domain::id::{BacklogId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::settings::Start;
use crate::store::key::Owner;
use crate::store::row::{Paused, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

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

    /// The subscription starts again from another point of its topic: what was outstanding ends, and every message
    /// from there on is delivered as if it had never been.
    pub(super) fn seek(
        &mut self,
        realm: RealmId,
        request: &Seek,
        reply: Reply<Sought>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let id = or_refuse!(try self, reply, self.positioned(realm, &request.subscription));
        let Some(topic) = self.subscriptions.get(&id).map(|it| it.row.topic) else { return Ok(()) };
        let to = self.position(topic, request.to)?;
        self.start_over(id, to, reply);
        Ok(())
    }

    /// Ends everything that is outstanding; dead letters stay.
    pub(super) fn purge(
        &mut self,
        realm: RealmId,
        name: &Name,
        reply: Reply<Sought>,
    ) -> Result<(), StoreError> {
        let id = or_refuse!(try self, reply, self.positioned(realm, name));
        let end = self.topic_of(id).map_or(1, |topic| topic.head.next);
        self.start_over(id, end, reply);
        Ok(())
    }

    /// A subscription that has a position in its topic.
    fn positioned(&self, realm: RealmId, name: &Name) -> Result<SubscriptionId, Refusal> {
        let id = self.subscription_id(realm, name)?;
        let live = self.subscriptions.get(&id).is_some_and(Subscription::is_live);
        if live { Err(Refusal::NotForLive(name.clone())) } else { Ok(id) }
    }

    /// Gives a subscription a new backlog that begins at `to`. The rows of the old one go in the background.
    fn start_over(&mut self, id: SubscriptionId, to: Sequence, reply: Reply<Sought>) {
        let backlog = BacklogId(self.next_backlog);
        self.next_backlog += 1;
        self.save_counters();
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let Some(topic) = self.topics.get(&subscription.row.topic) else { return };
        let ended = subscription.backlog(topic);
        for held in subscription.held.values_mut() {
            self.nacks.stale(held.nack.take(), &mut self.answers);
        }
        let realm = subscription.realm;
        let old = std::mem::replace(&mut subscription.row.backlog, backlog);
        subscription.row.first = to;
        subscription.begin_at(to);
        let mut commit = Commit::default();
        commit.put(Keyspace::Subscriptions, key::subscription(realm, id), subscription.row.encode());
        self.doom(realm, Owner::Backlog(old), &mut commit);
        self.pending.push(commit);
        let topic = self.subscriptions.get(&id).map(|subscription| subscription.row.topic);
        topic.into_iter().for_each(|topic| self.arm_trim(topic));
        self.touch(id);
        self.answer(reply, Ok(Sought { sequence: to, ended }));
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

impl Subscription {
    /// Forgets what was outstanding; the cursor stands at `to`.
    fn begin_at(&mut self, to: Sequence) {
        self.held.clear();
        self.leases.clear();
        self.consumers.clear();
        self.leased = 0;
        self.due = Window::empty();
        self.fresh_at = None;
        self.cursor.next = to;
        self.cursor.delayed = 0;
        self.cursor.ahead = 0;
    }
}
