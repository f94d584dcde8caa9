//! Create, change, show, list and delete subscriptions.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::command::{
    Listed, Page, Put, PutSubscription, Refusal, Replace, SubscriptionChange, SubscriptionView,
};
use super::load::LoadWindow;
use super::recover::BUILT_IN;
use super::state::{Subscription, Turn};
use super::topics::behind;
use super::window::Window;
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::bucket::Bucket;
use crate::domain::id::{BacklogId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::limits::MAX_SUBSCRIPTIONS_PER_TOPIC;
use crate::domain::name::Name;
use crate::domain::settings::{InvalidSetting, SubscriptionSettings};
use crate::domain::time::Timestamp;
use crate::store::key::Owner;
use crate::store::row::{CursorRow, RecordedChunk, RevisionRow, Row as _, SubscriptionRow};
use crate::store::{Commit, Keyspace, StoreError, key};

impl Engine {
    pub(super) fn put_subscription(
        &mut self,
        realm: RealmId,
        request: PutSubscription,
        reply: Reply<Put<SubscriptionView>>,
    ) -> Result<(), StoreError> {
        // Where it begins is looked up among the messages.
        self.apply()?;
        let known = self.subscription_names.get(&(realm, request.name.clone())).copied();
        let result = match known {
            Some(id) => self.change_subscription(id, request).map(|()| id),
            None => self.create_subscription(realm, request)?,
        };
        let answer = result.and_then(|id| {
            let value = self.subscription_view(id).ok_or(Refusal::ShuttingDown)?;
            Ok(Put { created: known.is_none(), value })
        });
        self.answer(reply, answer);
        Ok(())
    }

    fn create_subscription(
        &mut self,
        realm: RealmId,
        request: PutSubscription,
    ) -> Result<Result<SubscriptionId, Refusal>, StoreError> {
        let (topic, settings) = match self.check_new(realm, &request) {
            Ok(checked) => checked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let first = self.position(topic, settings.start)?;
        Ok(Ok(self.add_subscription(realm, request, topic, settings, first)))
    }

    fn check_new(
        &self,
        realm: RealmId,
        request: &PutSubscription,
    ) -> Result<(TopicId, SubscriptionSettings), Refusal> {
        let unknown = || Refusal::SubscriptionNotFound(request.name.clone());
        let name = request.topic.as_ref().ok_or_else(unknown)?;
        let id = self.topic_id(realm, name)?;
        let settings = request.change.clone().apply(SubscriptionSettings::default());
        settings.validate(name)?;
        let subscriptions = self.topics.get(&id).map_or(0, |topic| topic.subscriptions.len());
        if subscriptions >= MAX_SUBSCRIPTIONS_PER_TOPIC {
            let limit = MAX_SUBSCRIPTIONS_PER_TOPIC;
            return Err(Refusal::LimitReached { what: "subscriptions of one topic", limit });
        }
        Ok((id, settings))
    }

    fn add_subscription(
        &mut self,
        realm: RealmId,
        request: PutSubscription,
        topic_id: TopicId,
        settings: SubscriptionSettings,
        first: Sequence,
    ) -> SubscriptionId {
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        let backlog = BacklogId(self.next_backlog);
        self.next_backlog += 1;
        if let Some(topic) = self.topics.get_mut(&topic_id) {
            topic.subscriptions.push(id);
        }
        let retry = request.retry.unwrap_or_else(|| "{}".to_owned());
        let row = SubscriptionRow {
            name: request.name.clone(),
            topic: topic_id,
            first,
            created_at: self.now,
            settings,
            retry: retry.clone(),
            active_revision: 1,
            shadow: None,
            backlog,
            paused: None,
        };
        let revision = self.standard.revision(retry, self.now);
        let cursor = CursorRow::at(first);
        let mut commit = Commit::default();
        commit.put(Keyspace::Subscriptions, key::subscription(realm, id), row.encode());
        commit.put(Keyspace::Revisions, key::revision(realm, id, 1), revision.encode());
        self.pending.push(commit);
        self.save_counters();
        let subscription = Subscription::new(realm, row, cursor, revision, 1, Window::empty(), self.now);
        self.subscriptions.insert(id, subscription);
        self.subscription_names.insert((realm, request.name), id);
        self.touch(id);
        id
    }

    fn change_subscription(&mut self, id: SubscriptionId, request: PutSubscription) -> Result<(), Refusal> {
        let unknown = || Refusal::SubscriptionNotFound(request.name.clone());
        let subscription = self.subscriptions.get_mut(&id).ok_or_else(unknown)?;
        let topic = self.topics.get(&subscription.row.topic).ok_or_else(unknown)?;
        let topic = topic.row.name.clone();
        if request.topic.is_some_and(|wanted| wanted != topic) {
            return Err(Refusal::TopicDiffers { subscription: request.name, topic });
        }
        let settings = changed(request.change, &subscription.row.settings, request.replace)?;
        settings.validate(&topic)?;
        let retry = match (request.retry, request.replace) {
            (None, Replace::All) => "{}".to_owned(),
            (None, Replace::Named) => subscription.row.retry.clone(),
            (Some(retry), _) => retry,
        };
        // The parameters of the standard policy matter at once only where it decides.
        let decides = subscription.revision.size == BUILT_IN;
        if decides && *subscription.revision.params != *retry {
            let revision = self.standard.revision(retry.clone(), self.now);
            self.add_revision(id, revision)?;
        }
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        subscription.row.settings = settings;
        subscription.row.retry = retry;
        // The delay may be another now.
        subscription.fresh_at = None;
        // Fewer records may be kept from now on, or for a shorter time.
        subscription.trim_records_at = subscription.look_again(self.now).map(|_| self.now);
        let mut commit = Commit::default();
        let key = key::subscription(subscription.realm, id);
        commit.put(Keyspace::Subscriptions, key, subscription.row.encode());
        self.pending.push(commit);
        self.touch(id);
        Ok(())
    }

    pub(super) fn get_subscription(&mut self, realm: RealmId, name: &Name, reply: Reply<SubscriptionView>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        let found = self.subscription_view(id);
        self.answer(reply, found.ok_or_else(|| Refusal::SubscriptionNotFound(name.clone())));
    }

    pub(super) fn list_subscriptions(
        &mut self,
        realm: RealmId,
        page: &Page<Name>,
        among: &Patterns,
        reply: Reply<Listed<SubscriptionView>>,
    ) {
        let names = self.subscription_names.range(behind(realm, page.after.as_ref()));
        let mut found = names
            .take_while(|((of, _), _)| *of == realm)
            .filter(|((_, name), _)| among.allow(name))
            .filter_map(|(_, id)| self.subscription_view(*id));
        let items = found.by_ref().take(page.limit).collect();
        let more = found.next().is_some();
        self.answer(reply, Ok(Listed { items, more }));
    }

    /// Its deliveries end with it; its waiting pulls are told.
    pub(super) fn delete_subscription(&mut self, realm: RealmId, name: &Name, reply: Reply<()>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        self.subscription_names.remove(&(realm, name.clone()));
        let Some(mut subscription) = self.subscriptions.remove(&id) else { return };
        for waiter in subscription.waiters.drain(..) {
            waiter.answer(Err(Refusal::SubscriptionNotFound(name.clone())));
        }
        for held in subscription.held.values_mut() {
            self.nacks.stale(held.nack.take(), &mut self.answers);
        }
        if let Some(wake) = subscription.wake {
            self.wakes.remove(&(wake, Owner::Subscription(id)));
        }
        let topic: TopicId = subscription.row.topic;
        if let Some(topic) = self.topics.get_mut(&topic) {
            topic.subscriptions.retain(|other| *other != id);
        }
        let mut commit = Commit::default();
        commit.delete(Keyspace::Subscriptions, key::subscription(realm, id));
        commit.delete(Keyspace::Cursors, key::subscription(realm, id));
        self.doom(realm, Owner::Subscription(id), &mut commit);
        self.doom(realm, Owner::Backlog(subscription.row.backlog), &mut commit);
        self.pending.push(commit);
        self.arm_trim(topic);
        self.answer(reply, Ok(()));
    }

    pub(super) fn subscription_view(&self, id: SubscriptionId) -> Option<SubscriptionView> {
        let subscription = self.subscriptions.get(&id)?;
        let topic = self.topics.get(&subscription.row.topic)?;
        Some(SubscriptionView {
            row: subscription.row.clone(),
            topic: topic.row.name.clone(),
            cursor: subscription.cursor.clone(),
            backlog: subscription.backlog(topic),
            in_flight: subscription.leased,
            revision: subscription.revision_view(),
        })
    }
}

impl Subscription {
    pub(super) fn new(
        realm: RealmId,
        row: SubscriptionRow,
        cursor: CursorRow,
        revision: RevisionRow,
        last_revision: u32,
        due: Window,
        now: Timestamp,
    ) -> Self {
        let announced = row.active_revision;
        let bucket = Bucket::full(row.settings.max_rate, now);
        Self {
            realm,
            row,
            saved: cursor.clone(),
            cursor,
            revision: Arc::new(revision),
            last_revision,
            held: foldhash::HashMap::default(),
            leased: 0,
            leases: BTreeSet::new(),
            due,
            waiters: VecDeque::new(),
            load: LoadWindow::new(),
            faults: 0,
            shadow: None,
            recording: RecordedChunk::default(),
            trim_records_at: None,
            turn: Turn::Due,
            announced,
            bucket,
            consumers: foldhash::HashMap::default(),
            fresh_at: None,
            connected_until: Timestamp::default(),
            wake: None,
        }
    }
}

/// What it gets and how it guarantees delivery are fixed at its creation: what was passed by or settled stays so.
fn changed(
    change: SubscriptionChange,
    old: &SubscriptionSettings,
    replace: Replace,
) -> Result<SubscriptionSettings, InvalidSetting> {
    let base = match replace {
        Replace::All => SubscriptionSettings {
            start: old.start,
            mode: old.mode,
            ordering: old.ordering,
            filter: old.filter.clone(),
            ..SubscriptionSettings::default()
        },
        Replace::Named => old.clone(),
    };
    let settings = change.apply(base);
    let fixed =
        |field| InvalidSetting { field, reason: "is fixed when a subscription is created".to_owned() };
    if settings.start != old.start {
        return Err(fixed("start"));
    }
    if settings.mode != old.mode {
        return Err(fixed("mode"));
    }
    if settings.ordering != old.ordering {
        return Err(fixed("ordering"));
    }
    if settings.filter != old.filter {
        return Err(fixed("filter"));
    }
    Ok(settings)
}
