//! Threads that answer everyone, fairly.

use std::num::NonZeroUsize;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::domain::id::SubscriptionId;
use crate::policy::{Ask, Asked, Evaluators};

type Results = Receiver<Vec<Asked<u32>>>;

/// How long a test waits for what must come; never how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(threads: usize) -> (Evaluators<u32>, Results) {
    let (sender, results) = unbounded();
    let threads = NonZeroUsize::new(threads).expect("threads");
    let deliver = move |batch| drop(sender.send(batch));
    (Evaluators::start(threads, deliver).expect("threads start"), results)
}

fn asks(subscription: u32, program: &Arc<Program>, tokens: std::ops::Range<u32>) -> Vec<Ask<u32>> {
    let ask = |token| Ask {
        subscription: SubscriptionId(subscription),
        token,
        program: Arc::clone(program),
        context: Box::new(context()),
    };
    tokens.map(ask).collect()
}

fn next(results: &Results) -> Vec<Asked<u32>> {
    results.recv_timeout(PATIENCE).expect("results in time")
}

/// Burns all its fuel, every time.
fn slow() -> Arc<Program> {
    load(&deciding("(loop $again (br $again)) (unreachable)"))
}

#[test]
fn every_ask_is_answered_once() {
    let (evaluators, results) = start(3);
    let program = load(&Guest::default());
    for subscription in 0..10 {
        evaluators.submit(asks(subscription, &program, subscription * 100..subscription * 100 + 100));
    }
    let mut tokens = Vec::new();
    while tokens.len() < 1_000 {
        for Asked { token, evaluation, .. } in next(&results) {
            assert_eq!(retry_millis(&evaluation.result), 5_000);
            tokens.push(token);
        }
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (0..1_000).collect::<Vec<_>>());
}

/// One thread, and a subscription with a thousand slow asks before one of another: it is answered after one
/// turn, which ends by its fuel.
#[test]
fn a_slow_policy_gives_way_to_others() {
    let (evaluators, results) = start(1);
    let mut both = asks(1, &slow(), 0..1_000);
    both.extend(asks(2, &load(&Guest::default()), 5_000..5_001));
    evaluators.submit(both);
    let first = next(&results);
    assert_eq!((first.len(), &first[0].evaluation.result), (1, &Err(Fault::Fuel)), "one is a turn");
    let second = next(&results);
    assert_eq!(second[0].token, 5_000);
}

/// Two threads and one subscription that would occupy both: the other thread stays free.
#[test]
fn one_subscription_never_occupies_all_threads() {
    let (release, released) = unbounded::<()>();
    let (sender, results) = unbounded();
    let deliver = move |batch: Vec<Asked<u32>>| {
        let is_held = batch[0].token < 1_000;
        drop(sender.send(batch));
        // A turn of the first subscription lasts until the test ends it.
        if is_held {
            let _ = released.recv();
        }
    };
    let evaluators = Evaluators::start(NonZeroUsize::new(2).expect("two"), deliver).expect("threads start");
    // Dropped before the evaluators, so that a failure ends the turns instead of waiting for them.
    let release = release;
    let program = load(&Guest::default());
    evaluators.submit(asks(1, &program, 0..1_000));
    assert_eq!(next(&results)[0].token, 0);
    evaluators.submit(asks(2, &program, 5_000..5_001));
    assert_eq!(next(&results)[0].token, 5_000);
    drop(release);
}

/// A dedicated thread's stack holds the deepest guest: this would abort the whole test run otherwise.
#[test]
fn a_stack_overflow_on_an_evaluator_is_a_fault() {
    let fields = "(func $deeper (param i32 i64 f64) (result i32)
        (i32.add (i32.const 1) (call $deeper (local.get 0) (local.get 1) (local.get 2))))";
    let decide = "(call $deeper (i32.const 1) (i64.const 2) (f64.const 3))";
    let program = load(&Guest { fields: fields.to_owned(), ..deciding(decide) });
    let (evaluators, results) = start(2);
    evaluators.submit(asks(1, &program, 0..50));
    let mut answered = 0;
    while answered < 50 {
        for Asked { evaluation, .. } in next(&results) {
            assert_eq!(evaluation.result, Err(Fault::Trap("call stack exhausted".to_owned())));
            answered += 1;
        }
    }
}

#[test]
fn dropping_the_evaluators_ends_their_threads() {
    let (evaluators, results) = start(4);
    evaluators.submit(asks(1, &slow(), 0..10_000));
    drop(evaluators);
    // The sender lives in `deliver`, which all threads share: it is gone once they are.
    let delivered: usize = results.iter().map(|batch| batch.len()).sum();
    assert!(delivered < 10_000, "what is queued is dropped, not worked off");
}
