//! A commit is data: an ordered list of row changes that can be encoded, replayed and shipped.

use bytes::Bytes;

use super::key::Keyspace;

/// The most that one encoded commit may take: so that it also fits one message of a replicated log.
pub const MAX_COMMIT_BYTES: usize = 1024 * 1024;

/// One row put or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Where.
    pub keyspace: Keyspace,
    /// Which row.
    pub key: Vec<u8>,
    /// The new value; `None` deletes the row.
    pub value: Option<Bytes>,
}

/// Changes that happen together or not at all. Applying one twice is harmless.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commit {
    changes: Vec<Change>,
}

impl Commit {
    /// Adds or replaces a row.
    pub fn put(&mut self, keyspace: Keyspace, key: Vec<u8>, value: impl Into<Bytes>) {
        self.changes.push(Change { keyspace, key, value: Some(value.into()) });
    }

    /// Removes a row, if it is there.
    pub fn delete(&mut self, keyspace: Keyspace, key: Vec<u8>) {
        self.changes.push(Change { keyspace, key, value: None });
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
