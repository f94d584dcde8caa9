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
    embed_sdk(&root, &out);
}

/// The SDK's source as a list of names and texts, for `policy new`: what it writes builds where there is nothing but
/// this binary and Rust.
fn embed_sdk(root: &Path, out: &Path) {
    let sdk = root.join("policy-sdk");
    let mut files = vec![sdk.join("README.md")];
    let mut folders = vec![sdk.join("src"), sdk.join("wit")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the SDK is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut list = String::from("[\n");
    for file in files {
        let name = file.strip_prefix(&sdk).expect("below it").display().to_string();
        list.push_str(&format!("({name:?}, include_str!({:?})),\n", file.display().to_string()));
    }
    list.push_str(&format!("(\"Cargo.toml\", {:?}),\n]\n", manifest(root)));
    fs::write(out.join("sdk.rs"), list).expect("the output folder can be written");
}

/// The SDK's manifest without its workspace.
fn manifest(root: &Path) -> String {
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a manifest");
    let (sdk, workspace) = (read("policy-sdk/Cargo.toml"), read("Cargo.toml"));
    let (_, rest) = sdk.split_once("[features]").expect("the SDK has features");
    let (features, _) = rest.split_once("[dependencies]").expect("and dependencies");
    let version = |name: &str| {
        let line = workspace.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        let line = line.unwrap_or_else(|| panic!("the workspace names {name}"));
        let version = line.split('"').nth(1).expect("a version");
        let features =
            line.split_once(", features = ").map_or("[]", |(_, rest)| rest.trim_end_matches([' ', '}']));
        (version.to_owned(), features.to_owned(), line.contains("default-features = false"))
    };
    let dependency = |name: &str, optional: bool| {
        let (version, features, bare) = version(name);
        let default = !bare;
        format!(
            "{name} = {{ version = \"{version}\", features = {features}, default-features = {default}, optional = {optional} }}\n"
        )
    };
    format!(
        "[package]\nname = \"reprise-policy\"\ndescription = \"The SDK of Reprise policies.\"\nversion = \"{}\"\nedition = \"2024\"\nlicense = \"Apache-2.0\"\npublish = false\n\n[features]{features}[dependencies]\n{}{}",
        env!("CARGO_PKG_VERSION"),
        dependency("serde_json", true),
        dependency("wit-bindgen", false),
    )
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

fn path(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).expect("cargo sets it"))
}
