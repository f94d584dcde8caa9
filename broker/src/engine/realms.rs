//! Create, change, show, list and delete realms.

use std::ops::Bound;
use std::sync::Arc;

use super::command::{Listed, Page, Put, Refusal};
use super::recover::put_module;
use super::topics::behind;
use super::{Engine, Reply, or_refuse};
use crate::domain::access::{Rate, TokenId};
use crate::domain::id::RealmId;
use crate::domain::limits::MAX_REALMS;
use crate::domain::name::Name;
use crate::domain::quota::{Quota, Usage};
use crate::store::key::Owner;
use crate::store::row::{RealmRow, Row as _, TokenRow};
use crate::store::{Commit, Keyspace, StoreError, key};

/// The row of `meta` with the numbers of the next realm and token.
const REGISTRY: &[u8] = b"registry";

/// Creates a realm or replaces its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutRealm {
    /// Its name.
    pub name: Name,
    /// What all of its tokens together may ask for.
    pub rate: Option<Rate>,
    /// How much its topics may keep together; where it sets no bound, that of the broker holds.
    pub quota: Quota,
}

/// A realm as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealmView {
    /// As configured.
    pub row: Arc<RealmRow>,
    /// Topics in it.
    pub topics: usize,
    /// Tokens of it.
    pub tokens: usize,
    /// What its topics keep together.
    pub usage: Usage,
    /// How much they may keep: its own bounds, or those of the broker.
    pub quota: Quota,
}

impl Engine {
    pub(super) fn put_realm(&mut self, request: PutRealm, reply: Reply<Put<RealmView>>) {
        or_refuse!(self, reply, request.rate.map_or(Ok(()), Rate::validate));
        or_refuse!(self, reply, request.quota.validate());
        let known = self.realm_names.get(&request.name).copied();
        let id = match known {
            Some(id) => id,
            None => or_refuse!(self, reply, self.new_realm()),
        };
        let created_at = self.realms.get(&id).map_or(self.now, |realm| realm.created_at);
        let row =
            Arc::new(RealmRow { name: request.name, created_at, rate: request.rate, quota: request.quota });
        let mut commit = Commit::default();
        commit.put(Keyspace::Realms, key::realm(id), row.encode());
        self.pending.push(commit);
        self.realm_names.insert(row.name.clone(), id);
        self.realms.insert(id, Arc::clone(&row));
        let value = self.realm_view(id, &row);
        let directory = Arc::clone(&self.directory);
        self.answers.push(Box::new(move || directory.put_realm(id, row)));
        self.answer(reply, Ok(Put { created: known.is_none(), value }));
    }

    fn new_realm(&mut self) -> Result<RealmId, Refusal> {
        if self.realms.len() >= MAX_REALMS {
            return Err(Refusal::LimitReached { what: "realms", limit: MAX_REALMS });
        }
        let id = RealmId(self.next_realm);
        self.next_realm += 1;
        self.save_registry();
        // Revisions name their module within the realm, the standard policy's too.
        self.pending.extend(put_module(id, self.standard.digest, &self.standard.bytes));
        Ok(id)
    }

    pub(super) fn get_realm(&mut self, name: &Name, reply: Reply<RealmView>) {
        let id = or_refuse!(self, reply, self.realm_id(name));
        let view = self.realms.get(&id).map(|row| self.realm_view(id, row));
        self.answer(reply, view.ok_or(Refusal::RealmNotFound));
    }

    pub(super) fn list_realms(&mut self, page: &Page<Name>, reply: Reply<Listed<RealmView>>) {
        let from = page.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = self.realm_names.range((from, Bound::Unbounded));
        let view = |id: &RealmId| self.realms.get(id).map(|row| self.realm_view(*id, row));
        let items = found.by_ref().filter_map(|(_, id)| view(id)).take(page.limit).collect();
        let more = found.next().is_some();
        self.answer(reply, Ok(Listed { items, more }));
    }

