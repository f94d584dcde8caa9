//! Moments of broker time. There is no clock here: every moment comes with the context.

use core::ops::Add;
use core::time::Duration;

use crate::duration::whole_millis;

/// Milliseconds since 1970-01-01T00:00:00Z, on the broker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Stops at the end of time rather than wrapping.
    fn add(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(whole_millis(span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arithmetic saturates in both directions.
    #[test]
    fn arithmetic_saturates() {
        let (early, late) = (Timestamp::from_millis(5), Timestamp::from_millis(2_005));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!((late + Duration::MAX).as_millis(), u64::MAX);
    }
}
