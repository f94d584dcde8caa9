//! The disk: a checkpoint, and a journal of what was applied since.
//!
//! ```text
//! journal  record ... | torn record, after a crash
//! record   length of the rest u32 | first 8 bytes of the BLAKE3 of the commits | commit length u32, commit ...
//!          ^ `synced` stands between two records: what comes before it survives a power cut
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Tables;
use crate::store::{Commit, StoreError};

/// Once this much is synced, it moves into the checkpoint, so that opening stays fast.
const CHECKPOINT_BYTES: usize = 1024 * 1024;

const HEAD_BYTES: usize = 12;

/// A simulated disk: a handle, all clones of which are the same disk. Orders to fail are for the process that
/// has it open; they are forgotten when it ends.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Platter>>);

#[derive(Default)]
struct Platter {
    checkpoint: Tables,
    journal: Vec<u8>,
    synced: usize,
    /// Where each record after `synced` ends.
    unsynced: Vec<usize>,
    /// Counts openings and ends of processes; a store of another life is a process that has ended.
    life: u64,
    in_use: bool,
    faults: Vec<Fault>,
}

/// An order to fail.
#[derive(Clone, Copy)]
struct Fault {
    at: At,
    /// How many such operations still succeed.
    after: u32,
    /// Decides how much of a failed apply reaches the disk.
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Apply,
    Sync,
    Any,
}

/// What a store asks of the disk.
pub(super) enum Operation<'a> {
    Apply(&'a [Commit]),
    Sync,
}

impl Disk {
    /// A power cut. Of what was applied and not synced, any suffix is lost, and what is left may end in the
    /// middle of an apply. The open store, if any, is dead.
    pub fn crash(&self, seed: u64) {
        let mut platter = self.platter();
        platter.lose_power(seed);
        platter.end_process();
    }

    /// The process ends without warning, the machine stays up: all that was applied is kept. The open store, if
    /// any, is dead.
    pub fn kill(&self) {
        self.platter().end_process();
    }

    /// Makes the next apply fail. `seed` decides how much of it reaches the disk: nothing, a part, or all.
    pub fn fail_next_apply(&self, seed: u64) {
        self.platter().faults.push(Fault { at: At::Apply, after: 0, seed });
    }

    /// Makes the next sync fail; what it should have synced stays unsynced.
    pub fn fail_next_sync(&self) {
        self.platter().faults.push(Fault { at: At::Sync, after: 0, seed: 0 });
    }

    /// Lets `after` more applies and syncs succeed and makes the one that follows fail. `seed` as in
    /// [`fail_next_apply`](Self::fail_next_apply).
    pub fn fail_after(&self, after: u32, seed: u64) {
        self.platter().faults.push(Fault { at: At::Any, after, seed });
    }

    /// Damages one bit of what was synced, so that the next opening finds it. Returns whether there was
    /// anything to damage: what has moved into the checkpoint cannot be.
    pub fn damage(&self, seed: u64) -> bool {
        let mut platter = self.platter();
        let mut random = Random(seed);
        if platter.synced == 0 {
            return false;
        }
        let at = random.below(platter.synced);
        platter.journal[at] ^= 1 << random.below(8);
        true
    }

    /// How many applies a power cut may still take.
    pub fn unsynced(&self) -> usize {
        self.platter().unsynced.len()
    }

    #[cfg(test)]
    pub(super) fn journal_len(&self) -> usize {
        self.platter().journal.len()
    }

