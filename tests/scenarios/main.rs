//! Scenarios that broke real brokers, each a test named after its number. Where a scenario leaves a choice, the test's
//! comment says what this broker does.
//!
//! - [`schedules`]: when a failed delivery comes again.
//! - [`endings`]: limits, dead letters, replays.
//! - [`leases`]: consumers that are slow, vanish, or come late.
//! - [`policies`]: programs that misbehave or are replaced.
//! - [`publishing`]: data at its limits, batches beyond theirs.

#[path = "../support/mod.rs"]
mod support;

mod endings;
mod leases;
mod policies;
mod publishing;
mod schedules;
