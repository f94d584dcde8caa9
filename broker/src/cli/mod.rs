//! The command line. A file per command; they hold no rules, and talk to a broker as any client does.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line is wrong.

mod bench;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A message broker whose retry policies are programs.
#[derive(Parser)]
#[command(name = "broker", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a broker on a data folder.
    Serve(serve::Arguments),
    /// Measures what this machine does with this build.
    Bench(bench::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Data goes to standard output, everything else here.
#[expect(clippy::print_stderr, reason = "this is the place that talks to the terminal")]
fn say_error(error: &dyn std::fmt::Display) {
    eprintln!("broker: {error}");
}
