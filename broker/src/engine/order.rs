//! Ordering by key: at most one delivery of a key is outstanding at a time, in the order they were published.
//!
//! Whoever is outstanding holds the lock of its key, a row. A message that comes while its key is locked becomes
//! blocked: it has a row by its key, in the order of sequences, and no due time. When the lock is given up it goes to
//! the first that is blocked, which becomes due at once. All of it is on disk: keys cost no memory, and no step looks
//! at more than one of them.

use super::Engine;
use super::backlog::Place;
use crate::domain::delivery::{Delivery, State};
use crate::domain::id::{RealmId, Sequence};
use crate::domain::message::Message;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

/// Stands for a key of messages. Two keys that share it would only wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct KeyHash(pub(super) [u8; 16]);

impl KeyHash {
    fn of(key: &str) -> Self {
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(key.as_bytes()).as_bytes()[..16]);
        Self(hash)
    }
}

impl Engine {
    /// What the message of a delivery is ordered by.
    pub(super) fn key_of(&self, at: Place, message: &Message) -> Option<KeyHash> {
        let ordered =
            self.subscriptions.get(&at.subscription).is_some_and(|subscription| subscription.is_ordered());
        message.key.as_deref().filter(|_| ordered).map(KeyHash::of)
    }

    /// Takes the lock of its key for a delivery that is to be leased. Says whether it has it.
    pub(super) fn lock(
        &mut self,
        at: Place,
        realm: RealmId,
        key: Option<KeyHash>,
        commit: &mut Commit,
    ) -> Result<bool, StoreError> {
        let Some(key) = key else { return Ok(true) };
        match self.holder(at, realm, key)? {
            Some(holder) => Ok(holder == at.sequence),
            None => {
                self.set_lock(at, realm, key, Some(at.sequence), commit);
                Ok(true)
            }
        }
    }

    /// Gives up the lock of its key, if this delivery has it, to the first that is blocked. Blocked rows must be
    /// applied, but for those of other keys.
    pub(super) fn unlock(
        &mut self,
        at: Place,
        key: Option<KeyHash>,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let Some(key) = key else { return Ok(()) };
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(()) };
        let realm = backlog.realm;
        if self.holder(at, realm, key)? != Some(at.sequence) {
            return Ok(());
        }
        let mut blocked = key::prefixed(key::lock(realm, at.backlog, &key.0));
        let from = backlog.blocked_from.get(&key).copied().unwrap_or(0);
        blocked.start = key::blocked(realm, at.backlog, &key.0, from);
        let (mut next, mut first) = (None, None);
        for row in self.store.scan(Keyspace::Blocked, blocked) {
            let Some(sequence) = key::read_sequence(&row?.0) else { continue };
            // What is being decided, as its time to live has passed, finds its place again afterwards.
            if !backlog.held.contains_key(&sequence) {
                next = Some(sequence);
                break;
            }
            first = first.or(Some(sequence));
        }
        // The next one is blocked no more.
        let from = first.or(next.map(|next| next + 1)).unwrap_or(Sequence::MAX);
        if let Some(backlog) = self.backlogs.get_mut(&at.backlog) {
            backlog.blocked_from.insert(key, from);
        }
        self.set_lock(at, realm, key, next, commit);
        match next {
            Some(sequence) => self.unblock(Place { sequence, ..at }, realm, key, commit),
            None => Ok(()),
        }
    }

    /// What was blocked is due again as it was: its time has passed.
    fn unblock(
        &mut self,
        at: Place,
        realm: RealmId,
        key: KeyHash,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let gone = || StoreError::Corrupt(format!("blocked delivery {} is gone", at.sequence));
        let row = self.store.get(Keyspace::Delayed, &at.key(realm))?.ok_or_else(gone)?;
        let State::Waiting { due_at } = Delivery::decode(row)?.state else { return Err(gone()) };
        if let Some(backlog) = self.backlogs.get_mut(&at.backlog) {
            commit.delete(Keyspace::Blocked, key::blocked(realm, at.backlog, &key.0, at.sequence));
            backlog.store_due(at, due_at, commit);
        }
        self.touch_at(at);
        Ok(())
    }

    /// Who has the lock of a key. What this turn wrote of it is not on disk yet.
    pub(super) fn holder(
        &self,
        at: Place,
        realm: RealmId,
        key: KeyHash,
    ) -> Result<Option<Sequence>, StoreError> {
        if let Some(holder) = self.locks.get(&(at.backlog, key)) {
            return Ok(*holder);
        }
        let row = self.store.get(Keyspace::Locks, &key::lock(realm, at.backlog, &key.0))?;
        Ok(row.as_deref().and_then(key::read_sequence))
    }

    fn set_lock(
        &mut self,
        at: Place,
        realm: RealmId,
        key: KeyHash,
        holder: Option<Sequence>,
        commit: &mut Commit,
    ) {
        let row = key::lock(realm, at.backlog, &key.0);
        match holder {
            Some(sequence) => commit.put(Keyspace::Locks, row, sequence.to_be_bytes().to_vec()),
            None => commit.delete(Keyspace::Locks, row),
        }
        self.locks.insert((at.backlog, key), holder);
    }
}
