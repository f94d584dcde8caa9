//! The rules of the architecture, read off the source; in [`deploy`], whether what is deployed is in step with it.

mod deploy;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file below a folder, with its path from there and its text without comments.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder).expect("below it").display().to_string();
                let text = fs::read_to_string(&path).expect("it is text");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                found.push((name, code.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    assert!(!found.is_empty(), "{} has no sources", folder.display());
    found
}

/// Fails with every file that names one of `words` and whose path does not start with one of `allowed`.
fn only_in(words: &[&str], allowed: &[&str]) {
    let mut wrong = Vec::new();
    for (path, code) in sources(&root().join("broker/src")) {
        let names = words.iter().filter(|word| code.contains(**word));
        if !allowed.iter().any(|prefix| path.starts_with(prefix)) {
            wrong.extend(names.map(|word| format!("{path} names {word}")));
        }
    }
    assert!(wrong.is_empty(), "only {allowed:?} may: {wrong:#?}");
}

/// Fails with every file below `folder` that names one of `words`.
fn never_in(folder: &str, words: &[&str]) {
    for (path, code) in sources(&root().join("broker/src").join(folder)) {
        for word in words {
            assert!(!code.contains(word), "{folder}/{path} names {word}");
        }
    }
}

/// The storage engine, the sandbox and the web framework each have one place.
#[test]
fn each_large_dependency_is_named_in_one_place() {
    only_in(&["fjall"], &["store/durable"]);
    only_in(&["wasmtime", "wit_component", "wit_parser", "wasmparser"], &["policy/"]);
    only_in(&["axum::", "use axum"], &["http/"]);
    only_in(&["reqwest", "clap::"], &["cli/"]);
    only_in(&["jsonschema"], &["http/schema"]);
    only_in(&["rustix::process"], &["policy/child.rs", "cli/serve.rs"]);
}

/// Machine code becomes runnable in one place, which says why it may. Everything else is safe Rust.
#[test]
fn nothing_is_unsafe_but_machine_code() {
    only_in(&["unsafe ", "unsafe_code"], &["policy/machine_code.rs"]);
    only_in(
        &["of_our_own("],
        &["policy/machine_code.rs", "policy/compiler.rs", "policy/cache.rs", "policy/tests"],
    );
}

/// The domain is pure: values and transitions, without IO, clock, waiting or formats.
#[test]
fn the_domain_knows_nothing_of_ours_and_does_no_io() {
    let ours =
        ["crate::store", "crate::policy", "crate::engine", "crate::http", "crate::cli", "crate::dispatch"];
    never_in("domain", &ours);
    never_in(
        "domain",
        &["serde", "tokio", "async ", "std::fs", "std::net", "std::thread", "Instant", "SystemTime"],
    );
}

/// Storage and policies know the domain, never each other, and nothing above them.
#[test]
fn store_and_policy_do_not_know_each_other() {
    let above = ["crate::engine", "crate::http", "crate::cli", "crate::dispatch", "crate::programs"];
    never_in("store", &above);
    never_in("policy", &above);
    never_in("store", &["crate::policy"]);
    never_in("policy", &["crate::store"]);
    never_in("lab", &above);
    never_in("lab", &["crate::store"]);
}

/// The engine runs under the simulator: it never waits and never asks what time it is.
#[test]
fn the_engine_neither_waits_nor_reads_a_clock() {
    never_in(
        "engine",
        &["Instant", "SystemTime", "async ", ".await", "sleep", "std::thread", "serde", "crate::http"],
    );
}

/// Time enters as an argument: one module reads the clock. Who only measures a span (a benchmark, a turn of an
/// evaluator) may too.
#[test]
fn one_module_reads_the_clock() {
    only_in(
        &["Instant::now", "SystemTime::now"],
        &["clock.rs", "cli/", "policy/evaluators.rs", "policy/tests"],
    );
}

/// Handlers convert and call: what they know of storage is the shape of what they show.
#[test]
fn http_does_not_reach_past_the_broker() {
    never_in("http", &["store::durable", "store::Store", "Commit", "Keyspace", "crate::policy::Sandbox"]);
}

/// A file can be read in one sitting.
#[test]
fn files_are_short() {
    for folder in ["broker/src", "policy-sdk/src", "policies", "tests"] {
        for (path, code) in sources(&root().join(folder)) {
            let lines = code.lines().count();
            assert!(lines <= 600, "{folder}/{path} has {lines} lines of code");
        }
    }
}

/// The map fits its bound and names every part of the broker.
#[test]
fn the_architecture_page_is_short_and_complete() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    assert!(page.lines().count() <= 200, "it has {} lines", page.lines().count());
    for entry in fs::read_dir(root().join("broker/src")).expect("the folder is there") {
        let name = entry.expect("it can be read").file_name();
        let name = name.to_string_lossy();
        let name = name.trim_end_matches(".rs");
        if !["lib", "main"].contains(&name) {
            assert!(page.contains(name), "ARCHITECTURE.md does not name {name}");
        }
    }
    for name in ["policy-sdk", "policies", "tests", "examples"] {
        assert!(page.contains(name), "ARCHITECTURE.md does not name {name}");
    }
}

/// Every error that a client can be given is in the table of docs/errors.md, and nothing else is.
#[test]
fn the_error_table_is_complete() {
    let code = fs::read_to_string(root().join("broker/src/http/error.rs")).expect("it is there");
    let codes = code.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \""));
    let codes: Vec<_> = codes.map(|(_, rest)| rest.trim_end_matches("\",").to_owned()).collect();
    assert!(codes.len() > 20 && codes.is_sorted(), "the codes are read, and in order");
    let page = fs::read_to_string(root().join("docs/errors.md")).expect("the page is there");
    let listed: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).collect();
    let listed: Vec<_> = listed.into_iter().map(|(code, _)| code.to_owned()).collect();
    assert_eq!(listed, codes);
}