    pub(super) fn open(&self) -> Result<(Lease, Tables), StoreError> {
        let mut platter = self.platter();
        if platter.in_use {
            return Err(StoreError::InUse);
        }
        let tables = platter.recover()?;
        platter.life += 1;
        platter.in_use = true;
        Ok((Lease { disk: self.clone(), life: platter.life }, tables))
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk in the hands of one process.
pub(super) struct Lease {
    disk: Disk,
    life: u64,
}

impl Lease {
    /// # Errors
    /// When the process that this store belongs to has ended.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.disk.platter().check(self.life)
    }

    pub(super) fn perform(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        let mut platter = self.disk.platter();
        platter.check(self.life)?;
        let fault = platter.next_fault(&operation);
        match (operation, fault) {
            (Operation::Apply(commits), None) => platter.append(commits),
            (Operation::Sync, None) => platter.sync(),
            (Operation::Apply(commits), Some(fault)) => {
                platter.append_part(commits, fault.seed);
                return Err(StoreError::Io("the disk refused to write".to_owned()));
            }
            (Operation::Sync, Some(_)) => {
                return Err(StoreError::Io("the disk refused to sync".to_owned()));
            }
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut platter = self.disk.platter();
        if platter.life == self.life {
            platter.end_process();
        }
    }
}

impl Platter {
    fn check(&self, life: u64) -> Result<(), StoreError> {
        if self.life != life {
            return Err(StoreError::Io("the process that had this disk open has ended".to_owned()));
        }
        Ok(())
    }

    fn end_process(&mut self) {
        self.life += 1;
        self.in_use = false;
        self.faults.clear();
    }

    fn lose_power(&mut self, seed: u64) {
        let mut random = Random(seed);
        let ends = &self.unsynced;
        let kept = random.below(ends.len() + 1);
        let whole = if kept == 0 { self.synced } else { ends[kept - 1] };
        let torn = match ends.get(kept) {
            // At least one byte of the next is missing, or it would have been kept.
            Some(end) if random.below(2) == 0 => random.below(end - whole),
            _ => 0,
        };
        self.journal.truncate(whole + torn);
        self.unsynced.truncate(kept);
    }

    /// The first order that this operation meets; it is used up.
    fn next_fault(&mut self, operation: &Operation<'_>) -> Option<Fault> {
        let kind = match operation {
            Operation::Apply(_) => At::Apply,
            Operation::Sync => At::Sync,
        };
        let mut met = None;
        for (place, fault) in self.faults.iter_mut().enumerate() {
            if fault.at != kind && fault.at != At::Any {
                continue;
            }
            match fault.after.checked_sub(1) {
                Some(left) => fault.after = left,
                None => met = met.or(Some(place)),
            }
        }
        met.map(|place| self.faults.remove(place))
    }

    fn append(&mut self, commits: &[Commit]) {
        let start = self.journal.len();
        self.journal.extend_from_slice(&[0; HEAD_BYTES]);
        for commit in commits {
            self.journal.extend_from_slice(&(commit.encoded_len() as u32).to_le_bytes());
            self.journal.extend_from_slice(&commit.encode());
        }
        let body = start + HEAD_BYTES;
        let sum = checksum(&self.journal[body..]);
        let length = (self.journal.len() - start - 4) as u32;
        self.journal[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.journal[start + 4..body].copy_from_slice(&sum);
        self.unsynced.push(self.journal.len());
    }

    fn append_part(&mut self, commits: &[Commit], seed: u64) {
        let start = self.journal.len();
        self.append(commits);
        let mut random = Random(seed);
        let length = self.journal.len() - start;
        let written = match random.below(4) {
            0 => 0,
            1 => length,
            _ => random.below(length),
        };
        if written < length {
            self.journal.truncate(start + written);
            self.unsynced.pop();
        }
    }

    fn sync(&mut self) {
        self.synced = self.journal.len();
        self.unsynced.clear();
        if self.synced >= CHECKPOINT_BYTES {
            // Damaged bytes stay where they are, for the next opening to find.
            if let Ok((commits, _)) = self.replay() {
                commits.iter().for_each(|commit| self.checkpoint.apply(commit));
                self.journal.clear();
                self.synced = 0;
            }
        }
    }

    fn recover(&mut self) -> Result<Tables, StoreError> {
        let (commits, good) = self.replay()?;
        let mut tables = self.checkpoint.clone();
        commits.iter().for_each(|commit| tables.apply(commit));
        self.journal.truncate(good);
        self.sync();
        Ok(tables)
    }

    /// What the journal holds, and where its last whole record ends.
    fn replay(&self) -> Result<(Vec<Commit>, usize), StoreError> {
        let mut all = Vec::new();
        let mut good = 0;
        while let Some((commits, length)) = read_record(&self.journal[good..]) {
            all.extend(commits);
            good += length;
        }
        if good < self.synced {
            return Err(StoreError::Corrupt(format!("what was synced is unreadable at byte {good}")));
        }
        Ok((all, good))
    }
}

/// The commits of the first record and its length; `None` unless it is whole and unharmed.
fn read_record(journal: &[u8]) -> Option<(Vec<Commit>, usize)> {
    let (length, rest) = journal.split_first_chunk()?;
    let rest = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let (sum, mut body) = rest.split_first_chunk()?;
    if checksum(body) != *sum {
        return None;
    }
    let mut commits = Vec::new();
    while let Some((length, tail)) = body.split_first_chunk() {
        let (commit, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        commits.push(Commit::decode(commit).ok()?);
        body = tail;
    }
    Some((commits, length.len() + rest.len()))
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    sum
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
