//! Every limit, respected and broken.

use std::time::Duration;

use super::*;
use crate::domain::decision::{Bounds, Decider};
use crate::domain::limits::{MAX_MEMO_BYTES, MAX_PARAMS_BYTES};
use crate::policy::Refusal;

const FIVE_SECONDS: u128 = 5_000;

/// Counts down from this in about five instructions a round, then answers.
fn counting(rounds: u64) -> String {
    format!(
        "(local $left i64) (local.set $left (i64.const {rounds}))
         (loop $again
           (local.set $left (i64.sub (local.get $left) (i64.const 1)))
           (br_if $again (i64.gt_s (local.get $left) (i64.const 0))))
         (i32.const 1024)"
    )
}

#[test]
fn fuel_ends_a_loop_that_is_too_long() {
    let short = load(&deciding(&counting(10_000))).decide(&context());
    assert_eq!(retry_millis(&short.result), FIVE_SECONDS);
    assert!((50_000..200_000).contains(&short.fuel), "{}", short.fuel);

    let endless = load(&deciding("(loop $again (br $again)) (unreachable)")).decide(&context());
    assert_eq!(endless.result, Err(Fault::Fuel));
    assert_eq!(endless.fuel, Limits::default().fuel);
}

#[test]
fn work_in_bulk_burns_fuel_by_its_size() {
    let fill = |bytes: u32| {
        format!("(memory.fill (i32.const 8192) (i32.const 1) (i32.const {bytes})) (i32.const 1024)")
    };
    let pages = 128;
    let few = load(&Guest { pages, ..deciding(&fill(1_000_000)) }).decide(&context());
    assert_eq!(retry_millis(&few.result), FIVE_SECONDS);
    assert!(few.fuel > 1_000_000, "{}", few.fuel);
    let many = load(&Guest { pages, ..deciding(&fill(6_000_000)) }).decide(&context());
    assert_eq!(many.result, Err(Fault::Fuel));
}

#[test]
fn the_deadline_ends_what_fuel_does_not() {
    // Some seconds of fuel, so that a deadline that does not work fails the test instead of hanging it.
    let generous = Limits { fuel: 10_000_000_000, deadline: Duration::from_millis(1), ..Limits::default() };
    let sandbox = Sandbox::new(generous).expect("a sandbox");
    let decide =
        |body: &str| sandbox.load(&deciding(body).module()).expect("it loads").decide(&context()).result;
    assert_eq!(retry_millis(&decide("(i32.const 1024)")), FIVE_SECONDS);
    assert_eq!(decide("(loop $again (br $again)) (unreachable)"), Err(Fault::Time));
}

#[test]
fn memory_ends_at_its_limit() {
    let grow = |pages: u32| format!("(drop (memory.grow (i32.const {pages}))) (i32.const 1024)");
    assert_eq!(retry_millis(&ask(&grow(127))), FIVE_SECONDS, "8 MiB are 128 pages");
    assert_eq!(ask(&grow(128)), Err(Fault::Memory));
}

#[test]
fn memory_for_the_context_counts_too() {
    let mut context = context();
    context.message.payload = Some(vec![7; 9 << 20].into());
    let guest = load(&Guest::default());
    assert_eq!(guest.decide(&context).result, Err(Fault::Memory));
    context.message.payload = None;
    assert_eq!(retry_millis(&guest.decide(&context).result), FIVE_SECONDS, "what is not shown costs nothing");
}

#[test]
fn tables_end_at_their_limit() {
    let grow = |elements: u32| {
        let decide =
            format!("(drop (table.grow $table (ref.null func) (i32.const {elements}))) (i32.const 1024)");
        load(&Guest { fields: "(table $table 1 funcref)".to_owned(), ..deciding(&decide) })
            .decide(&context())
            .result
    };
    assert_eq!(retry_millis(&grow(9_999)), FIVE_SECONDS);
    assert_eq!(grow(10_000), Err(Fault::Memory));
}

