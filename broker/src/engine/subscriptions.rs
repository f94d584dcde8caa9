//! Create, change, show, list and delete subscriptions.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::backlog::Counts;
use super::command::{Listed, Page, Put, Refusal};
use super::load::LoadWindow;
use super::policies::RevisionView;
use super::recover::BUILT_IN;
use super::state::Subscription;
use super::topics::behind;
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::bucket::Bucket;
use crate::domain::filter::Filter;
use crate::domain::id::{BacklogId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::name::Name;
use crate::domain::settings::{InvalidSetting, Mode, Ordering, Reads, Start, SubscriptionSettings};
use crate::domain::time::Timestamp;
use crate::store::key::Owner;
use crate::store::row::{BacklogRow, CursorRow, RecordedChunk, RevisionRow, Row as _, SubscriptionRow};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Creates a subscription, or changes the settings that are given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutSubscription {
    /// Its name.
    pub name: Name,
    /// What it reads; `None` only changes one that exists.
    pub reads: Option<Reads>,
    /// The settings to change.
    pub change: SubscriptionChange,
    /// What is not given goes back to its default.
    pub replace: Replace,
    /// New parameters of the standard policy, checked by it.
    pub retry: Option<String>,
}

/// What happens to settings that a change does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// They go back to their defaults.
    All,
    /// They stay.
    Named,
}

/// Settings to change; what is `None` is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is documented where it is stored")]
pub struct SubscriptionChange {
    pub mode: Option<Mode>,
    pub start: Option<Start>,
    pub lease: Option<Duration>,
    pub max_lease: Option<Duration>,
    pub max_in_flight: Option<u32>,
    pub min_delay: Option<Duration>,
    pub max_delay: Option<Duration>,
    pub attempt_limit: Option<u32>,
    pub fallback_delay: Option<Duration>,
    pub fault_limit: Option<u32>,
    pub forward_to: Option<Vec<Name>>,
    pub inspect_payload: Option<bool>,
    pub record_failures: Option<u32>,
    pub record_for: Option<Duration>,
    pub ordering: Option<Ordering>,
    pub filter: Option<Filter>,
    pub delivery_delay: Option<Duration>,
    pub max_rate: Option<u32>,
    pub max_in_flight_per_consumer: Option<u32>,
}

impl SubscriptionChange {
    /// These settings with the change made.
    pub fn apply(self, old: SubscriptionSettings) -> SubscriptionSettings {
        SubscriptionSettings {
            mode: self.mode.unwrap_or(old.mode),
            start: self.start.unwrap_or(old.start),
            lease: self.lease.unwrap_or(old.lease),
            max_lease: self.max_lease.unwrap_or(old.max_lease),
            max_in_flight: self.max_in_flight.unwrap_or(old.max_in_flight),
            min_delay: self.min_delay.unwrap_or(old.min_delay),
            max_delay: self.max_delay.unwrap_or(old.max_delay),
            attempt_limit: self.attempt_limit.unwrap_or(old.attempt_limit),
            fallback_delay: self.fallback_delay.unwrap_or(old.fallback_delay),
            fault_limit: self.fault_limit.unwrap_or(old.fault_limit),
            forward_to: self.forward_to.unwrap_or(old.forward_to),
            inspect_payload: self.inspect_payload.unwrap_or(old.inspect_payload),
            record_failures: self.record_failures.unwrap_or(old.record_failures),
            record_for: self.record_for.unwrap_or(old.record_for),
            ordering: self.ordering.unwrap_or(old.ordering),
            filter: self.filter.or(old.filter),
            delivery_delay: self.delivery_delay.unwrap_or(old.delivery_delay),
            max_rate: self.max_rate.unwrap_or(old.max_rate),
            max_in_flight_per_consumer: self
                .max_in_flight_per_consumer
                .unwrap_or(old.max_in_flight_per_consumer),
        }
    }
}

