//! Where each order should end, worked out from its script alone: the policy's rules written a second time, in plain
//! words, so that the broker, the sandbox and the policy are checked by something that is none of them.

use super::order::{Reply, Script};

/// After so many failures an order is given up.
const FAILURES: u32 = 6;
/// After so many lost workers it is set apart.
const CRASHES: u32 = 3;

/// How an order ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was charged.
    Acked,
    /// It is in this dead-letter queue.
    DeadLettered(&'static str),
}

/// How an order with this script ends.
pub(super) fn of(script: &Script) -> End {
    let mut crashes = 0;
    for attempt in 1..=FAILURES {
        match script.reply(attempt) {
            Reply::Charged => return End::Acked,
            Reply::Invalid(_) => return End::DeadLettered("invalid"),
            Reply::Crash => crashes += 1,
            Reply::Timeout | Reply::RateLimited => {}
        }
        if crashes == CRASHES {
            return End::DeadLettered("quarantine");
        }
    }
    End::DeadLettered("exhausted")
}
