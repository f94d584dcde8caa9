//! For consumers that call a rate-limited service: waits as long as the service asks, and spreads
//! those who were asked the same.
//!
//! There is no limit on attempts, since being asked to wait is not a fault of the message. The limit is
//! time: `max_wait` from the first lease.

use reprise_policy::prelude::*;

const DELAY: Duration = secs(1);
const MAX_DELAY: Duration = mins(15);
const MAX_WAIT: Duration = days(1);
const SPREAD: f64 = 0.2;

/// The rate limit policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateLimited;

impl Policy for RateLimited {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().cause() {
            Cause::Released => return Decision::retry(Duration::ZERO),
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
        let params = cx.params();
        if cx.elapsed() >= params.duration("max_wait").unwrap_or(MAX_WAIT) {
            return Decision::dead_letter(queue("waited").label("class", cx.failure().class()))
                .reason("max_wait");
        }
        let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
        match cx.failure().retry_after() {
            // A limit that names no time is no hint: without this, `0` would be a busy loop.
            None | Some(Duration::ZERO) => {
                let delay = params.duration("delay").unwrap_or(DELAY);
                Decision::retry(backoff::exponential(delay).cap(most).equal_jitter(cx))
            }
            Some(hint) => {
                let share = params.number("spread").unwrap_or(SPREAD);
                Decision::retry(spread(cx, hint.min(most), share)).note("as the rate limit asks")
            }
        }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)?;
        if let Some(share) = params.number("spread")
            && !(0.0..=1.0).contains(&share)
        {
            return Err(ParamError::new("spread", "must be from 0 to 1"));
        }
        if params.duration("delay") == Some(Duration::ZERO) {
            return Err(ParamError::new("delay", "cannot be zero: it would be a busy loop"));
        }
        if params.duration("max_delay") == Some(Duration::ZERO) {
            return Err(ParamError::new("max_delay", "cannot be zero: it would be a busy loop"));
        }
        match (params.duration("delay"), params.duration("max_delay")) {
            (Some(delay), Some(most)) if delay > most => {
                Err(ParamError::new("delay", "is longer than max_delay"))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Number};
        Description::new("rate-limited", env!("CARGO_PKG_VERSION"))
            .queue("waited")
            .param(
                Param::new(
                    "max_delay",
                    Duration,
                    "the longest wait a `retry_after` may ask for; the spread comes on top",
                )
                .default("\"15m\""),
            )
            .param(
                Param::new(
                    "spread",
                    Number,
                    "how much of the asked wait is added at most, at random and never taken off, from 0 to 1",
                )
                .default("0.2"),
            )
            .param(
                Param::new(
                    "delay",
                    Duration,
                    "the first delay where no wait is asked for; it doubles each time, equal jitter",
                )
                .default("\"1s\""),
            )
            .param(
                Param::new(
                    "max_wait",
                    Duration,
                    "time since the first lease after which the delivery goes to the queue `waited`",
                )
                .default("\"1d\""),
            )
    }
}

export!(RateLimited);

/// Adds up to `share` of the wait to it.
fn spread(cx: &Context, wait: Duration, share: f64) -> Duration {
    // At most a year in milliseconds, so nothing is lost; a share that is no share counts as none.
    let window = (wait.as_millis() as f64 * share.clamp(0.0, 1.0)) as u64;
    wait.saturating_add(millis(cx.random().between(0, window)))
}
