//! The whole broker below the sockets, on a simulated disk and a simulated clock, from a seed.
//!
//! Random producers, consumers and operators work on it, policies answer in the real sandbox, late and in any order,
//! and it crashes at any point. [`model`] holds it to its word; [`audit`] looks at everything it shows. A failing seed
//! is repeated by the command that the failure prints; `SIMULATION_SEEDS` sets how many seeds are tried. [`steps`] has the
//! scenarios that take a clock or a disk which misbehave in one way.

mod audit;
mod drain;
mod model;
mod names;
mod pending;
mod policies;
mod random;
mod records;
mod steps;
mod topics;
mod turns;
mod watched;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use model::Violation;
use world::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 1_000;
/// Turns of one seed before everything is drained.
const TURNS: usize = 120;
/// Turns between two looks at everything.
const AUDIT_EVERY: usize = 12;

/// One life of a broker, from its first start until every message has ended. Returns the fingerprint of all it wrote.
fn run(seed: u64, audit_every: usize) -> Result<String, Violation> {
    let mut world = World::new(seed)?;
    world.set_up()?;
    for turn in 0..TURNS {
        for _ in 0..=world.random.below(6) {
            world.request().map_err(|why| format!("turn {turn}: {why}"))?;
        }
        match world.random.below(100) {
            0..2 => world.arm(),
            2..5 => world.crash().map_err(|why| format!("turn {turn}, crash: {why}"))?,
            _ => {}
        }
        world.turn().map_err(|why| format!("turn {turn}: {why}"))?;
        if turn % audit_every == 0 {
            world.audit().map_err(|why| format!("turn {turn}, audit: {why}"))?;
        }
        world.pass_time();
    }
    world.drain().map_err(|why| format!("drain: {why}"))?;
    Ok(world.trace.fingerprint())
}

/// The same, with panics as violations.
fn try_seed(seed: u64, audit_every: usize) -> Result<String, Violation> {
    let result = catch_unwind(AssertUnwindSafe(|| run(seed, audit_every)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("it panicked: {}", text.unwrap_or_default()))
    });
    let again = "cargo test -p reprise-broker --test simulation every_promise";
    result.map_err(|why| format!("seed {seed}: {why}\n  again: SIMULATION_SEED={seed} {again}\n"))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

/// Rules 1 to 8 hold through every crash: what was answered stays, nothing is granted twice, early or after its end,
/// counters agree with a recount, and in the end every accepted message has ended.
#[test]
fn every_promise_survives_every_crash() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let failed: Vec<Violation> = seeds.filter_map(|seed| try_seed(seed, AUDIT_EVERY).err()).collect();
    let shown: String = failed.iter().take(5).map(String::as_str).collect();
    assert!(failed.is_empty(), "{} of {count} seeds failed\n{shown}", failed.len());
}

/// After any sequence of operations every gauge equals a full recount, with and without a bound on what is in flight, and
/// when nothing is left they are zero: looked at after each turn.
#[test]
fn s46_every_gauge_equals_a_recount() {
    let failed: Vec<Violation> = (5_000..5_040).filter_map(|seed| try_seed(seed, 1).err()).collect();
    assert!(failed.is_empty(), "{}", failed.concat());
}

/// The same seed gives the same writes, syncs and crashes, byte by byte, so that a failing seed can be studied.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces: Vec<_> =
        (0..6).map(|seed| (try_seed(seed, AUDIT_EVERY), try_seed(seed, AUDIT_EVERY))).collect();
    for (first, second) in &traces {
        assert_eq!(first, second);
    }
    assert_ne!(traces[0].0, traces[1].0);
}
