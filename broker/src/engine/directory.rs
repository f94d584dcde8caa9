//! Realms and tokens as those see them who let requests in: without asking the engine, and never ahead of the disk.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::domain::access::TokenId;
use crate::domain::id::RealmId;
use crate::domain::name::Name;
use crate::store::row::{RealmRow, TokenRow};

/// Filled at the start from the store. The engine changes it once a change is durable, before it answers: whoever was
/// told of a revocation can rely on it.
#[derive(Default)]
pub struct Directory(RwLock<Entries>);

#[derive(Default)]
struct Entries {
    names: HashMap<Name, RealmId>,
    realms: HashMap<RealmId, Arc<RealmRow>>,
    tokens: HashMap<TokenId, (RealmId, Arc<TokenRow>)>,
}

impl Directory {
    /// The realm of this name.
    pub fn realm(&self, name: &str) -> Option<(RealmId, Arc<RealmRow>)> {
        let entries = self.read();
        let id = *entries.names.get(name)?;
        Some((id, Arc::clone(entries.realms.get(&id)?)))
    }

    /// The realm with this id.
    pub fn realm_with(&self, id: RealmId) -> Option<Arc<RealmRow>> {
        self.read().realms.get(&id).map(Arc::clone)
    }

    /// A token and its realm.
    pub fn token(&self, id: TokenId) -> Option<(RealmId, Arc<TokenRow>)> {
        self.read().tokens.get(&id).map(|(realm, row)| (*realm, Arc::clone(row)))
    }

    pub(super) fn put_realm(&self, id: RealmId, row: Arc<RealmRow>) {
        let mut entries = self.write();
        entries.names.insert(row.name.clone(), id);
        entries.realms.insert(id, row);
    }

    /// Its tokens go with it.
    pub(super) fn delete_realm(&self, id: RealmId) {
        let mut entries = self.write();
        entries.names.retain(|_, realm| *realm != id);
        entries.realms.remove(&id);
        entries.tokens.retain(|_, (realm, _)| *realm != id);
    }

    pub(super) fn put_token(&self, realm: RealmId, id: TokenId, row: Arc<TokenRow>) {
        self.write().tokens.insert(id, (realm, row));
    }

    pub(super) fn delete_token(&self, id: TokenId) {
        self.write().tokens.remove(&id);
    }

    /// Nothing panics while it is held, so poisoned entries are whole.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
