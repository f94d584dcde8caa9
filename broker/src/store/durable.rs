//! The store on disk: one fjall database, one of its keyspaces for each of ours.
//!
//! Knows fjall, and nothing of what the rows mean. Start with [`Durable`]. [`folder`] holds what stands beside
//! the database: lock, format and how far it was synced; [`journal`] checks fjall's journals before fjall
//! opens them, as its recovery would shorten a damaged one without a word.

mod folder;
mod journal;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, LsmError, OwnedWriteBatch, PersistMode, Slice,
};

use self::folder::{Folder, Mark, SyncedFile};
use super::commit::MAX_COMMIT_BYTES;
use super::{Commit, Keyspace, Rows, Store, StoreError};

/// What the folder holds. Another number is another layout, which this build cannot read.
pub const FORMAT: u32 = 6;

/// The keyspace of the store itself, beside those of [`Keyspace`].
const STEPS: &str = "steps";

/// Its one row: how many times anything was applied, as u64. First in every batch, so that the journal can be
/// checked for steps that are missing.
const STEP: &[u8] = b"step";

/// How much memory and disk the store may use.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Journals are kept below this by writing out what they hold; at least 64 MiB. More means fewer writes,
    /// and more to replay at the next start.
    pub journal_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 64 * MIB, journal_bytes: 256 * MIB }
    }
}

const MIB: u64 = 1024 * 1024;

/// Rows on disk.
pub struct Durable {
    database: Database,
    /// In the order of [`Keyspace::ALL`].
    keyspaces: Vec<fjall::Keyspace>,
    steps: fjall::Keyspace,
    step: u64,
    synced: SyncedFile,
    failed: bool,
    /// Released last.
    _lock: File,
}

impl Durable {
    /// Opens the store in `dir`, or makes one where there is none. The folder is for its owner alone.
    ///
    /// # Errors
    /// [`StoreError`] when the folder is in use, of another format or damaged, or the disk refuses.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let folder = Folder::enter(dir)?;
        let mark = folder.read_mark()?;
        let journaled = match mark {
            Some(mark) => journal::check(&folder.database(), mark)?,
            None => {
                if !folder.is_new() {
                    tracing::warn!(
                        "the file `synced` is gone: whatever the store lost stays unnoticed this time"
                    );
                }
                None
            }
        };

        let database = open_database(&folder.database(), options)?;
        if !folder.is_new() {
            expect_keyspaces(&database)?;
        }
        let keyspaces = Keyspace::ALL.into_iter().map(|keyspace| open_keyspace(&database, keyspace));
        let keyspaces = keyspaces.collect::<Result<Vec<_>, _>>()?;
        let steps = database.keyspace(STEPS, || small().max_memtable_size(16 * MIB)).map_err(refused)?;
        let step = read_step(&steps)?;

        // The tables may know steps that the journals no longer hold, never the other way round.
        let least = mark.map_or(0, |mark| mark.synced).max(journaled.unwrap_or(0));
        if step < least {
            return Err(folder.missing_steps(step, least));
        }
        // What recovery found in the journal, it has synced.
        let synced = match mark {
            Some(mark) => folder.write_mark(Mark { synced: step, ..mark }),
            None => folder.write_mark(Mark { floor: step, synced: step }),
        }?;
        let lock = folder.finish()?;
        Ok(Self { database, keyspaces, steps, step, synced, failed: false, _lock: lock })
    }

    fn usable(&self) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Io("an earlier write or sync failed".to_owned()));
        }
        Ok(())
    }

    fn write(&self, commits: &[Commit], changes: usize) -> fjall::Result<()> {
        let batch = OwnedWriteBatch::with_capacity(self.database.clone(), changes + 1);
        // Handed to the operating system, so that it survives the end of the process.
        let mut batch = batch.durability(Some(PersistMode::Buffer));
        batch.insert(&self.steps, STEP, (self.step + 1).to_be_bytes());
        for change in commits.iter().flat_map(Commit::changes) {
            let keyspace = &self.keyspaces[change.keyspace as usize];
            match &change.value {
                Some(value) => batch.insert(keyspace, change.key.as_slice(), &value[..]),
                None => batch.remove(keyspace, change.key.as_slice()),
            }
        }
        batch.commit()
    }

    fn rows(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Result<Option<fjall::Iter>, StoreError> {
        self.usable()?;
        let some = range.start < range.end;
        Ok(some.then(|| self.keyspaces[keyspace as usize].range(range)))
    }
}

