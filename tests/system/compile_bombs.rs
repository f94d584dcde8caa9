//! Uploads that are built to keep the compiler busy or to eat the machine's memory: each is refused or compiled within
//! limits, and nobody else notices.
//!
//! Many are of kinds that were reported against the compiler. Those that are still bombs go past the bounds on a
//! module's shape: what stops them is the process that compiles them.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::guests::Guest;
use crate::support::{Answer, Broker, wait_for};

/// What becomes of an upload.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    /// Compiling it takes too much time.
    Slow,
    /// Compiling it takes too much memory.
    Large,
    /// A refusal before or by the compiler.
    Invalid,
    /// It is a policy.
    Accepted,
}

impl End {
    #[track_caller]
    fn of(name: &str, answer: &Answer) -> Self {
        if answer.status == 201 {
            return Self::Accepted;
        }
        assert_eq!(answer.problem(), (422, "invalid_policy".to_owned()), "{name}: {}", answer.text());
        let problem = answer.json();
        let detail = problem["detail"].as_str().expect("a text");
        match problem["reason"].as_str() {
            Some("invalid") => Self::Invalid,
            Some("too_costly") if detail.contains("seconds") => Self::Slow,
            Some("too_costly") if detail.contains("MiB of memory") => Self::Large,
            _ => panic!("{name}: {problem}"),
        }
    }
}

/// A policy that also has these fields.
fn policy(fields: String) -> Vec<u8> {
    Guest { fields, ..Guest::default() }.module()
}

fn text(component: &str) -> Vec<u8> {
    wat::parse_str(component).expect("valid text")
}

/// Functions with hundreds of parameters and results that call each other: every call moves them all.
fn calls(functions: usize, calls: usize) -> Vec<u8> {
    let many = "i64 ".repeat(900);
    let all: String = (0..900).map(|local| format!("local.get {local} ")).collect();
    let function = format!("(func (type $many) {all} {})", "call $other ".repeat(calls));
    policy(format!(
        "(type $many (func (param {many}) (result {many}))) (func $other (type $many) unreachable) {}",
        function.repeat(functions)
    ))
}

/// Seconds of work in 60 KB.
fn slow() -> Vec<u8> {
    calls(40, 150)
}

/// One function that does one thing to one value very often.
fn chain(kind: &str, step: &str, steps: usize) -> Vec<u8> {
    policy(format!("(func (param {kind}) (result {kind}) local.get 0 {})", step.repeat(steps)))
}

/// Blocks in blocks, each of which hands on hundreds of values.
fn block_params() -> Vec<u8> {
    let many = "i32 ".repeat(500);
    let body = format!(
        "{} {} {}",
        "i32.const 1 ".repeat(500),
        "block (type $many) end ".repeat(1_900),
        "drop ".repeat(500)
    );
    policy(format!(
        "(type $many (func (param {many}) (result {many}))) {}",
        format!("(func {body})").repeat(10)
    ))
}

/// Variables that change within 250 loops, so that each loop has to carry all of them.
fn loop_variables() -> Vec<u8> {
    let mut body = format!("(local {}) {}", "i32 ".repeat(9_001), "loop ".repeat(250));
    for local in 1..9_000 {
        _ = write!(body, "local.get {local} i32.const 1 i32.add local.set {} ", local + 1);
    }
    policy(format!("(func (param i32) {body} {})", "local.get 0 br_if 0 end ".repeat(250)))
}

/// Types of which each names the one before several times.
fn multiplied_types(by: &str, levels: usize) -> Vec<u8> {
    let mut types = "(type $t0 u8)".to_owned();
    for level in 1..levels {
        _ = write!(types, "(type $t{level} ({by}))", by = by.replace('@', &format!("$t{}", level - 1)));
    }
    text(&format!("(component {types} (export \"x\" (type $t{})))", levels - 1))
}

