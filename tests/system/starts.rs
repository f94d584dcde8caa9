//! A start with many policies: the broker serves at once, and each policy decides when it is asked.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Broker, guests, wait_for};

const POLICIES: usize = 200;

/// Two hundred policies, all different. With what was compiled before, or without it, the broker is ready at once, a
/// policy that is asked does not wait for those that are not, and in the end all are ready.
#[test]
fn two_hundred_policies_do_not_delay_a_start() {
    let mut broker = Broker::start();
    broker.topic("t");
    let name = |number: usize| format!("s{number:03}");
    let delay = |number: usize| format!("{}s", 1_000 + number);
    for number in 0..POLICIES {
        broker.subscribe(&name(number), "t", json!({}));
        let guest = guests::deciding(&guests::retry((1_000 + number as u64) * 1_000));
        broker.upload(&name(number), &guest.module(), None).expect(201);
    }
    let compiled = broker.folder().data().join("compiled");
    let count = || std::fs::read_dir(&compiled).map_or(0, Iterator::count);
    assert_eq!(count(), POLICIES, "each was kept");
    broker.publish("t", &json!(1));
    let decided = |broker: &Broker, number: usize| {
        let delivery = broker.next(&name(number));
        let decision = broker.nack(&name(number), &delivery.receipt, "x")["decision"].clone();
        let expected = humantime::parse_duration(&delay(number)).expect("a duration");
        assert_eq!(humantime::parse_duration(decision["delay"].as_str().expect("a delay")), Ok(expected));
        assert_eq!(decision["fault"], json!(null), "{decision}");
    };

    broker.kill();
    let start = Instant::now();
    broker.start_again();
    decided(&broker, POLICIES - 1);
    let warm = start.elapsed();

    broker.kill();
    std::fs::remove_dir_all(&compiled).expect("it is there");
    let start = Instant::now();
    broker.start_again();
    decided(&broker, POLICIES - 2);
    let cold = start.elapsed();
    assert!(count() < POLICIES / 2, "the last but one came first, after {} others", count());
    for (what, time) in [("with", warm), ("without", cold)] {
        assert!(time < Duration::from_secs(15), "{what} compiled policies a decision took {time:?}");
    }
    for number in 0..10 {
        decided(&broker, number);
    }
    wait_for_all(&count);
}

/// Nobody asks them; they are made ready all the same.
fn wait_for_all(count: &impl Fn() -> usize) {
    // Each wait has its bound, and there is progress or there is none.
    while count() < POLICIES {
        let before = count();
        wait_for("one more is compiled", || (count() > before).then_some(()));
    }
}

/// Each policy that is ready is an open file, as each connection is: the usual thousand would not do for both.
#[test]
fn a_broker_takes_the_open_files_that_it_may_have() {
    let broker = Broker::start();
    let limits = broker.process().limits();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), words.next(), "soft and hard");
}
