//! Rule 7: a decision depends on what it is shown and on nothing else.

use std::time::Duration;

use super::*;
use crate::domain::context::PastFailure;
use crate::domain::failure::Cause;
use crate::domain::time::Timestamp;
use crate::policy::input::{self, Input};

/// Answers with a counter that it increments, kept in memory, in a global and in a table.
fn counting() -> Guest {
    let fields =
        "(global $count (mut i64) (i64.const 0)) (table $table 1 funcref) (elem declare func $describe)";
    let decide = "
        (global.set $count (i64.add (global.get $count) (i64.const 1)))
        (i64.store (i32.const 3000) (i64.add (i64.load (i32.const 3000)) (i64.const 1)))
        (i64.store (i32.const 1032) (i64.add
          (i64.mul (global.get $count) (i64.const 100))
          (i64.add (i64.mul (i64.load (i32.const 3000)) (i64.const 10))
                   (i64.extend_i32_u (i32.eqz (ref.is_null (table.get $table (i32.const 0))))))))
        (table.set $table (i32.const 0) (ref.func $describe))
        (i32.const 1024)";
    Guest { fields: fields.to_owned(), ..deciding(decide) }
}

#[test]
fn a_static_counter_always_sees_its_first_value() {
    let program = load(&counting());
    for _ in 0..100 {
        assert_eq!(retry_millis(&program.decide(&context()).result), 110);
    }
}

/// Writes all over its memory, also where it had to ask for more, and answers what it found there.
#[test]
fn memory_is_wiped_between_decisions_and_between_policies() {
    let decide = "
        (local $at i32) (local $found i64)
        (drop (memory.grow (i32.const 60)))
        (local.set $at (i32.const 8192))
        (loop $again
          (local.set $found (i64.or (local.get $found) (i64.load (local.get $at))))
          (i64.store (local.get $at) (i64.const -1))
          (local.set $at (i32.add (local.get $at) (i32.const 512)))
          (br_if $again (i32.lt_u (local.get $at) (i32.const 3997696))))
        (i64.store (i32.const 1032) (local.get $found))
        (i32.const 1024)";
    let sandbox = sandbox();
    let load = |guest: &Guest| sandbox.load(&guest.module()).expect("the guest loads");
    let [one, other] = [load(&deciding(decide)), load(&Guest { pages: 2, ..deciding(decide) })];
    for _ in 0..10 {
        assert_eq!(retry_millis(&one.decide(&context()).result), 0);
        assert_eq!(retry_millis(&other.decide(&context()).result), 0);
    }
}

#[test]
fn a_trap_leaves_nothing_behind() {
    let sandbox = sandbox();
    let counter = sandbox.load(&counting().module()).expect("it loads");
    let broken = sandbox.load(&deciding("(i64.store (i32.const 3000) (i64.const 7)) (unreachable)").module());
    let broken = broken.expect("it loads");
    for _ in 0..10 {
        assert!(broken.decide(&context()).result.is_err());
        assert_eq!(retry_millis(&counter.decide(&context()).result), 110);
    }
}

/// The sign and payload of a NaN differ between processors unless the engine makes them canonical.
#[test]
fn every_nan_is_the_same() {
    let nan = |operation: &str| {
        let decide =
            format!("(i64.store (i32.const 1032) (i64.reinterpret_f64 {operation})) (i32.const 1024)");
        retry_millis(&ask(&decide))
    };
    let canonical = u128::from(0x7FF8_0000_0000_0000_u64);
    assert_eq!(nan("(f64.div (f64.const 0) (f64.const 0))"), canonical);
    assert_eq!(nan("(f64.sqrt (f64.const -1))"), canonical);
    assert_eq!(nan("(f64.add (f64.const nan:0x8000000001234) (f64.const 1))"), canonical);
    assert_eq!(nan("(f64.promote_f32 (f32.mul (f32.const -nan:0x200001) (f32.const 1)))"), canonical);
}

#[test]
fn equal_contexts_give_equal_evaluations() {
    let guest = deciding("(i64.store (i32.const 1032) (i64.load (local.get $context))) (i32.const 1024)");
    let [one, other] = [load(&guest), load(&guest)];
    let first = one.decide(&context());
    assert!(first.result.is_ok());
    for program in [&one, &other, &one] {
        assert_eq!(program.decide(&context()), first);
    }
}

