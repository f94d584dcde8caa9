//! Where the time of a decision goes. Not a test of anything: run it in release, on a policy of your choice.
//!
//! `POLICY=policy.wasm cargo test --release -p reprise-broker --lib policy::tests::cost -- --ignored --nocapture`

#![expect(clippy::print_stdout, reason = "figures for people")]

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::policy::input::{self, Input};

/// Prints the mean of the fastest of five runs.
fn time(what: &str, mut step: impl FnMut()) {
    const STEPS: u32 = 20_000;
    let run = |step: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..STEPS).for_each(|_| step());
        start.elapsed() / STEPS
    };
    let fastest = (0..5).map(|_| run(&mut step)).min().unwrap_or_default();
    println!("{what:32} {:>9.3} us", fastest.as_secs_f64() * 1e6);
}

#[test]
#[ignore = "a measurement"]
fn where_the_time_of_a_decision_goes() {
    let bytes = match std::env::var("POLICY") {
        Ok(path) => std::fs::read(path).expect("a policy"),
        Err(_) => Guest::default().module(),
    };
    let (program, rehearsal) = sandbox().admit(&bytes, "{}").expect("admitted");
    let mut contexts = standard_contexts("{}");
    let place = contexts.iter().position(|(name, _)| name == "fourth nacked").expect("a standard context");
    let context = contexts.swap_remove(place).1;
    println!(
        "{} bytes, {} fuel, at most {} in the trial",
        bytes.len(),
        program.decide(&context).fuel,
        rehearsal.fuel
    );
    println!("{:?}", program.decide(&context));
    let guest = &program.guest;
    time("input", || drop(black_box(Input::new(&context))));
    let input = Input::new(&context);
    time("hash", || _ = black_box(input::hash(&input.lend())));
    time("store", || drop(black_box(guest.sandbox.store())));
    let make = || {
        let mut store = guest.sandbox.store().expect("a store");
        let instance = guest.pre.instantiate(&mut store).expect("an instance");
        (store, instance)
    };
    time("store, instance", || drop(black_box(make())));
    let (mut kept, instance) = make();
    time("type check", || drop(black_box(guest.decide(&mut kept, instance))));
    // Refreshed now and then: most guests never free, as an instance lives for one decision.
    const REUSES: u32 = 500;
    let mut calls = 0;
    let mut decide = guest.decide(&mut kept, instance).expect("typed");
    time("call in a reused instance", || {
        calls += 1;
        if calls % REUSES == 0 {
            let (store, instance) = make();
            kept = store;
            decide = guest.decide(&mut kept, instance).expect("typed");
        }
        kept.set_fuel(u64::MAX / 2).expect("fuel");
        kept.set_epoch_deadline(1_000_000);
        drop(black_box(decide.call(&mut kept, (input.lend(),)).expect("an answer")));
    });
    time("decision in a fresh sandbox", || drop(black_box(program.decide(&context))));
}
