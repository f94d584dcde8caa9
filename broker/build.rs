//! Compiles the standard policy to wasm, which the broker embeds: its default decides in the sandbox like any
//! other policy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "wasm32-unknown-unknown";

fn main() {
    let root = path("CARGO_MANIFEST_DIR").join("..");
    for source in
        ["policies/standard", "policy-sdk/src", "policy-sdk/wit", "policy-sdk/Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let out = path("OUT_DIR");
    // A target folder of its own, as cargo holds the lock of the one that it builds in.
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("policies");
    let built = Command::new(path("CARGO"))
        .args(["build", "--release", "--locked", "--package", "policy-standard", "--target", TARGET])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        // What the outer build was told about itself does not hold for this one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    let report = String::from_utf8_lossy(&built.stderr);
    if !built.status.success() {
        let missing =
            report.contains("can't find crate for `core`") || report.contains("may not be installed");
        let hint = if missing {
            format!("\nThe target {TARGET} is missing: rustup target add {TARGET}\n")
        } else {
            String::new()
        };
        panic!("the standard policy does not compile\n{report}{hint}");
    }
    let module = target_dir.join(TARGET).join("release/standard.wasm");
    let embedded = out.join("standard.wasm");
    copy(&module, &embedded);
    println!("cargo::rustc-env=STANDARD_POLICY={}", embedded.display());
    // Whoever compiles another policy later finds the SDK compiled there.
    println!("cargo::rustc-env=POLICY_TARGET_DIR={}", target_dir.display());
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

fn path(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).expect("cargo sets it"))
}
