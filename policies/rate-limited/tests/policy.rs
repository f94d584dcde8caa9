//! The rate limit policy over its cases, whole deliveries, hostile contexts, and its README.

use rate_limited::RateLimited;
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, End, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&RateLimited, HERE);
}

/// The wait is never shorter than asked, and those who were asked the same come back apart (s17).
#[test]
fn s17_the_spread_comes_after_the_hint() {
    let wait = |seed| {
        let cx = ContextBuilder::new().seed(seed).retry_after(secs(60)).build();
        RateLimited.decide(&cx).delay().unwrap_or_default()
    };
    let waits: Vec<Duration> = (0..1_000).map(wait).collect();
    assert!(waits.iter().all(|wait| (secs(60)..=secs(72)).contains(wait)));
    for second in 60..72 {
        let near = waits.iter().filter(|wait| wait.as_secs() == second).count();
        assert!(near > 40, "{near} in second {second}");
    }
}

/// It gives up by time, not by attempts.
#[test]
fn it_gives_up_by_time() {
    let params = r#"{"max_wait":"1h","spread":0}"#;
    let schedule = Simulation::of(&RateLimited).params(params).script("rate_limited(1m)*");
    assert_eq!(schedule.end(), End::DeadLettered);
    assert_eq!(schedule.steps().len(), 61);
    assert_eq!(schedule.total(), hours(1));
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"max_delay":"15m","spread":0.2,"delay":5}"#] {
        properties::never_panics(&RateLimited, params);
        properties::bounded(&RateLimited, params, mins(18));
        properties::terminates(&RateLimited, params, 250);
    }
    properties::defaults_hold(&RateLimited);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"spread":-0.1}"#, "spread"),
        (r#"{"spread":1e400}"#, "spread"),
        (r#"{"spread":"20%"}"#, "spread"),
        (r#"{"spread":NaN}"#, ""),
        (r#"{"delay":"0s"}"#, "delay"),
        (r#"{"max_delay":0}"#, "max_delay"),
        (r#"{"max_wait":-1}"#, "max_wait"),
        (r#"{"max_wait":"400d"}"#, "max_wait"),
        (r#"{"delay":"1h","max_delay":"1m"}"#, "delay"),
        (r#"{"max_attempts":5}"#, "max_attempts"),
    ] {
        assert_eq!(check(&RateLimited, params).expect_err(params).path(), path);
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&RateLimited.describe()));
    let charts = [
        ("{}", "rate_limited(30s)*2, rate_limited(2m), timeout*3, ok"),
        (r#"{"max_wait":"3m","spread":0.5}"#, "rate_limited(1m)*"),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&RateLimited, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
