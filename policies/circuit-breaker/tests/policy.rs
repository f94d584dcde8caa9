//! The circuit breaker over its cases, whole outages, hostile contexts, and its README.

use circuit_breaker::CircuitBreaker;
use reprise_policy::duration::format;
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, NOW, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&CircuitBreaker, HERE);
}

/// A subscription as the broker counts it: what ended in the last minute, and failures since the last ack.
#[derive(Default)]
struct Subscription {
    params: &'static str,
    clock: Duration,
    /// When an attempt ended, and whether well.
    ended: Vec<(Duration, bool)>,
    consecutive: u64,
}

impl Subscription {
    fn new(params: &'static str) -> Self {
        assert_eq!(check(&CircuitBreaker, params), Ok(()));
        Self { params, ..Self::default() }
    }

    fn ack(&mut self) {
        self.ended.push((self.clock, true));
        self.consecutive = 0;
    }

    /// An attempt of this delivery fails; what the policy decides.
    fn fail(&mut self, delivery: &mut Delivery) -> Decision {
        self.ended.push((self.clock, false));
        self.consecutive += 1;
        delivery.failures += 1;
        self.ask(delivery, Cause::Nacked)
    }

    fn ask(&self, delivery: &mut Delivery, cause: Cause) -> Decision {
        let minute = self.ended.iter().filter(|(at, _)| *at + mins(1) > self.clock);
        let minute: Vec<bool> = minute.map(|(_, well)| *well).collect();
        let acked = minute.iter().filter(|well| **well).count() as u64;
        let cx = ContextBuilder::new()
            .now(Timestamp::from_millis(NOW) + self.clock)
            .cause(cause)
            .failures(delivery.failures)
            .load(acked, minute.len() as u64 - acked)
            .consecutive_failures(self.consecutive)
            .memo(delivery.memo.clone())
            .params(self.params);
        let decision = CircuitBreaker.decide(&cx.build());
        delivery.memo = decision.kept_memo().unwrap_or_default().to_vec();
        decision
    }
}

#[derive(Default)]
struct Delivery {
    failures: u32,
    memo: Vec<u8>,
}

/// How long the whole subscription is paused by this decision.
fn paused(decision: &Decision) -> Option<Duration> {
    decision.pause_asked().map(Pause::duration)
}

const MANY: &str = r#"{"max_attempts":1000}"#;

/// An outage from its beginning to its end: the circuit opens at the tenth failure, each failed probe doubles the pause up
/// to the longest, an ack ends it, and the next outage starts from the shortest pause.
#[test]
fn an_outage_from_beginning_to_end() {
    let mut subscription = Subscription::new(MANY);
    let mut delivery = Delivery::default();
    for round in 0..2 {
        for _ in 0..9 {
            assert_eq!(paused(&subscription.fail(&mut delivery)), None, "round {round}");
            subscription.clock += secs(10);
        }
        for seconds in [30, 60, 120, 240, 480, 600, 600, 600] {
            let decision = subscription.fail(&mut delivery);
            assert_eq!(paused(&decision), Some(secs(seconds)), "round {round}");
            assert_eq!(decision.pause_asked().map(Pause::probe_count), Some(1));
            subscription.clock += secs(seconds);
        }
        subscription.ack();
        subscription.clock += mins(2);
    }
}

