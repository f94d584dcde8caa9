//! Pauses the whole subscription while what its consumers need is down, and lets a few deliveries through to
//! try: a circuit breaker, with an ordinary retry schedule beneath.
//!
//! The broker keeps the circuit; this policy only says when it opens, and for how long. A policy sees the
//! load of the subscription but not its circuit, so whether a failure is that of a probe is inferred: see
//! [`Opened`].

use core::fmt::Write as _;

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

const MIN_EVENTS: u64 = 20;
const RATIO: f64 = 0.5;
const CONSECUTIVE: u64 = 10;
const PAUSE: Duration = secs(30);
const MAX_PAUSE: Duration = mins(10);
const PROBES: u64 = 1;
const MAX_ATTEMPTS: u64 = 8;
const DELAY: Duration = secs(1);
const MAX_DELAY: Duration = mins(10);

/// Far beyond any sense: more is a slip.
const MOST: u64 = 1_000_000;

/// What the broker lets through at most.
const MOST_PROBES: u64 = 1_000;

/// The circuit breaker policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct CircuitBreaker;

impl Policy for CircuitBreaker {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().cause() {
            // Nobody failed. What this delivery remembers of its last failure still holds.
            Cause::Released => return Decision::retry(Duration::ZERO).memo(cx.memo()),
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
        let decision = scheduled(cx);
        let Some(opened) = Opened::by(cx) else {
            return decision;
        };
        let pause = opened.pause(cx.params());
        let note = ["the circuit opens for ", &format(pause.duration())].concat();
        decision.pause(pause).memo(opened.to_memo()).note(note)
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)?;
        for (name, most) in [
            ("min_events", MOST),
            ("consecutive_failures", MOST),
            ("probes", MOST_PROBES),
            ("max_attempts", MOST),
        ] {
            let in_range = |value: Value<'_>| value.whole().is_ok_and(|it| (1..=most).contains(&it));
            if params.get(name).is_some_and(|value| !in_range(value)) {
                return Err(ParamError::new(name, format!("use a whole number from 1 to {most}")));
            }
        }
        if params.number("ratio").is_some_and(|ratio| ratio <= 0.0 || ratio > 1.0) {
            return Err(ParamError::new("ratio", "must be above 0 and at most 1"));
        }
        if params.duration("pause") == Some(Duration::ZERO) {
            return Err(ParamError::new("pause", "cannot be zero: nothing would be paused"));
        }
        in_order(params, ("pause", PAUSE), ("max_pause", MAX_PAUSE))?;
        in_order(params, ("delay", DELAY), ("max_delay", MAX_DELAY))
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Number};
        let param = |name, kind, default, doc| Param::new(name, kind, doc).default(default);
        Description::new("circuit-breaker", env!("CARGO_PKG_VERSION"))
            .summary(env!("CARGO_PKG_DESCRIPTION"))
            .param(param(
                "min_events",
                Number,
                "20",
                "attempts that must have ended in the last minute before their ratio means anything",
            ))
            .param(param(
                "ratio",
                Number,
                "0.5",
                "the circuit opens when at least this share of them failed, above 0, at most 1",
            ))
            .param(param(
                "consecutive_failures",
                Number,
                "10",
                "it also opens after this many failures without an ack between them, whatever the minute says",
            ))
            .param(param("pause", Duration, "\"30s\"", "how long it stays open at first"))
            .param(param(
                "max_pause",
                Duration,
                "\"10m\"",
                "the pause doubles with each probe that fails, up to this",
            ))
            .param(param(
                "probes",
                Number,
                "1",
                "deliveries let through at a time after a pause, to try, up to 1000",
            ))
            .param(param(
                "max_attempts",
                Number,
                "8",
                "after this many failures of its own a delivery is dead-lettered",
            ))
            .param(param("delay", Duration, "\"1s\"", "the first delay; it doubles each time, equal jitter"))
            .param(param("max_delay", Duration, "\"10m\"", "the longest delay, also for a `retry_after`"))
    }
}

export!(CircuitBreaker);

