//! Scenarios that broke real brokers, each a test named after its number. Where a scenario leaves a choice, the test's
//! comment says what this broker does.
//!
//! - [`schedules`]: when a failed delivery comes again.
//! - [`delivery`]: messages with times, keys and places of their own.
//! - [`endings`]: limits, dead letters, replays.
//! - [`leases`]: consumers that are slow, vanish, or come late.
//! - [`streams`]: consumers on an open connection.
//! - [`policies`]: programs that misbehave or are replaced.
//! - [`publishing`]: data at its limits, batches beyond theirs.

#[path = "../support/mod.rs"]
mod support;

mod delivery;
mod endings;
mod leases;
mod policies;
mod publishing;
mod schedules;
mod streams;
