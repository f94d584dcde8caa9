//! The near end of an index on disk that is ordered by time: what is due soon is in memory, the rest is not.

use std::collections::BTreeSet;

use crate::domain::id::Sequence;
use crate::domain::time::Timestamp;

/// Entries that are loaded at a time; twice as many are held at most.
const NEAR: usize = 4_096;

type Entry = (Timestamp, Sequence);

/// Everything up to a horizon. Behind it entries are on disk alone.
#[derive(Debug)]
pub(super) struct Window {
    near: BTreeSet<Entry>,
    /// The last entry that is surely held if it exists; `None` if all of them are.
    horizon: Option<Entry>,
}

impl Window {
    /// One that has to be filled from the beginning of the index.
    pub(super) const fn unread() -> Self {
        Self { near: BTreeSet::new(), horizon: Some((Timestamp::from_millis(0), 0)) }
    }

    /// One for an index without rows.
    pub(super) const fn empty() -> Self {
        Self { near: BTreeSet::new(), horizon: None }
    }

    /// An entry was added to the index.
    pub(super) fn insert(&mut self, at: Timestamp, sequence: Sequence) {
        if self.horizon.is_none_or(|horizon| (at, sequence) <= horizon) {
            self.near.insert((at, sequence));
            if self.near.len() > 2 * NEAR {
                let cut = self.near.iter().nth(NEAR).copied();
                if let Some(cut) = cut {
                    _ = self.near.split_off(&cut);
                    self.horizon = self.near.last().copied();
                }
            }
        }
    }

    /// An entry was removed from the index.
    pub(super) fn remove(&mut self, at: Timestamp, sequence: Sequence) {
        self.near.remove(&(at, sequence));
    }

    /// The earliest entry. While [`is_drained`](Self::is_drained) it may hide earlier ones.
    pub(super) fn first(&self) -> Option<Entry> {
        self.near.first().copied()
    }

    /// The earliest moment at which something may be due: the horizon's, if nothing is held before it.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        self.first().or(self.horizon).map(|(at, _)| at)
    }

    /// Whether more has to be read before [`first`](Self::first) is the truth.
    pub(super) fn is_drained(&self) -> bool {
        self.near.is_empty() && self.horizon.is_some()
    }

    /// Where reading goes on: behind this entry.
    pub(super) fn horizon(&self) -> Option<Entry> {
        self.horizon
    }

    /// Takes in the next entries of the index behind the horizon, at most [`Self::BATCH`] of them.
    pub(super) fn fill(&mut self, entries: Vec<Entry>) {
        self.horizon = if entries.len() < Self::BATCH { None } else { entries.last().copied() };
        self.near.extend(entries);
    }

    /// How many entries to read for [`fill`](Self::fill).
    pub(super) const BATCH: usize = NEAR;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Fed and drained in any order, the window gives all entries of an index in order.
    #[test]
    fn nothing_is_missed_however_large_the_index() {
        let mut disk = BTreeSet::new();
        let mut window = Window::empty();
        for n in 0..(5 * NEAR as u64) {
            // Scattered, so that entries fall on both sides of the horizon.
            let entry = (at(n * 7_919 % 10_007), n);
            disk.insert(entry);
            window.insert(entry.0, entry.1);
        }
        assert!(window.near.len() <= 2 * NEAR);
        let mut seen = Vec::new();
        let expected: Vec<Entry> = disk.iter().copied().collect();
        loop {
            if window.is_drained() {
                let behind = window.horizon().expect("drained");
                let more = disk.range((std::ops::Bound::Excluded(behind), std::ops::Bound::Unbounded));
                window.fill(more.take(Window::BATCH).copied().collect());
            }
            let Some((time, sequence)) = window.first() else { break };
            window.remove(time, sequence);
            disk.remove(&(time, sequence));
            seen.push((time, sequence));
        }
        assert_eq!(seen, expected);
    }
}
