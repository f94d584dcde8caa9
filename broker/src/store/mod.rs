//! Durable state: ordered keyspaces of rows, changed by commits.
//!
//! Knows `domain` and how its values become bytes; knows no policy, no socket and no rule of delivery.
//! Start with [`Store`], the one trait behind which storage stands; [`key`] documents every row there is,
//! [`row`] how each is encoded. [`durable`] is the only module that names fjall; [`simulated`] is a disk in
//! memory that fails on command. Both pass the same conformance suite.

pub mod commit;
#[cfg(test)]
mod conformance;
pub mod durable;
pub mod key;
pub mod row;
pub mod simulated;

use std::ops::Range;

use bytes::Bytes;

pub use commit::{Change, Commit};
pub use key::Keyspace;

/// Storage as the rest of the broker sees it.
///
/// One thread owns it. A failure to write or sync is final: the caller ends the process and lets recovery
/// decide what was kept, as nobody can tell what a failed write left behind.
pub trait Store: Send {
    /// Applies these commits, in order, as one atomic step. Reads see it at once and it survives the end of
    /// the process; it survives a power cut once a later [`sync`](Self::sync) returns.
    ///
    /// # Errors
    /// [`StoreError`] when the disk refuses; the store is unusable afterwards.
    fn apply(&mut self, commits: &[Commit]) -> Result<(), StoreError>;

    /// Returns when everything applied so far survives a power cut.
    ///
    /// # Errors
    /// [`StoreError`] when the disk refuses; the store is unusable afterwards and the sync is never retried.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// The value of one row.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// The rows with keys in `range`, in the order of their keys.
    fn scan(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_>;

    /// The rows with keys in `range`, last first.
    fn scan_back(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_>;
}

/// Rows as they come from a scan: key, value.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<(Bytes, Bytes), StoreError>> + 'a>;

/// Why storage failed. Each one ends the process with its message.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the engine on it refused.
    #[error("storage failed: {0}")]
    Io(String),
    /// A row or file is damaged.
    #[error("storage is damaged: {0}")]
    Corrupt(String),
    /// Written by another version of the broker.
    #[error("the data folder has format {found}, this broker reads format {expected}")]
    Format {
        /// What the folder says.
        found: u32,
        /// What this build writes.
        expected: u32,
    },
    /// Another process has it open.
    #[error("the data folder is in use by another process")]
    InUse,
}

impl StoreError {
    /// A key that does not hold the numbers that those of its keyspace do.
    pub(crate) fn short_key(keyspace: Keyspace) -> Self {
        Self::Corrupt(format!("a key of {} is too short", keyspace.as_str()))
    }
}
