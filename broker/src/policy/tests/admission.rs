//! What becomes a policy, and why the rest does not.

use super::*;
use crate::domain::digest::Digest;
use crate::policy::Refusal;

fn refusal(bytes: &[u8]) -> Refusal {
    match sandbox().admit(bytes, "{}") {
        Ok(_) => panic!("admitted"),
        Err(refusal) => refusal,
    }
}

#[test]
fn a_core_module_and_its_component_are_both_admitted() {
    let guest = Guest::default();
    for bytes in [guest.module(), guest.component()] {
        let (program, rehearsal) = sandbox().admit(&bytes, "{}").expect("admitted");
        assert_eq!(program.digest(), Digest::of(&bytes), "of the bytes as they were uploaded");
        assert_eq!(program.size(), bytes.len());
        assert_eq!(rehearsal.answers.len(), standard_contexts("{}").len());
        assert!((100..10_000).contains(&rehearsal.fuel), "{}", rehearsal.fuel);
        let description = program.description();
        assert_eq!((&*description.name, &*description.version), ("guest", "1.0"));
        assert_eq!(description.summary, "by hand, in x");
    }
}

#[test]
fn bytes_that_are_no_module_are_refused() {
    assert_eq!(refusal(b""), Refusal::NotWasm);
    assert_eq!(refusal(Guest::default().text().as_bytes()), Refusal::NotWasm);
    assert_eq!(refusal(b"\x7fELF\x02\x01\x01"), Refusal::NotWasm);
    // A fixed generator: random enough, the same every time.
    let mut state = 1_u32;
    for length in 0..200 {
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(length)
        .collect();
        assert_eq!(refusal(&noise), Refusal::NotWasm);
        assert!(matches!(
            refusal(&[b"\0asm\x01\0\0\0", &*noise].concat()),
            Refusal::Invalid(_) | Refusal::NoContract
        ));
        assert!(matches!(
            refusal(&[b"\0asm\x0d\0\x01\0", &*noise].concat()),
            Refusal::Invalid(_) | Refusal::MissingExport(_)
        ));
    }
}

#[test]
fn a_damaged_module_is_refused_whatever_was_damaged() {
    let sandbox = sandbox();
    for bytes in [Guest::default().module(), Guest::default().component()] {
        for place in (8..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0xFF;
            // Some damage is harmless, a byte of a text for one; none may panic or hang.
            if let Err(refusal) = sandbox.admit(&damaged, "{}") {
                assert!(!refusal.to_string().is_empty());
            }
            let _ = sandbox.admit(&bytes[..place], "{}").expect_err("cut short");
        }
    }
}

#[test]
fn the_size_is_bounded() {
    let limits = Limits { module_bytes: Guest::default().module().len(), ..Limits::default() };
    let sandbox = Sandbox::new(limits).expect("a sandbox");
    assert!(sandbox.admit(&Guest::default().module(), "{}").is_ok());
    let larger = Guest::default().component();
    let refusal = Refusal::TooLarge { size: larger.len(), limit: limits.module_bytes };
    assert_eq!(sandbox.admit(&larger, "{}").expect_err("too large"), refusal);
}

/// Machine code is run as it is, so it may never come from outside.
#[test]
fn machine_code_is_refused() {
    let sandbox = sandbox();
    let compiled = sandbox.engine().precompile_component(&Guest::default().component()).expect("it compiles");
    let compiled = if compiled.len() > sandbox.limits().module_bytes { &compiled[..1000] } else { &compiled };
    assert_eq!(refusal(compiled), Refusal::Precompiled);
}

#[test]
fn a_module_without_the_contract_is_refused() {
    assert_eq!(refusal(&wat::parse_str("(module)").expect("valid text")), Refusal::NoContract);
    for name in
        ["reprise:policy/policy@0.2.0", "reprise:policy/policy", "policy", "reprise:policy/policy@0.1.00"]
    {
        let elsewhere = Guest::default().text().replace("reprise:policy/policy@0.1.0", name);
        assert_eq!(refusal(&wat::parse_str(elsewhere).expect("valid text")), Refusal::NoContract, "{name}");
    }
    let other = Guest::default().module_for("package other:thing; world w { export run: func(); }");
    assert!(matches!(refusal(&other), Refusal::Contract(_)));
    let empty = Guest::default().module_for("package other:thing; world w { }");
    assert_eq!(refusal(&empty), Refusal::MissingExport("reprise:policy/policy@0.1.0".to_owned()));
    let component = wat::parse_str("(component)").expect("valid text");
    assert_eq!(refusal(&component), Refusal::MissingExport("reprise:policy/policy@0.1.0".to_owned()));
}