/// A context in which no two fields hold the same value.
fn distinct() -> Context {
    let mut context = context();
    let message = &mut context.message;
    message.key = Some("key".to_owned());
    message.attributes = vec![("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())];
    message.content_type = Some("text/plain".to_owned());
    message.size = 77;
    message.published_at = Timestamp::from_millis(101);
    message.expires_at = Some(Timestamp::from_millis(102));
    context.failure.class = "timeout".to_owned();
    context.failure.code = Some("504".to_owned());
    context.failure.detail = Some("upstream".to_owned());
    context.failure.retry_after = Some(Duration::from_millis(103));
    [context.attempt, context.failures, context.releases, context.replays] = [2, 3, 4, 5];
    context.first_leased_at = Some(Timestamp::from_millis(104));
    context.now = Timestamp::from_millis(105);
    context.seed = 106;
    context.memo = vec![9];
    let past = |attempt| PastFailure {
        attempt,
        at: Timestamp::from_millis(attempt.into()),
        cause: Cause::Released,
        class: "past".to_owned(),
        delay: Some(Duration::from_millis(107)),
    };
    context.history = (1..=20).map(past).collect();
    let load = &mut context.load;
    [load.acked, load.failed, load.dead_lettered] = [111, 112, 113];
    [load.backlog, load.in_flight, load.consecutive_failures] = [114, 115, 116];
    context
}

#[test]
fn each_field_arrives_where_the_contract_says() {
    let context = distinct();
    let input = Input::new(&context);
    let view = input.lend();
    let message = &view.message;
    assert_eq!(
        (view.subscription, message.id, message.topic),
        ("rehearsal", "m000000010000000000000001", "rehearsal")
    );
    assert_eq!((message.key, message.content_type), (Some("key"), Some("text/plain")));
    let attributes: Vec<_> = message.attributes.iter().map(|entry| (entry.name, entry.value)).collect();
    assert_eq!(attributes, [("a", "b"), ("c", "d")]);
    assert_eq!((message.size, message.published_at, message.expires_at), (77, 101, Some(102)));
    assert_eq!(message.payload, None);
    let failure = &view.failure;
    assert_eq!((failure.cause as u8, failure.class, failure.code), (0, "timeout", Some("504")));
    assert_eq!((failure.detail, failure.retry_after), (Some("upstream"), Some(103)));
    assert_eq!((view.attempt, view.failures, view.releases, view.replays), (2, 3, 4, 5));
    assert_eq!((view.first_leased_at, view.now, view.seed), (Some(104), 105, 106));
    assert_eq!((view.params, view.memo), ("{}", &[9][..]));
    let past: Vec<_> = view.history.iter().map(|past| past.attempt).collect();
    assert_eq!(past, (5..=20).collect::<Vec<_>>(), "the last 16, oldest first");
    let last = &view.history[15];
    assert_eq!((last.at, last.cause as u8, last.class, last.delay), (20, 3, "past", Some(107)));
    let load = &view.load;
    assert_eq!((load.acked, load.failed, load.dead_lettered), (111, 112, 113));
    assert_eq!((load.backlog, load.in_flight, load.consecutive_failures), (114, 115, 116));
}

type Change = (&'static str, fn(&mut Context));

/// One change per field that a guest can see.
const CHANGES: &[Change] = &[
    ("subscription", |c| c.subscription = crate::domain::name::Name::new("other").expect("a name")),
    ("topic", |c| c.topic = crate::domain::name::Name::new("other").expect("a name")),
    ("message id", |c| c.message.id.sequence += 1),
    ("key", |c| c.message.key = None),
    ("empty key", |c| c.message.key = Some(String::new())),
    ("attributes", |c| c.message.attributes.truncate(1)),
    ("attribute name", |c| c.message.attributes[0].0.push('x')),
    ("attribute value", |c| c.message.attributes[0].1.push('x')),
    ("attribute border", |c| c.message.attributes[0] = ("ab".to_owned(), String::new())),
    ("content type", |c| c.message.content_type = None),
    ("size", |c| c.message.size = 78),
    ("payload", |c| c.message.payload = Some(vec![1; 77].into())),
    ("published at", |c| c.message.published_at = Timestamp::MAX),
    ("expires at", |c| c.message.expires_at = None),
    ("cause", |c| c.failure.cause = Cause::Released),
    ("class", |c| c.failure.class.push('x')),
    ("code", |c| c.failure.code = None),
    ("code as detail", |c| c.failure.detail = c.failure.code.take()),
    ("detail", |c| c.failure.detail = None),
    ("code and detail", |c| std::mem::swap(&mut c.failure.code, &mut c.failure.detail)),
    ("retry after", |c| c.failure.retry_after = None),
    ("attempt", |c| c.attempt += 1),
    ("failures", |c| c.failures += 1),
    ("releases", |c| c.releases += 1),
    ("replays", |c| c.replays += 1),
    ("history", |c| drop(c.history.pop())),
    ("past attempt", |c| c.history[19].attempt += 1),
    ("past moment", |c| c.history[19].at = Timestamp::MAX),
    ("past cause", |c| c.history[19].cause = Cause::Nacked),
    ("past class", |c| c.history[19].class.push('x')),
    ("past delay", |c| c.history[19].delay = None),
    ("first leased at", |c| c.first_leased_at = None),
    ("now", |c| c.now = Timestamp::MAX),
    ("seed", |c| c.seed += 1),
    ("params", |c| c.params = "{ }".into()),
    ("memo", |c| c.memo.push(1)),
    ("acked", |c| c.load.acked += 1),
    ("failed", |c| c.load.failed += 1),
    ("dead lettered", |c| c.load.dead_lettered += 1),
    ("backlog", |c| c.load.backlog += 1),
    ("in flight", |c| c.load.in_flight += 1),
    ("consecutive failures", |c| c.load.consecutive_failures += 1),
];

#[test]
fn every_field_that_is_shown_changes_the_hash() {
    let hash = |context: &Context| input::hash(&Input::new(context).lend()).0;
    let mut seen = std::collections::HashMap::from([(hash(&distinct()), "unchanged")]);
    for (name, change) in CHANGES {
        let mut context = distinct();
        change(&mut context);
        assert_eq!(seen.insert(hash(&context), name), None, "{name} hashes like something else");
    }
}

#[test]
fn history_that_is_not_shown_does_not_change_the_hash() {
    let hash = |context: &Context| input::hash(&Input::new(context).lend());
    let mut context = distinct();
    context.history.remove(0);
    assert_eq!(hash(&context), hash(&distinct()));
}

/// Recorded hashes are compared with new ones, so their encoding is for ever.
#[test]
fn the_hash_of_a_context_never_changes() {
    let hash = input::hash(&Input::new(&distinct()).lend());
    let hex: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "abe3f9725575972b4d93fb470832bcaf");
}
