//! Retries after random delays, each between a fixed lowest one and three times the one before: decorrelated
//! jitter, as Marc Brooker described it.
//!
//! The formula itself is the SDK's, [`backoff::decorrelated`]; this is the policy around it.

use reprise_policy::duration::format;
use reprise_policy::prelude::*;

const MAX_ATTEMPTS: u64 = 10;
const DELAY: Duration = secs(1);
const MAX_DELAY: Duration = mins(10);

/// Far beyond any sense, and beyond the broker's own `attempt_limit`: more is a slip.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// The decorrelated jitter policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecorrelatedJitter;

impl Policy for DecorrelatedJitter {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().cause() {
            Cause::Released => return Decision::retry(Duration::ZERO),
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
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
                Decision::retry(backoff::decorrelated(delay).cap(most).delay(cx))
            }
        }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)?;
        if let Some(value) = params.get("max_attempts") {
            let in_range = |most: u64| (1..=MOST_ATTEMPTS).contains(&most);
            if !value.whole().is_ok_and(in_range) {
                return Err(ParamError::new("max_attempts", "use a whole number from 1 to 1000000"));
            }
        }
        let delay = params.duration("delay").unwrap_or(DELAY);
        if delay.is_zero() {
            return Err(ParamError::new("delay", "cannot be zero: three times nothing is nothing"));
        }
        if params.duration("max_delay").unwrap_or(MAX_DELAY) < delay {
            return Err(ParamError::new("max_delay", format!("is shorter than delay, {}", format(delay))));
        }
        Ok(())
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Number};
        let param = |name, kind, default, doc| Param::new(name, kind, doc).default(default);
        Description::new("decorrelated-jitter", env!("CARGO_PKG_VERSION"))
            .summary(env!("CARGO_PKG_DESCRIPTION"))
            .param(param(
                "max_attempts",
                Number,
                "10",
                "after this many failures the delivery is dead-lettered",
            ))
            .param(param("delay", Duration, "\"1s\"", "the shortest delay, and what the first is drawn from"))
            .param(param("max_delay", Duration, "\"10m\"", "the longest delay, also for a `retry_after`"))
    }
}

export!(DecorrelatedJitter);