/// Refuses a pair of which the one that bounds the other is the shorter.
fn in_order(
    params: Params<'_>,
    (name, default): (&str, Duration),
    (longest_name, longest_default): (&str, Duration),
) -> Result<(), ParamError> {
    let first = params.duration(name).unwrap_or(default);
    if params.duration(longest_name).unwrap_or(longest_default) < first {
        return Err(ParamError::new(longest_name, format!("is shorter than {name}, {}", format(first))));
    }
    Ok(())
}

/// What becomes of the delivery itself, whatever the circuit does.
fn scheduled(cx: &Context) -> Decision {
    let params = cx.params();
    if u64::from(cx.failures()) >= params.whole("max_attempts").unwrap_or(MAX_ATTEMPTS) {
        let letter = match (cx.failure().class(), cx.failure().cause()) {
            ("", cause) => default_queue().label("cause", cause.name()),
            (class, _) => default_queue().label("class", class),
        };
        return Decision::dead_letter(letter).reason("max_attempts");
    }
    let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
    match cx.failure().retry_after() {
        Some(hint) => Decision::retry(hint.min(most)),
        None => {
            let delay = params.duration("delay").unwrap_or(DELAY);
            Decision::retry(backoff::exponential(delay).cap(most).equal_jitter(cx))
        }
    }
}

/// That a failure opens the circuit; also what its delivery remembers of it.
///
/// Nothing is delivered during a pause, so a delivery that remembers and fails again was let out after it. It
/// was a probe if no ack closed the circuit meanwhile: then the subscription's failures since the last ack
/// have grown past what they were. After an ack they start again from 0, and what little doubt is left is
/// settled by the last minute, which must still be bad.
#[derive(Clone, Copy, Debug)]
struct Opened {
    /// How many times in a row, as far as this delivery knows; from 1.
    times: u32,
    /// Failures of the subscription since its last ack, at that time.
    consecutive: u64,
}

impl Opened {
    /// Whether this failure opens the circuit.
    fn by(cx: &Context) -> Option<Self> {
        let (params, load) = (cx.params(), cx.load());
        let limit = params.whole("consecutive_failures").unwrap_or(CONSECUTIVE);
        let consecutive = load.consecutive_failures();
        let bad = load.failure_ratio() >= params.number("ratio").unwrap_or(RATIO);
        let enough = load.ended() >= params.whole("min_events").unwrap_or(MIN_EVENTS);

        let remembered = Self::from_memo(cx.memo()).filter(|last| bad && consecutive > last.consecutive);
        // The limit was passed over a minute ago and there was no ack since: the circuit opened then, and a
        // probe of a delivery that remembers nothing has failed now.
        let open_before = consecutive.saturating_sub(load.failed()) >= limit;
        let times = match remembered {
            Some(last) => last.times.saturating_add(1),
            None if open_before => 2,
            None if consecutive >= limit || (bad && enough) => 1,
            None => return None,
        };
        Some(Self { times, consecutive })
    }

    fn pause(self, params: Params<'_>) -> Pause {
        let first = params.duration("pause").unwrap_or(PAUSE);
        let most = params.duration("max_pause").unwrap_or(MAX_PAUSE);
        // More than the broker lets through is refused by `check`.
        let probes = params.whole("probes").unwrap_or(PROBES).clamp(1, MOST_PROBES) as u32;
        let mut reason = String::new();
        // Writing to a text cannot fail.
        let _ = write!(reason, "{} failures since the last ack", self.consecutive);
        Pause::of(backoff::exponential(first).cap(most).after(self.times)).probes(probes).reason(reason)
    }

    /// `2 17`: for the second time, after 17 failures.
    fn to_memo(self) -> String {
        format!("{} {}", self.times, self.consecutive)
    }

    /// Anything else, such as what another policy kept, is nothing.
    fn from_memo(memo: &[u8]) -> Option<Self> {
        let (times, consecutive) = core::str::from_utf8(memo).ok()?.split_once(' ')?;
        Some(Self { times: times.parse().ok()?, consecutive: consecutive.parse().ok()? })
    }
}
