//! The policies of the workspace, compiled and in the real sandbox: every case of their `fixtures/` holds there as it
//! does natively, within a ceiling of fuel.

#[path = "../support/policies.rs"]
mod policies;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reprise_broker::lab::fixture::Case;
use reprise_broker::policy::{Limits, Program, Sandbox};

use reprise_policy::testing::fixtures;

/// What one decision of a policy may burn, about half as much again as it does: a change that makes decisions dearer
/// is to be seen. `None` is for policies without a line of their own.
const FUEL: &[(Option<&str>, u64)] = &[
    (Some("http-status"), 8_000),
    (Some("rate-limited"), 8_000),
    (Some("standard"), 17_000),
    (None, 20_000),
];

fn load(sandbox: &Sandbox, folder: &Path) -> Arc<Program> {
    let name = policies::name(folder);
    let (program, _) = sandbox
        .admit(&policies::module(&name), "{}")
        .unwrap_or_else(|refusal| panic!("{name} is not admitted: {refusal}"));
    assert_eq!(program.description().name, name, "a policy is called what its folder is");
    program
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
    for folder in policies::folders() {
        let program = load(&sandbox, &folder);
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
    for folder in policies::folders() {
        let name = policies::name(&folder);
        let line = FUEL.iter().find(|(of, _)| of.is_none_or(|of| of == name));
        let (_, ceiling) = line.expect("the last line is for all");
        let program = load(&sandbox, &folder);
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
    for folder in policies::folders() {
        let program = load(&sandbox, &folder);
        for (path, case) in cases(&folder) {
            assert_eq!(program.decide(case.context()), program.decide(case.context()), "{}", path.display());
        }
    }
}