impl Store for Durable {
    fn apply(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        self.usable()?;
        debug_assert!(commits.iter().all(|commit| commit.encoded_len() <= MAX_COMMIT_BYTES));
        let changes = commits.iter().map(|commit| commit.changes().len()).sum();
        if changes == 0 {
            return Ok(());
        }
        self.failed = true;
        self.write(commits, changes).map_err(refused)?;
        self.step += 1;
        self.failed = false;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        if self.synced.step() == self.step {
            return Ok(());
        }
        self.failed = true;
        self.database.persist(PersistMode::SyncData).map_err(refused)?;
        self.synced.advance(self.step)?;
        self.failed = false;
        Ok(())
    }

    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.usable()?;
        let value = self.keyspaces[keyspace as usize].get(key).map_err(refused)?;
        Ok(value.map(into_bytes))
    }

    fn scan(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        match self.rows(keyspace, range) {
            Ok(rows) => Box::new(rows.into_iter().flatten().map(read_row)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn scan_back(&self, keyspace: Keyspace, range: Range<Vec<u8>>) -> Rows<'_> {
        match self.rows(keyspace, range) {
            Ok(rows) => Box::new(rows.into_iter().flat_map(Iterator::rev).map(read_row)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

fn open_database(path: &Path, options: Options) -> Result<Database, StoreError> {
    Database::builder(path)
        .cache_size(options.cache_bytes)
        // With more than one, fjall keeps the first free for flushes by letting it spin while others compact.
        .worker_threads(1)
        .max_journaling_size(options.journal_bytes.max(64 * MIB))
        // Recovery compresses again to compare checksums, so another version of the compressor would make a
        // journal unreadable; and messages are compressed anyway once they reach a table that stays.
        .journal_compression(CompressionType::None)
        .open()
        .map_err(refused)
}

/// fjall drops a keyspace whose files are incomplete, and asking for it would make an empty one.
fn expect_keyspaces(database: &Database) -> Result<(), StoreError> {
    let found = database.list_keyspace_names();
    for name in Keyspace::ALL.into_iter().map(Keyspace::as_str).chain([STEPS]) {
        if !found.iter().any(|found| **found == *name) {
            return Err(StoreError::Corrupt(format!(
                "keyspace {name} is missing: restore the data folder from a backup"
            )));
        }
    }
    Ok(())
}

fn open_keyspace(database: &Database, keyspace: Keyspace) -> Result<fjall::Keyspace, StoreError> {
    database.keyspace(keyspace.as_str(), || tuning(keyspace)).map_err(refused)
}

/// Settings of a keyspace at its creation; later changes here do not reach existing folders.
fn tuning(keyspace: Keyspace) -> KeyspaceCreateOptions {
    use Keyspace::*;
    match keyspace {
        // Large rows that may stay for long: compressed, except where they are first written out, as that is soon
        // rewritten. Blocks stay small, for the reads of single messages that retries make.
        Messages | DeadLetters | Replayed | Outbox | Recorded => KeyspaceCreateOptions::default()
            .max_memtable_size(64 * MIB)
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .expect_point_read_hits(true),
        Modules => small().data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4)),
        // Point reads that often miss, of rows that are small and live for seconds: the filters of the default
        // earn their keep, compression does not.
        Leased | Delayed | Settled | Due | Expiries | Locks | Blocked | Dedup | DedupTimes | DeadTerms => {
            KeyspaceCreateOptions::default()
                .max_memtable_size(32 * MIB)
                .data_block_compression_policy(CompressionPolicy::disabled())
        }
        Meta | Realms | Topics | Heads | Subscriptions | Cursors | Backlogs | Revisions | Doomed | Tokens
        | Audit | DeadTallies | Jobs => small(),
    }
}

/// Few rows, some of them written again and again: a small buffer keeps scans from wading through old versions.
fn small() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(8 * MIB)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .expect_point_read_hits(true)
}

fn read_step(steps: &fjall::Keyspace) -> Result<u64, StoreError> {
    match steps.get(STEP).map_err(refused)? {
        None => Ok(0),
        Some(value) => match (*value).try_into() {
            Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
            Err(_) => Err(StoreError::Corrupt("the row that counts steps has a wrong length".to_owned())),
        },
    }
}

fn read_row(row: fjall::Guard) -> Result<(Bytes, Bytes), StoreError> {
    let (key, value) = row.into_inner().map_err(refused)?;
    Ok((into_bytes(key), into_bytes(value)))
}

/// Large values are shared with the engine. Small ones are copied: sharing costs an allocation too, and would keep
/// the whole block that they came from.
fn into_bytes(slice: Slice) -> Bytes {
    if slice.len() < 1024 { Bytes::copy_from_slice(&slice) } else { Bytes::from_owner(slice) }
}

fn refused(error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Locked => StoreError::InUse,
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => {
            StoreError::Io(error.to_string())
        }
        fjall::Error::Poisoned => StoreError::Io("an earlier write or sync failed".to_owned()),
        error => StoreError::Corrupt(format!("{error}: restore the data folder from a backup")),
    }
}
