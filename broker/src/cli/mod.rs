//! The command line. A file per command; they hold no rules, and talk to a broker as any client does.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 3 what was named is not there, 4 it was refused and will
//! be again, 130 it was interrupted.

mod answers;
mod bench;
mod client;
mod compile;
mod compile_policy;
mod config;
mod connection;
mod context;
mod contexts;
mod dead_letter;
mod demo;
mod dev;
mod failures;
mod given;
mod interrupt;
mod json;
mod manual;
mod message;
mod output;
mod policy;
mod publish;
mod pull;
mod realm;
mod serve;
mod settings;
mod settle;
mod shown;
mod size;
mod subscription;
mod table;
mod tail;
mod token;
mod top;
mod topic;

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::client::{ClientError, Refusal};
use self::contexts::ContextError;
use self::failures::Failures;

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
    /// Runs a broker to try things on: without authentication, on loopback alone.
    Dev(dev::Arguments),
    /// Runs a broker on a data folder.
    Serve(Box<settings::Arguments>),
    /// Prints, checks and shows the settings of a broker.
    Config(config::Arguments),
    /// Creates, shows, browses and deletes topics.
    Topic(topic::Arguments),
    /// Creates, shows, changes, pauses, seeks, purges and deletes subscriptions.
    Subscription(subscription::Arguments),
    /// Publishes a message, or one of each line.
    Publish(publish::Arguments),
    /// Takes deliveries of a subscription under a lease.
    Pull(pull::Arguments),
    /// Says that deliveries are done.
    Ack(settle::Settle),
    /// Says that deliveries failed; the policy decides what becomes of them.
    Nack(settle::Nack),
    /// Gives deliveries back without fault.
    Release(settle::Settle),
    /// Asks for more time with deliveries.
    Extend(settle::Extend),
    /// Lists, shows, replays and discards dead letters.
    DeadLetter(dead_letter::Arguments),
    /// Follows what happens on a subscription.
    Tail(tail::Arguments),
    /// Shows how all subscriptions do, again and again.
    Top(top::Arguments),
    /// Writes, tests, tries and uploads policies.
    Policy(policy::Arguments),
    /// Looks into messages.
    Message(message::Arguments),
    /// Makes, lists, rotates and revokes tokens.
    Token(token::Arguments),
    /// Makes, lists and deletes realms.
    Realm(realm::Arguments),
    /// Keeps brokers under names.
    Context(context::Arguments),
    /// Measures what this machine does with this build.
    Bench(bench::Arguments),
    /// Writes the completions of a shell to standard output.
    Completions(manual::Completions),
    /// Writes manual pages.
    Man(manual::Man),
    /// Compiles the policy on standard input, for the broker that started this.
    #[command(hide = true)]
    CompilePolicy(compile_policy::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    match config::with_file(Arguments::command()) {
        Ok(command) => run(command),
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(mut command: clap::Command) -> ExitCode {
    let matches = command.get_matches_mut();
    let arguments = Arguments::from_arg_matches(&matches);
    let arguments = arguments.unwrap_or_else(|error| error.format(&mut command).exit());
    let innermost = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    let of = arguments.command.exit_codes();
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(arguments) => config::run(&arguments, innermost),
        Command::Topic(arguments) => topic::run(&arguments),
        Command::Subscription(arguments) => subscription::run(&arguments),
        Command::Publish(arguments) => publish::run(&arguments),
        Command::Pull(arguments) => pull::run(&arguments),
        Command::Ack(arguments) => settle::ack(&arguments),
        Command::Nack(arguments) => settle::nack(&arguments),
        Command::Release(arguments) => settle::release(&arguments),
        Command::Extend(arguments) => settle::extend(&arguments),
        Command::DeadLetter(arguments) => dead_letter::run(&arguments),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Message(arguments) => message::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Realm(arguments) => realm::run(&arguments),
        Command::Context(arguments) => context::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
        Command::CompilePolicy(arguments) => compile_policy::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        say(&error);
        of(&*error)
    })
}

/// The command line is wrong, as clap says it too.
const USAGE: u8 = 2;
/// What was named is not there.
const NOT_FOUND: u8 = 3;
/// It was refused, and will be again.
const REFUSED: u8 = 4;

impl Command {
    /// What the exit code of a failure is.
    fn exit_codes(&self) -> fn(&(dyn Error + 'static)) -> ExitCode {
        match self {
            // They are older than the finer codes, and scripts may count on theirs.
            Self::Policy(_) | Self::Message(_) | Self::Token(_) | Self::Realm(_) => coarse_code,
            _ => code,
        }
    }
}

fn coarse_code(error: &(dyn Error + 'static)) -> ExitCode {
    let interrupted = error.is::<interrupt::Interrupted>();
    if interrupted { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::FAILURE }
}

fn code(error: &(dyn Error + 'static)) -> ExitCode {
    let refusal = match error.downcast_ref() {
        Some(ClientError::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    };
    let unknown = matches!(error.downcast_ref(), Some(ContextError::Unknown(_)));
    match refusal {
        Some(Refusal::NotFound) => ExitCode::from(NOT_FOUND),
        Some(Refusal::Final) => ExitCode::from(REFUSED),
        _ if unknown => ExitCode::from(NOT_FOUND),
        _ => coarse_code(error),
    }
}

/// Says something beside the data, on one line.
fn note(words: &str) {
    say(&output::plain(words));
}

/// Data goes to standard output, everything else here.
#[expect(clippy::print_stderr, reason = "this is the place that talks to the terminal")]
fn say(words: &(impl std::fmt::Display + ?Sized)) {
    // It may tell what a policy said.
    let lines: Vec<_> = words.to_string().lines().map(output::plain).collect();
    eprintln!("broker: {}", lines.join("\n"));
}
