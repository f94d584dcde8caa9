//! The orders policy over whole deliveries and hostile contexts.

use orders::{CRASHES, FAILURES, Orders};
use reprise_policy::prelude::*;
use reprise_policy::testing::{ContextBuilder, End, Schedule, Simulation, properties};

fn play(script: &str) -> Schedule {
    Simulation::of(&Orders).script(script)
}

/// The dead letter at the end: its queue, reason and labels.
fn letter(schedule: &Schedule) -> (String, String, Vec<(String, String)>) {
    let last = schedule.last().expect("it was asked");
    let Action::DeadLetter(letter) = last.action() else { panic!("not a dead letter:\n{schedule}") };
    let labels = letter.labels().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let reason = last.filed_reason().unwrap_or_default().to_owned();
    (letter.queue_name().unwrap_or_default().to_owned(), reason, labels.collect())
}

/// Timeouts wait longer and longer, at random between nothing and a bound that doubles.
#[test]
fn timeouts_back_off() {
    for seed in 0..100 {
        let delays = Simulation::of(&Orders).seed(seed).script("timeout*5, ok").delays();
        assert_eq!(delays.len(), 5);
        for (delay, bound) in delays.iter().zip([100, 200, 400, 800, 1_600]) {
            assert!(*delay <= millis(bound), "{delay:?} is over {bound} ms");
        }
    }
}

/// The provider knows best when it will take the next call.
#[test]
fn a_rate_limit_is_honoured() {
    let schedule = play("rate_limited(700ms), rate_limited, ok");
    assert_eq!(schedule.delays(), [millis(700), secs(1)]);
    assert_eq!(schedule.end(), End::Acked);
}

/// What is wrong with an order is the reason that it is filed under, at once.
#[test]
fn an_invalid_order_is_not_tried_again() {
    let cx = ContextBuilder::new().class("validation").detail("the total is 1 short").build();
    assert_eq!(Orders.decide(&cx).filed_reason(), Some("the total is 1 short"));
    let (queue, reason, _) = letter(&play("timeout, validation"));
    assert_eq!((&*queue, &*reason), ("invalid", "can never succeed"));
}

/// An order that takes down its worker three times is set apart, with the attempts that it cost.
#[test]
fn a_poisonous_order_is_quarantined() {
    let schedule = play("lease_expired, timeout, lease_expired*");
    let (queue, _, labels) = letter(&schedule);
    assert_eq!(queue, "quarantine");
    assert_eq!(labels, [("crashed_attempts".to_owned(), "1,3,4".to_owned())]);
    assert_eq!(schedule.steps().len(), CRASHES + 1);
}

/// One lost worker is nothing special.
#[test]
fn a_single_crash_is_retried() {
    assert_eq!(play("lease_expired, ok").end(), End::Acked);
}

/// Six failures are the end, whatever they were; a release is none.
#[test]
fn attempts_run_out() {
    for script in ["timeout*", "rate_limited(1s)*", "released*3, timeout*3, rate_limited*"] {
        let schedule = play(script);
        let (queue, reason, labels) = letter(&schedule);
        assert_eq!((&*queue, &*reason), ("exhausted", "out of attempts"), "{script}");
        assert_eq!(labels[0].0, "last_class");
        assert_eq!(schedule.steps().last().map(|step| step.failures), Some(FAILURES), "{script}");
    }
}

/// Properties of any sound policy.
#[test]
fn sound_under_hostile_contexts() {
    properties::never_panics(&Orders, "{}");
    properties::terminates(&Orders, "{}", FAILURES as usize);
    properties::defaults_hold(&Orders);
}
