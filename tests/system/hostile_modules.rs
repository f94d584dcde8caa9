//! Uploads that are no policy: each is refused with its reason, changes nothing, and the broker goes on.

use serde_json::json;

use crate::support::guests::{Guest, deciding};
use crate::support::{Answer, Broker, Socket, policies};

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({}));
    broker
}

fn text(module: &str) -> Vec<u8> {
    wat::parse_str(module).expect("valid text")
}

#[track_caller]
fn refused(answer: &Answer, reason: &str) {
    assert_eq!(answer.problem(), (422, "invalid_policy".to_owned()));
    assert_eq!(answer.json()["reason"], reason, "{}", answer.text());
    assert_eq!(answer.json()["retryable"], false);
}

/// Bytes that are no policy module, one refusal for each reason.
#[test]
fn bytes_that_are_no_policy_are_refused_with_their_reason() {
    let broker = broker();
    let before = broker.everything();
    let module = policies::module("http-status");
    let random: Vec<u8> = (0..4_096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let imports = Guest {
        imports: r#"(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))"#
            .to_owned(),
        ..Guest::default()
    };
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("nothing", Vec::new(), "not_wasm"),
        ("random bytes", random, "not_wasm"),
        ("text", b"(module)".to_vec(), "not_wasm"),
        ("a header alone", b"\0asm".to_vec(), "not_wasm"),
        ("an empty module", text("(module)"), "no_contract"),
        ("half a policy", module[..module.len() / 2].to_vec(), "invalid"),
        ("an import", imports.module(), "imports"),
        ("an import without a contract", text(r#"(module (import "env" "now" (func)))"#), "imports"),
        ("an empty component", text("(component)"), "missing_export"),
        ("a component that imports", text(r#"(component (import "clock" (func)))"#), "imports"),
        ("a missing function", Guest { describes: false, ..Guest::default() }.module(), "contract"),
        ("shared memory", text("(module (memory 1 1 shared))"), "no_contract"),
    ];
    for (what, bytes, reason) in cases {
        let answer = broker.upload("s", &bytes, None);
        assert_eq!(answer.problem(), (422, "invalid_policy".to_owned()), "{what}");
        assert_eq!(answer.json()["reason"], reason, "{what}: {}", answer.text());
    }
    assert_eq!(broker.everything(), before);
}

/// A module that misbehaves is found out in its trial.
#[test]
fn modules_that_break_in_their_trial_are_refused() {
    let broker = broker();
    let before = broker.everything();
    let spin = "(loop $again (br $again)) (unreachable)";
    for decide in [
        "(unreachable)",
        spin,
        "(loop $more (drop (memory.grow (i32.const 16))) (br $more)) (unreachable)",
        "(i32.const -8)",
        "(i32.store8 (i32.const 1024) (i32.const 9)) (i32.const 1024)",
        "(i32.store8 (i32.const 1024) (i32.const 3)) (i32.store (i32.const 1032) (i32.const 0))
         (i32.store (i32.const 1036) (i32.const 100000000)) (i32.const 1024)",
    ] {
        refused(&broker.upload("s", &deciding(decide).module(), None), "fault");
    }
    let recursion = Guest {
        fields: "(func $deeper (result i32) (i32.add (i32.const 1) (call $deeper)))".to_owned(),
        decide: "(call $deeper)".to_owned(),
        ..Guest::default()
    };
    refused(&broker.upload("s", &recursion.module(), None), "fault");
    let start = Guest {
        fields: "(func $start (loop $again (br $again))) (start $start)".to_owned(),
        ..Guest::default()
    };
    refused(&broker.upload("s", &start.module(), None), "fault");
    let check = Guest { check: "(unreachable)".to_owned(), ..Guest::default() };
    refused(&broker.upload("s", &check.module(), None), "fault");
    assert_eq!(broker.everything(), before);
}

/// A policy whose `check` says no to everything is refused for its parameters, with its own words.
#[test]
fn a_policy_that_refuses_its_parameters_is_refused() {
    let broker = broker();
    let check = "(i32.store8 (i32.const 1300) (i32.const 1)) (i32.store (i32.const 1304) (i32.const 2056))
        (i32.store (i32.const 1308) (i32.const 7)) (i32.const 1300)";
    let answer = broker.upload("s", &Guest { check: check.to_owned(), ..Guest::default() }.module(), None);
    assert_eq!(answer.problem(), (422, "invalid_params".to_owned()));
    assert!(answer.text().contains("by hand"), "{}", answer.text());
    assert_eq!(broker.revisions("s").len(), 1);
}

/// More bytes than a module may have are refused before anything looks at them.
#[test]
fn a_module_that_is_too_large_is_refused() {
    const LARGEST: usize = 1024 * 1024;
    let broker = broker();
    let path = "/v1/subscriptions/s/policy";
    for length in [LARGEST + 1, 50 << 20, usize::MAX >> 1] {
        let mut socket = Socket::connect(broker.address());
        let (status, body) = socket.announce("PUT", path, "application/wasm", length);
        assert_eq!(status, 413, "{length}: {body}");
        assert!(body.contains("policy_too_large"), "{length}: {body}");
    }
    // As many as are allowed are looked at.
    refused(&broker.upload("s", &vec![0; LARGEST], None), "not_wasm");
    assert_eq!(broker.revisions("s").len(), 1);
}

/// Modules built to be hard to compile are answered, and the broker goes on meanwhile and afterwards.
#[test]
fn modules_that_are_hard_to_compile_are_answered() {
    let broker = broker();
    let nested = format!("{}{}", "(block ".repeat(10_000), ")".repeat(10_000));
    let locals = format!("(func {})", "(local i64)".repeat(60_000));
    let modules = [
        text(&format!("(module (func {nested}))")),
        text(&format!("(module {locals})")),
        text(&format!("(component {})", "(core module (func unreachable))".repeat(900))),
        text("(module (memory 65536))"),
        text("(module (table 10000000 funcref))"),
    ];
    let client = (*broker).clone();
    let uploads = std::thread::spawn(move || {
        for module in modules {
            let answer = client.upload("s", &module, None);
            assert_eq!(answer.problem(), (422, "invalid_policy".to_owned()), "{}", answer.text());
        }
    });
    while !uploads.is_finished() {
        broker.publish("t", &json!(1));
        let delivery = broker.next("s");
        assert_eq!(broker.ack("s", &delivery.receipt)["status"], "acked");
    }
    uploads.join().expect("each is refused");
    assert_eq!(broker.revisions("s").len(), 1);
}

/// A module for nobody is refused before it is looked at; so is one that is sent as something else.
#[test]
fn uploads_to_nowhere_are_refused() {
    let broker = broker();
    let module = policies::module("http-status");
    let answer = broker.upload("missing", &module, None);
    assert_eq!(answer.problem(), (404, "subscription_not_found".to_owned()));
    let request = broker.request("PUT", "/v1/subscriptions/s/policy").header("content-type", "text/plain");
    let answer = broker.send(request.body(module));
    assert_eq!(answer.problem(), (415, "unsupported_media_type".to_owned()));
    assert_eq!(broker.revisions("s").len(), 1);
}
