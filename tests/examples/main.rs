//! The examples, run as a newcomer runs them: each proves the story that its README tells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod demo;
mod endpoint;
mod process;
mod webhooks;
