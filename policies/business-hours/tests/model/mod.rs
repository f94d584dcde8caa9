//! Opening hours told one minute after the other, with a calendar that is counted day by day: slow, and too simple to
//! be wrong in the same way as the policy.

use reprise_policy::prelude::*;

const MINUTE: u64 = 60_000;
const DAY: u64 = 1_440 * MINUTE;

/// 2024-01-01T00:00:00Z, a Monday.
pub(crate) const FROM: u64 = 1_704_067_200_000;
/// Eight years later.
pub(crate) const TO: u64 = FROM + 8 * 365 * DAY;

const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Opening hours as someone would write them on the door.
pub(crate) struct Week {
    days: Vec<&'static str>,
    /// Minutes of the day.
    spans: Vec<(u64, u64)>,
    /// In minutes.
    offset: i64,
    /// `YYYY-MM-DD`.
    holidays: Vec<String>,
    /// Every date of the years in question, in order; the first is that of the day before [`FROM`].
    calendar: Vec<String>,
}

impl Week {
    /// Any hours; open on one day at least.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut days: Vec<&str> = NAMES.into_iter().filter(|_| random.chance(0.6)).collect();
        if days.is_empty() {
            days.push("wed");
        }
        let mut edges: Vec<u64> = (0..2 * random.between(1, 2)).map(|_| random.between(0, 1_440)).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut spans: Vec<(u64, u64)> = edges.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        if spans.is_empty() {
            spans.push((0, 1_440));
        }
        let calendar = calendar();
        let holidays = (0..random.between(0, 60))
            .map(|_| calendar[random.between(0, calendar.len() as u64 - 1) as usize].clone())
            // A cluster around a year's end, where most are.
            .chain(["2026-12-31", "2027-01-01", "2027-01-02", "2028-02-29"].map(str::to_owned))
            .collect();
        let offset = random.between(0, 28 * 60) as i64 - 14 * 60;
        Self { days, spans, offset, holidays, calendar }
    }

    pub(crate) fn params(&self, spread: u64) -> String {
        let clock = |minutes: u64| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let spans: Vec<String> =
            self.spans.iter().map(|(from, to)| format!("{}-{}", clock(*from), clock(*to))).collect();
        let (sign, minutes) = if self.offset < 0 { ('-', -self.offset) } else { ('+', self.offset) };
        format!(
            r#"{{"days":"{}","hours":"{}","utc_offset":"{sign}{}","holidays":{:?},"spread":{spread},"max_delay":"1d"}}"#,
            self.days.join(","),
            spans.join(","),
            clock(minutes.unsigned_abs()),
            self.holidays,
        )
    }

    /// Whether it is open in the minute of this moment.
    pub(crate) fn is_open(&self, moment: u64) -> bool {
        let minutes = moment.div_euclid(MINUTE).saturating_add_signed(self.offset);
        // The calendar begins on a Sunday, the day before `FROM`.
        let day = (minutes / 1_440 + 1 - FROM / DAY) as usize;
        let minute = minutes % 1_440;
        let closed = self.holidays.contains(&self.calendar[day]);
        let weekday = NAMES[(day + 6) % 7];
        let hours = self.spans.iter().any(|(from, to)| *from <= minute && minute < *to);
        hours && !closed && self.days.contains(&weekday)
    }

    /// The moment itself if it is open, else the beginning of the first minute that is, within a year.
    pub(crate) fn next_open(&self, moment: u64) -> Option<u64> {
        if self.is_open(moment) {
            return Some(moment);
        }
        let next = moment.div_euclid(MINUTE) + 1;
        (next..next + 366 * 1_440).map(|minute| minute * MINUTE).find(|minute| self.is_open(*minute))
    }
}

fn calendar() -> Vec<String> {
    let mut dates = vec!["2023-12-31".to_owned()];
    for year in 2024..2034 {
        let february = if year % 4 == 0 { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, length) in (1..).zip(lengths) {
            dates.extend((1..=length).map(|day| format!("{year}-{month:02}-{day:02}")));
        }
    }
    dates
}
