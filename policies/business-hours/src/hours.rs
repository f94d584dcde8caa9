//! Opening hours: what they are, and when they open next.
//!
//! Knows no policy and no parameter object, only texts and moments. There is no time-zone database in a
//! sandbox, so local time is UTC and a fixed offset; the calendar is the Gregorian one.

use reprise_policy::prelude::*;

const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;

/// The names of the days, Monday first.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Days that are looked at for an opening: no broker keeps a retry for longer.
const HORIZON: i64 = 366;

/// How many hours of one day may be listed.
const MOST_SPANS: usize = 24;

/// How many holidays may be listed.
const MOST_HOLIDAYS: usize = 366;

/// Why a text is not what it should be.
pub(crate) type Problem = &'static str;

/// When it is open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hours {
    /// Monday first.
    pub(crate) days: [bool; 7],
    /// Minutes of the day from and to, in order, apart from each other; the same ones every day.
    pub(crate) spans: Vec<(i64, i64)>,
    /// What local time is ahead of UTC, in minutes.
    pub(crate) offset: i64,
    /// Days since 1970-01-01 on which it is closed.
    pub(crate) holidays: Vec<i64>,
}

/// What a moment is to the opening hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    Open,
    /// Closed; it opens this long after the moment, for that long.
    Closed {
        opens_in: Duration,
        length: Duration,
    },
    /// Closed for a year and more.
    Never,
}

impl Hours {
    pub(crate) fn at(&self, moment: Timestamp) -> Moment {
        // Far beyond any date, and far enough from the end of what can be counted.
        let now = moment.as_millis().min(1 << 60) as i64 + self.offset * MINUTE;
        let today = now.div_euclid(DAY);
        for day in today..=today + HORIZON {
            if !self.is_business_day(day) {
                continue;
            }
            for (from, to) in &self.spans {
                let (from, to) = (day * DAY + from * MINUTE, day * DAY + to * MINUTE);
                if now >= to {
                    continue;
                }
                return match from - now {
                    ..=0 => Moment::Open,
                    wait => Moment::Closed { opens_in: span(wait), length: span(to - from) },
                };
            }
        }
        Moment::Never
    }

    fn is_business_day(&self, day: i64) -> bool {
        // 1970-01-01 was a Thursday.
        let weekday = (day + 3).rem_euclid(7) as usize;
        self.days.get(weekday).is_some_and(|open| *open) && !self.holidays.contains(&day)
    }
}

fn span(millis_from_now: i64) -> Duration {
    millis(millis_from_now.max(0).cast_unsigned())
}

/// Reads `mon-fri`, `mon,wed,fri` or `fri-mon`.
pub(crate) fn read_days(text: &str) -> Result<[bool; 7], Problem> {
    const PROBLEM: Problem = "must be days such as \"mon-fri\" or \"mon,wed,sat\"";
    let weekday = |name: &str| DAYS.iter().position(|day| *day == name.trim_ascii()).ok_or(PROBLEM);
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (weekday(first)?, weekday(last)?);
        // From the first day on to the last one, past Sunday if need be.
        let count = (last + 7 - first) % 7;
        for day in (0..=count).map(|step| (first + step) % 7) {
            if let Some(open) = days.get_mut(day) {
                *open = true;
            }
        }
    }
    Ok(days)
}

/// Reads `09:00-17:00`, or several such in order: `09:00-12:00,13:00-17:00`.
pub(crate) fn read_spans(text: &str) -> Result<Vec<(i64, i64)>, Problem> {
    const PROBLEM: Problem = "must be hours such as \"09:00-17:00\" or \"08:00-12:00,13:00-24:00\"";
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').ok_or(PROBLEM)?;
        let from = read_clock(from.trim_ascii(), 24).ok_or(PROBLEM)?;
        let to = read_clock(to.trim_ascii(), 24).ok_or(PROBLEM)?;
        if from >= to {
            return Err("must close after they open, on the same day; 24:00 is its end");
        }
        if spans.last().is_some_and(|(_, end)| *end > from) {
            return Err("must be in order and not overlap");
        }
        if spans.len() == MOST_SPANS {
            return Err("has at most 24 opening hours");
        }
        spans.push((from, to));
    }
    Ok(spans)
}