/// A subscription as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionView {
    /// As configured.
    pub row: SubscriptionRow,
    /// What it reads.
    pub reads: Reads,
    /// How many topics that are.
    pub topics: usize,
    /// What it did so far.
    pub cursor: CursorRow,
    /// What it has to do.
    pub counts: Counts,
    /// What decides.
    pub revision: RevisionView,
}

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
        let (topics, settings) = match self.check_new(realm, &request) {
            Ok(checked) => checked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut places = Vec::with_capacity(topics.len());
        for topic in topics {
            places.push((topic, self.position(topic, settings.start)?));
        }
        Ok(Ok(self.add_subscription(realm, request, settings, places)))
    }

    fn check_new(
        &self,
        realm: RealmId,
        request: &PutSubscription,
    ) -> Result<(Vec<TopicId>, SubscriptionSettings), Refusal> {
        self.expect_realm(realm)?;
        let unknown = || Refusal::SubscriptionNotFound(request.name.clone());
        let reads = request.reads.as_ref().ok_or_else(unknown)?;
        let topics = self.topics_for(realm, reads)?;
        let settings = request.change.clone().apply(SubscriptionSettings::default());
        settings.validate(reads)?;
        Ok((topics, settings))
    }

    fn add_subscription(
        &mut self,
        realm: RealmId,
        request: PutSubscription,
        settings: SubscriptionSettings,
        places: Vec<(TopicId, Sequence)>,
    ) -> SubscriptionId {
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        let retry = request.retry.unwrap_or_else(|| "{}".to_owned());
        let pattern = match request.reads {
            Some(Reads::Topics(pattern)) => Some(pattern),
            _ => None,
        };
        let row = SubscriptionRow {
            name: request.name,
            pattern,
            created_at: self.now,
            settings,
            retry: retry.clone(),
            active_revision: 1,
            shadow: None,
            paused: None,
        };
        let revision = self.standard.revision(retry, self.now);
        let mut commit = Commit::default();
        commit.put(Keyspace::Subscriptions, key::subscription(realm, id), row.encode());
        commit.put(Keyspace::Revisions, key::revision(realm, id, 1), revision.encode());
        let subscription = Subscription::new(realm, row, CursorRow::new(), revision, 1, self.now);
        self.enroll(id, subscription);
        for (topic, first) in places {
            let row = BacklogRow::at(self.new_backlog(), first);
            self.read_from(realm, id, topic, row, &mut commit);
        }
        self.save_counters();
        self.pending.push(commit);
        self.touch(id);
        id
    }

    /// Takes a subscription into memory.
    pub(super) fn enroll(&mut self, id: SubscriptionId, subscription: Subscription) {
        let realm = subscription.realm;
        self.subscription_names.insert((realm, subscription.row.name.clone()), id);
        if subscription.row.pattern.is_some() {
            self.with_patterns.insert((realm, id));
        }
        self.subscriptions.insert(id, subscription);
    }

    fn change_subscription(&mut self, id: SubscriptionId, request: PutSubscription) -> Result<(), Refusal> {
        let unknown = || Refusal::SubscriptionNotFound(request.name.clone());
        let subscription = self.subscriptions.get(&id).ok_or_else(unknown)?;
        let reads = self.reads(subscription).ok_or_else(unknown)?;
        if request.reads.is_some_and(|wanted| wanted != reads) {
            return Err(Refusal::TopicDiffers { subscription: request.name, reads });
        }
        let settings = changed(request.change, &subscription.row.settings, request.replace)?;
        settings.validate(&reads)?;
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
        // Fewer records may be kept from now on, or for a shorter time.
        subscription.trim_records_at = subscription.look_again(self.now).map(|_| self.now);
        let mut commit = Commit::default();
        let key = key::subscription(subscription.realm, id);
        commit.put(Keyspace::Subscriptions, key, subscription.row.encode());
        self.pending.push(commit);
        for id in &subscription.backlogs {
            // The delay may be another now.
            self.backlogs.get_mut(id).into_iter().for_each(|backlog| backlog.fresh_at = None);
            self.changed_backlogs.insert(*id);
        }
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
        let mut commit = Commit::default();
        let backlogs = self.subscriptions.get(&id).map(|subscription| subscription.backlogs.clone());
        for backlog in backlogs.into_iter().flatten() {
            if let Some(backlog) = self.end_backlog(backlog, &mut commit) {
                self.arm_trim(backlog.topic);
            }
            commit.split_into(&mut self.pending);
        }
        self.subscription_names.remove(&(realm, name.clone()));
        self.with_patterns.remove(&(realm, id));
        let Some(mut subscription) = self.subscriptions.remove(&id) else { return };
        for waiter in subscription.waiters.drain(..) {
            waiter.answer(Err(Refusal::SubscriptionNotFound(name.clone())));
        }
        if let Some(wake) = subscription.wake {
            self.wakes.remove(&(wake, Owner::Subscription(id)));
        }
        commit.delete(Keyspace::Subscriptions, key::subscription(realm, id));
        commit.delete(Keyspace::Cursors, key::subscription(realm, id));
        self.doom(realm, Owner::Subscription(id), &mut commit);
        self.pending.push(commit);
        self.answer(reply, Ok(()));
    }

    pub(super) fn subscription_view(&self, id: SubscriptionId) -> Option<SubscriptionView> {
        let subscription = self.subscriptions.get(&id)?;
        Some(SubscriptionView {
            row: subscription.row.clone(),
            reads: self.reads(subscription)?,
            topics: subscription.backlogs.len(),
            cursor: subscription.cursor.clone(),
            counts: subscription.counts(),
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
            backlogs: BTreeSet::new(),
            active: BTreeSet::new(),
            last_taken: BacklogId(0),
            holds: 0,
            counts: Counts::default(),
            leases: BTreeSet::new(),
            waiters: VecDeque::new(),
            load: LoadWindow::new(),
            faults: 0,
            shadow: None,
            recording: RecordedChunk::default(),
            trim_records_at: None,
            announced,
            bucket,
            consumers: foldhash::HashMap::default(),
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
