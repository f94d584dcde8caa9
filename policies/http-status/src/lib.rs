//! Decides by the HTTP status a consumer got from elsewhere: what may pass is retried, what cannot
//! is given up at once.
//!
//! The status is the failure's `code` (`"503"`), or else its class (`http_503` or `503`). A failure
//! without one, such as a timeout or an expired lease, is retried.

use reprise_policy::prelude::*;

const MAX_ATTEMPTS: u64 = 8;
const DELAY: Duration = secs(1);
const MAX_DELAY: Duration = mins(10);

/// Far beyond any sense, and beyond the broker's own `attempt_limit`: more is a slip.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// The HTTP status policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpStatus;

impl Policy for HttpStatus {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().cause() {
            Cause::Released => return Decision::retry(Duration::ZERO),
            Cause::MessageExpired => {
                return Decision::dead_letter(default_queue()).reason("expired");
            }
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
        match status(cx.failure()) {
            Some(status @ (404 | 410)) => give_up("gone", status, "the resource is gone"),
            Some(408 | 425 | 429) => retry(cx),
            Some(status @ 400..500) => give_up("rejected", status, "the request cannot succeed"),
            _ => retry(cx),
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
        match (params.duration("delay"), params.duration("max_delay")) {
            (Some(delay), Some(most)) if delay > most => {
                Err(ParamError::new("delay", "is longer than max_delay"))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self) -> Description {
        use ParamKind::{Duration, Number};
        let doc = "after this many failures the delivery goes to the queue `exhausted`";
        Description::new("http-status", env!("CARGO_PKG_VERSION"))
            .queue("exhausted")
            .queue("gone")
            .queue("rejected")
            .param(Param::new("max_attempts", Number, doc).default("8"))
            .param(
                Param::new("delay", Duration, "the first delay; it doubles each time, full jitter")
                    .default("\"1s\""),
            )
            .param(
                Param::new("max_delay", Duration, "the longest delay, also for a `Retry-After`")
                    .default("\"10m\""),
            )
    }
}

export!(HttpStatus);

/// The status of the answer, from the code or the class. Anything else is none.
fn status(failure: Failure<'_>) -> Option<u16> {
    let class = failure.class();
    let from_class = class.strip_prefix("http_").unwrap_or(class);
    failure.code().and_then(three_digits).or_else(|| three_digits(from_class))
}

fn three_digits(text: &str) -> Option<u16> {
    let &[hundreds @ b'1'..=b'5', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = text.as_bytes() else {
        return None;
    };
    let digit = |byte: u8| u16::from(byte - b'0');
    Some(digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
}

fn give_up(name: &str, status: u16, reason: &str) -> Decision {
    Decision::dead_letter(queue(name).label("status", status.to_string())).reason(reason)
}

fn retry(cx: &Context) -> Decision {
    let params = cx.params();
    if u64::from(cx.failures()) >= params.whole("max_attempts").unwrap_or(MAX_ATTEMPTS) {
        let letter = match status(cx.failure()) {
            Some(status) => queue("exhausted").label("status", status.to_string()),
            None => queue("exhausted"),
        };
        return Decision::dead_letter(letter).reason("max_attempts");
    }
    let most = params.duration("max_delay").unwrap_or(MAX_DELAY);
    match cx.failure().retry_after() {
        Some(hint) => Decision::retry(hint.min(most)),
        None => {
            let delay = params.duration("delay").unwrap_or(DELAY);
            Decision::retry(backoff::exponential(delay).cap(most).full_jitter(cx))
        }
    }
}