    /// Its tokens end with it; topics must be gone before.
    pub(super) fn delete_realm(&mut self, name: &Name, reply: Reply<RealmId>) {
        let id = or_refuse!(self, reply, self.realm_id(name));
        if id == RealmId::DEFAULT {
            return self.answer(reply, Err(Refusal::DefaultRealm));
        }
        let subscriptions = self.subscription_names.range(behind(id, None)).next();
        let subscribed = subscriptions.is_some_and(|((realm, _), _)| *realm == id);
        if subscribed || self.topics_of(id).next().is_some() {
            return self.answer(reply, Err(Refusal::RealmInUse(name.clone())));
        }
        let tokens: Vec<_> = self.tokens_of(id).map(|(token, _)| token).collect();
        let mut commit = Commit::with_capacity(tokens.len() + 2);
        for token in tokens {
            commit.delete(Keyspace::Tokens, key::token(id, token));
            self.tokens.remove(&(id, token));
        }
        self.remove_jobs(id, &mut commit);
        commit.delete(Keyspace::Realms, key::realm(id));
        self.doom(id, Owner::Realm, &mut commit);
        self.pending.push(commit);
        self.realm_names.remove(name);
        self.realms.remove(&id);
        let directory = Arc::clone(&self.directory);
        self.answers.push(Box::new(move || directory.delete_realm(id)));
        self.answer(reply, Ok(id));
    }

    fn realm_id(&self, name: &Name) -> Result<RealmId, Refusal> {
        self.realm_names.get(name).copied().ok_or(Refusal::RealmNotFound)
    }

    /// Whoever was let in before a realm was deleted finds out here.
    pub(super) fn expect_realm(&self, id: RealmId) -> Result<(), Refusal> {
        if self.realms.contains_key(&id) { Ok(()) } else { Err(Refusal::RealmNotFound) }
    }

    pub(super) fn topics_of(&self, realm: RealmId) -> impl Iterator<Item = &Name> {
        let names = self.topic_names.range(behind(realm, None));
        names.map(|((of, name), _)| (of, name)).take_while(move |(of, _)| **of == realm).map(|(_, name)| name)
    }

    pub(super) fn tokens_of(&self, realm: RealmId) -> impl Iterator<Item = (TokenId, &Arc<TokenRow>)> {
        let range = (realm, TokenId(0))..=(realm, TokenId(u32::MAX));
        self.tokens.range(range).map(|((_, id), row)| (*id, row))
    }

    fn realm_view(&self, id: RealmId, row: &Arc<RealmRow>) -> RealmView {
        let (topics, tokens) = (self.topics_of(id).count(), self.tokens_of(id).count());
        let (usage, quota) = (self.realm_usage(id), row.quota.or(self.realm_quota));
        RealmView { row: Arc::clone(row), topics, tokens, usage, quota }
    }

    /// Writes the numbers that the next realm and token get.
    pub(super) fn save_registry(&mut self) {
        let mut value = self.next_realm.to_be_bytes().to_vec();
        value.extend_from_slice(&self.next_token.to_be_bytes());
        let mut commit = Commit::default();
        commit.put(Keyspace::Meta, REGISTRY.to_vec(), value);
        self.pending.push(commit);
    }

    /// Reads realms and tokens, and the numbers of the next ones.
    pub(super) fn load_registry(&mut self) -> Result<(), StoreError> {
        let damaged = |what: &str| StoreError::Corrupt(format!("{what} is not what it should be"));
        if let Some(bytes) = self.store.get(Keyspace::Meta, REGISTRY)? {
            let bytes = <[u8; 8]>::try_from(&*bytes).map_err(|_| damaged("the registry"))?;
            let [realm, token] = [0, 4].map(|at| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i])));
            (self.next_realm, self.next_token) = (realm, token);
        }
        for row in self.store.scan(Keyspace::Realms, key::everything()) {
            let (key, value) = row?;
            let id = key::read_realm(&key).ok_or_else(|| damaged("a key of realms"))?;
            let row = Arc::new(RealmRow::decode(value)?);
            self.realm_names.insert(row.name.clone(), id);
            self.directory.put_realm(id, Arc::clone(&row));
            self.realms.insert(id, row);
        }
        for row in self.store.scan(Keyspace::Tokens, key::everything()) {
            let (key, value) = row?;
            let id = key::read_realm(&key).zip(key::read_owner(&key).map(TokenId));
            let (realm, id) = id.ok_or_else(|| damaged("a key of tokens"))?;
            let row = Arc::new(TokenRow::decode(value)?);
            self.directory.put_token(realm, id, Arc::clone(&row));
            self.tokens.insert((realm, id), row);
        }
        Ok(())
    }
}
