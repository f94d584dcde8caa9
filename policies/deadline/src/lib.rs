//! For work that is worth nothing once it is late: retries while another attempt can still be done in time,
//! and not a moment longer.

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

const DEADLINE: Duration = hours(1);
const ATTEMPT: Duration = secs(30);
const DELAY: Duration = secs(1);
const MAX_DELAY: Duration = mins(10);

/// The deadline policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline;

impl Policy for Deadline {
    fn decide(&self, cx: &Context) -> Decision {
        let params = cx.params();
        let bound = Bound::of(cx);
        if cx.failure().cause() == Cause::MessageExpired {
            return late(cx, bound).reason("expired");
        }
        let attempt = params.duration("attempt").unwrap_or(ATTEMPT);
        // How long from now the last attempt that can be done in time has to begin.
        let left = bound.at.since(cx.now()).saturating_sub(attempt);
        if left.is_zero() {
            return late(cx, bound).reason("deadline");
        }
        if cx.failure().cause() == Cause::Released {
            return Decision::retry(Duration::ZERO);
        }
        let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
        let wanted = match cx.failure().retry_after() {
            // An attempt a moment later would be refused like this one: that is no hint.
            None | Some(Duration::ZERO) => {
                let delay = params.duration("delay").unwrap_or(DELAY);
                backoff::exponential(delay).cap(most).equal_jitter(cx)
            }
            Some(hint) => hint.min(most),
        };
        if wanted < left {
            Decision::retry(wanted)
        } else {
            Decision::retry(left).note("the last attempt that can be done in time")
        }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)?;
        if let Some(from) = params.text("from")
            && From::read(&from).is_none()
        {
            return Err(ParamError::new("from", format!("must be published or first_lease, not \"{from}\"")));
        }
        let of = |name, default| params.duration(name).unwrap_or(default);
        let (deadline, attempt) = (of("deadline", DEADLINE), of("attempt", ATTEMPT));
        let (delay, most) = (of("delay", DELAY), of("max_delay", MAX_DELAY));
        if delay.is_zero() {
            return Err(ParamError::new("delay", "cannot be zero: it would be a busy loop"));
        }
        if most < delay {
            return Err(ParamError::new("max_delay", format!("is shorter than delay, {}", format(delay))));
        }
        if deadline <= attempt {
            let problem = format!("leaves no time for a second attempt of {}", format(attempt));
            return Err(ParamError::new("deadline", problem));
        }
        Ok(())
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Text};
        let param = |name, kind, default, doc| Param::new(name, kind, doc).default(default);
        Description::new("deadline", env!("CARGO_PKG_VERSION"))
            .summary(env!("CARGO_PKG_DESCRIPTION"))
            .queue("deadline")
            .param(param("deadline", Duration, "\"1h\"", "how much time a delivery has to be done"))
            .param(param("from", Text, "\"published\"", "what it is counted from: published or first_lease"))
            .param(param(
                "attempt",
                Duration,
                "\"30s\"",
                "how long an attempt may take: none begins later than this before the deadline",
            ))
            .param(param("delay", Duration, "\"1s\"", "the first delay; it doubles each time, equal jitter"))
            .param(param("max_delay", Duration, "\"10m\"", "the longest delay, also for a `retry_after`"))
    }
}

export!(Deadline);

/// What the time that a delivery has is counted from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Published,
    FirstLease,
}

impl From {
    fn read(text: &str) -> Option<Self> {
        match text {
            "published" => Some(Self::Published),
            "first_lease" => Some(Self::FirstLease),
            _ => None,
        }
    }
}

/// The end of a delivery's time, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Bound {
    at: Timestamp,
    name: &'static str,
}

impl Bound {
    /// The deadline, or the end of the message's own time to live if that is earlier.
    fn of(cx: &Context) -> Self {
        let params = cx.params();
        let span = params.duration("deadline").unwrap_or(DEADLINE);
        let from = params.text("from").and_then(|text| From::read(&text)).unwrap_or(From::Published);
        let deadline = match from {
            From::Published => Self { at: cx.message().published_at() + span, name: "published" },
            From::FirstLease => {
                let first = cx.first_leased_at().unwrap_or(cx.now());
                Self { at: first + span, name: "first_lease" }
            }
        };
        match cx.message().expires_at() {
            Some(at) if at < deadline.at => Self { at, name: "expires_at" },
            _ => deadline,
        }
    }
}

/// Given up, findable by what it failed with and by which bound ended it.
fn late(cx: &Context, bound: Bound) -> Decision {
    let letter = match (cx.failure().class(), cx.failure().cause()) {
        ("", cause) => queue("deadline").label("cause", cause.name()),
        (class, _) => queue("deadline").label("class", class),
    };
    let note = ["it had to be done by ", &bound.at.to_string()].concat();
    Decision::dead_letter(letter.label("bound", bound.name)).note(note)
}
