//! The HTTP status policy over its cases, whole deliveries, hostile contexts, and its README.

use http_status::HttpStatus;
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, End, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&HttpStatus, HERE);
}

/// Each status from 100 to 599 is retried or goes to the queue its meaning says.
#[test]
fn every_status_has_its_place() {
    for status in 100..600 {
        let cx = ContextBuilder::new().code(status.to_string()).build();
        let decision = HttpStatus.decide(&cx);
        let queue = match decision.action() {
            Action::DeadLetter(letter) => letter.queue_name(),
            _ => None,
        };
        let expected = match status {
            404 | 410 => Some("gone"),
            408 | 425 | 429 => None,
            400..500 => Some("rejected"),
            _ => None,
        };
        assert_eq!(queue, expected, "{status}");
        assert_eq!(decision.delay().is_some(), expected.is_none(), "{status}");
    }
}

/// Every queue it can name is in its description.
#[test]
fn its_queues_are_described() {
    let description = HttpStatus.describe();
    for script in ["503*", "404", "422"] {
        let schedule = Simulation::of(&HttpStatus).script(script);
        assert_eq!(schedule.end(), End::DeadLettered);
        let Some(Action::DeadLetter(letter)) = schedule.last().map(Decision::action) else {
            panic!("{script}");
        };
        let queue = letter.queue_name().unwrap_or_default();
        assert!(description.queues().iter().any(|known| known == queue), "{queue}");
    }
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"max_attempts":8,"delay":"5s","max_delay":600}"#] {
        properties::never_panics(&HttpStatus, params);
        properties::bounded(&HttpStatus, params, mins(10));
        properties::terminates(&HttpStatus, params, 8);
    }
    properties::defaults_hold(&HttpStatus);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"max_attempts":-1}"#, "max_attempts"),
        (r#"{"max_attempts":1.5}"#, "max_attempts"),
        (r#"{"max_attempts":1e300}"#, "max_attempts"),
        (r#"{"max_attempts":"8"}"#, "max_attempts"),
        (r#"{"delay":-1}"#, "delay"),
        (r#"{"delay":"1h","max_delay":"1m"}"#, "delay"),
        (r#"{"max_delay":"2 years"}"#, "max_delay"),
        (r#"{"max_delay":NaN}"#, ""),
        (r#"{"jitter":"none"}"#, "jitter"),
    ] {
        assert_eq!(check(&HttpStatus, params).expect_err(params).path(), path);
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&HttpStatus.describe()));
    let charts = ["503*", "500, 429(30s), 404"].map(|script| readme::chart(&HttpStatus, "{}", script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
