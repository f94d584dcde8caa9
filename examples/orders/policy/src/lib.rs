//! What happens to an order whose payment failed. `broker demo` shows it at work.

use reprise_policy::prelude::*;

/// Failures that an order is given, of whatever kind.
pub const FAILURES: u32 = 6;
/// Workers that an order may take down: attempts whose lease ended without a word.
pub const CRASHES: usize = 3;

/// The policy. Its delays are short, so that the demo is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orders;

impl Policy for Orders {
    fn decide(&self, cx: &Context) -> Decision {
        let failure = cx.failure();
        let crashed = crashed_attempts(cx);
        match (failure.cause(), failure.class()) {
            (Cause::Released, _) => Decision::retry(Duration::ZERO),
            (Cause::LeaseExpired, _) if crashed.len() >= CRASHES => {
                let letter = queue("quarantine").label("crashed_attempts", crashed.join(","));
                Decision::dead_letter(letter)
                    .reason("takes its worker down")
                    .note("look at it before it is replayed")
            }
            (_, "validation") => {
                Decision::dead_letter("invalid").reason(failure.detail().unwrap_or("can never succeed"))
            }
            (_, class) if cx.failures() >= FAILURES => {
                Decision::dead_letter(queue("exhausted").label("last_class", class)).reason("out of attempts")
            }
            (_, "rate_limited") => {
                let hint = failure.retry_after().unwrap_or(secs(1));
                Decision::retry(hint).note("as long as the provider asked for")
            }
            _ => Decision::retry(backoff::exponential(millis(100)).cap(secs(2)).full_jitter(cx)),
        }
    }

    fn describe(&self) -> Description {
        Description::default().queue("exhausted").queue("invalid").queue("quarantine")
    }
}

export!(Orders);

/// The attempts that ended without an answer, this one included.
fn crashed_attempts(cx: &Context) -> Vec<String> {
    let earlier = cx.history().map(|past| (past.attempt(), past.cause()));
    let all = earlier.chain([(cx.attempt(), cx.failure().cause())]);
    all.filter(|(_, cause)| *cause == Cause::LeaseExpired).map(|(attempt, _)| attempt.to_string()).collect()
}
