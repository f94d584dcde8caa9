//! The opening hours policy over its cases, a naive model, hostile contexts, and its README.

mod model;

use business_hours::BusinessHours;
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, Simulation, check, fixtures, properties, readme};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every case in `fixtures/` holds natively.
#[test]
fn fixtures_hold() {
    fixtures::assert(&BusinessHours, HERE);
}

/// Any hours, days, holidays and offsets, at any moment of eight years: a retry comes when a model that looks at one
/// minute after the other says, and never while it is closed.
#[test]
fn it_agrees_with_a_model_that_counts_minutes() {
    let mut random = Random::new(1);
    let (mut open, mut closed) = (0, 0);
    for _ in 0..3_000 {
        let week = model::Week::draw(&mut random);
        let now = random.between(model::FROM, model::TO);
        let hint = millis(random.between(0, 7_200_000));
        let spread = [0, 900, 86_400][random.between(0, 2) as usize];
        let params = week.params(spread);
        assert_eq!(check(&BusinessHours, &params), Ok(()), "{params}");
        let ask = |hint: Duration| {
            let cx = ContextBuilder::new().now(Timestamp::from_millis(now)).params(&params);
            BusinessHours.decide(&cx.retry_after(hint).seed(now).build()).delay().unwrap_or(Duration::MAX)
        };
        let delay = ask(hint);
        let due = now + hint.as_millis() as u64;
        match week.next_open(due) {
            None => panic!("it never opens: {params}"),
            Some(opening) if opening <= due => {
                open += 1;
                assert_eq!(delay, hint, "{now} is open with {params}");
            }
            Some(opening) => {
                closed += 1;
                let comes = now + delay.as_millis() as u64;
                assert!(
                    (opening..=opening + spread * 1_000).contains(&comes),
                    "{now} {comes} {opening} {params}"
                );
                assert!(week.is_open(comes), "{comes} is closed with {params}");
                // What was moved once stays: asked at the time it comes, it is open.
                assert_eq!(week.next_open(comes), Some(comes));
            }
        }
    }
    assert!(open > 300 && closed > 1_000, "{open} open, {closed} closed");
}

/// What waits for one opening is spread over the time after it, evenly (s17).
#[test]
fn s17_the_morning_is_no_stampede() {
    let friday_night = Timestamp::from_millis(1_767_394_800_000);
    let waits = (0..1_500).map(|seed| {
        let cx = ContextBuilder::new().now(friday_night).seed(seed).build();
        BusinessHours.decide(&cx).delay().unwrap_or_default()
    });
    let opening = hours(58);
    let mut minutes = [0_u32; 15];
    for wait in waits {
        assert!((opening..=opening + mins(15)).contains(&wait), "{wait:?}");
        let minute = (wait - opening).as_secs() / 60;
        minutes[minute.min(14) as usize] += 1;
    }
    assert!(minutes.iter().all(|count| (60..150).contains(count)), "{minutes:?}");
}

/// A year without an opening is not searched for ever: the delivery is given up.
#[test]
fn closed_for_a_year_is_given_up() {
    let mondays = (0..60).map(|week| {
        let millis = 1_767_225_600_000 + (4 + 7 * week) * 86_400_000;
        let text = Timestamp::from_millis(millis).to_string();
        format!("\"{}\"", &text[..10])
    });
    let params = format!(r#"{{"days":"mon","holidays":[{}]}}"#, mondays.collect::<Vec<_>>().join(","));
    assert_eq!(check(&BusinessHours, &params), Ok(()));
    let schedule = Simulation::of(&BusinessHours).params(params).script("timeout*");
    assert_eq!(schedule.last().and_then(Decision::filed_reason), Some("closed for a year"));
    assert_eq!(schedule.steps().len(), 1);
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    // An hour to the closing time, a weekend, and the spread.
    let longest = hours(1) + hours(64) + mins(15);
    for params in ["{}", r#"{"utc_offset":"-12:00","spread":"15m","max_delay":3600}"#] {
        properties::never_panics(&BusinessHours, params);
        properties::bounded(&BusinessHours, params, longest);
        properties::terminates(&BusinessHours, params, 8);
    }
    properties::defaults_hold(&BusinessHours);
}

/// What cannot be meant is refused.
#[test]
fn bad_parameters_are_refused() {
    let many = format!(r#"{{"holidays":[{}]}}"#, ["\"2026-01-01\""; 367].join(","));
    for (params, path) in [
        (r#"{"days":""}"#, "days"),
        (r#"{"days":["mon"]}"#, "days"),
        (r#"{"days":"mon-"}"#, "days"),
        (r#"{"hours":"9-17"}"#, "hours"),
        (r#"{"hours":"17:00-09:00"}"#, "hours"),
        (r#"{"hours":"09:00-12:00,11:00-13:00"}"#, "hours"),
        (r#"{"hours":900}"#, "hours"),
        (r#"{"utc_offset":"CET"}"#, "utc_offset"),
        (r#"{"utc_offset":2}"#, "utc_offset"),
        (r#"{"utc_offset":"+15:00"}"#, "utc_offset"),
        (r#"{"holidays":"christmas"}"#, "holidays"),
        (r#"{"holidays":["2026-12-25",1]}"#, "holidays"),
        (r#"{"holidays":{}}"#, "holidays"),
        (many.as_str(), "holidays"),
        (r#"{"spread":-1}"#, "spread"),
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"delay":"2h"}"#, "max_delay"),
        (r#"{"max_delay":"1y"}"#, "max_delay"),
        (r#"{"time_zone":"+01:00"}"#, "time_zone"),
        (r#"{"days":"mon","days":"tue"}"#, "days"),
    ] {
        assert_eq!(check(&BusinessHours, params).expect_err(params).path(), path, "{params}");
    }
}

/// The README's table and charts come from this code.
#[test]
fn readme_is_true() {
    readme::assert_section(HERE, "parameters", &readme::params_table(&BusinessHours.describe()));
    let charts = [
        (r#"{"utc_offset":"+01:00","max_attempts":4}"#, "timeout*"),
        (
            r#"{"days":"mon-sat","holidays":["2026-01-01","2026-01-02"],"spread":"2h","max_attempts":3}"#,
            "rate_limited(30m), timeout*",
        ),
    ];
    let charts = charts.map(|(params, script)| readme::chart(&BusinessHours, params, script));
    readme::assert_section(HERE, "schedule", &charts.join("\n"));
}
