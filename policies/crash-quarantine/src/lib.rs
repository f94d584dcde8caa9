//! For messages that take their consumers down with them. An attempt that ends without an answer (its lease ran
//! out, its consumer vanished) counts as a crash; a few of them, and the message goes where a person looks at it.
//! Failures that a consumer lived to tell about have an ordinary schedule.

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

const CRASHES: u64 = 3;
const MAX_ATTEMPTS: u64 = 8;
const DELAY: Duration = secs(5);
const MAX_DELAY: Duration = mins(10);

/// Far beyond any sense, and beyond the broker's own `attempt_limit`: more is a slip.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// The quarantine policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashQuarantine;

impl Policy for CrashQuarantine {
    fn decide(&self, cx: &Context) -> Decision {
        let params = cx.params();
        match cx.failure().cause() {
            // Nobody failed: it goes out again at once, and what was counted stays.
            Cause::Released => return Decision::retry(Duration::ZERO).memo(cx.memo()),
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
        let crashes = Crashes::until(cx);
        let counted =
            if params.boolean("in_a_row").unwrap_or(false) { crashes.in_a_row } else { crashes.in_all };
        let crashed = is_crash(cx.failure().cause());
        if crashed && u64::from(counted) >= params.whole("crashes").unwrap_or(CRASHES) {
            return quarantine(cx, crashes);
        }
        if u64::from(cx.failures()) >= params.whole("max_attempts").unwrap_or(MAX_ATTEMPTS) {
            let letter = match (cx.failure().class(), cx.failure().cause()) {
                ("", cause) => default_queue().label("cause", cause.name()),
                (class, _) => default_queue().label("class", class),
            };
            return Decision::dead_letter(letter).reason("max_attempts");
        }
        let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
        let delay = match cx.failure().retry_after() {
            Some(hint) => hint.min(most),
            None => {
                let delay = params.duration("delay").unwrap_or(DELAY);
                backoff::exponential(delay).cap(most).equal_jitter(cx)
            }
        };
        let decision = Decision::retry(delay).memo(crashes.to_memo());
        if crashed { decision.note(format!("crash {counted}")) } else { decision }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)?;
        for name in ["crashes", "max_attempts"] {
            let in_range = |value: Value<'_>| value.whole().is_ok_and(|it| (1..=MOST_ATTEMPTS).contains(&it));
            if params.get(name).is_some_and(|value| !in_range(value)) {
                return Err(ParamError::new(name, "use a whole number from 1 to 1000000"));
            }
        }
        let of = |name, default| params.whole(name).unwrap_or(default);
        let crashes = of("crashes", CRASHES);
        if of("max_attempts", MAX_ATTEMPTS) < crashes {
            let problem = format!("is less than crashes, {crashes}: nothing would be quarantined");
            return Err(ParamError::new("max_attempts", problem));
        }
        let delay = params.duration("delay").unwrap_or(DELAY);
        if params.duration("max_delay").unwrap_or(MAX_DELAY) < delay {
            return Err(ParamError::new("max_delay", format!("is shorter than delay, {}", format(delay))));
        }
        Ok(())
    }

    fn describe(&self) -> Description {
        use ParamKind::{Boolean, Duration, Number};
        let param = |name, kind, default, doc| Param::new(name, kind, doc).default(default);
        Description::new("crash-quarantine", env!("CARGO_PKG_VERSION"))
            .summary(env!("CARGO_PKG_DESCRIPTION"))
            .queue("quarantine")
            .param(param(
                "crashes",
                Number,
                "3",
                "after this many crashes the delivery goes to the queue `quarantine`",
            ))
            .param(param(
                "in_a_row",
                Boolean,
                "false",
                "whether an ordinary failure starts the count again; a released attempt never does",
            ))
            .param(param(
                "max_attempts",
                Number,
                "8",
                "after this many failures of any kind it is dead-lettered",
            ))
            .param(param("delay", Duration, "\"5s\"", "the first delay; it doubles each time, equal jitter"))
            .param(param("max_delay", Duration, "\"10m\"", "the longest delay, also for a `retry_after`"))
    }
}

export!(CrashQuarantine);

/// Whether an attempt ended without a word from its consumer.
fn is_crash(cause: Cause) -> bool {
    matches!(cause, Cause::LeaseExpired | Cause::Disconnected)
}

/// How often this delivery crashed its consumer, the failure being decided included.
///
/// The history shows the last 16 attempts only, so the count travels in the memo; the history is for a
/// delivery whose earlier decisions were another policy's.
#[derive(Clone, Copy, Debug, Default)]
struct Crashes {
    in_all: u32,
    /// Since the last ordinary failure.
    in_a_row: u32,
}

impl Crashes {
    fn until(cx: &Context) -> Self {
        let before = Self::from_memo(cx.memo()).unwrap_or_else(|| {
            let causes = cx.history().map(|past| past.cause());
            causes.fold(Self::default(), Self::and)
        });
        before.and(cx.failure().cause())
    }

    fn and(self, cause: Cause) -> Self {
        if is_crash(cause) {
            let more = |count: u32| count.saturating_add(1);
            Self { in_all: more(self.in_all), in_a_row: more(self.in_a_row) }
        } else if cause.is_failure() {
            Self { in_a_row: 0, ..self }
        } else {
            self
        }
    }

    /// `3 2`: three in all, two of them in a row.
    fn to_memo(self) -> String {
        format!("{} {}", self.in_all, self.in_a_row)
    }

    /// Anything else, such as what another policy kept, is nothing.
    fn from_memo(memo: &[u8]) -> Option<Self> {
        let (in_all, in_a_row) = core::str::from_utf8(memo).ok()?.split_once(' ')?;
        Some(Self { in_all: in_all.parse().ok()?, in_a_row: in_a_row.parse().ok()? })
    }
}

/// Out of circulation, with what a person needs to find the cause.
fn quarantine(cx: &Context, crashes: Crashes) -> Decision {
    let mut times = String::new();
    for past in cx.history().filter(|past| is_crash(past.cause())) {
        times.push_str(&past.at().to_string());
        times.push(' ');
    }
    times.push_str(&cx.now().to_string());
    let mut letter = queue("quarantine")
        .label("crashes", crashes.in_all.to_string())
        .label("in_a_row", crashes.in_a_row.to_string())
        .label("crashed_at", times)
        .label("cause", cx.failure().cause().name());
    let last_class = cx.history().rev().map(|past| past.class()).find(|class| !class.is_empty());
    if let Some(class) = last_class {
        letter = letter.label("last_class", class);
    }
    let note = format!("{} of {} failures took the consumer down", crashes.in_all, cx.failures());
    Decision::dead_letter(letter).reason("crashes").note(note)
}
