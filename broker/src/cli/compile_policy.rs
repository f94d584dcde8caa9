//! `broker compile-policy`: what the broker starts to have a module compiled. Not for people.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::policy::compile_for_parent;

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The limit of a policy's memory.
    #[arg(long)]
    memory_bytes: usize,
    /// The process that reads the answer.
    #[arg(long)]
    parent: u32,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    compile_for_parent(arguments.memory_bytes, arguments.parent, io::stdin().lock(), io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
