//! Opening: what is on disk becomes what is in memory, without reading what may wait there in millions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::backlog::{Backlog, Held, Stored};
use super::directory::Directory;
use super::forward::Outbox;
use super::recent::Recent;
use super::settle::Nacks;
use super::shadow::Shadow;
use super::state::{Subscription, Topic};
use super::window::Window;
use super::{Durability, Engine, RECENT_BYTES, RECENT_WAITING_BYTES, TRIM_EVERY};
use crate::domain::delivery::{Delivery, State};
use crate::domain::digest::Digest;
use crate::domain::id::{BacklogId, RealmId, SubscriptionId, TopicId};
use crate::domain::job::JobId;
use crate::domain::name::Name;
use crate::domain::quota::Quota;
use crate::domain::receipt::Secret;
use crate::domain::time::Timestamp;
use crate::store::row::{
    AuditHead, BacklogRow, CursorRow, HeadRow, JobRow, RealmRow, RevisionRow, Row as _, SubscriptionRow,
    TopicRow,
};
use crate::store::{Commit, Keyspace, Store, StoreError, key};

/// The policy that decides where no other was uploaded.
#[derive(Clone, Debug)]
pub struct StandardPolicy {
    /// Of the module.
    pub digest: Digest,
    /// The module.
    pub bytes: Bytes,
    /// What it says of itself.
    pub name: String,
    /// What it says of itself.
    pub version: String,
    /// The most fuel that a trial decision burnt.
    pub trial_fuel: u64,
}

impl StandardPolicy {
    /// A revision of it with these parameters.
    pub(super) fn revision(&self, params: String, now: Timestamp) -> RevisionRow {
        RevisionRow {
            digest: self.digest,
            params,
            created_at: now,
            name: self.name.clone(),
            version: self.version.clone(),
            size: BUILT_IN,
            trial_fuel: self.trial_fuel,
            created_by: BROKER.to_owned(),
            decisions: 0,
            faults: 0,
            quarantined: None,
        }
    }
}

/// Who made a revision that nobody asked for.
pub const BROKER: &str = "broker";
/// The size of a revision that is the built-in policy, of this build or an earlier one.
pub(super) const BUILT_IN: u64 = 0;
const SECRET: &[u8] = b"secret";
const COUNTERS: &[u8] = b"counters";
/// A piece of a module: it fits a commit with room to spare.
const CHUNK_BYTES: usize = 512 * 1024;

impl Engine {
    /// Takes up where the store was left, or begins. `fresh_secret` is used only for a store without one.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read, or holds what this broker did not write.
    pub fn open(
        store: Box<dyn Store>,
        durability: Durability,
        standard: StandardPolicy,
        fresh_secret: Secret,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let mut engine = Self {
            store,
            durability,
            secret: fresh_secret,
            standard,
            now,
            draining: false,
            topics: foldhash::HashMap::default(),
            topic_names: BTreeMap::new(),
            subscriptions: foldhash::HashMap::default(),
            subscription_names: BTreeMap::new(),
            with_patterns: BTreeSet::new(),
            backlogs: foldhash::HashMap::default(),
            next_topic: 1,
            next_subscription: 1,
            next_backlog: 1,
            doomed: Vec::new(),
            removed: None,
            outbox: Outbox::unread(now),
            unsynced: false,
            nacks: Nacks::default(),
            messages: Recent::new(RECENT_BYTES, |message| message.bytes()),
            waiting: Recent::new(RECENT_WAITING_BYTES, Delivery::bytes),
            pending: Vec::new(),
            locks: foldhash::HashMap::default(),
            tallies: BTreeMap::new(),
            jobs: BTreeMap::new(),
            busy_jobs: BTreeSet::new(),
            last_job: (RealmId::DEFAULT, JobId(0)),
            changed_topics: BTreeSet::new(),
            changed_subscriptions: BTreeSet::new(),
            changed_backlogs: BTreeSet::new(),
            ready: BTreeSet::new(),
            last_served: SubscriptionId(0),
            answers: Vec::new(),
            deliveries: Vec::new(),
            events: Vec::new(),
            asks: Vec::new(),
            shadow_asks: Vec::new(),
            shadows: 0,
            shadows_in_flight: 0,
            wakes: BTreeSet::new(),
            remembered: foldhash::HashMap::default(),
            usage: foldhash::HashMap::default(),
            realm_quota: Quota::default(),
            realms: BTreeMap::new(),
            realm_names: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_realm: RealmId::DEFAULT.0 + 1,
            next_token: 1,
            directory: Arc::default(),
            audit: AuditHead::EMPTY,
            telling: None,
            accepted: false,
            disk_is_full: false,
        };
        engine.begin()?;
        engine.load_registry()?;
        engine.load_audit()?;
        engine.keep_standard()?;
        engine.load_topics()?;
        engine.load_subscriptions()?;
        engine.load_jobs()?;
        for row in engine.store.scan(Keyspace::Doomed, key::everything()) {
            engine.doomed.extend(key::read_doomed(&row?.0));
        }
        Ok(engine)
    }

