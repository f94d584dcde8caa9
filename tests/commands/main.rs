//! The commands, run as a person runs them: what they print, what they say when it does not work, and their exit code.
//!
//! - [`author`]: the whole way of a policy, from `policy new` to one that decides, and where it can go wrong.
//! - [`new`]: what is written, and what is not overwritten.
//! - [`remote`]: what a running broker is asked: push, revisions, rollback, simulate, backtest, shadow.
//! - [`refusals`]: a table of calls that fail, each with its words and its exit code.
//! - [`explain`]: why a message is where it is, for every place that it can be.
//! - [`terminal`]: no text of a policy or a consumer steers the terminal.
//! - [`tenants`]: realms and tokens are made, used and taken away.
//! - [`run`]: how a command is run.

#[path = "../support/mod.rs"]
mod support;

mod author;
mod explain;
mod new;
mod refusals;
mod remote;
mod run;
mod tenants;
mod terminal;
