//! `broker policy build`: from a crate to a component that can be uploaded.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::super::compile::{self, CompileError};
use super::super::connection::{Format, lines};
use super::super::interrupt::Interrupt;
use crate::policy::{Limits, pack};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The policy's crate.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Fails if the component is larger, in bytes.
    #[arg(long, default_value_t = Limits::default().module_bytes)]
    max_size: usize,
}

/// A policy that was built.
#[derive(Serialize, Debug)]
pub(super) struct Built {
    /// The component.
    pub(super) path: PathBuf,
    /// Its size in bytes.
    pub(super) size: usize,
    /// That of the module as cargo left it.
    module_size: usize,
}

pub(super) fn run(arguments: &Arguments, output: Format) -> Result<ExitCode, Box<dyn Error>> {
    let built = build(&arguments.path)?;
    let most = arguments.max_size;
    match output {
        Format::Json | Format::Jsonl => output.write(&built)?,
        Format::Table => lines([format!(
            "{}  {} bytes of {most} ({} % of what cargo made)",
            built.path.display(),
            built.size,
            built.size * 100 / built.module_size.max(1),
        )])?,
    }
    if built.size > most {
        return Err(format!("{} bytes are more than {most}", built.size).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Compiles, strips and componentises the policy in a folder.
///
/// # Errors
/// If it is no crate of a policy, or does not compile.
pub(super) fn build(folder: &Path) -> Result<Built, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let messages = compile::compile_crate(folder, &interrupt).map_err(|error| match error {
        CompileError::Interrupted(interrupted) => interrupted.into(),
        error => Box::<dyn Error>::from(error),
    })?;
    let module = artifact(&messages).ok_or_else(|| {
        format!("{} makes no wasm module: its [lib] needs crate-type = [\"cdylib\"]", folder.display())
    })?;
    let bytes = fs::read(&module).map_err(|error| format!("{}: {error}", module.display()))?;
    let component = pack(&bytes).map_err(|refusal| format!("{}: {refusal}", module.display()))?;
    // Beside the folder of the target, whose name begins what cargo calls its own.
    let target = module.ancestors().nth(3).unwrap_or(folder);
    let path = target.join(module.file_name().unwrap_or_default());
    fs::write(&path, &component).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Built { path, size: component.len(), module_size: bytes.len() })
}

/// A message of cargo, as far as it matters.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// The module among what cargo says that it made; dependencies make none.
fn artifact(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        .flat_map(|message| message.filenames)
        .rfind(|path| path.extension().is_some_and(|extension| extension == "wasm"))
}
