//! Whose turn it is: asks wait per subscription, and subscriptions take turns.
//!
//! ```text
//!             add                 take                       done
//!   (absent) -----> waiting in turn -----> a slice evaluated -----> (absent) if nothing is left,
//!                        ^                       |                  else waiting in turn
//!                        +---- more to take -----+
//! ```

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The most asks of one turn: enough to share the cost of taking turns and of handing results over, and
/// a millisecond of ordinary decisions; the evaluators end a turn of slow ones sooner.
pub(super) const SLICE: usize = 128;

/// Items by owner, handed out in slices. An owner holds at most one place in the line, and at most `share`
/// slices at a time.
pub(super) struct Turns<K, V> {
    owners: HashMap<K, Owner<V>>,
    line: VecDeque<K>,
    share: usize,
}

struct Owner<V> {
    waiting: VecDeque<V>,
    slices: usize,
    in_line: bool,
}

impl<K: Copy + Eq + Hash, V> Turns<K, V> {
    pub(super) fn new(share: usize) -> Self {
        Self { owners: HashMap::new(), line: VecDeque::new(), share }
    }

    /// Puts an item behind those of the same owner.
    pub(super) fn add(&mut self, key: K, item: V) {
        let fresh = || Owner { waiting: VecDeque::new(), slices: 0, in_line: false };
        self.owners.entry(key).or_insert_with(fresh).waiting.push_back(item);
        self.line_up(key);
    }

    /// Whether [`take`](Self::take) would hand out something.
    pub(super) fn is_ready(&self) -> bool {
        !self.line.is_empty()
    }

    /// The next owner's turn: a slice of its items, in order. Each slice must come back to
    /// [`done`](Self::done).
    pub(super) fn take(&mut self) -> Option<(K, VecDeque<V>)> {
        let key = self.line.pop_front()?;
        let owner = self.owners.get_mut(&key)?;
        // An equal part for each thread that may help, so that a burst is spread rather than serialised.
        let part = owner.waiting.len().div_ceil(self.share).min(SLICE);
        let slice = owner.waiting.drain(..part).collect();
        owner.slices += 1;
        owner.in_line = false;
        self.line_up(key);
        Some((key, slice))
    }

    /// Ends a turn; what was not dealt with goes back to the front.
    pub(super) fn done(&mut self, key: K, rest: VecDeque<V>) {
        let Some(owner) = self.owners.get_mut(&key) else {
            return;
        };
        owner.slices -= 1;
        for item in rest.into_iter().rev() {
            owner.waiting.push_front(item);
        }
        if owner.waiting.is_empty() && owner.slices == 0 {
            self.owners.remove(&key);
        } else {
            self.line_up(key);
        }
    }

    fn line_up(&mut self, key: K) {
        let Some(owner) = self.owners.get_mut(&key) else {
            return;
        };
        if !owner.in_line && !owner.waiting.is_empty() && owner.slices < self.share {
            owner.in_line = true;
            self.line.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(share: usize, items: &[(u8, u32)]) -> Turns<u8, u32> {
        let mut turns = Turns::new(share);
        for (key, item) in items {
            turns.add(*key, *item);
        }
        turns
    }

    fn take(turns: &mut Turns<u8, u32>) -> Option<(u8, Vec<u32>)> {
        turns.take().map(|(key, slice)| (key, slice.into()))
    }

    #[test]
    fn owners_take_turns_whatever_they_have_waiting() {
        let mut turns = Turns::new(1);
        for item in 0..2 * SLICE as u32 {
            turns.add(b'a', item);
        }
        turns.add(b'b', 100);
        let (first, slice) = turns.take().expect("a turn");
        assert_eq!((first, slice.len()), (b'a', SLICE));
        turns.done(b'a', VecDeque::new());
        assert_eq!(take(&mut turns), Some((b'b', vec![100])), "a has more, but it is b's turn");
        assert_eq!(turns.take().map(|(key, slice)| (key, slice[0])), Some((b'a', SLICE as u32)));
    }

    #[test]
    fn an_owner_holds_its_share_of_slices_and_no_more() {
        let mut turns = turns(2, &[(b'a', 1), (b'a', 2), (b'a', 3), (b'a', 4), (b'a', 5)]);
        assert_eq!(take(&mut turns), Some((b'a', vec![1, 2, 3])));
        assert_eq!(take(&mut turns), Some((b'a', vec![4])));
        assert_eq!(take(&mut turns), None, "5 waits until a slice is done");
        assert!(!turns.is_ready());
        turns.add(b'a', 6);
        assert_eq!(take(&mut turns), None, "adding more does not change that");
        turns.done(b'a', VecDeque::new());
        assert_eq!(take(&mut turns), Some((b'a', vec![5])));
    }

    #[test]
    fn the_rest_of_a_slice_is_first_next_time() {
        let mut turns = turns(1, &[(b'a', 1), (b'a', 2), (b'a', 3)]);
        let (_, mut slice) = turns.take().expect("a turn");
        assert_eq!(slice.pop_front(), Some(1));
        turns.add(b'a', 4);
        turns.done(b'a', slice);
        assert_eq!(take(&mut turns), Some((b'a', vec![2, 3, 4])));
    }

    #[test]
    fn an_owner_without_items_is_forgotten() {
        let mut turns = turns(1, &[(b'a', 1)]);
        assert!(turns.is_ready());
        turns.take().expect("a turn");
        turns.done(b'a', VecDeque::new());
        assert!(turns.owners.is_empty() && turns.line.is_empty());
    }
}