#[test]
fn tables_and_memories_are_few() {
    let with = |fields: String| sandbox().load(&Guest { fields, ..Guest::default() }.module());
    let tables = |count| "(table 1 funcref)".repeat(count);
    assert!(with(tables(4)).is_ok());
    assert!(matches!(with(tables(5)), Err(Refusal::Invalid(text)) if text.contains("tables")));
    assert!(matches!(with("(memory $second 1)".to_owned()), Err(Refusal::Invalid(_))));
    let table = |elements: u32| with(format!("(table {elements} funcref)"));
    assert!(table(10_000).is_ok());
    assert!(matches!(table(10_001), Err(Refusal::Invalid(text)) if text.contains("table")));
}

/// Calls itself this many times.
fn recursing(depth: u32) -> Guest {
    let fields = "(func $deeper (param $left i32) (result i32)
        (if (i32.eqz (local.get $left)) (then (return (i32.const 0))))
        (i32.add (i32.const 1) (call $deeper (i32.sub (local.get $left) (i32.const 1)))))";
    let decide = format!("(drop (call $deeper (i32.const {depth}))) (i32.const 1024)");
    Guest { fields: fields.to_owned(), ..deciding(&decide) }
}

#[test]
fn a_stack_overflow_is_a_trap() {
    assert_eq!(retry_millis(&load(&recursing(1_000)).decide(&context()).result), FIVE_SECONDS);
    let endless = load(&recursing(u32::MAX)).decide(&context()).result;
    assert_eq!(endless, Err(Fault::Trap("call stack exhausted".to_owned())));
}

#[test]
fn traps_say_what_happened() {
    let trap = |reason: &str| Err(Fault::Trap(reason.to_owned()));
    assert_eq!(ask("(unreachable)"), trap("wasm `unreachable` instruction executed"));
    assert_eq!(ask("(i32.div_u (i32.const 1) (i32.const 0))"), trap("integer divide by zero"));
    assert_eq!(ask("(i32.load (i32.const -1))"), trap("out of bounds memory access"));
}

/// Answers `drop` with the text at this place.
fn dropping(pointer: u32, length: u32) -> String {
    format!(
        "(i32.store8 (i32.const 1024) (i32.const 3))
         (i32.store (i32.const 1032) (i32.const {pointer}))
         (i32.store (i32.const 1036) (i32.const {length}))
         (i32.const 1024)"
    )
}

#[test]
fn texts_of_an_answer_are_bounded() {
    let fits = ask(&dropping(2048, 5)).expect("an answer");
    assert_eq!(fits.action, AnswerAction::Drop { reason: "guest".to_owned() });
    let long =
        |bytes| load(&Guest { pages: 4, ..deciding(&dropping(65_536, bytes)) }).decide(&context()).result;
    assert!(long(60_000).is_ok());
    let Err(Fault::BadAnswer(text)) = long(70_000) else { panic!("not a bad answer") };
    assert!(text.contains("too much data"), "{text}");
    // Longer than the memory that would hold it.
    let Err(Fault::BadAnswer(text)) = ask(&dropping(0, 100_000_000)) else { panic!("not a bad answer") };
    assert!(text.contains("out of bounds"), "{text}");
}

/// The sandbox hands over what fits an answer; what a subscription keeps of it is checked behind it.
#[test]
fn memos_are_bounded() {
    let bounds = Bounds { min_delay: Duration::ZERO, max_delay: Duration::MAX, forward_to: Vec::new() };
    let memo = |bytes: usize| {
        let decide = format!(
            "(i32.store8 (i32.const 1096) (i32.const 1)) (i32.store (i32.const 1100) (i32.const 8192))
             (i32.store (i32.const 1104) (i32.const {bytes})) (i32.const 1024)"
        );
        ask(&decide).expect("an answer").check(&bounds, Decider::AttemptLimit)
    };
    assert_eq!(memo(MAX_MEMO_BYTES).expect("a decision").memo, [0; MAX_MEMO_BYTES]);
    let refused = Fault::BadAnswer("a memo of 257 bytes, 256 are allowed".to_owned());
    assert_eq!(memo(MAX_MEMO_BYTES + 1), Err(refused));
}

/// Every parameter that may be set can be read, and no more than that is ever handed in.
#[test]
fn the_largest_params_fit() {
    let params = format!("\"{}\"", "x".repeat(MAX_PARAMS_BYTES - 2));
    let (program, rehearsal) = sandbox().admit(&Guest::default().module(), &params).expect("admitted");
    assert_eq!(rehearsal.answers.len(), standard_contexts(&params).len());
    let contexts = standard_contexts(&params);
    assert!(contexts.iter().all(|(_, context)| program.decide(context).result.is_ok()));
}

