//! The quarantine policy over its cases, whole deliveries, hostile contexts, and its README.

use crash_quarantine::CrashQuarantine;
use reprise_policy::prelude::*;
use reprise_policy::testing::{End, Schedule, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&CrashQuarantine, HERE);
}

fn play(params: &str, script: &str) -> Schedule {
    assert_eq!(check(&CrashQuarantine, params), Ok(()));
    Simulation::of(&CrashQuarantine).params(params).script(script)
}

/// Where it ended, its attempts, and the value of a label.
fn end<'s>(schedule: &'s Schedule, label: &str) -> (Option<&'s str>, usize, Option<&'s str>) {
    assert_eq!(schedule.end(), End::DeadLettered);
    let Some(Action::DeadLetter(letter)) = schedule.last().map(Decision::action) else {
        panic!("no dead letter: {schedule}");
    };
    let value = letter.labels().find(|(name, _)| *name == label).map(|(_, value)| value);
    (letter.queue_name(), schedule.steps().len(), value)
}

/// Crashes are counted in all or in a row, through every mixture with failures and releases.
#[test]
fn crashes_are_counted_in_all_or_in_a_row() {
    let (in_all, in_a_row) = ("{}", r#"{"in_a_row":true}"#);
    for (params, script, queue, attempts) in [
        (in_all, "lease_expired*", Some("quarantine"), 3),
        (in_all, "disconnected, lease_expired, disconnected", Some("quarantine"), 3),
        (in_all, "lease_expired, timeout, lease_expired, timeout, lease_expired", Some("quarantine"), 5),
        (in_a_row, "lease_expired, timeout, lease_expired, timeout, lease_expired*", Some("quarantine"), 7),
        (in_a_row, "lease_expired, released*5, lease_expired, lease_expired", Some("quarantine"), 8),
        (in_a_row, "lease_expired*2, timeout, lease_expired*2, timeout, lease_expired*2", None, 8),
        (in_all, "timeout*", None, 8),
    ] {
        let schedule = play(params, script);
        let (to, steps, _) = end(&schedule, "class");
        assert_eq!((to, steps), (queue, attempts), "{params} {script}\n{schedule}");
    }
}

/// The count outlives the sixteen attempts that the history shows.
#[test]
fn the_count_outlives_the_history() {
    let params = r#"{"crashes":25,"max_attempts":100,"delay":0}"#;
    let schedule = play(params, "lease_expired*20, released*30, lease_expired*");
    assert_eq!(end(&schedule, "crashes"), (Some("quarantine"), 55, Some("25")));
    let schedule = play(
        r#"{"crashes":25,"max_attempts":100,"in_a_row":true}"#,
        "lease_expired*20, timeout, lease_expired*",
    );
    assert_eq!(end(&schedule, "in_a_row"), (Some("quarantine"), 46, Some("25")));
    assert_eq!(end(&schedule, "crashes").2, Some("45"));
    let times = end(&schedule, "crashed_at").2.unwrap_or_default();
    assert_eq!(times.split(' ').count(), 17, "sixteen of the history and this one");
}

/// Every queue it can name is in its description.
#[test]
fn its_queues_are_described() {
    assert_eq!(CrashQuarantine.describe().queues(), ["quarantine"]);
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"crashes":8,"in_a_row":true,"max_attempts":8,"max_delay":600}"#] {
        properties::never_panics(&CrashQuarantine, params);
        properties::bounded(&CrashQuarantine, params, mins(10));
        properties::terminates(&CrashQuarantine, params, 8);
    }
    properties::defaults_hold(&CrashQuarantine);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"crashes":0}"#, "crashes"),
        (r#"{"crashes":2.5}"#, "crashes"),
        (r#"{"crashes":"3"}"#, "crashes"),
        (r#"{"crashes":9}"#, "max_attempts"),
        (r#"{"max_attempts":2}"#, "max_attempts"),
        (r#"{"max_attempts":1e9}"#, "max_attempts"),
        (r#"{"in_a_row":"yes"}"#, "in_a_row"),
        (r#"{"delay":-1}"#, "delay"),
        (r#"{"delay":"1h"}"#, "max_delay"),
        (r#"{"queue":"x"}"#, "queue"),
    ] {
        assert_eq!(check(&CrashQuarantine, params).expect_err(params).path(), path, "{params}");
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&CrashQuarantine.describe()));
    let charts = [
        ("{}", "lease_expired, timeout, disconnected, lease_expired"),
        (r#"{"in_a_row":true}"#, "lease_expired*2, timeout, lease_expired*"),
        ("{}", "timeout*"),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&CrashQuarantine, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