    /// Realms and tokens, for the edge that lets requests in.
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory)
    }

    /// The key of receipts, for the edge that opens and seals them.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        let mut commit = Commit::default();
        match self.store.get(Keyspace::Meta, SECRET)? {
            Some(bytes) => {
                let bytes = bytes.as_ref().try_into();
                self.secret = Secret(bytes.map_err(|_| damaged("the secret"))?);
            }
            None => {
                commit.put(Keyspace::Meta, SECRET.to_vec(), self.secret.0.to_vec());
                let name = Name::new("default").map_err(|_| damaged("the default realm"))?;
                let row = RealmRow { name, created_at: self.now, rate: None, quota: Quota::default() };
                commit.put(Keyspace::Realms, key::realm(RealmId::DEFAULT), row.encode());
            }
        }
        if let Some(bytes) = self.store.get(Keyspace::Meta, COUNTERS)? {
            let number = |place: usize| {
                let bytes = bytes.get(4 * place..).and_then(<[u8]>::first_chunk);
                bytes.copied().map(u32::from_be_bytes).ok_or_else(|| damaged("the counters"))
            };
            self.next_topic = number(0)?;
            self.next_subscription = number(1)?;
            self.next_backlog = number(2)?;
        }
        self.store.apply(&[commit])
    }

    /// Revisions name their module by digest: this broker's standard policy must outlive its upgrade, in each realm.
    fn keep_standard(&mut self) -> Result<(), StoreError> {
        let digest = self.standard.digest;
        for realm in self.realms.keys() {
            if self.store.get(Keyspace::Modules, &key::module(*realm, &digest, 0))?.is_none() {
                self.store.apply(&put_module(*realm, digest, &self.standard.bytes))?;
            }
        }
        self.store.sync()
    }

    fn load_topics(&mut self) -> Result<(), StoreError> {
        for row in self.store.scan(Keyspace::Topics, key::everything()) {
            let (key, value) = row?;
            let (realm, id) = owner(&key, TopicId)?;
            let row = TopicRow::decode(value)?;
            let head = self.store.get(Keyspace::Heads, &key)?.ok_or_else(|| damaged("a topic's head"))?;
            self.topic_names.insert((realm, row.name.clone()), id);
            let topic = Topic {
                realm,
                row,
                head: HeadRow::decode(head)?,
                backlogs: Vec::new(),
                expiries: Window::unread(),
                trim_at: None,
                wake: None,
                // A look that finds nothing costs little, and only it can tell.
                forget_at: Some(self.now + TRIM_EVERY),
                forgotten: None,
            };
            let usage = topic.head.usage();
            let of_realm = self.usage.entry(realm).or_default();
            of_realm.messages += usage.messages;
            of_realm.bytes += usage.bytes;
            self.topics.insert(id, topic);
        }
        for id in self.topics.keys().copied().collect::<Vec<_>>() {
            self.arm_trim(id);
            self.wake_topic(id);
        }
        Ok(())
    }

    fn load_subscriptions(&mut self) -> Result<(), StoreError> {
        let mut loaded = Vec::new();
        for row in self.store.scan(Keyspace::Subscriptions, key::everything()) {
            let (key, value) = row?;
            let (realm, id) = owner(&key, SubscriptionId)?;
            let row = SubscriptionRow::decode(value)?;
            let cursor = match self.store.get(Keyspace::Cursors, &key)? {
                Some(cursor) => CursorRow::decode(cursor)?,
                // It has done nothing since it was created.
                None => CursorRow::new(),
            };
            let revision =
                self.store.get(Keyspace::Revisions, &key::revision(realm, id, row.active_revision))?;
            let revision = RevisionRow::decode(revision.ok_or_else(|| damaged("an active revision"))?)?;
            let last = self.store.scan_back(Keyspace::Revisions, key::prefixed(key.to_vec())).next();
            let last = last.transpose()?.and_then(|(key, _)| key::read_revision(&key)).unwrap_or(0);
            let mut subscription = Subscription::new(realm, row, cursor, revision, last, self.now);
            if let Some(row) = subscription.row.shadow.clone() {
                self.shadows += 1;
                subscription.shadow = Some(Shadow::new(self.shadows, row, self.now));
            }
            subscription.trim_records_at = subscription.look_again(self.now);
            loaded.push((id, subscription));
        }
        for (id, subscription) in loaded {
            let live = subscription.is_live();
            self.enroll(id, subscription);
            self.load_backlogs(id)?;
            self.touch(id);
            if live {
                // Whoever is connected from now on gets what is published from now on.
                self.begin_live(id);
            }
        }
        self.load_leases()?;
        self.apply()
    }

    fn load_backlogs(&mut self, id: SubscriptionId) -> Result<(), StoreError> {
        let Some(realm) = self.subscriptions.get(&id).map(|it| it.realm) else { return Ok(()) };
        let rows = self.store.scan(Keyspace::Backlogs, key::prefixed(key::subscription(realm, id)));
        for row in rows.collect::<Result<Vec<_>, _>>()? {
            let (key, value) = row;
            let topic = key::read_topic(&key).filter(|topic| self.topics.contains_key(topic));
            let topic = topic.ok_or_else(|| damaged("a backlog's topic"))?;
            let row = BacklogRow::decode(value)?;
            // Nothing is due where nothing is delayed.
            let due = if row.delayed == 0 { Window::empty() } else { Window::unread() };
            self.add_backlog(Backlog::new(realm, id, topic, row, due));
        }
        Ok(())
    }

    /// Leases go on as if nothing had happened, but none for longer than it lasts in all: the clock may have been
    /// turned back while the broker was away.
    fn load_leases(&mut self) -> Result<(), StoreError> {
        // Messages are read meanwhile.
        let rows: Vec<_> = self.store.scan(Keyspace::Leased, key::everything()).collect::<Result<_, _>>()?;
        for (key, value) in rows {
            let (_, id) = owner(&key, BacklogId)?;
            let sequence = key::read_sequence(&key).ok_or_else(|| damaged("a key of leased"))?;
            // That of one that was given up goes with it.
            let Some(backlog) = self.backlogs.get_mut(&id) else { continue };
            backlog.leased += 1;
            let at = backlog.place(sequence);
            let mut delivery = Delivery::decode(value)?;
            let State::Leased { leased_at, lease_until } = &mut delivery.state else {
                return Err(damaged("a row of leased"));
            };
            *lease_until = (*lease_until).min(self.now + lease_until.since(*leased_at));
            *leased_at = (*leased_at).min(self.now);
            let ordered = self.subscriptions.get(&at.subscription).is_some_and(Subscription::is_ordered);
            // What it is ordered by, its message says.
            let key = match ordered {
                true => self.key_of(at, &*self.message(at, delivery.replays)?),
                false => None,
            };
            self.hold(at, Held { key, ..Held::new(delivery, Stored::Leased) });
            self.touch_at(at);
        }
        Ok(())
    }

    fn load_jobs(&mut self) -> Result<(), StoreError> {
        let rows: Vec<_> = self.store.scan(Keyspace::Jobs, key::everything()).collect::<Result<_, _>>()?;
        for (key, value) in rows {
            let (realm, id) = owner(&key, JobId)?;
            self.add_job(realm, id, JobRow::decode(value)?);
        }
        Ok(())
    }

    /// Writes the numbers that the next topic, subscription and backlog get.
    pub(super) fn save_counters(&mut self) {
        let mut value = self.next_topic.to_be_bytes().to_vec();
        value.extend_from_slice(&self.next_subscription.to_be_bytes());
        value.extend_from_slice(&self.next_backlog.to_be_bytes());
        let mut commit = Commit::default();
        commit.put(Keyspace::Meta, COUNTERS.to_vec(), value);
        self.pending.push(commit);
    }

    /// The modules that decide for some subscription, and then their shadows, each once, in the order of subscriptions;
    /// without the built-in policy.
    pub fn active_modules(&self) -> Vec<(RealmId, Digest)> {
        let subscriptions: BTreeMap<_, _> = self.subscriptions.iter().collect();
        let active = subscriptions.values().map(|it| (it.realm, it.revision.digest));
        let shadows =
            subscriptions.values().filter_map(|it| Some((it.realm, it.row.shadow.as_ref()?.digest)));
        let active = active.chain(shadows);
        let mut seen = BTreeSet::from([self.standard.digest]);
        active.filter(|(_, digest)| seen.insert(*digest)).collect()
    }

    /// The bytes of a module, as they were uploaded.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read, or is not what its digest says.
    pub fn read_module(&self, realm: RealmId, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let mut bytes = Vec::new();
        for chunk in 0.. {
            match self.store.get(Keyspace::Modules, &key::module(realm, &digest, chunk))? {
                Some(piece) => bytes.extend_from_slice(&piece),
                None if chunk == 0 => return Ok(None),
                None => break,
            }
        }
        if Digest::of(&bytes) == digest { Ok(Some(bytes)) } else { Err(damaged("a policy module")) }
    }
}

/// The commits that store a module.
pub(super) fn put_module(realm: RealmId, digest: Digest, bytes: &[u8]) -> Vec<Commit> {
    let put = |(chunk, piece): (u16, &[u8])| {
        let mut commit = Commit::default();
        commit.put(Keyspace::Modules, key::module(realm, &digest, chunk), piece.to_vec());
        commit
    };
    (0..).zip(bytes.chunks(CHUNK_BYTES)).map(put).collect()
}

fn owner<T>(key: &[u8], id: impl FnOnce(u32) -> T) -> Result<(RealmId, T), StoreError> {
    let parts = key::read_realm(key).zip(key::read_owner(key).map(id));
    parts.ok_or_else(|| damaged("a key"))
}

fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} is missing or not what it should be"))
}