/// A list may name one text many times: small in the guest, huge in the host.
#[test]
fn lists_of_an_answer_are_bounded() {
    let labels = |count: u32| {
        let decide = format!(
            "(local $at i32)
             (i32.store8 (i32.const 1024) (i32.const 1))
             (i64.store (i32.const 1032) (i64.const 0))
             (i32.store (i32.const 1052) (i32.const 65536))
             (i32.store (i32.const 1056) (i32.const {count}))
             (local.set $at (i32.const 65536))
             (loop $again
               (i32.store (local.get $at) (i32.const 0))
               (i32.store offset=4 (local.get $at) (i32.const 1000))
               (local.set $at (i32.add (local.get $at) (i32.const 8)))
               (br_if $again (i32.lt_u (local.get $at) (i32.const 196608))))
             (i32.const 1024)"
        );
        load(&Guest { pages: 4, ..deciding(&decide) }).decide(&context()).result
    };
    assert!(labels(16).is_ok());
    let Err(Fault::BadAnswer(text)) = labels(8_000) else { panic!("not a bad answer") };
    assert!(text.contains("too much data"), "{text}");
}

#[test]
fn a_text_that_is_not_utf8_is_a_bad_answer() {
    let decide = format!("(i32.store8 (i32.const 2049) (i32.const 255)) {}", dropping(2048, 5));
    let Err(Fault::BadAnswer(text)) = ask(&decide) else { panic!("not a bad answer") };
    assert!(text.contains("utf-8"), "{text}");
}

#[test]
fn an_action_that_does_not_exist_is_a_bad_answer() {
    assert!(matches!(
        ask("(i32.store8 (i32.const 1024) (i32.const 4)) (i32.const 1024)"),
        Err(Fault::BadAnswer(_))
    ));
    assert!(matches!(ask("(i32.const 1025)"), Err(Fault::BadAnswer(_))), "not aligned");
    assert!(matches!(ask("(i32.const -8)"), Err(Fault::BadAnswer(_))), "out of bounds");
}

#[test]
fn the_verdict_of_check_comes_through_and_is_cut() {
    assert_eq!(load(&Guest::default()).check("{}"), Ok(Ok(())));
    // Says no, with its own params as the text.
    let check = "(i32.store8 (i32.const 1300) (i32.const 1))
        (i32.store (i32.const 1304) (local.get $params)) (i32.store (i32.const 1308) (local.get $length))
        (i32.const 1300)";
    let guest = load(&Guest { check: check.to_owned(), ..Guest::default() });
    assert_eq!(guest.check(r#"{"delay":-1}"#), Ok(Err(r#"{"delay":-1}"#.to_owned())));
    assert_eq!(guest.check(&"x".repeat(10_000)), Ok(Err("x".repeat(2_048))));
    let broken = load(&Guest { check: "(unreachable)".to_owned(), ..Guest::default() });
    assert!(matches!(broken.check("{}"), Err(Fault::Trap(_))));
}

#[test]
fn calls_at_the_same_time_are_bounded() {
    let program = load(&Guest::default());
    let guest = &program.guest;
    let start = || {
        let mut store = guest.sandbox.store().expect("a store");
        guest.pre.instantiate(&mut store).map(|_| store)
    };
    let mut running: Vec<_> = std::iter::from_fn(|| start().ok()).collect();
    assert_eq!(running.len(), 128);
    let refused = program.decide(&context()).result;
    assert_eq!(refused, Err(Fault::NotLoaded("too many policies run at once".to_owned())));
    running.pop();
    assert_eq!(retry_millis(&program.decide(&context()).result), FIVE_SECONDS);
}

#[test]
fn a_panic_of_the_engine_is_a_fault() {
    let program = load(&Guest::default());
    let (result, _) = program.guest.run(|_, _| -> wasmtime::Result<()> { panic!("a bug") });
    assert_eq!(result, Err(Fault::NotLoaded("the sandbox panicked".to_owned())));
    assert_eq!(retry_millis(&program.decide(&context()).result), FIVE_SECONDS);
}
