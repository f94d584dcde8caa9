//! The deadline policy over its cases, whole deliveries, hostile contexts, and its README.

use deadline::Deadline;
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, End, NOW, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&Deadline, HERE);
}

/// Whatever the parameters, and however long attempts take: no attempt begins later than an attempt before the
/// deadline, the last one begins exactly then, and it ends as a dead letter in `deadline`.
#[test]
fn the_last_attempt_begins_when_one_just_fits() {
    for (deadline, attempt) in [(60, 5), (3_600, 30), (90, 89), (7, 1), (86_400, 600)] {
        for work in [secs(0), millis(250), secs(attempt)] {
            let params = format!("{{\"deadline\":{deadline},\"attempt\":{attempt}}}");
            assert_eq!(check(&Deadline, &params), Ok(()));
            let schedule = Simulation::of(&Deadline).params(&params).work(work).script("timeout*");
            assert_eq!(schedule.end(), End::DeadLettered);
            let starts: Vec<Duration> =
                schedule.steps().iter().map(|step| step.at.saturating_sub(work)).collect();
            let last = secs(deadline - attempt);
            assert!(starts.iter().all(|start| *start <= last), "{params}: {starts:?}");
            let too_late = schedule.total() - work;
            // An attempt that is failing as the last start passes leaves no room for another.
            assert!(starts.last() == Some(&last) || too_late + work > last, "{params}: {starts:?}");
            assert!(schedule.total() <= secs(deadline), "{params}");
            let letter = schedule.last().map(Decision::action);
            assert!(matches!(letter, Some(Action::DeadLetter(it)) if it.queue_name() == Some("deadline")));
        }
    }
}

/// No retry of any context begins where an attempt no longer fits before the deadline or the message's own end.
#[test]
fn no_retry_passes_either_bound() {
    let mut random = Random::new(3);
    let mut retried = 0;
    for _ in 0..20_000 {
        let age = secs(random.between(0, 4_000));
        let mut cx = ContextBuilder::new()
            .now(Timestamp::from_millis(NOW))
            .published(age)
            .failures(random.between(1, 12) as u32)
            .seed(random.bits());
        let left = secs(random.between(0, 2_000));
        let expires = random.chance(0.5);
        if expires {
            cx = cx.expires_in(left);
        }
        if random.chance(0.3) {
            cx = cx.retry_after(secs(random.between(0, 5_000)));
        }
        let Some(delay) = Deadline.decide(&cx.build()).delay() else { continue };
        retried += 1;
        assert!(age + delay + secs(30) <= hours(1), "{age:?} {delay:?}");
        assert!(!expires || delay + secs(30) <= left, "{left:?} {delay:?}");
    }
    assert!(retried > 5_000, "{retried}");
}

/// Every queue it can name is in its description.
#[test]
fn its_queues_are_described() {
    assert_eq!(Deadline.describe().queues(), ["deadline"]);
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    for params in ["{}", r#"{"from":"first_lease","deadline":"10m","attempt":0,"max_delay":600}"#] {
        assert_eq!(check(&Deadline, params), Ok(()));
        properties::never_panics(&Deadline, params);
        properties::bounded(&Deadline, params, mins(10));
        properties::terminates(&Deadline, params, 40);
    }
    properties::defaults_hold(&Deadline);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    for (params, path) in [
        (r#"{"deadline":0}"#, "deadline"),
        (r#"{"deadline":"-1h"}"#, "deadline"),
        (r#"{"deadline":"2 years"}"#, "deadline"),
        (r#"{"attempt":"1h"}"#, "deadline"),
        (r#"{"deadline":"10s"}"#, "deadline"),
        (r#"{"from":"first"}"#, "from"),
        (r#"{"from":1}"#, "from"),
        (r#"{"delay":0}"#, "delay"),
        (r#"{"delay":"1h"}"#, "max_delay"),
        (r#"{"max_delay":"10ms"}"#, "max_delay"),
        (r#"{"max_attempts":5}"#, "max_attempts"),
    ] {
        assert_eq!(check(&Deadline, params).expect_err(params).path(), path, "{params}");
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&Deadline.describe()));
    let charts = [
        (r#"{"deadline":"5m"}"#, "timeout*"),
        (r#"{"deadline":"2m","attempt":"20s","delay":"10s"}"#, "timeout, rate_limited(1h), timeout"),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&Deadline, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
