//! Compiles a policy from its Rust source to a wasm module, with the user's own cargo.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::interrupt::{Interrupt, Interrupted};

const TARGET: &str = "wasm32-unknown-unknown";
/// How often to look whether cargo is done.
const PULSE: Duration = Duration::from_millis(50);

/// Why there is no module.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompileError {
    /// The source is not where this binary was built.
    #[error(
        "the policy's source is missing: there is no {}\n\
         It comes with the repository: run a broker that was built there, or give a compiled policy.",
        .0.display()
    )]
    NoSource(PathBuf),
    /// The folder of a crate holds none.
    #[error("there is no crate of a policy in {}: `broker policy new` writes one", .0.display())]
    NoCrate(PathBuf),
    /// There is no cargo or no rustc.
    #[error(
        "{0} is missing, which compiles policies\n\
         Get Rust from https://rustup.rs, then: rustup target add {TARGET}"
    )]
    NoToolchain(&'static str),
    /// Rust is there, but cannot compile to wasm yet.
    #[error("the Rust target {TARGET} is missing\nGet it with: rustup target add {TARGET}")]
    NoTarget,
    /// Cargo said why, on standard error.
    #[error("the policy does not compile (cargo: {0}); the reason is above")]
    Failed(ExitStatus),
    /// The process was told to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A program could not be run.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// A policy's crate in a workspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The workspace.
    pub(super) workspace: &'a Path,
    /// The folder of the crate, below the workspace.
    pub(super) folder: &'a str,
    /// Its package.
    pub(super) package: &'a str,
    /// Its library, which names the module.
    pub(super) library: &'a str,
}

/// Where a policy was compiled while this binary was built; the SDK is compiled there already.
pub(super) fn target_dir(workspace: &Path) -> PathBuf {
    let built = Path::new(env!("POLICY_TARGET_DIR"));
    if built.is_dir() { built.to_owned() } else { workspace.join("target/policies") }
}

/// Compiles a policy and tells where its module is. Progress goes to standard error.
///
/// # Errors
/// [`CompileError`], with the way out.
pub(super) fn compile(source: Source<'_>, interrupt: &Interrupt) -> Result<PathBuf, CompileError> {
    let manifest = source.workspace.join(source.folder).join("Cargo.toml");
    if !manifest.is_file() {
        return Err(CompileError::NoSource(manifest));
    }
    find_target(source.workspace)?;
    let target_dir = target_dir(source.workspace);
    let mut cargo = Command::new(program("CARGO", "cargo"));
    cargo
        .args(["build", "--release", "--locked", "--target", TARGET, "--package", source.package])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(source.workspace)
        .stdout(Stdio::null());
    run(&mut cargo, interrupt)?;
    Ok(target_dir.join(TARGET).join("release").join(source.library).with_extension("wasm"))
}

/// Compiles the policy of a crate on its own and returns what cargo says of it, as lines of JSON. Progress goes to
/// standard error.
///
/// # Errors
/// [`CompileError`], with the way out.
pub(super) fn compile_crate(folder: &Path, interrupt: &Interrupt) -> Result<String, CompileError> {
    find_crate(folder)?;
    find_target(folder)?;
    let system = |error| CompileError::System("cargo", error);
    let mut messages = tempfile::tempfile().map_err(system)?;
    let mut cargo = Command::new(program("CARGO", "cargo"));
    cargo
        .args(["build", "--release", "--lib", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(folder)
        .stdout(messages.try_clone().map_err(system)?);
    run(&mut cargo, interrupt)?;
    let mut text = String::new();
    messages.rewind().map_err(system)?;
    messages.read_to_string(&mut text).map_err(system)?;
    Ok(text)
}

/// Whether the folder has a manifest of its own: cargo would take that of a folder around it.
///
/// # Errors
/// [`CompileError::NoCrate`].
pub(super) fn find_crate(folder: &Path) -> Result<(), CompileError> {
    if folder.join("Cargo.toml").is_file() { Ok(()) } else { Err(CompileError::NoCrate(folder.to_owned())) }
}

/// Runs cargo until it is done or the process is told to end.
fn run(cargo: &mut Command, interrupt: &Interrupt) -> Result<(), CompileError> {
    let mut cargo = cargo
        // Flags that are meant for the machine's own programs.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| missing("cargo", error))?;
    let status = loop {
        if let Some(status) = cargo.try_wait().map_err(|error| CompileError::System("cargo", error))? {
            break status;
        }
        if let Err(interrupted) = interrupt.check() {
            // It may have ended by itself: a terminal interrupts both.
            _ = cargo.kill();
            _ = cargo.wait();
            return Err(interrupted.into());
        }
        std::thread::sleep(PULSE);
    };
    // A terminal's Ctrl-C may end cargo before it is noticed here.
    interrupt.check()?;
    if status.success() { Ok(()) } else { Err(CompileError::Failed(status)) }
}

/// Whether rustc has the standard library of the target, in the toolchain that the workspace chooses.
fn find_target(workspace: &Path) -> Result<(), CompileError> {
    let output = Command::new(program("RUSTC", "rustc"))
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| missing("rustc", error))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match Path::new(printed.trim()) {
        folder if output.status.success() && folder.is_dir() => Ok(()),
        _ => Err(CompileError::NoTarget),
    }
}

/// What the environment names, as cargo itself does, or whatever the path has.
pub(super) fn program(variable: &str, name: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| name.into())
}

/// Why a program of the toolchain could not be run.
pub(super) fn missing(program: &'static str, error: io::Error) -> CompileError {
    match error.kind() {
        io::ErrorKind::NotFound => CompileError::NoToolchain(program),
        _ => CompileError::System(program, error),
    }
}
