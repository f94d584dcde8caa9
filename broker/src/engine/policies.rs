//! Revisions of a subscription's policy: set, show, list, and quarantine after too many faults.

use std::sync::Arc;

use super::command::{Listed, Page, Put, Refusal};
use super::events::{Event, EventKind};
use super::recover::{BUILT_IN, put_module};
use super::state::Subscription;
use super::{Engine, Reply, or_refuse};
use crate::domain::audit::Action;
use crate::domain::decision::Fault;
use crate::domain::digest::Digest;
use crate::domain::id::{RealmId, SubscriptionId};
use crate::domain::limits::MAX_REVISIONS;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::store::row::{RevisionRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Makes a policy decide from now on, as a new revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetPolicy {
    /// Whose policy.
    pub subscription: Name,
    /// The admitted module; `None` keeps the active one.
    pub module: Option<AdmittedModule>,
    /// Its parameters, checked by it; `None` keeps the active ones.
    pub params: Option<String>,
    /// The active module that the parameters were checked by, where no module comes with them.
    pub checked: Option<Digest>,
    /// Who asks for it.
    pub by: String,
}

/// Makes an earlier revision decide again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollback {
    /// Whose policy.
    pub subscription: Name,
    /// Which one; `None` is the last healthy one before the active one.
    pub revision: Option<u32>,
}

/// A module that passed admission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmittedModule {
    /// Of the bytes.
    pub digest: Digest,
    /// As uploaded.
    pub bytes: bytes::Bytes,
    /// What the policy says of itself.
    pub name: String,
    /// What the policy says of itself.
    pub version: String,
    /// The most fuel that a trial decision burnt.
    pub trial_fuel: u64,
}

impl AdmittedModule {
    /// A revision of it that has decided nothing yet.
    pub(super) fn revision(&self, params: String, by: String, now: Timestamp) -> RevisionRow {
        RevisionRow {
            digest: self.digest,
            params,
            created_at: now,
            name: self.name.clone(),
            version: self.version.clone(),
            size: self.bytes.len() as u64,
            trial_fuel: self.trial_fuel,
            created_by: by,
            decisions: 0,
            faults: 0,
            quarantined: None,
        }
    }
}

/// A revision as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionView {
    /// Its number.
    pub number: u32,
    /// Whether it decides.
    pub active: bool,
    /// What it is.
    pub row: RevisionRow,
}

