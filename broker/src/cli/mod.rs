//! The command line. A file per command; they hold no rules, and talk to a broker as any client does.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 it was interrupted.

mod answers;
mod bench;
mod client;
mod compile;
mod compile_policy;
mod config;
mod connection;
mod demo;
mod interrupt;
mod message;
mod output;
mod policy;
mod realm;
mod serve;
mod settings;
mod size;
mod table;
mod token;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// A message broker whose retry policies are programs.
#[derive(Parser)]
#[command(name = "broker", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows a whole broker at work in under a minute: orders whose payment fails in every way there is.
    Demo(demo::Arguments),
    /// Runs a broker on a data folder.
    Serve(Box<settings::Arguments>),
    /// Prints, checks and shows the settings of a broker.
    Config(config::Arguments),
    /// Writes, tests, tries and uploads policies.
    Policy(policy::Arguments),
    /// Looks into messages.
    Message(message::Arguments),
    /// Makes, lists, rotates and revokes tokens.
    Token(token::Arguments),
    /// Makes, lists and deletes realms.
    Realm(realm::Arguments),
    /// Measures what this machine does with this build.
    Bench(bench::Arguments),
    /// Compiles the policy on standard input, for the broker that started this.
    #[command(hide = true)]
    CompilePolicy(compile_policy::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    match config::with_file(Arguments::command()) {
        Ok(command) => run(command),
        Err(error) => {
            say_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(mut command: clap::Command) -> ExitCode {
    let matches = command.get_matches_mut();
    let arguments = Arguments::from_arg_matches(&matches);
    let arguments = arguments.unwrap_or_else(|error| error.format(&mut command).exit());
    let innermost = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(arguments) => config::run(&arguments, innermost),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Message(arguments) => message::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Realm(arguments) => realm::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::CompilePolicy(arguments) => compile_policy::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            say_error(&error);
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            say_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Data goes to standard output, everything else here.
#[expect(clippy::print_stderr, reason = "this is the place that talks to the terminal")]
fn say_error(error: &dyn std::fmt::Display) {
    // It may tell what a policy said.
    let lines: Vec<_> = error.to_string().lines().map(output::plain).collect();
    eprintln!("broker: {}", lines.join("\n"));
}
