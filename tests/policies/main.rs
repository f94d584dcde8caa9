//! The policies of the workspace, compiled and in the real sandbox: every case of their `fixtures/` holds there as it
//! does natively, within a ceiling of fuel. The examples in other languages are held to the same.
//!
//! - [`languages`]: what is particular to the examples in other languages.
//! - [`packing`]: what `broker policy build` makes of a module.

#[path = "../support/policies.rs"]
mod policies;

mod languages;
mod packing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reprise_broker::lab::fixture::Case;
use reprise_broker::policy::{Limits, Program, Sandbox};

use reprise_policy::testing::fixtures;

/// What one decision of a policy may burn, about half as much again as it does: a change that makes decisions dearer
/// is to be seen. `None` is for policies without a line of their own.
const FUEL: &[(Option<&str>, u64)] = &[
    (Some("business-hours"), 41_000),
    (Some("circuit-breaker"), 35_000),
    (Some("crash-quarantine"), 34_000),
    (Some("deadline"), 18_000),
    (Some("decorrelated-jitter"), 11_000),
    (Some("http-status"), 8_000),
    (Some("policy-in-c"), 2_800),
    (Some("policy-in-wat"), 900),
    (Some("rate-limited"), 8_000),
    (Some("standard"), 17_000),
    (None, 20_000),
];

/// Every policy with its folder.
fn all(sandbox: &Sandbox) -> Vec<(PathBuf, Arc<Program>)> {
    let compiled = policies::folders().into_iter().map(|folder| {
        let module = policies::module(&policies::name(&folder));
        (folder, module)
    });
    let examples = policies::EXAMPLES.map(|name| (policies::example_folder(name), policies::example(name)));
    let load = |(folder, module): (PathBuf, Vec<u8>)| {
        let name = policies::name(&folder);
        let (program, _) = sandbox
            .admit(&module, "{}")
            .unwrap_or_else(|refusal| panic!("{name} is not admitted: {refusal}"));
        assert_eq!(program.description().name, name, "a policy is called what its folder is");
        (folder, program)
    };
    compiled.chain(examples).map(load).collect()
}

/// The cases of a policy, in order of their names; a policy without any fails, and so does any other file there.
fn cases(folder: &Path) -> Vec<(PathBuf, Case)> {
    let folder = folder.join("fixtures");
    let paths = fixtures::paths(&folder).unwrap_or_else(|error| panic!("{error}"));
    assert!(!paths.is_empty(), "{} has no fixtures", folder.display());
    let files = folder.read_dir().expect("the fixtures can be listed").count();
    assert_eq!(paths.len(), files, "{} has files that are no cases", folder.display());
    let read = |path: PathBuf| match Case::load(&path) {
        Ok(case) => (path, case),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    paths.into_iter().map(read).collect()
}

/// Every fixture of every policy holds in the sandbox.
#[test]
fn every_fixture_holds_in_the_sandbox() {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    let mut failed = Vec::new();
    for (folder, program) in all(&sandbox) {
        for (path, case) in cases(&folder) {
            if let Err(problem) = case.holds(&program) {
                failed.push(format!("{}: {}: {problem}", path.display(), case.name()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// No case of any policy burns more fuel than that policy's ceiling.
#[test]
fn decisions_stay_under_their_fuel_ceiling() {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    for (folder, program) in all(&sandbox) {
        let name = policies::name(&folder);
        let line = FUEL.iter().find(|(of, _)| of.is_none_or(|of| of == name));
        let (_, ceiling) = line.expect("the last line is for all");
        let decided = cases(&folder).into_iter().filter(|(_, case)| !case.expects_refusal());
        let burnt = decided.map(|(path, case)| (program.decide(case.context()).fuel, path)).max();
        let (fuel, path) = burnt.expect("some case decides");
        assert!(fuel <= *ceiling, "{name}: {fuel} of {ceiling} in {}", path.display());
    }
}

/// The same case asked twice burns the same fuel and answers the same, with the same hash of its input.
#[test]
fn a_case_asked_twice_is_answered_twice_the_same() {
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    for (folder, program) in all(&sandbox) {
        for (path, case) in cases(&folder) {
            assert_eq!(program.decide(case.context()), program.decide(case.context()), "{}", path.display());
        }
    }
}