/// Two instances with memories of their own that hand each other text: what lies between them is generated.
fn adapters() -> Vec<u8> {
    text(
        r#"(component
            (component $one
              (core module $m (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                (func (export "f") (param i32 i32)))
              (core instance $i (instantiate $m))
              (func (export "f") (param "x" string) (canon lift (core func $i "f")
                (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
            (component $two
              (import "f" (func $f (param "x" string)))
              (core module $m (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable))
              (core instance $i (instantiate $m))
              (core func $g (canon lower (func $f)
                (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
              (core module $n (import "" "f" (func (param i32 i32))))
              (core instance (instantiate $n (with "" (instance (export "f" (func $g)))))))
            (instance $i (instantiate $one))
            (instance (instantiate $two (with "f" (func $i "f")))))"#,
    )
}

/// Bytes at both ends of its memory: an image of all that lies between them.
fn stretched_data() -> Vec<u8> {
    let fields = "(data (i32.const 4000) \"x\") (data (i32.const 8388600) \"x\")".to_owned();
    Guest { fields, pages: 128, ..Guest::default() }.module()
}

fn elements(table: &str) -> Vec<u8> {
    let one = format!("(elem {table} func {})", "$nothing ".repeat(9_900));
    policy(format!("(table $table 10000 funcref) (func $nothing) {}", one.repeat(90)))
}

/// Each with what has to become of it; `None` where that may change with the compiler.
fn bombs() -> Vec<(&'static str, Vec<u8>, Option<End>)> {
    let function = |body: String| format!("(func (param i32) {body})");
    let nested = function(format!("{} {}", "block ".repeat(1_990), "end ".repeat(1_990)));
    let table = function(format!("block local.get 0 br_table {} end", "0 ".repeat(1_990)));
    let globals: String = (0..100_000).map(|number| format!("(global i32 (i32.const {number}))")).collect();
    let exports: String =
        (0..50_000).map(|number| format!("(export \"e{number}\" (global $heap))")).collect();
    vec![
        ("calls of many values", slow(), Some(End::Slow)),
        ("blocks of many values", block_params(), Some(End::Large)),
        ("remainders", chain("i64", "local.get 0 i64.rem_s ", 300_000), Some(End::Large)),
        ("additions that may give NaN", chain("f64", "local.get 0 f64.add ", 290_000), None),
        ("bit counts of vectors", chain("v128", "i8x16.popcnt ", 250_000), None),
        (
            "an expression 100,000 deep",
            policy(format!(
                "(func (result i32) {}{})",
                "i32.const 1 ".repeat(100_000),
                "i32.add ".repeat(99_999)
            )),
            None,
        ),
        ("passive elements", elements(""), None),
        ("active elements", elements("(table $table) (i32.const 0)"), None),
        ("functions", policy(function("local.get 0 drop ".repeat(20)).repeat(4_900)), Some(End::Accepted)),
        ("one function too many", policy("(func)".repeat(5_000)), Some(End::Invalid)),
        ("a branch table", policy(table.repeat(50)), Some(End::Accepted)),
        ("nested blocks", policy(nested.repeat(50)), Some(End::Accepted)),
        ("variables of loops", loop_variables(), None),
        ("globals", policy(globals), None),
        ("exports", policy(exports), None),
        ("stretched data", stretched_data(), None),
        ("deep types", multiplied_types("list @", 50_000), Some(End::Invalid)),
        ("wide types", multiplied_types("tuple @ @ @ @", 90), Some(End::Invalid)),
        ("adapters between memories", adapters(), Some(End::Invalid)),
    ]
}

/// s58: whatever is uploaded, it is answered in time, the broker's own memory stays small, and another client's
/// publishes, pulls and decisions do not wait for it.
#[test]
fn bombs_are_answered_within_limits_while_others_are_served() {
    let broker = Broker::start();
    // What fails does not come back while this runs.
    broker.topic_and_subscription(json!({ "retry": { "delay": "1h", "max_delay": "1h" } }));
    broker.subscribe("bombed", "t", json!({}));
    let client = (*broker).clone();
    let uploads = std::thread::spawn(move || {
        let upload = |(name, module, expected): (&'static str, Vec<u8>, Option<End>)| {
            let start = Instant::now();
            let answer = client.upload("bombed", &module, None);
            (name, expected, End::of(name, &answer), start.elapsed())
        };
        bombs().into_iter().map(upload).collect::<Vec<_>>()
    });
    let mut slowest = Duration::ZERO;
    let mut compiled = false;
    while !uploads.is_finished() {
        let start = Instant::now();
        broker.publish("t", &json!(1));
        let delivery = broker.next("s");
        assert_eq!(broker.nack("s", &delivery.receipt, "timeout")["decision"]["action"], "retry");
        slowest = slowest.max(start.elapsed());
        let children = broker.process().children().len();
        assert!(children <= 2, "{children} at a time");
        compiled |= children > 0;
    }
    assert!(compiled, "in processes of their own");
    let mut accepted = 0;
    for (name, expected, end, time) in uploads.join().expect("each is answered as it should be") {
        assert!(expected.is_none_or(|expected| expected == end), "{name}: {end:?}");
        // The limit, and what a busy machine adds to it.
        assert!(time < Duration::from_secs(40), "{name}: {time:?}");
        accepted += usize::from(end == End::Accepted);
    }
    assert!(slowest < Duration::from_secs(5), "a client waited for {slowest:?}");
    assert_eq!(broker.revisions("bombed").len(), 1 + accepted, "what was refused left nothing");
    assert_eq!(broker.process().children(), []);
    let peak = broker.process().peak_mib();
    assert!(peak < 400, "the broker had {peak} MiB");
}

/// A queue of bombs does not keep others from uploading for longer than each may take, and a policy that is asked for
/// the first time does not wait for them at all.
#[test]
fn a_bomb_delays_no_policy_that_is_asked() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let guest = Guest::default();
    broker.upload("s", &guest.module(), None).expect(201);
    broker.kill();
    std::fs::remove_dir_all(broker.folder().data().join("compiled")).expect("it is there");
    broker.start_again();
    broker.subscribe("bombed", "t", json!({}));
    let client = (*broker).clone();
    let upload = std::thread::spawn(move || client.upload("bombed", &slow(), None));
    wait_for("it is being compiled", || broker.process().children().pop());
    broker.publish("t", &json!(1));
    let delivery = broker.next("s");
    assert_eq!(broker.nack("s", &delivery.receipt, "x")["decision"]["revision"], 2);
    assert!(!upload.is_finished(), "the decision came first");
    assert_eq!(End::of("slow", &upload.join().expect("it is answered")), End::Slow);
}

/// However the broker ends, a child that compiles for it ends too, and nothing is left of the upload.
#[test]
fn an_upload_that_is_cut_off_leaves_nothing() {
    let mut broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    let before = broker.everything();
    let begin = |broker: &Broker| {
        let request = broker.request("PUT", "/v1/subscriptions/s/policy");
        let request = request.header("content-type", "application/wasm").body(slow());
        // Nobody answers it.
        std::thread::spawn(move || drop(request.send()));
        wait_for("it is being compiled", || broker.process().children().pop())
    };
    let child = begin(&broker);
    broker.kill();
    let killed = Instant::now();
    wait_for("the child has gone with it", || (!child.is_alive()).then_some(()));
    // By itself it would have worked for longer.
    assert!(killed.elapsed() < Duration::from_secs(2), "it was killed");
    broker.start_again();
    assert_eq!(broker.everything(), before);

    let child = begin(&broker);
    broker.terminate();
    let told = Instant::now();
    assert!(broker.ended().success());
    assert!(told.elapsed() < Duration::from_secs(3), "it did not wait for the compiler");
    assert!(!child.is_alive());
    broker.start_again();
    assert_eq!(broker.everything(), before);
    let kept = std::fs::read_dir(broker.folder().data().join("compiled")).expect("it is there").count();
    assert_eq!(kept, 0);
}
