//! The commands, run as a person runs them: what they print, what they say when it does not work, and their exit code.
//!
//! - [`author`]: the whole way of a policy, from `policy new` to one that decides, and where it can go wrong.
//! - [`new`]: what is written, and what is not overwritten.
//! - [`remote`]: what a running broker is asked: push, revisions, rollback, simulate, backtest, shadow.
//! - [`refusals`]: a table of calls that fail, each with its words and its exit code.
//! - [`explain`]: why a message is where it is, for every place that it can be.
//! - [`terminal`]: no text of a policy or a consumer steers the terminal.
//! - [`tenants`]: realms and tokens are made, used and taken away.
//! - [`config`]: where settings come from, who wins, and which files are refused.
//! - [`deploy`]: what examples/deploy tells the broker, and asks it.
//! - [`log`]: its two forms, and what is never in it.
//! - [`run`]: how a command is run; [`served`]: how a broker is, with arguments of a test's own.

#[path = "../support/mod.rs"]
mod support;

mod author;
mod config;
mod deploy;
mod explain;
mod log;
mod new;
mod refusals;
mod remote;
mod run;
mod served;
mod tenants;
mod terminal;