/// Reads `+02:00` or `-05:30`, in minutes.
pub(crate) fn read_offset(text: &str) -> Result<i64, Problem> {
    const PROBLEM: Problem = "must be an offset from UTC such as \"+02:00\" or \"-05:30\", at most 14 hours";
    let (sign, clock) = match text.split_at_checked(1) {
        Some(("+", clock)) => (1, clock),
        Some(("-", clock)) => (-1, clock),
        _ => return Err(PROBLEM),
    };
    read_clock(clock, 14).map(|minutes| sign * minutes).ok_or(PROBLEM)
}

/// Minutes of `HH:MM`, at most `most` hours and nothing.
fn read_clock(text: &str, most: i64) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (minutes < 60 && hours * 60 + minutes <= most * 60).then_some(hours * 60 + minutes)
}

/// Reads one date or a list of dates, as days since 1970-01-01.
pub(crate) fn read_holidays(value: Value<'_>) -> Result<Vec<i64>, Problem> {
    const PROBLEM: Problem = "must be dates such as \"2026-12-25\", one or a list";
    let date = |value: Value<'_>| value.text().ok().and_then(|text| read_date(&text)).ok_or(PROBLEM);
    if !value.is_list() {
        return Ok([date(value)?].into());
    }
    let items = value.list().map_err(|_| PROBLEM)?;
    let days = items.map(date).collect::<Result<Vec<i64>, Problem>>()?;
    if days.len() > MOST_HOLIDAYS { Err("has at most 366 dates") } else { Ok(days) }
}

/// Days from 1970-01-01 to `YYYY-MM-DD`.
fn read_date(text: &str) -> Option<i64> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    (1..=length).contains(&day).then(|| days_since_1970(year, month, day))
}

/// Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`: years are counted from March, so
/// that a leap day is the last day of one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Exactly `count` decimal digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days in any order, as ranges that may pass Sunday.
    #[test]
    fn days_are_read() {
        let read = |text| read_days(text).map(|days| days.map(u8::from));
        assert_eq!(read("mon-fri"), Ok([1, 1, 1, 1, 1, 0, 0]));
        assert_eq!(read("sat-mon, wed"), Ok([1, 0, 1, 0, 0, 1, 1]));
        assert_eq!(read("sun"), Ok([0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(read("tue-mon"), Ok([1; 7]));
        for text in ["", "mon-", "-", "Mon", "monday", "mon;tue", "mon-wed-fri", "mon,"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    /// Hours and offsets are clock times, and nothing like them.
    #[test]
    fn clocks_are_read() {
        assert_eq!(read_spans("09:00-17:30"), Ok(vec![(540, 1_050)]));
        assert_eq!(read_spans("00:00-12:00, 12:00-24:00"), Ok(vec![(0, 720), (720, 1_440)]));
        for text in ["", "9:00-17:00", "09:00", "09:00-24:01", "09:60-17:00", "17:00-09:00", "09:00-09:00"] {
            assert!(read_spans(text).is_err(), "{text}");
        }
        assert!(
            read_spans("13:00-17:00,09:00-12:00").is_err() && read_spans("09:00-13:00,12:00-17:00").is_err()
        );
        assert_eq!(read_offset("+02:00"), Ok(120));
        assert_eq!(read_offset("-05:30"), Ok(-330));
        for text in ["", "02:00", "+2:00", "+14:01", "+", "Z", "\u{2212}02:00", "Europe/Berlin", "+-2:00"] {
            assert!(read_offset(text).is_err(), "{text}");
        }
    }

    /// Dates are counted from 1970, leap days included; what is no date is refused.
    #[test]
    fn dates_are_read() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2026-01-01", 20_454),
            ("2028-02-29", 21_243),
            ("2100-03-01", 47_541),
        ] {
            assert_eq!(read_date(text), Some(days), "{text}");
        }
        for text in
            ["2026-02-29", "2100-02-29", "2026-13-01", "2026-00-10", "2026-04-31", "2026-1-1", "26-01-01", ""]
        {
            assert_eq!(read_date(text), None, "{text}");
        }
    }
}
