//! Percentiles of a few thousand values.

/// Values, sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread<T>(Vec<T>);

impl<T: Copy + Ord> Spread<T> {
    /// Of these values.
    pub fn of(values: impl IntoIterator<Item = T>) -> Self {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable();
        Self(values)
    }

    /// The smallest value that is no less than this many percent of them (the nearest rank); `None` if there are none.
    pub fn percentile(&self, percent: usize) -> Option<T> {
        let rank = (self.0.len() * percent.min(100)).div_ceil(100).max(1);
        self.0.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let spread = Spread::of([15, 20, 35, 40, 50].into_iter().rev());
        let of = |percent| spread.percentile(percent);
        assert_eq!([0, 5, 30, 40, 50, 100, 200].map(of), [15, 15, 20, 20, 35, 50, 50].map(Some));
        assert_eq!(Spread::<u8>::of([]).percentile(50), None);
    }
}
