//! The policy that the README shows, from a crate of its own: written, exported and tested the way a
//! user does it.

use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, End, Simulation, properties};

#[derive(Default)]
struct Payments;

impl Policy for Payments {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().class() {
            "validation" => Decision::dead_letter("invalid").reason("can never succeed"),
            "rate_limited" => Decision::retry(cx.failure().retry_after().unwrap_or(secs(30))),
            _ if cx.failures() >= 8 => Decision::dead_letter("exhausted"),
            _ => Decision::retry(backoff::exponential(secs(1)).cap(mins(10)).full_jitter(cx)),
        }
    }
}

export!(Payments);

/// Two policies in one native build do not collide.
mod another {
    use super::*;

    #[derive(Default)]
    struct Another;

    impl Policy for Another {
        fn decide(&self, _: &Context) -> Decision {
            Decision::drop("always")
        }
    }

    export!(Another);
}

/// The README's test.
#[test]
fn eight_failures_are_the_end() {
    let schedule = Simulation::of(&Payments).script("timeout*3, rate_limited(30s), timeout*");
    assert_eq!(schedule.end(), End::DeadLettered);
    assert_eq!(schedule.steps().len(), 8);
    properties::never_panics(&Payments, "{}");
}

/// Each arm answers as it reads.
#[test]
fn each_class_has_its_answer() {
    let decide = |cx: ContextBuilder| Payments.decide(&cx.build());
    let invalid = decide(ContextBuilder::new().class("validation"));
    assert_eq!(invalid.filed_reason(), Some("can never succeed"));
    let limited = ContextBuilder::new().class("rate_limited");
    assert_eq!(decide(limited.clone()).delay(), Some(secs(30)));
    assert_eq!(decide(limited.retry_after(secs(7))).delay(), Some(secs(7)));
    let first = decide(ContextBuilder::new()).delay();
    assert!(first.is_some_and(|delay| delay <= secs(1)));
}
