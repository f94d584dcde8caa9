//! Revisions of a subscription's policy: set, show, list, and quarantine after too many faults.

use std::sync::Arc;

use super::command::{Listed, Page, Put, Refusal, RevisionView, SetPolicy};
use super::recover::{BUILT_IN, put_module};
use super::state::Subscription;
use super::{Engine, Reply, or_refuse};
use crate::domain::decision::Fault;
use crate::domain::digest::Digest;
use crate::domain::id::{RealmId, SubscriptionId};
use crate::domain::limits::MAX_REVISIONS;
use crate::domain::name::Name;
use crate::store::row::{RevisionRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

impl Engine {
    /// A new revision, unless the active one is the same module with the same parameters.
    pub(super) fn set_policy(&mut self, realm: RealmId, request: SetPolicy, reply: Reply<Put<RevisionView>>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, &request.subscription));
        let Some(subscription) = self.subscriptions.get(&id) else { return };
        let active = &subscription.revision;
        let mut row = match &request.module {
            Some(module) => RevisionRow {
                digest: module.digest,
                params: "{}".to_owned(),
                created_at: self.now,
                name: module.name.clone(),
                version: module.version.clone(),
                size: module.bytes.len() as u64,
                trial_fuel: module.trial_fuel,
                quarantined: None,
            },
            None => RevisionRow { created_at: self.now, quarantined: None, ..(**active).clone() },
        };
        if let Some(params) = request.params {
            row.params = params;
        }
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
        subscription.row.active_revision = subscription.last_revision;
        subscription.faults = 0;
        let mut commit = Commit::default();
        let key = key::revision(subscription.realm, id, subscription.last_revision);
        commit.put(Keyspace::Revisions, key, row.encode());
        let key = key::subscription(subscription.realm, id);
        commit.put(Keyspace::Subscriptions, key, subscription.row.encode());
        subscription.revision = Arc::new(row);
        self.pending.push(commit);
        Ok(())
    }

    pub(super) fn get_policy(&mut self, realm: RealmId, name: &Name, reply: Reply<RevisionView>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        let view = self.subscriptions.get(&id).map(|subscription| subscription.revision_view());
        self.answer(reply, view.ok_or_else(|| Refusal::SubscriptionNotFound(name.clone())));
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
        let active = self.subscriptions.get(&id).map_or(0, |subscription| subscription.row.active_revision);
        let mut range = key::prefixed(key::subscription(realm, id));
        range.start = key::revision(realm, id, page.after.map_or(0, |after| after.saturating_add(1)));
        let mut items = Vec::new();
        for row in self.store.scan(Keyspace::Revisions, range).take(page.limit + 1) {
            let (key, value) = row?;
            let number = key::read_revision(&key).unwrap_or_default();
            let row = RevisionRow::decode(value)?;
            items.push(RevisionView { number, active: number == active, row });
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
        subscription.faults = subscription.faults.saturating_add(1);
        let standard = subscription.revision.size == BUILT_IN;
        if subscription.faults < subscription.row.settings.fault_limit || standard {
            return Ok(());
        }
        let (realm, broken) = (subscription.realm, subscription.row.active_revision);
        let row =
            RevisionRow { quarantined: Some((now, fault.to_string())), ..(*subscription.revision).clone() };
        self.apply()?;
        let takes_over = self.last_healthy(realm, id, broken)?;
        // The commits of what takes over follow before anything is applied: they happen together.
        let mut commit = Commit::default();
        commit.put(Keyspace::Revisions, key::revision(realm, id, broken), row.encode());
        self.pending.push(commit);
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        let name = subscription.row.name.clone();
        subscription.faults = 0;
        match takes_over {
            Some((number, row)) => {
                subscription.row.active_revision = number;
                subscription.revision = Arc::new(row);
                let mut commit = Commit::default();
                let key = key::subscription(realm, id);
                commit.put(Keyspace::Subscriptions, key, subscription.row.encode());
                self.pending.push(commit);
            }
            None => {
                let revision = self.standard.revision(subscription.row.retry.clone(), now);
                if let Err(refusal) = self.add_revision(id, revision) {
                    // Every decision goes on to the native schedule: nothing is lost, and an operator is told.
                    tracing::error!(subscription = %name, %refusal, "no revision can take over");
                }
            }
        }
        tracing::warn!(subscription = %name, revision = broken, %fault, "policy quarantined");
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
    /// Whether one more revision may be added.
    fn has_room(&self) -> Result<(), Refusal> {
        if self.last_revision < MAX_REVISIONS {
            return Ok(());
        }
        Err(Refusal::LimitReached { what: "revisions of one subscription", limit: MAX_REVISIONS as usize })
    }
}
