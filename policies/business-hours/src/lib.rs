//! For work that is only welcome while somebody is there: retries within opening hours, and what would fall
//! outside waits for the next opening, spread out.
//!
//! [`BusinessHours`] decides; `hours` knows calendars.

mod hours;

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

use hours::{Hours, Moment};

const SPREAD: Duration = mins(15);
const MAX_ATTEMPTS: u64 = 8;
const DELAY: Duration = mins(1);
const MAX_DELAY: Duration = hours(1);

/// Far beyond any sense, and beyond the broker's own `attempt_limit`: more is a slip.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// The opening hours policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusinessHours;

impl Policy for BusinessHours {
    fn decide(&self, cx: &Context) -> Decision {
        let params = cx.params();
        let wanted = match cx.failure().cause() {
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            // Nobody failed, but a consumer that goes home gives back what it holds: that waits, too.
            Cause::Released => Duration::ZERO,
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {
                if u64::from(cx.failures()) >= params.whole("max_attempts").unwrap_or(MAX_ATTEMPTS) {
                    return exhausted(cx);
                }
                let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
                match cx.failure().retry_after() {
                    Some(hint) => hint.min(most),
                    None => {
                        let delay = params.duration("delay").unwrap_or(DELAY);
                        backoff::exponential(delay).cap(most).equal_jitter(cx)
                    }
                }
            }
        };
        match read_hours(params) {
            Ok(hours) => within(cx, &hours, wanted),
            // `check` lets no such parameters through. If they come all the same, waiting loses nothing.
            Err(error) => Decision::retry(wanted).note(error.to_string()),
        }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check_names(params)?;
        read_hours(params)?;
        for name in ["spread", "delay", "max_delay"] {
            if let Some(value) = params.get(name) {
                value.duration().map_err(|error| error.within(name))?;
            }
        }
        if let Some(value) = params.get("max_attempts") {
            let in_range = |most: u64| (1..=MOST_ATTEMPTS).contains(&most);
            if !value.whole().is_ok_and(in_range) {
                return Err(ParamError::new("max_attempts", "use a whole number from 1 to 1000000"));
            }
        }
        let delay = params.duration("delay").unwrap_or(DELAY);
        if params.duration("max_delay").unwrap_or(MAX_DELAY) < delay {
            return Err(ParamError::new("max_delay", format!("is shorter than delay, {}", format(delay))));
        }
        Ok(())
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Number, Text};
        let param = |name, kind, default, doc| Param::new(name, kind, doc).default(default);
        Description::new("business-hours", env!("CARGO_PKG_VERSION"))
            .summary(env!("CARGO_PKG_DESCRIPTION"))
            .param(param(
                "days",
                Text,
                "\"mon-fri\"",
                "the days it is open, such as `mon-fri` or `mon,wed,sat`",
            ))
            .param(param(
                "hours",
                Text,
                "\"09:00-17:00\"",
                "the hours it is open on each of them; several in order are `08:00-12:00,13:00-17:00`",
            ))
            .param(param(
                "utc_offset",
                Text,
                "\"+00:00\"",
                "what the clock on the wall is ahead of UTC, such as `+02:00`",
            ))
            .param(param(
                "holidays",
                Text,
                "[]",
                "dates on which it is closed all day, such as `2026-12-25`; one or a list",
            ))
            .param(param(
                "spread",
                Duration,
                "\"15m\"",
                "what waits for an opening comes at random within this after it",
            ))
            .param(param(
                "max_attempts",
                Number,
                "8",
                "after this many failures the delivery is dead-lettered",
            ))
            .param(param("delay", Duration, "\"1m\"", "the first delay; it doubles each time, equal jitter"))
            .param(param(
                "max_delay",
                Duration,
                "\"1h\"",
                "the longest delay before the hours are looked at, also for a `retry_after`",
            ))
    }
}

export!(BusinessHours);

fn exhausted(cx: &Context) -> Decision {
    let letter = match (cx.failure().class(), cx.failure().cause()) {
        ("", cause) => default_queue().label("cause", cause.name()),
        (class, _) => default_queue().label("class", class),
    };
    Decision::dead_letter(letter).reason("max_attempts")
}

/// The hours that the parameters describe.
fn read_hours(params: Params<'_>) -> Result<Hours, ParamError> {
    let text = |name: &'static str, default: &'static str| match params.get(name) {
        Some(value) => value.text().map_err(|error| error.within(name)),
        None => Ok(default.into()),
    };
    let wrong = |name: &'static str| move |problem| ParamError::new(name, problem);
    Ok(Hours {
        days: hours::read_days(&text("days", "mon-fri")?).map_err(wrong("days"))?,
        spans: hours::read_spans(&text("hours", "09:00-17:00")?).map_err(wrong("hours"))?,
        offset: hours::read_offset(&text("utc_offset", "+00:00")?).map_err(wrong("utc_offset"))?,
        holidays: match params.get("holidays") {
            Some(value) => hours::read_holidays(value).map_err(wrong("holidays"))?,
            None => Vec::new(),
        },
    })
}

/// A retry after this delay, or, if it is closed then, a while after the next opening.
fn within(cx: &Context, hours: &Hours, wanted: Duration) -> Decision {
    let due = cx.now() + wanted;
    let (opens_in, length) = match hours.at(due) {
        Moment::Open => return Decision::retry(wanted),
        Moment::Never => {
            return Decision::dead_letter(default_queue()).reason("closed for a year");
        }
        Moment::Closed { opens_in, length } => (opens_in, length),
    };
    let spread = cx.params().duration("spread").unwrap_or(SPREAD);
    // Not past the closing time. The delay's own jitter used the same draw, but is of no account here: what
    // comes out is the opening, whenever before it the delivery would have been due.
    let room = spread.min(length.saturating_sub(millis(1)));
    let after = millis(cx.random().between(0, room.as_secs() * 1_000 + u64::from(room.subsec_millis())));
    let opens_at = due + opens_in;
    Decision::retry(wanted.saturating_add(opens_in).saturating_add(after))
        .note(["closed until ", &opens_at.to_string()].concat())
}
