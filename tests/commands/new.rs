//! `policy new`: what is written, and what is not overwritten.

use std::fs;

use crate::run::{Ran, command, run, text};

/// A crate with a test, fixtures and the SDK, in a folder of its name or where it is told, and the next step.
#[test]
fn a_crate_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let told = Ran::of(command(&["policy", "new", "pay-2"]).current_dir(folder.path())).good();
    assert_eq!(
        told,
        "pay-2/src/lib.rs decides, pay-2/fixtures/ says what it should decide.\nNext: broker policy test pay-2\n"
    );
    let read = |path: &str| fs::read_to_string(folder.path().join(path)).expect("it is written");
    for file in
        ["README.md", "build.rs", ".gitignore", "reprise-policy/wit/policy.wit", "reprise-policy/src/lib.rs"]
    {
        assert!(!read(&format!("pay-2/{file}")).is_empty(), "{file}");
    }
    assert!(read("pay-2/Cargo.toml").contains(r#"name = "pay-2""#));
    assert!(read("pay-2/src/lib.rs").contains(r#"Description::new("pay-2","#));
    assert!(read("pay-2/tests/policy.rs").contains("use pay_2::Decider;"));
    assert_eq!(fs::read_dir(folder.path().join("pay-2/fixtures")).expect("fixtures").count(), 2);
    for file in ["Cargo.toml", "src/lib.rs", "tests/policy.rs", "README.md"] {
        let written = read(&format!("pay-2/{file}"));
        assert!(!written.contains("{name}") && !written.contains("{library}"), "{written}");
    }

    let elsewhere = text(&folder.path().join("deep/er"));
    run(&["policy", "new", "payments", "--path", &elsewhere]).good();
    assert!(read("deep/er/Cargo.toml").contains(r#"name = "payments""#));
}

/// Names that cargo, Rust or the broker would not take are refused, and nothing is written.
#[test]
fn bad_names_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["Payments", "2pay", "pay_2", "../pay", "pay-", "", "pay\u{1b}"] {
        let complaint = Ran::of(command(&["policy", "new", name]).current_dir(folder.path())).failed(1);
        let told = format!("broker: {name:?} is no name for a policy: begin with a letter, go on with");
        assert!(complaint.starts_with(&told), "{complaint}");
    }
    for name in ["core", "match", "reprise-policy"] {
        let complaint = Ran::of(command(&["policy", "new", name]).current_dir(folder.path())).failed(1);
        assert!(complaint.starts_with(&format!("broker: {name:?} is a word of Rust's")), "{complaint}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    run(&["policy", "new"]).failed(2);
}

/// A folder with something in it, or a file, stays as it is; an empty folder is filled.
#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| text(&folder.path().join(name));
    fs::create_dir(path("full")).expect("a folder");
    fs::write(path("full/Cargo.toml"), "mine").expect("a file");
    fs::write(path("file"), "mine").expect("a file");
    fs::create_dir(path("empty")).expect("a folder");
    for there in ["full", "file"] {
        let complaint = run(&["policy", "new", "payments", "--path", &path(there)]).failed(1);
        assert_eq!(complaint, format!("broker: {} is there already\n", path(there)));
    }
    assert_eq!(fs::read_to_string(path("full/Cargo.toml")).expect("it is there"), "mine");
    assert_eq!(fs::read_dir(path("full")).expect("a folder").count(), 1);
    run(&["policy", "new", "payments", "--path", &path("empty")]).good();
    let complaint = run(&["policy", "new", "payments", "--path", &path("file/below")]).failed(1);
    assert!(complaint.contains("file/below"), "{complaint}");
}
