//! A disk in memory that loses, tears and refuses on command, and a store on it.
//!
//! Knows no real disk, no clock and no randomness but the seeds it is given: the same calls give the same
//! bytes. Start with [`Disk`], which outlives the process that is simulated, and [`Simulated`], the store that
//! such a process opens on it.

mod disk;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use bytes::Bytes;

pub use self::disk::Disk;
use self::disk::{Lease, Operation};
use super::commit::MAX_COMMIT_BYTES;
use super::{Commit, Keyspace, Rows, Store, StoreError};

/// A store on a [`Disk`].
pub struct Simulated {
    disk: Lease,
    tables: Tables,
    failed: bool,
}

impl Simulated {
    /// Reads what the disk holds; an apply that was torn is dropped as a whole.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another store is open on it, [`StoreError::Corrupt`] when what was synced is
    /// damaged.
    pub fn open(disk: &Disk) -> Result<Self, StoreError> {
        let (disk, tables) = disk.open()?;
        Ok(Self { disk, tables, failed: false })
    }

    fn usable(&self) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Io("an earlier write or sync failed".to_owned()));
        }
        self.disk.check()
    }
}

impl Store for Simulated {
    fn apply(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        self.usable()?;
        debug_assert!(commits.iter().all(|commit| commit.encoded_len() <= MAX_COMMIT_BYTES));
        if commits.iter().all(Commit::is_empty) {
            return Ok(());
        }
        self.failed = true;
        self.disk.perform(Operation::Apply(commits))?;
        commits.iter().for_each(|commit| self.tables.apply(commit));
        self.failed = false;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        self.failed = true;
        self.disk.perform(Operation::Sync)?;
        self.failed = false;
        Ok(())
    }

    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.usable()?;
        Ok(self.tables.of(keyspace).get(key).cloned())
    }

    fn scan(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        match self.usable() {
            Ok(()) => Box::new(self.tables.range(keyspace, &range).map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn scan_back(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        match self.usable() {
            Ok(()) => Box::new(self.tables.range(keyspace, &range).rev().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

/// The rows of every keyspace.
#[derive(Clone, Default)]
struct Tables([BTreeMap<Bytes, Bytes>; Keyspace::ALL.len()]);

impl Tables {
    fn of(&self, keyspace: Keyspace) -> &BTreeMap<Bytes, Bytes> {
        &self.0[keyspace as usize]
    }

    fn apply(&mut self, commit: &Commit) {
        for change in commit.changes() {
            let table = &mut self.0[change.keyspace as usize];
            match &change.value {
                Some(value) => table.insert(Bytes::copy_from_slice(&change.key), value.clone()),
                None => table.remove(&change.key[..]),
            };
        }
    }

    fn range<'a>(
        &'a self,
        keyspace: Keyspace,
        range: &Range<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = (Bytes, Bytes)> + use<'a> {
        // A map panics on a range that ends before it starts.
        let bounds = (range.start < range.end)
            .then(|| (Bound::Included(&range.start[..]), Bound::Excluded(&range.end[..])));
        let rows = bounds.map(|bounds| self.of(keyspace).range::<[u8], _>(bounds));
        rows.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()))
    }
}
