//! What one decision costs, each in a fresh sandbox: on one thread, and through the evaluators.
//!
//! `cargo bench -p reprise-broker --bench decision [-- POLICY.wasm]`; without a policy, on the standard one.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use reprise_broker::domain::context::Context;
use reprise_broker::domain::id::SubscriptionId;
use reprise_broker::policy::{Ask, Evaluators, Limits, Program, Sandbox, standard_contexts};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    // Cargo adds `--bench`.
    let path = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let bytes = match &path {
        Some(path) => std::fs::read(path)?,
        None => include_bytes!(env!("STANDARD_POLICY")).to_vec(),
    };
    let start = Instant::now();
    let (program, rehearsal) = Sandbox::new(Limits::default())?.admit(&bytes, "{}")?;
    let admission = start.elapsed();
    let name = &program.description().name;
    println!(
        "policy         {name}, {} bytes, admitted in {admission:.1?}, at most {} fuel",
        bytes.len(),
        rehearsal.fuel
    );
    let contexts = standard_contexts("{}");
    for (name, context) in &contexts {
        one_thread(name, &program, context);
    }
    let context = contexts.iter().find(|(name, _)| name == "fourth nacked").map(|(_, context)| context);
    let context = context.ok_or("a standard context is gone")?;
    let cores = std::thread::available_parallelism()?.get();
    for threads in [1, cores, cores + 1] {
        many_threads(threads, &program, context)?;
    }
    Ok(())
}

/// Prints how long single decisions take.
fn one_thread(name: &str, program: &Program, context: &Context) {
    const DECISIONS: u32 = 100_000;
    const SECOND: u64 = 1_000_000_000;
    let mut times = Histogram::<u64>::new_with_bounds(1, SECOND, 3).expect("the bounds are in order");
    let fuel = program.decide(context).fuel;
    let start = Instant::now();
    for _ in 0..DECISIONS {
        let start = Instant::now();
        drop(black_box(program.decide(black_box(context))));
        times.saturating_record(start.elapsed().as_nanos() as u64);
    }
    let mean = start.elapsed() / DECISIONS;
    let at = |quantile| Duration::from_nanos(times.value_at_quantile(quantile));
    println!(
        "decision       mean {mean:>8.2?}  p50 {:>8.2?}  p99 {:>8.2?}  p99.9 {:>8.2?}  {fuel:>6} fuel  {name}",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

/// Prints how many decisions the evaluators take per second, for eight subscriptions.
fn many_threads(threads: usize, program: &Arc<Program>, context: &Context) -> Outcome<()> {
    const DECISIONS: usize = 200_000;
    const BATCH: usize = 100;
    let (sender, results) = crossbeam_channel::unbounded();
    let deliver = move |batch: Vec<_>| _ = sender.send(batch.len());
    let evaluators = Evaluators::start(NonZeroUsize::new(threads).ok_or("no threads")?, deliver)?;
    let start = Instant::now();
    for batch in 0..DECISIONS / BATCH {
        let subscription = SubscriptionId((batch % 8) as u32);
        let ask = |token| Ask { subscription, token, program: Arc::clone(program), context: context.clone() };
        evaluators.submit((0..BATCH).map(ask).collect());
    }
    let mut done = 0;
    while done < DECISIONS {
        done += results.recv()?;
    }
    let rate = DECISIONS as f64 / start.elapsed().as_secs_f64();
    println!("evaluators     {threads} threads  {rate:>8.0} decisions/s");
    Ok(())
}
