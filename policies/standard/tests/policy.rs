//! The standard policy over whole deliveries, hostile contexts, bad parameters, and its README.

use reprise_policy::prelude::*;
use reprise_policy::testing::{End, Outcomes, Simulation, check, fixtures, properties, readme};
use standard::Standard;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&Standard, HERE);
}

/// Back-off [1s, 5s] and three attempts: redeliveries are 1s and 5s apart, then a dead letter (s01).
#[test]
fn s01_an_explicit_schedule_is_kept() {
    let params = r#"{"delay":["1s","5s"],"max_attempts":3}"#;
    let schedule = Simulation::of(&Standard).params(params).script("timeout*");
    assert_eq!(schedule.delays(), [secs(1), secs(5)]);
    assert_eq!(schedule.end(), End::DeadLettered);
    assert_eq!(schedule.steps().len(), 3);
}

/// N attempts mean N deliveries numbered 1..N, then one dead letter (s05).
#[test]
fn s05_n_attempts_are_n_deliveries() {
    for n in [1, 2, 3, 20] {
        let params = format!("{{\"max_attempts\":{n}}}");
        let schedule = Simulation::of(&Standard).params(params).script("timeout*");
        let attempts: Vec<u32> = schedule.steps().iter().map(|step| step.attempt).collect();
        assert_eq!(attempts, (1..=n).collect::<Vec<u32>>());
        assert_eq!(schedule.end(), End::DeadLettered);
        assert_eq!(schedule.last().and_then(Decision::filed_reason), Some("max_attempts"));
    }
}

/// Releases use up no attempt and no step (s10).
#[test]
fn s10_releases_do_not_count() {
    let params = r#"{"max_attempts":2,"jitter":"none"}"#;
    let schedule = Simulation::of(&Standard).params(params).script("released*20, timeout, released, timeout");
    let delays = schedule.delays();
    assert!(delays[..20].iter().all(Duration::is_zero));
    assert_eq!(delays[20..], [secs(5), Duration::ZERO]);
    assert_eq!(schedule.end(), End::DeadLettered);
}

/// The delay never shrinks and never passes max_delay, up to absurd numbers of failures (s13).
#[test]
fn s13_monotone_up_to_the_cap() {
    let params = r#"{"jitter":"none","max_attempts":1000000}"#;
    let outcomes = Outcomes::always("timeout");
    let delays = Simulation::of(&Standard).params(params).run(&outcomes).delays();
    assert!(delays.is_sorted());
    assert_eq!(delays.last(), Some(&mins(10)));
}

