//! The policies of the workspace, compiled to wasm once per test process, and the examples in other languages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const TARGET: &str = "wasm32-unknown-unknown";

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folders of the policies, in order of their names.
pub(crate) fn folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(workspace().join("policies")).expect("the policies can be listed");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the policies can be listed").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "there are no policies");
    folders
}

/// The name of a policy, which is that of its folder.
pub(crate) fn name(folder: &Path) -> String {
    folder.file_name().and_then(|name| name.to_str()).expect("a policy's folder has a plain name").to_owned()
}

/// The compiled module of a policy.
pub(crate) fn module(name: &str) -> Vec<u8> {
    let path = built().join(format!("{}.wasm", name.replace('-', "_")));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The policies among the examples that are written in other languages.
pub(crate) const EXAMPLES: [&str; 2] = ["policy-in-c", "policy-in-wat"];

/// The folder of an example.
pub(crate) fn example_folder(name: &str) -> PathBuf {
    workspace().join("examples").join(name)
}

/// The module of such an example, as its README uploads it: assembled from its text, or compiled before.
pub(crate) fn example(name: &str) -> Vec<u8> {
    let folder = example_folder(name);
    let text = folder.join("policy.wat");
    if text.exists() {
        return wat::parse_file(text).expect("the example is valid text");
    }
    std::fs::read(folder.join("policy.wasm")).expect("the example is compiled")
}

/// Where the modules are, built at the first use.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let executable = std::env::current_exe().expect("a test has an executable");
        // target/debug/deps/system-0123
        let target = executable.ancestors().nth(3).expect("a test lies in a target folder").join("policies");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build
            .args(["build", "--release", "--locked", "--quiet", "--target", TARGET])
            .arg("--manifest-path")
            .arg(workspace().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            // What the outer build was told about itself does not hold for this one.
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env_remove("CARGO_BUILD_TARGET");
        for folder in folders() {
            build.arg("-p").arg(format!("policy-{}", name(&folder)));
        }
        let built = build.output().expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join(TARGET).join("release")
    })
}
