//! Moments of broker time. There is no clock here: every moment comes with the context.

use core::fmt;
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

const DAY_MILLIS: u64 = 86_400_000;

/// RFC 3339 in UTC, as on the wire: `2026-01-01T09:30:00Z`, with milliseconds where there are any.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / DAY_MILLIS);
        let (seconds, millis) = (self.0 % DAY_MILLIS / 1_000, self.0 % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match millis {
            0 => f.write_str("Z"),
            millis => write!(f, ".{millis:03}Z"),
        }
    }
}

/// Year, month and day of a number of days since 1970-01-01 (Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`): years are counted from March, so that a leap day is the last day of one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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

    /// Moments are shown as the broker shows them, over leap days, ends of years and to the end of time.
    #[test]
    fn moments_are_shown_in_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
        assert!(Timestamp::from_millis(u64::MAX).to_string().ends_with("Z"));
    }

    /// Each day follows the one before it: counted one by one over four centuries.
    #[test]
    fn days_follow_each_other() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(date(days), (year, month, day), "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }
}