/// A delay longer than the usual cap is not shortened behind the user's back; an explicit
/// contradiction is refused.
#[test]
fn a_long_delay_lifts_the_default_cap() {
    let first = |params| Simulation::of(&Standard).params(params).script("timeout").delays();
    assert_eq!(first(r#"{"delay":"1h","backoff":"fixed"}"#), [hours(1)]);
    assert_eq!(first(r#"{"delay":["20m","1h"]}"#), [mins(20)]);
    assert_eq!(first(r#"{"max_delay":"1s","jitter":"none"}"#), [secs(1)]);
    let error = check(&Standard, r#"{"delay":"1h","max_delay":"10m"}"#).expect_err("contradiction");
    assert_eq!(error.to_string(), "`delay`: is longer than max_delay, 10m");
}

/// Properties of any sound policy, with no, some and all parameters.
#[test]
fn sound_under_hostile_contexts() {
    for params in [
        "{}",
        r#"{"jitter":"full","max_delay":"10m"}"#,
        r#"{"delay":["1s","1m"],"jitter":"equal"}"#,
        r#"{"backoff":"linear","classes":{"timeout":{"delay":"10m","jitter":"full"},"validation":{"action":"drop"}}}"#,
    ] {
        assert_eq!(check(&Standard, params), Ok(()));
        properties::never_panics(&Standard, params);
        properties::bounded(&Standard, params, mins(10));
        properties::terminates(&Standard, params, 5);
    }
    properties::defaults_hold(&Standard);
}

/// What cannot be meant is refused, and the message names the place.
#[test]
fn bad_parameters_are_refused_with_their_place() {
    for (params, message) in [
        ("[]", "parameters are a JSON object"),
        (r#"{"max_attempts":NaN}"#, "not valid JSON (at byte 16)"),
        (r#"{"max_attempts":-1}"#, "`max_attempts`: must be a whole number from 0, not -1"),
        (r#"{"max_attempts":2.5}"#, "`max_attempts`: must be a whole number from 0, not 2.5"),
        (r#"{"max_attempts":"5"}"#, "`max_attempts`: must be a whole number from 0, not \"5\""),
        (r#"{"max_attempts":1e9}"#, "`max_attempts`: at most 1000000"),
        (r#"{"delay":"5"}"#, "`delay`: a duration in quotes needs a unit (ms, s, m, h or d), not \"5\""),
        (r#"{"delay":1e400}"#, "`delay`: a duration is at most one year, not 1e400"),
        (r#"{"delay":[]}"#, "`delay`: a list of delays has at least one"),
        (r#"{"delay":["1s",-1]}"#, "`delay`: a duration cannot be negative, not -1"),
        (r#"{"factor":0.5}"#, "`factor`: must be from 1 to 1000, not 0.5"),
        (r#"{"factor":"2"}"#, "`factor`: must be a number, not \"2\""),
        (r#"{"backoff":"expo"}"#, "`backoff`: must be exponential, linear or fixed, not \"expo\""),
        (r#"{"jitter":true}"#, "`jitter`: must be text, not true"),
        (r#"{"on_expired":"keep"}"#, "`on_expired`: must be dead_letter, drop or retry, not \"keep\""),
        (r#"{"delay":1,"delay":2}"#, "`delay`: given twice"),
        (r#"{"classes":[]}"#, "`classes`: must be an object, not []"),
        (r#"{"classes":{"x":5}}"#, "`classes.x`: must be an object, not 5"),
        (r#"{"classes":{"x":{},"x":{}}}"#, "`classes.x`: given twice"),
        (
            r#"{"classes":{"x":{"action":"ignore"}}}"#,
            "`classes.x.action`: must be retry, dead_letter or drop, not \"ignore\"",
        ),
        (
            r#"{"classes":{"x":{"action":"dead_letter","delay":5}}}"#,
            "`classes.x.action`: a class that is not retried has no attempts or delays of its own",
        ),
        (
            r#"{"classes":{"x":{"action":"drop","queue":"q"}}}"#,
            "`classes.x.queue`: what is dropped goes to no queue",
        ),
        (r#"{"classes":{"x":{"queue":""}}}"#, "`classes.x.queue`: a queue's name cannot be empty"),
    ] {
        let error = check(&Standard, params).expect_err(params);
        assert_eq!(error.to_string(), message);
    }
}

/// Parameters that were never checked cost no message: the defaults apply, and the note tells.
#[test]
fn unchecked_parameters_fall_back_to_the_defaults() {
    let schedule = Simulation::of(&Standard).params(r#"{"delay":"soon"}"#).script("timeout*");
    assert_eq!(schedule.steps().len(), 5);
    let note = schedule.last().and_then(Decision::shown_note).unwrap_or_default();
    assert!(note.contains("`delay`"), "{note}");
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&Standard.describe()));
    let charts = [
        ("{}", "timeout*"),
        (r#"{"max_attempts":8,"delay":"1s","max_delay":"30s","jitter":"none"}"#, "timeout*"),
        (r#"{"delay":["1s","5s","30s"],"max_attempts":5}"#, "timeout*2, rate_limited(20s), timeout*"),
        (r#"{"classes":{"validation":{"action":"dead_letter","queue":"invalid"}}}"#, "timeout, validation"),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&Standard, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
