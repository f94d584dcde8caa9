//! The commands, run as a person runs them: what they print, what they say when it does not work, and their exit code.
//!
//! - [`author`]: the whole way of a policy, from `policy new` to one that decides, and where it can go wrong.
//! - [`new`]: what is written, and what is not overwritten.
//! - [`remote`]: what a running broker is asked: push, revisions, rollback, simulate, backtest, shadow.
//! - [`refusals`]: a table of calls that fail, each with its words and its exit code.
//! - [`explain`]: why a message is where it is, for every place that it can be.
//! - [`terminal`]: no text of a policy, a consumer or a message steers the terminal.
//! - [`tenants`]: realms and tokens are made, used and taken away.
//! - [`config`]: where settings come from, who wins, and which files are refused.
//! - [`deploy`]: what examples/deploy tells the broker, and asks it.
//! - [`log`]: its two forms, and what is never in it.
//! - [`served`]: how a broker is run with arguments of a test's own.
//! - [`topics`], [`subscriptions`]: what is made, shown, changed and taken away.
//! - [`flow`]: messages are published, pulled and settled from the command line alone.
//! - [`dead_letters`]: found, looked into, replayed and discarded.
//! - [`watching`]: events as they come, and the table of subscriptions that is drawn again and again.
//! - [`contexts`]: brokers under names, and what goes before them.
//! - [`dev`]: a broker to try things on, which leaves nothing behind.
//! - [`help`]: the help of each command as it is kept in `snapshots`, completions and manual pages.
//! - [`snapshot`]: what is compared with files; [`run`]: how a command is run.

#[path = "../support/mod.rs"]
mod support;

mod author;
mod config;
mod contexts;
mod dead_letters;
mod deploy;
mod dev;
mod explain;
mod flow;
mod help;
mod log;
mod new;
mod refusals;
mod remote;
mod run;
mod served;
mod snapshot;
mod subscriptions;
mod tenants;
mod terminal;
mod topics;
mod watching;
