//! The examples in other languages: what they say of themselves, what a slip in one is told, and that the compiled
//! one comes from its source.

use std::io::Write as _;
use std::process::Command;

use reprise_broker::policy::{Limits, ParamKind, Refusal, Sandbox};

use crate::policies;

/// The compiler whose major version compiled `examples/policy-in-c/policy.wasm`; another may order instructions in
/// another way.
const CLANG: &str = "14";

const INTERFACE: &str = "reprise:policy/policy@0.1.0";

/// How the library that makes components of modules begins.
const INVALID: &str = "failed to decode world from module: module was not valid: ";

fn refusal(module: &[u8]) -> Refusal {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    sandbox.admit(module, "{}").map(|_| ()).expect_err("not a policy")
}

/// The text of the example that is written in it.
fn wat_text() -> String {
    let path = policies::example_folder("policy-in-wat").join("policy.wat");
    std::fs::read_to_string(path).expect("the example can be read")
}

/// The same with a change.
fn changed(from: &str, to: &str) -> Vec<u8> {
    let text = wat_text();
    assert!(text.contains(from), "{from}");
    wat::parse_str(text.replacen(from, to, 1)).expect("it is still valid text")
}

/// Where these bytes are in a module.
fn place(module: &[u8], bytes: &[u8]) -> usize {
    module.windows(bytes.len()).position(|window| window == bytes).expect("they are there")
}

/// Both are taken as they are, neither needs a section that names the contract, and each describes itself in full: no
/// text of theirs is cut or runs into the next.
#[test]
fn they_describe_themselves() {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    for (name, summary, queues, params, size) in [
        (
            "policy-in-c",
            "Retries with a delay that doubles, in plain C.",
            ["rejected", "exhausted"].as_slice(),
            [
                ("max_attempts", "5", "after this many failures the delivery goes to the queue exhausted"),
                ("delay", "2", "the first delay in whole seconds; it doubles each time"),
            ]
            .as_slice(),
            5_000,
        ),
        (
            "policy-in-wat",
            "Gives up after three failures, by hand.",
            &["struck-out"],
            &[("delay", "5", "the delay after the first failure, in whole seconds")],
            2_000,
        ),
    ] {
        let module = policies::example(name);
        assert!(module.len() <= size, "{name}: {} bytes", module.len());
        assert!(!module.windows(14).any(|bytes| bytes == b"component-type"), "{name} needs no section");
        let (program, _) = sandbox.admit(&module, "{}").expect("admitted");
        let description = program.description();
        assert_eq!((description.name.as_str(), description.version.as_str()), (name, "0.1.0"));
        assert_eq!(description.summary, summary);
        assert_eq!(description.queues, queues);
        let described: Vec<_> = description
            .params
            .iter()
            .map(|param| (&*param.name, param.default.as_deref().unwrap_or_default(), &*param.doc))
            .collect();
        assert_eq!(described, params);
        assert!(description.params.iter().all(|param| param.kind == ParamKind::Number), "{name}");
    }
}

/// A slip in a module made by hand gets an answer that names it.
#[test]
fn slips_are_named() {
    for name in ["decide", "check", "describe"] {
        let missing = format!("{INVALID}failed to find export of interface `{INTERFACE}` function `{name}`");
        let without = changed(&format!(r#"(export "{INTERFACE}#{name}")"#), "");
        assert_eq!(refusal(&without), Refusal::Contract(missing.clone()));
        // The same in the compiled one: the last letter of the exported name is another.
        let export = format!("{INTERFACE}#{name}");
        let mut module = policies::example("policy-in-c");
        let at = place(&module, export.as_bytes()) + export.len() - 1;
        module[at] = b'_';
        assert_eq!(refusal(&module), Refusal::Contract(missing));
    }
    let renamed = wat_text().replace(INTERFACE, "reprise:policy/policy@0.2.0");
    assert_eq!(refusal(&wat::parse_str(renamed).expect("valid text")), Refusal::NoContract);
    let type_of = |function: &str| {
        format!(
            "{INVALID}failed to classify export `{INTERFACE}#{function}`: failed to validate export for `{INTERFACE}`: type \
             mismatch for function `{function}`: expected `[] -> [I32]` but found `[I64] -> [I32]`"
        )
    };
    for (what, from, to, problem) in [
        (
            "no memory",
            r#"(memory (export "memory") 1)"#,
            "(memory 1)",
            "module does not export a memory named `memory`".to_owned(),
        ),
        (
            "no room for what comes in",
            r#"(export "cabi_realloc")"#,
            "",
            "module does not export a function named `cabi_realloc`".to_owned(),
        ),
        ("another type", "#describe\")", "#describe\") (param i64)", type_of("describe")),
    ] {
        assert_eq!(refusal(&changed(from, to)), Refusal::Contract(problem), "{what}");
    }
}

/// An import is refused by its name, whatever a toolchain wanted it for.
#[test]
fn imports_are_named() {
    for (import, name) in [
        (r#"(import "env" "now" (func (result i64)))"#, "env.now"),
        (
            r#"(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))"#,
            "wasi_snapshot_preview1.random_get",
        ),
    ] {
        let importing = changed("(module\n", &format!("(module\n{import}\n"));
        assert_eq!(refusal(&importing), Refusal::Imports(vec![name.to_owned()]));
    }
    // What C leaves for a function that is declared and nowhere defined: `env.memcpy`, of the first type.
    let mut module = policies::example("policy-in-c");
    let (section, size) = (module[8], usize::from(module[9]));
    assert!(section == 1 && size < 0x80, "the types come first, and are few");
    let imports = [b"\x02\x0e\x01\x03env\x06memcpy\x00\x00".as_slice()].concat();
    module.splice(10 + size..10 + size, imports);
    assert_eq!(refusal(&module), Refusal::Imports(vec!["env.memcpy".to_owned()]));
}

/// The compiled example is what its README's command makes of its source. Looked at where there is a compiler of the
/// same major version.
#[test]
fn the_compiled_example_comes_from_its_source() {
    let skipped = |why: &str| {
        let line = format!("skipped: examples/policy-in-c is not compiled again, {why}\n");
        std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    };
    let folder = policies::example_folder("policy-in-c");
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the example has a README");
    let line = readme.lines().find(|line| line.starts_with("clang --target")).expect("it has the command");
    let built = tempfile::tempdir().expect("a temporary folder");
    let output = built.path().join("policy.wasm");
    let arguments = line.split(' ').skip(1).map(|word| match word {
        "policy.wasm" => output.as_os_str(),
        word => word.as_ref(),
    });
    let Ok(version) = Command::new("clang").arg("--version").output() else {
        return skipped("there is no clang");
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let major = version.split_once("version ").and_then(|(_, rest)| rest.split('.').next());
    if major != Some(CLANG) {
        return skipped(&format!("it was compiled by clang {CLANG}, not by {}", major.unwrap_or("this one")));
    }
    if Command::new("wasm-ld").arg("--version").output().is_err() {
        return skipped("there is no wasm-ld");
    }
    let compiled = Command::new("clang").args(arguments).current_dir(&folder).output().expect("clang runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let compiled = std::fs::read(output).expect("clang wrote the module");
    assert!(
        compiled == policies::example("policy-in-c"),
        "policy.wasm is stale: run the command of the README"
    );
}