impl Engine {
    /// A new revision, unless the active one is the same module with the same parameters.
    pub(super) fn set_policy(&mut self, realm: RealmId, request: SetPolicy, reply: Reply<Put<RevisionView>>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, &request.subscription));
        let Some(subscription) = self.subscriptions.get(&id) else { return };
        let active = &subscription.revision;
        let row = match &request.module {
            Some(module) => {
                let params = request.params.unwrap_or_else(|| "{}".to_owned());
                module.revision(params, request.by, self.now)
            }
            None => RevisionRow {
                params: request.params.unwrap_or_else(|| active.params.clone()),
                created_at: self.now,
                created_by: request.by,
                decisions: 0,
                faults: 0,
                quarantined: None,
                ..(**active).clone()
            },
        };
        let same = active.digest == row.digest && active.params == row.params && active.quarantined.is_none();
        if same {
            let value = subscription.revision_view();
            return self.answer(reply, Ok(Put { created: false, value }));
        }
        if request.checked.is_some_and(|checked| checked != active.digest) {
            return self.answer(reply, Err(Refusal::PolicyChanged));
        }
        or_refuse!(self, reply, subscription.has_room());
        if let Some(module) = &request.module {
            for commit in put_module(realm, module.digest, &module.bytes) {
                self.pending.push(commit);
            }
        }
        or_refuse!(self, reply, self.add_revision(id, row));
        let Some(subscription) = self.subscriptions.get(&id) else { return };
        let value = subscription.revision_view();
        self.answer(reply, Ok(Put { created: true, value }));
    }

    /// Adds a revision behind the last one and makes it decide. Waiting deliveries keep their due time.
    pub(super) fn add_revision(&mut self, id: SubscriptionId, row: RevisionRow) -> Result<(), Refusal> {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        subscription.has_room()?;
        subscription.last_revision += 1;
        let number = subscription.last_revision;
        let mut commit = Commit::default();
        commit.put(Keyspace::Revisions, key::revision(subscription.realm, id, number), row.encode());
        subscription.activate(id, number, row, None, &mut commit);
        self.pending.push(commit);
        self.touch(id);
        Ok(())
    }

    /// An earlier revision decides again. Waiting deliveries keep their due time.
    pub(super) fn rollback(
        &mut self,
        realm: RealmId,
        request: &Rollback,
        reply: Reply<Put<RevisionView>>,
    ) -> Result<(), StoreError> {
        let id = or_refuse!(try self, reply, self.subscription_id(realm, &request.subscription));
        self.apply()?;
        let active = self.subscriptions.get(&id).map_or(0, |subscription| subscription.row.active_revision);
        let found = match request.revision {
            None => self.last_healthy(realm, id, active)?.ok_or(Refusal::NoEarlierRevision),
            Some(number) => {
                let row = self.read_revision(realm, id, number)?;
                row.map(|row| (number, row)).ok_or(Refusal::RevisionNotFound(number))
            }
        };
        let (number, row) = or_refuse!(try self, reply, found);
        if row.quarantined.is_some() {
            self.answer(reply, Err(Refusal::RevisionQuarantined(number)));
            return Ok(());
        }
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        let created = number != active;
        if created {
            let mut commit = Commit::default();
            subscription.activate(id, number, row, None, &mut commit);
            self.pending.push(commit);
        }
        let value = subscription.revision_view();
        self.touch(id);
        self.answer(reply, Ok(Put { created, value }));
        Ok(())
    }

    pub(super) fn get_policy(
        &mut self,
        realm: RealmId,
        name: &Name,
        number: Option<u32>,
        reply: Reply<RevisionView>,
    ) -> Result<(), StoreError> {
        let id = or_refuse!(try self, reply, self.subscription_id(realm, name));
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        let view = match number {
            Some(number) if number != subscription.row.active_revision => {
                self.apply()?;
                let row = self.read_revision(realm, id, number)?;
                row.map(|row| RevisionView { number, active: false, row })
                    .ok_or(Refusal::RevisionNotFound(number))
            }
            _ => Ok(subscription.revision_view()),
        };
        self.answer(reply, view);
        Ok(())
    }

    pub(super) fn get_module(
        &mut self,
        realm: RealmId,
        digest: Digest,
        reply: Reply<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let module = self.read_module(realm, digest)?;
        self.answer(reply, module.ok_or(Refusal::ModuleNotFound));
        Ok(())
    }

    pub(super) fn list_revisions(
        &mut self,
        realm: RealmId,
        name: &Name,
        page: &Page<u32>,
        reply: Reply<Listed<RevisionView>>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let id = or_refuse!(try self, reply, self.subscription_id(realm, name));
        let Some(subscription) = self.subscriptions.get(&id) else { return Ok(()) };
        let active = subscription.row.active_revision;
        let mut range = key::prefixed(key::subscription(realm, id));
        range.start = key::revision(realm, id, page.after.map_or(0, |after| after.saturating_add(1)));
        let mut items = Vec::new();
        for row in self.store.scan(Keyspace::Revisions, range).take(page.limit + 1) {
            let (key, value) = row?;
            let number = key::read_revision(&key).unwrap_or_default();
            items.push(if number == active {
                // Its row knows nothing of what it did since it became active.
                subscription.revision_view()
            } else {
                RevisionView { number, active: false, row: RevisionRow::decode(value)? }
            });
        }
        let more = items.len() > page.limit;
        items.truncate(page.limit);
        self.answer(reply, Ok(Listed { items, more }));
        Ok(())
    }

    /// One more fault in a row of the active revision; too many take it out of service, and the last healthy
    /// revision decides from then on, or the standard policy where there is none.
    pub(super) fn count_fault(&mut self, id: SubscriptionId, fault: &Fault) -> Result<(), StoreError> {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        let standard = subscription.revision.size == BUILT_IN;
        let faults = subscription.faults.saturating_add(1);
        if faults < subscription.row.settings.fault_limit || standard {
            subscription.faults = faults;
            subscription.cursor.faults += 1;
            return Ok(());
        }
        let (realm, broken) = (subscription.realm, subscription.row.active_revision);
        let name = subscription.row.name.clone();
        let why = Some((now, fault.to_string()));
        self.apply()?;
        let takes_over = self.last_healthy(realm, id, broken)?;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        // After what was applied: it belongs to the decision that follows.
        subscription.cursor.faults += 1;
        let mut commit = Commit::default();
        match takes_over {
            Some((number, row)) => subscription.activate(id, number, row, why, &mut commit),
            None => match subscription.has_room() {
                Ok(()) => {
                    let row = self.standard.revision(subscription.row.retry.clone(), now);
                    subscription.last_revision += 1;
                    let number = subscription.last_revision;
                    commit.put(Keyspace::Revisions, key::revision(realm, id, number), row.encode());
                    subscription.activate(id, number, row, why, &mut commit);
                }
                Err(refusal) => {
                    // Every decision goes on to the native schedule: nothing is lost, and an operator is told.
                    tracing::error!(subscription = %name, %refusal, "no revision can take over");
                    subscription.faults = 0;
                    let row = RevisionRow { quarantined: why, ..(*subscription.revision).clone() };
                    commit.put(Keyspace::Revisions, key::revision(realm, id, broken), row.encode());
                    subscription.revision = Arc::new(row);
                }
            },
        }
        self.pending.push(commit);
        self.tell_of_broker(realm, Action::PolicyQuarantine, &name, format!("revision {broken}: {fault}"))?;
        let kind = EventKind::PolicyQuarantined { revision: broken, fault: fault.to_string() };
        self.events.push(Event { at: now, subscription: name.clone(), kind, realm });
        self.changed_subscriptions.insert(id);
        tracing::warn!(subscription = %name, revision = broken, fault = fault.kind(), "policy quarantined");
        Ok(())
    }

    fn last_healthy(
        &self,
        realm: RealmId,
        id: SubscriptionId,
        before: u32,
    ) -> Result<Option<(u32, RevisionRow)>, StoreError> {
        let range = key::revision(realm, id, 0)..key::revision(realm, id, before);
        for row in self.store.scan_back(Keyspace::Revisions, range) {
            let (key, value) = row?;
            let row = RevisionRow::decode(value)?;
            if row.quarantined.is_none() {
                return Ok(key::read_revision(&key).map(|number| (number, row)));
            }
        }
        Ok(None)
    }
}

impl Subscription {
    /// Another revision decides from now on. The one before it keeps what it did so far, and why it was taken out of
    /// service, if it was.
    fn activate(
        &mut self,
        id: SubscriptionId,
        number: u32,
        row: RevisionRow,
        quarantined: Option<(Timestamp, String)>,
        commit: &mut Commit,
    ) {
        let mut left = (*self.revision).clone();
        (left.decisions, left.faults) = (self.cursor.decisions, self.cursor.faults);
        left.quarantined = quarantined.or(left.quarantined);
        let key = key::revision(self.realm, id, self.row.active_revision);
        commit.put(Keyspace::Revisions, key, left.encode());
        (self.cursor.decisions, self.cursor.faults) = (row.decisions, row.faults);
        self.row.active_revision = number;
        self.revision = Arc::new(row);
        self.faults = 0;
        commit.put(Keyspace::Subscriptions, key::subscription(self.realm, id), self.row.encode());
    }

    /// Whether one more revision may be added.
    fn has_room(&self) -> Result<(), Refusal> {
        if self.last_revision < MAX_REVISIONS {
            return Ok(());
        }
        Err(Refusal::LimitReached { what: "revisions of one subscription", limit: MAX_REVISIONS as usize })
    }
}
