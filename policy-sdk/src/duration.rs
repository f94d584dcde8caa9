//! Durations as people write them: `500ms`, `5s`, `2m`, `1h30m`, `1d`.
//!
//! Whole milliseconds, because the contract counts in them; a finer part is dropped. Integer
//! arithmetic only, so a native test and the sandbox agree to the bit.

use core::fmt;
use core::time::Duration;

use crate::json::Decimal;

/// The longest duration a parameter may have: one year of 365 days. No broker waits longer for
/// anything, so a longer one is a slip of the unit.
pub const LONGEST: Duration = Duration::from_secs(365 * 86_400);

const LONGEST_MILLIS: u64 = 365 * 86_400_000;

/// `n` milliseconds.
#[must_use]
pub const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// `n` seconds.
#[must_use]
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// `n` minutes.
#[must_use]
pub const fn mins(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(60))
}

/// `n` hours.
#[must_use]
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(3_600))
}

/// `n` days of 24 hours.
#[must_use]
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(86_400))
}

/// Why a text or number is not a usable duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Below zero.
    Negative,
    /// Above [`LONGEST`].
    TooLong,
    /// Not digits followed by a unit.
    Malformed,
    /// Digits without a unit, in a text.
    NoUnit,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negative => "a duration cannot be negative",
            Self::TooLong => "a duration is at most one year",
            Self::Malformed => {
                "a duration looks like \"500ms\", \"5s\", \"2m\", \"1h30m\" or \"1d\", or is a number of seconds"
            }
            Self::NoUnit => "a duration in quotes needs a unit (ms, s, m, h or d)",
        })
    }
}

impl core::error::Error for DurationError {}

/// Reads `500ms`, `1.5s`, `2m`, `1h30m` or `1h 30m`, `1d`.
///
/// # Errors
///
/// [`DurationError`] if it is anything else, negative, or above [`LONGEST`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim_ascii().as_bytes();
    if rest.first() == Some(&b'-') {
        return Err(DurationError::Negative);
    }
    if rest.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (millis, after) = component(rest)?;
        total = total.saturating_add(millis);
        if total > LONGEST_MILLIS {
            return Err(DurationError::TooLong);
        }
        rest = after.trim_ascii_start();
    }
    Ok(Duration::from_millis(total))
}

/// One number with its unit, in milliseconds, and what follows it.
fn component(text: &[u8]) -> Result<(u64, &[u8]), DurationError> {
    let (number, rest) = Decimal::read_plain(text).ok_or(DurationError::Malformed)?;
    let rest = rest.trim_ascii_start();
    let letters = rest.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    let unit_millis = match unit {
        b"ms" => 1,
        b"s" => 1_000,
        b"m" | b"min" => 60_000,
        b"h" => 3_600_000,
        b"d" => 86_400_000,
        b"" => return Err(DurationError::NoUnit),
        _ => return Err(DurationError::Malformed),
    };
    let millis = number.times(unit_millis).ok_or(DurationError::TooLong)?;
    Ok((millis, rest))
}

/// A JSON number of seconds as a duration.
pub(crate) fn from_seconds(number: Decimal) -> Result<Duration, DurationError> {
    if number.is_negative() {
        return Err(DurationError::Negative);
    }
    match number.times(1_000) {
        Some(millis) if millis <= LONGEST_MILLIS => Ok(Duration::from_millis(millis)),
        _ => Err(DurationError::TooLong),
    }
}

/// Whole milliseconds, at most `u64::MAX`.
pub(crate) fn whole_millis(span: Duration) -> u64 {
    // Not `as_millis`: 128-bit arithmetic is dear in the sandbox.
    span.as_secs().saturating_mul(1_000).saturating_add(u64::from(span.subsec_millis()))
}

/// Writes a duration as [`parse`] reads it: `1h30m`, `1.5s`, `250ms`, `0s`.
#[must_use]
pub fn format(span: Duration) -> String {
    let mut left = whole_millis(span);
    if left == 0 {
        return "0s".into();
    }
    if left < 1_000 {
        return format!("{left}ms");
    }
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)] {
        if left >= size {
            text.push_str(&format!("{}{unit}", left / size));
            left %= size;
        }
    }
    match (left / 1_000, left % 1_000) {
        (0, 0) => {}
        (whole, 0) => text.push_str(&format!("{whole}s")),
        (whole, part) => {
            let digits = format!("{whole}.{part:03}");
            text.push_str(digits.trim_end_matches('0'));
            text.push('s');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every documented way to write a duration is read.
    #[test]
    fn reads_what_the_documentation_promises() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            (" 1d ", 86_400_000),
            ("365d", LONGEST_MILLIS),
            ("0.0001ms", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    /// What cannot be meant is refused with the reason (s14, s15).
    #[test]
    fn s14_s15_refuses_nonsense() {
        use DurationError::*;
        for (text, error) in [
            ("", Malformed),
            ("-1s", Negative),
            ("-9223372036854775808ms", Negative),
            ("5", NoUnit),
            ("5 parsecs", Malformed),
            ("NaN", Malformed),
            ("inf", Malformed),
            ("1e400", Malformed),
            ("1..5s", Malformed),
            (".s", Malformed),
            ("s", Malformed),
            ("366d", TooLong),
            ("18446744073709551615ms", TooLong),
            ("99999999999999999999999999s", TooLong),
            ("200d200d", TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    /// What is written can be read back.
    #[test]
    fn format_is_read_back() {
        for (text, millis) in [
            ("0s", 0),
            ("1ms", 1),
            ("1.05s", 1_050),
            ("1m30s", 90_000),
            ("1d2h3m4.005s", 93_784_005),
            ("2h", 7_200_000),
        ] {
            assert_eq!(format(Duration::from_millis(millis)), text);
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
    }

    /// The longest span of the standard library fits without wrapping.
    #[test]
    fn whole_millis_saturates() {
        assert_eq!(whole_millis(Duration::MAX), u64::MAX);
        assert_eq!(whole_millis(Duration::from_micros(1_999)), 1);
    }
}