/// Compilers that know nothing of contracts leave no section that names one; the exports say as much.
#[test]
fn a_module_may_keep_to_the_contract_without_naming_it() {
    let bare = |guest: &Guest| wat::parse_str(guest.text()).expect("valid text");
    let guest = Guest::default();
    let (program, rehearsal) = sandbox().admit(&bare(&guest), "{}").expect("admitted");
    assert_eq!(program.digest(), Digest::of(&bare(&guest)), "of the bytes as they were uploaded");
    let (named, named_rehearsal) = sandbox().admit(&guest.module(), "{}").expect("admitted");
    assert_eq!((program.description(), &rehearsal), (named.description(), &named_rehearsal));

    let silent = Guest { describes: false, ..Guest::default() };
    assert_eq!(refusal(&bare(&silent)), refusal(&silent.module()));
    let importing = Guest { imports: r#"(import "env" "now" (func))"#.to_owned(), ..Guest::default() };
    assert_eq!(refusal(&bare(&importing)), Refusal::Imports(vec!["env.now".to_owned()]));
    let other_type = guest.text().replace("(param $context i32)", "(param $context i64)");
    let Refusal::Contract(text) = refusal(&wat::parse_str(other_type).expect("valid text")) else {
        panic!("not about the contract")
    };
    assert!(text.contains("type mismatch") && text.contains("#decide"), "{text}");
}

#[test]
fn a_function_that_is_missing_or_of_another_type_is_refused() {
    let silent = Guest { describes: false, ..Guest::default() };
    let Refusal::Contract(text) = refusal(&silent.module()) else { panic!("not about the contract") };
    assert!(text.contains("describe"), "{text}");

    // The right names, an older shape.
    let older = |functions: &str| {
        format!(
            "package reprise:policy@0.1.0; world retry-policy {{ export policy; }}
             interface policy {{ {functions} }}"
        )
    };
    let two =
        older("decide: func(context: u32) -> string; check: func(params: string) -> result<_, string>;");
    let two = Guest::default().module_for(&two);
    assert_eq!(refusal(&two), Refusal::MissingExport("reprise:policy/policy@0.1.0#describe".to_owned()));
    let three = older(
        "decide: func(context: u32) -> string; check: func(params: string) -> result<_, string>;
         describe: func() -> string;",
    );
    assert!(matches!(refusal(&Guest::default().module_for(&three)), Refusal::Contract(_)));
}

#[test]
fn imports_of_any_kind_are_refused_by_name() {
    for import in [
        r#"(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))"#,
        r#"(import "env" "base" (global i32))"#,
        r#"(import "env" "table" (table 1 funcref))"#,
    ] {
        let guest = Guest { imports: import.to_owned(), ..Guest::default() };
        let Refusal::Imports(names) = refusal(&guest.module()) else { panic!("not about imports") };
        let name: Vec<_> = import.split('"').collect();
        assert_eq!(names, [format!("{}.{}", name[1], name[3])]);
    }
    for import in [
        r#"(import "wasi:clocks/wall-clock@0.2.0" (instance))"#,
        r#"(import "log" (func (param "text" string)))"#,
        r#"(import "module" (core module))"#,
    ] {
        let component = wat::parse_str(format!("(component {import})")).expect("valid text");
        let name = import.split('"').nth(1).expect("a name");
        assert_eq!(refusal(&component), Refusal::Imports(vec![name.to_owned()]));
    }
}

#[test]
fn proposals_that_policies_may_not_use_are_refused() {
    let refused = |fields: &str| {
        let guest = Guest { fields: fields.to_owned(), ..Guest::default() };
        matches!(refusal(&guest.module()), Refusal::Invalid(_))
    };
    assert!(refused("(memory $shared 1 1 shared)"), "threads");
    assert!(refused("(memory $second 1)"), "several memories");
    assert!(refused("(type $s (struct (field i32)))"), "garbage collection");
    assert!(refused("(tag $t)"), "exceptions");
    assert!(
        refused("(func (param v128 v128) (result v128) (i8x16.relaxed_swizzle (local.get 0) (local.get 1)))"),
        "relaxed SIMD"
    );
    assert!(refused("(func (param externref))"), "references to host values");
    let plain = Guest {
        fields: "(func (param v128) (result i32) (i8x16.all_true (local.get 0)))".to_owned(),
        ..Guest::default()
    };
    assert!(sandbox().admit(&plain.module(), "{}").is_ok(), "plain SIMD is welcome");
}

/// What would keep the compiler busy for minutes.
#[test]
fn modules_that_take_too_long_to_compile_are_refused() {
    let admit = |fields: String| sandbox().admit(&Guest { fields, ..Guest::default() }.module(), "{}");
    let refused = |fields: String, reason: &str| {
        let refusal = admit(fields).expect_err("too much");
        assert_eq!(refusal, Refusal::Invalid(format!("more than {reason}")));
    };
    let function = |body: String| format!("(func (param i32) {body})");
    let loops = |count| function("loop local.get 0 br_if 0 end ".repeat(count));
    assert!(admit(loops(256)).is_ok());
    refused(loops(257), "256 loops in one function");
    refused(loops(256).repeat(16), "4000 loops");
    let nested = |count| function(format!("{} {}", "block ".repeat(count), "end ".repeat(count)));
    assert!(admit(nested(2_000)).is_ok());
    refused(nested(2_001), "2000 branches in one function");
    refused(
        function(format!("local.get 0 br_table {}", "0 ".repeat(2_002))),
        "2000 branches in one function",
    );
    refused(nested(2_000).repeat(51), "100000 branches");
    refused("(func)".repeat(5_000), "5000 functions");
}

/// Each component makes two of the one before it: forty lines would be a billion modules.
#[test]
fn components_that_multiply_are_refused() {
    let mut text = "(component (component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
    for level in 1..40 {
        let below = level - 1;
        text += &format!("(component $c{level} (alias outer 1 $c{below} (component $below))");
        text += "(instance (instantiate $below)) (instance (instantiate $below)))";
    }
    let bomb = wat::parse_str(text + "(instance (instantiate $c39)))").expect("valid text");
    assert_eq!(refusal(&bomb), Refusal::Invalid("more than 16 nested parts".to_owned()));
}

#[test]
fn memory_that_is_too_large_from_the_start_is_refused() {
    let pages = |pages| Guest { pages, ..Guest::default() }.module();
    assert!(sandbox().admit(&pages(128), "{}").is_ok());
    let Refusal::Invalid(text) = refusal(&pages(129)) else { panic!("not invalid") };
    assert!(text.contains("memory"), "{text}");
}

#[test]
fn a_policy_that_refuses_its_params_is_not_admitted() {
    let check = "(i32.store8 (i32.const 1300) (i32.gt_u (local.get $length) (i32.const 2)))
        (i32.store (i32.const 1304) (i32.const 2048)) (i32.store (i32.const 1308) (i32.const 5)) (i32.const 1300)";
    let module = Guest { check: check.to_owned(), ..Guest::default() }.module();
    assert!(sandbox().admit(&module, "{}").is_ok());
    let refusal = sandbox().admit(&module, "{ }").expect_err("refused");
    assert_eq!(refusal, Refusal::Params("guest".to_owned()));
}

#[test]
fn a_policy_that_breaks_in_its_trial_is_refused_with_the_fault() {
    let fault = |guest: &Guest| match refusal(&guest.module()) {
        Refusal::Fault { call, fault } => (call, fault.kind()),
        other => panic!("not a fault: {other}"),
    };
    let broken = "(unreachable)".to_owned();
    assert_eq!(
        fault(&Guest { describe: broken.clone(), ..Guest::default() }),
        ("describe".to_owned(), "trap")
    );
    assert_eq!(fault(&Guest { check: broken.clone(), ..Guest::default() }), ("check".to_owned(), "trap"));
    assert_eq!(fault(&deciding(&broken)), ("decide, first nacked".to_owned(), "trap"));
    let endless = deciding("(loop $again (br $again)) (unreachable)");
    assert_eq!(fault(&endless), ("decide, first nacked".to_owned(), "fuel"));
    let start = Guest { fields: "(func $start (unreachable)) (start $start)".to_owned(), ..Guest::default() };
    assert_eq!(fault(&start), ("start".to_owned(), "trap"));
}

#[test]
fn a_policy_without_a_proper_name_is_refused() {
    let describe = "(i32.store (i32.const 1204) (i32.const 0)) (i32.const 1200)";
    let nameless = Guest { describe: describe.to_owned(), ..Guest::default() };
    let Refusal::Description(text) = refusal(&nameless.module()) else { panic!("not about the description") };
    assert!(text.contains("name"), "{text}");
}
