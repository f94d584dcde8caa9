//! What one decision costs: the standard policy on every standard context and through the evaluators, then policies
//! beside each other, in a fresh sandbox and called as the native functions that they also are.
//!
//! `cargo bench -p reprise-broker --bench decision [-- POLICY.wasm]`; with a policy, on that one alone.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

#[path = "../../tests/support/policies.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod policies;

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use reprise_broker::domain::context::Context;
use reprise_broker::domain::id::SubscriptionId;
use reprise_broker::policy::{Ask, Evaluators, Limits, Program, Sandbox, standard_contexts};
use reprise_policy::testing::ContextBuilder;
use reprise_policy::{Policy, duration::millis};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    // Cargo adds `--bench`.
    let path = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let bytes = match &path {
        Some(path) => std::fs::read(path)?,
        None => include_bytes!(env!("STANDARD_POLICY")).to_vec(),
    };
    let sandbox = Sandbox::new(Limits::default())?;
    let program = admit(&sandbox, &bytes)?;
    let contexts = standard_contexts("{}");
    for (name, context) in &contexts {
        one_thread(name, &program, context);
    }
    let cores = std::thread::available_parallelism()?.get();
    for threads in [1, cores, cores + 1] {
        many_threads(threads, &program, ordinary(&contexts)?)?;
    }
    if path.is_none() {
        println!();
        let native: [(&str, &dyn Policy); 3] = [
            ("standard", &standard::Standard),
            ("http-status", &http_status::HttpStatus),
            ("rate-limited", &rate_limited::RateLimited),
        ];
        for (name, policy) in native {
            let program = admit(&sandbox, &policies::module(name))?;
            beside_native(name, &program, ordinary(&contexts)?, policy);
        }
    }
    Ok(())
}

fn admit(sandbox: &Sandbox, bytes: &[u8]) -> Outcome<Arc<Program>> {
    let start = Instant::now();
    let (program, rehearsal) = sandbox.admit(bytes, "{}")?;
    let name = &program.description().name;
    let (size, code, fuel) = (bytes.len(), program.code_bytes(), rehearsal.fuel);
    let time = start.elapsed();
    println!(
        "policy         {name}, {size} bytes, {code} of machine code, admitted in {time:.1?}, at most {fuel} fuel"
    );
    Ok(program)
}

/// The fourth failure of a busy subscription.
fn ordinary(contexts: &[(String, Context)]) -> Outcome<&Context> {
    let found = contexts.iter().find(|(name, _)| name == "fourth nacked");
    Ok(found.map(|(_, context)| context).ok_or("a standard context is gone")?)
}

/// The same moment for a policy that is called natively.
fn ordinary_native() -> reprise_policy::Context {
    let mut context = ContextBuilder::new()
        .class("timeout")
        .code("504")
        .detail("upstream timed out after 3 seconds")
        .load(60_000, 600)
        .backlog(3_000, 200)
        .params("{}");
    for _ in 1..=3 {
        context = context.past("timeout", millis(1_500));
    }
    for (name, value) in [
        ("tenant", "acme"),
        ("region", "eu-west-1"),
        ("trace", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("kind", "order.created"),
    ] {
        context = context.attribute(name, value);
    }
    context.attempt(4).failures(4).build()
}

/// Prints what the same policy costs in a sandbox and without one: the mean of the fastest of five rounds each, by
/// turns, so that a busy machine slows both.
fn beside_native(name: &str, program: &Program, context: &Context, policy: &dyn Policy) {
    const DECISIONS: u32 = 20_000;
    let native_context = ordinary_native();
    let round = |step: &dyn Fn()| {
        let start = Instant::now();
        (0..DECISIONS).for_each(|_| step());
        start.elapsed() / DECISIONS
    };
    let [mut sandboxed, mut native] = [Duration::MAX; 2];
    for _ in 0..5 {
        sandboxed = sandboxed.min(round(&|| drop(black_box(program.decide(black_box(context))))));
        native = native.min(round(&|| drop(black_box(policy.decide(black_box(&native_context))))));
    }
    let ratio = sandboxed.as_secs_f64() / native.as_secs_f64();
    println!(
        "decision       fresh sandbox {sandboxed:>8.2?}  native {native:>8.2?}  {ratio:>5.1} times  {name}"
    );
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
        let ask = |token| Ask {
            subscription,
            token,
            program: Arc::clone(program),
            context: Box::new(context.clone()),
        };
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
