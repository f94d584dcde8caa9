//! What was touched a moment ago and is likely to be needed again: kept in memory to a bound, never the truth.

use std::collections::VecDeque;
use std::hash::Hash;

use foldhash::{HashMap, HashMapExt as _};

/// Values by key, the oldest of which go when all together weigh too much.
pub(super) struct Recent<K, V> {
    values: HashMap<K, Kept<V>>,
    /// Keys in the order they came, with the number of their coming; some have been replaced or removed since.
    order: VecDeque<(u64, K)>,
    next: u64,
    weight: usize,
    most: usize,
    weigh: fn(&V) -> usize,
}

struct Kept<V> {
    /// The number of its coming.
    number: u64,
    weight: usize,
    value: V,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// At most `most` in all, by what `weigh` says of each.
    pub(super) fn new(most: usize, weigh: fn(&V) -> usize) -> Self {
        Self { values: HashMap::new(), order: VecDeque::new(), next: 0, weight: 0, most, weigh }
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        let number = self.next;
        self.next += 1;
        let weight = (self.weigh)(&value);
        self.weight += weight;
        self.values.insert(key, Kept { number, weight, value });
        self.order.push_back((number, key));
        // Every value has one place in the order; the rest are left over, and may not outnumber them.
        while self.weight > self.most || self.order.len() > 2 * self.values.len() + SLACK {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            match self.values.get(&oldest) {
                Some(kept) if kept.number == number && self.weight > self.most => {
                    self.remove(&oldest);
                }
                // Not too heavy, only too long: it comes again at the end.
                Some(kept) if kept.number == number => self.order.push_back((number, oldest)),
                _ => {}
            }
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|kept| &kept.value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let kept = self.values.remove(key)?;
        self.weight -= kept.weight;
        Some(kept.value)
    }
}

/// Places in the order that may be left over before they are cleared away.
const SLACK: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_the_weight_is_bounded() {
        let mut recent: Recent<u32, usize> = Recent::new(10, |weight| *weight);
        for key in 0..4 {
            recent.insert(key, 3);
        }
        assert_eq!(
            (0..4).map(|key| recent.get(&key).is_some()).collect::<Vec<_>>(),
            [false, true, true, true]
        );
        recent.insert(1, 4);
        assert_eq!((recent.get(&1), recent.get(&2), recent.weight), (Some(&4), Some(&3), 10));
        recent.insert(9, 100);
        assert_eq!((recent.values.len(), recent.weight), (0, 0));
    }

    #[test]
    fn what_is_left_over_is_bounded_too() {
        let mut recent: Recent<u32, usize> = Recent::new(100, |weight| *weight);
        recent.insert(0, 1);
        for key in 1..100_000 {
            recent.insert(key, 1);
            recent.remove(&key);
        }
        assert!(recent.order.len() <= 2 * SLACK);
        assert_eq!(recent.get(&0), Some(&1));
    }
}
