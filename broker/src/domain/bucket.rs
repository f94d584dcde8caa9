//! A token bucket: how many deliveries a downstream that takes so many a second may be given now.

use std::time::Duration;

use super::time::Timestamp;

/// Fills up with time, never beyond one second's worth: after a pause there is a burst of that and no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Thousandths of a token, so that slow rates gain something in each millisecond.
    millitokens: u64,
    filled_at: Timestamp,
}

impl Bucket {
    /// A full one.
    pub const fn full(rate: u32, now: Timestamp) -> Self {
        Self { millitokens: rate as u64 * 1_000, filled_at: now }
    }

    /// How many may be taken now.
    pub fn available(&mut self, rate: u32, now: Timestamp) -> usize {
        let gained = now.since(self.filled_at).as_millis().saturating_mul(rate.into());
        let gained = u64::try_from(gained).unwrap_or(u64::MAX);
        self.millitokens = self.millitokens.saturating_add(gained).min(u64::from(rate) * 1_000);
        self.filled_at = self.filled_at.max(now);
        usize::try_from(self.millitokens / 1_000).unwrap_or(usize::MAX)
    }

    /// Takes so many.
    pub fn take(&mut self, tokens: usize) {
        self.millitokens = self.millitokens.saturating_sub(tokens as u64 * 1_000);
    }

    /// When the next one is there, given that none is.
    pub fn next_at(&self, rate: u32) -> Timestamp {
        let missing = 1_000_u64.saturating_sub(self.millitokens);
        self.filled_at + Duration::from_millis(missing.div_ceil(rate.max(1).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_the_rate_and_a_burst_of_one_second() {
        let at = Timestamp::from_millis;
        let mut bucket = Bucket::full(3, at(0));
        assert_eq!(bucket.available(3, at(0)), 3);
        bucket.take(3);
        assert_eq!((bucket.available(3, at(0)), bucket.next_at(3)), (0, at(334)));
        assert_eq!(bucket.available(3, at(333)), 0);
        assert_eq!(bucket.available(3, at(334)), 1);
        assert_eq!(bucket.available(3, at(1_000_000)), 3);
        // A smaller rate holds at once.
        assert_eq!(bucket.available(1, at(1_000_000)), 1);
    }

    /// Asked every millisecond or once in a while, it gives the same in the long run.
    #[test]
    fn nothing_is_lost_by_asking_often() {
        let mut bucket = Bucket::full(7, Timestamp::default());
        bucket.take(7);
        let mut given = 0;
        for milli in 1..=10_000 {
            let some = bucket.available(7, Timestamp::from_millis(milli));
            bucket.take(some);
            given += some;
        }
        assert_eq!(given, 70);
    }
}
