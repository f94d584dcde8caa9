//! The decorrelated jitter policy over its cases, whole deliveries, hostile contexts, and its README.

use decorrelated_jitter::DecorrelatedJitter;
use reprise_policy::prelude::*;
use reprise_policy::testing::{End, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&DecorrelatedJitter, HERE);
}

/// Whole deliveries wait within the bounds of the published formula, drawn by drawn, and reach each end of
/// them: `sleep = min(cap, random_between(base, sleep * 3))`.
#[test]
fn each_delay_follows_the_one_before() {
    let (base, cap) = (secs(1), mins(10));
    let (mut capped, mut shrunk) = (0, 0);
    for seed in 0..500 {
        let schedule = Simulation::of(&DecorrelatedJitter)
            .params(r#"{"max_attempts":40}"#)
            .seed(seed)
            .script("timeout*");
        let delays = schedule.delays();
        assert_eq!(delays.len(), 39);
        let mut last = base;
        for delay in delays {
            assert!((base..=cap.min(last * 3)).contains(&delay), "{delay:?} after {last:?}");
            capped += u32::from(delay == cap);
            shrunk += u32::from(delay < last);
            last = delay;
        }
    }
    assert!(capped > 1_000 && shrunk > 1_000, "{capped} at the cap, {shrunk} shorter than the last");
}

/// Deliveries that failed together do not come back together: after three failures, few of a thousand share a moment.
#[test]
fn s17_deliveries_come_apart() {
    let third = |seed| {
        let schedule = Simulation::of(&DecorrelatedJitter).seed(seed).script("timeout*3");
        schedule.total().as_millis()
    };
    let mut totals: Vec<u128> = (0..1_000).map(third).collect();
    totals.sort_unstable();
    totals.dedup();
    assert!(totals.len() > 850, "{} different moments", totals.len());
}

/// Releases use up neither an attempt nor a step.
#[test]
fn s10_releases_do_not_count() {
    let schedule = Simulation::of(&DecorrelatedJitter)
        .params(r#"{"max_attempts":3}"#)
        .script("timeout, released*10, timeout, timeout");
    assert_eq!(schedule.end(), End::DeadLettered);
    let delays = schedule.delays();
    assert!(delays.get(1..11).is_some_and(|released| released.iter().all(Duration::is_zero)));
    assert_eq!(delays.len(), 12);
    let waited = |index: usize| delays.get(index).copied().unwrap_or_default();
    assert!((secs(1)..=waited(0) * 3).contains(&waited(11)));
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"max_attempts":10,"delay":"10m"}"#] {
        properties::never_panics(&DecorrelatedJitter, params);
        properties::bounded(&DecorrelatedJitter, params, mins(10));
        properties::terminates(&DecorrelatedJitter, params, 10);
    }
    properties::defaults_hold(&DecorrelatedJitter);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"max_attempts":1.5}"#, "max_attempts"),
        (r#"{"delay":0}"#, "delay"),
        (r#"{"delay":"-1s"}"#, "delay"),
        (r#"{"delay":"1h"}"#, "max_delay"),
        (r#"{"max_delay":0}"#, "max_delay"),
        (r#"{"max_delay":"2 years"}"#, "max_delay"),
        (r#"{"jitter":"full"}"#, "jitter"),
    ] {
        assert_eq!(check(&DecorrelatedJitter, params).expect_err(params).path(), path, "{params}");
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&DecorrelatedJitter.describe()));
    let charts = [
        ("{}", "timeout*"),
        (r#"{"max_attempts":4,"delay":"5s","max_delay":"1m"}"#, "timeout, rate_limited(8s), timeout*"),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&DecorrelatedJitter, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
