//! `broker completions` and `broker man`: what shells and `man` know of the commands, made from the commands themselves.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

#[derive(clap::Args, Debug)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args, Debug)]
pub(super) struct Man {
    /// Where the pages go, one for each command; made if it is not there.
    folder: PathBuf,
}

pub(super) fn completions(arguments: &Completions) -> Result<ExitCode, Box<dyn Error>> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "broker", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(arguments: &Man) -> Result<ExitCode, Box<dyn Error>> {
    let folder = &arguments.folder;
    let made = fs::create_dir_all(folder);
    let made = made.and_then(|()| clap_mangen::generate_to(super::Arguments::command(), folder));
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