/// While half of a busy subscription fails, the ratio opens the circuit; probes of the delivery that opened it open it
/// again, although the minute has forgotten the rest.
#[test]
fn the_ratio_opens_and_a_probe_opens_again() {
    let mut subscription = Subscription::new(r#"{"pause":"2m"}"#);
    let mut delivery = Delivery::default();
    let mut opened = None;
    for number in 0..10 {
        subscription.ack();
        opened = paused(&subscription.fail(&mut delivery));
        assert_eq!(opened.is_some(), number == 9, "{number}");
        delivery.failures = 1;
    }
    assert_eq!(opened, Some(mins(2)));
    subscription.clock += mins(2);
    assert_eq!(paused(&subscription.fail(&mut delivery)), Some(mins(4)), "a failed probe");
    subscription.clock += mins(4);
    subscription.ack();
    assert_eq!(paused(&subscription.fail(&mut delivery)), None, "the circuit is closed: one failure is one");
}

/// A probe of a delivery that never failed before remembers nothing. That it is a probe shows in the load once the
/// outage is over a minute old; that the circuit opens again does not depend on it.
#[test]
fn fresh_probes_open_it_again() {
    let mut subscription = Subscription::new(MANY);
    for _ in 0..10 {
        let _ = subscription.fail(&mut Delivery::default());
    }
    subscription.clock += secs(30);
    assert_eq!(paused(&subscription.fail(&mut Delivery::default())), Some(secs(30)), "half a minute later");
    subscription.clock += secs(31);
    for _ in 0..5 {
        assert_eq!(paused(&subscription.fail(&mut Delivery::default())), Some(mins(1)));
        subscription.clock += mins(1);
    }
}

/// What nobody failed on never pauses, whatever the load, and forgets nothing.
#[test]
fn released_and_expired_never_pause() {
    for cx in properties::contexts("{}") {
        for cause in [Cause::Released, Cause::MessageExpired] {
            let decision = CircuitBreaker.decide(&cx.clone().cause(cause).build());
            assert_eq!(decision.pause_asked(), None);
        }
    }
    let mut subscription = Subscription::new(MANY);
    let mut delivery = Delivery::default();
    for _ in 0..10 {
        let _ = subscription.fail(&mut delivery);
    }
    assert_eq!(paused(&subscription.ask(&mut delivery, Cause::Released)), None);
    subscription.clock += secs(30);
    assert_eq!(paused(&subscription.fail(&mut delivery)), Some(mins(1)), "a release between is no matter");
}

/// Any pause it asks for is one that the broker takes: from the first to the longest, with its probes.
#[test]
fn pauses_have_bounds() {
    let params = r#"{"pause":"7s","max_pause":"40s","probes":3}"#;
    let mut seen = 0;
    for cx in properties::contexts(params) {
        let decision = CircuitBreaker.decide(&cx.build());
        let Some(pause) = decision.pause_asked() else { continue };
        seen += 1;
        assert!((secs(7)..=secs(40)).contains(&pause.duration()) && pause.probe_count() == 3);
    }
    assert!(seen > 100, "{seen}");
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"max_attempts":8,"ratio":1,"min_events":1,"max_delay":600}"#] {
        properties::never_panics(&CircuitBreaker, params);
        properties::bounded(&CircuitBreaker, params, mins(10));
        properties::terminates(&CircuitBreaker, params, 8);
    }
    properties::defaults_hold(&CircuitBreaker);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"min_events":0}"#, "min_events"),
        (r#"{"min_events":1.5}"#, "min_events"),
        (r#"{"ratio":0}"#, "ratio"),
        (r#"{"ratio":1.01}"#, "ratio"),
        (r#"{"ratio":-0.5}"#, "ratio"),
        (r#"{"ratio":"50%"}"#, "ratio"),
        (r#"{"consecutive_failures":0}"#, "consecutive_failures"),
        (r#"{"probes":0}"#, "probes"),
        (r#"{"probes":1001}"#, "probes"),
        (r#"{"pause":0}"#, "pause"),
        (r#"{"pause":"1h"}"#, "max_pause"),
        (r#"{"max_pause":"1s"}"#, "max_pause"),
        (r#"{"delay":"1h"}"#, "max_delay"),
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"threshold":5}"#, "threshold"),
    ] {
        assert_eq!(check(&CircuitBreaker, params).expect_err(params).path(), path, "{params}");
    }
}

/// The README's tables and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&CircuitBreaker.describe()));
    readme::assert_section(HERE, "outage", &outage());
    let charts = [("{}", "timeout*"), (r#"{"max_attempts":4}"#, "timeout, unavailable(1m), timeout*")];
    let charts = charts.map(|(params, script)| readme::chart(&CircuitBreaker, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}

/// The story of an outage, as a table.
fn outage() -> String {
    let mut subscription = Subscription::new(MANY);
    let mut delivery = Delivery::default();
    for _ in 0..9 {
        let _ = subscription.fail(&mut delivery);
    }
    let mut table = String::from("| after | what fails | the circuit opens for |\n|---|---|---|\n");
    for number in 0..6 {
        let pause = paused(&subscription.fail(&mut delivery)).unwrap_or_default();
        let what = if number == 0 { "the tenth delivery in a row" } else { "a probe" };
        table.push_str(&format!("| {} | {what} | {} |\n", format(subscription.clock), format(pause)));
        subscription.clock += pause;
    }
    table
}
