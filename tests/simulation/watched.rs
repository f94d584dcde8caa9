//! A store that keeps a fingerprint of everything written to it, and counts its syncs.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reprise_broker::store::simulated::Simulated;
use reprise_broker::store::{Commit, Keyspace, Rows, Store, StoreError};

/// What was seen so far; it outlives the stores that it watches.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    hasher: blake3::Hasher,
    syncs: u64,
    at_next_apply: Option<Box<dyn FnOnce() + Send>>,
}

impl Trace {
    /// Has something happen in the middle of a turn.
    pub(crate) fn at_next_apply(&self, happens: impl FnOnce() + Send + 'static) {
        self.seen().at_next_apply = Some(Box::new(happens));
    }

    pub(crate) fn note(&self, what: &[u8]) {
        self.seen().hasher.update(&(what.len() as u64).to_le_bytes()).update(what);
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.seen().syncs
    }

    pub(crate) fn fingerprint(&self) -> String {
        self.seen().hasher.finalize().to_string()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Watched {
    pub(crate) store: Simulated,
    pub(crate) trace: Trace,
}

impl Store for Watched {
    fn apply(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        for commit in commits {
            self.trace.note(&commit.encode());
        }
        self.store.apply(commits)?;
        let happens = self.trace.seen().at_next_apply.take();
        happens.into_iter().for_each(|happens| happens());
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.trace.note(b"sync");
        self.store.sync()?;
        self.trace.seen().syncs += 1;
        Ok(())
    }

    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.store.get(keyspace, key)
    }

    fn scan(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        self.store.scan(keyspace, range)
    }

    fn scan_back(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        self.store.scan_back(keyspace, range)
    }
}
