//! The examples, run as a newcomer runs them: each proves the story that its README tells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod demo;
mod endpoint;
mod languages;
mod process;
mod webhooks;
