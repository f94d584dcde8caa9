//! `broker policy`: write a policy, test it, try it, put it to work.
//!
//! [`new`], [`build`] and [`test`] need no broker: they use the sandbox and the limits that this binary has.
//! [`simulate`] does with or without one; [`remote`] and [`failures`] are what a running broker is asked.

mod build;
mod failures;
mod new;
mod remote;
mod simulate;
mod test;

pub(super) use remote::{decision, text};

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value};

use super::connection::{Connection, Format};
use crate::domain::name::{InvalidName, Name};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
    /// How data is written.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Format,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Writes the crate of a new policy, with a test, fixtures and the SDK; it builds at once.
    New(new::Arguments),
    /// Compiles a policy's crate to a component that can be uploaded.
    Build(build::Arguments),
    /// Tests a policy: its own tests natively, then its fixtures in the sandbox.
    Test(test::Arguments),
    /// Plays a scenario and shows the schedule.
    Simulate(simulate::Arguments),
    /// Lists recorded failures, or saves some as fixtures.
    Failures(failures::Arguments),
    /// Asks what a policy would have answered to recorded failures.
    Backtest(remote::Backtest),
    /// Makes a policy decide on a subscription.
    Push(remote::Push),
    /// Lists the revisions of a subscription's policy.
    Revisions(remote::Subscription),
    /// Makes an earlier revision decide again.
    Rollback(remote::Rollback),
    /// Has a second policy asked beside the active one.
    Shadow(remote::Shadow),
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { command, connection, output } = arguments;
    match command {
        Command::New(arguments) => new::run(arguments),
        Command::Build(arguments) => build::run(arguments, *output),
        Command::Test(arguments) => test::run(arguments, *output),
        Command::Simulate(arguments) => simulate::run(arguments, connection, *output),
        Command::Failures(arguments) => failures::run(arguments, connection, *output),
        Command::Backtest(arguments) => remote::backtest(arguments, connection, *output),
        Command::Push(arguments) => remote::push(arguments, connection, *output),
        Command::Revisions(arguments) => remote::revisions(arguments, connection, *output),
        Command::Rollback(arguments) => remote::rollback(arguments, connection, *output),
        Command::Shadow(arguments) => remote::shadow(arguments, connection, *output),
    }
}

/// Parameters as the command line has them.
fn params(given: &str) -> Result<Value, String> {
    let object: Result<Map<String, Value>, _> = serde_json::from_str(given);
    object.map(Value::Object).map_err(|error| format!("--params is no JSON object: {error}"))
}

/// A subscription is named in the path of a request.
fn subscription(name: &str) -> Result<String, InvalidName> {
    Name::new(name).map(|name| name.to_string())
}

/// The bytes of a policy: a file as it is, or a crate's folder, which is built.
fn module(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let built;
    let file: &PathBuf = if path.is_dir() {
        built = build::build(path)?.path;
        &built
    } else {
        &path.to_owned()
    };
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()).into())
}
