//! The sandbox against guests that behave and guests that do not. Each limit has twins: one guest that stays
//! within it, one that does not and gets exactly that fault.

mod admission;
mod cache;
mod cost;
mod evaluators;
mod guest;
mod limits;
mod purity;

use std::sync::Arc;

use super::{Limits, Program, Sandbox, standard_contexts};
use crate::domain::context::Context;
use crate::domain::decision::{Answer, AnswerAction, Fault};
use guest::{Guest, deciding};

fn sandbox() -> Sandbox {
    Sandbox::new(Limits::default()).expect("a sandbox")
}

/// An ordinary context: the first failure by `nacked`.
fn context() -> Context {
    standard_contexts("{}").swap_remove(0).1
}

/// Loads a guest without the trial, which a hostile one would not pass.
fn load(guest: &Guest) -> Arc<Program> {
    sandbox().load(&guest.module()).expect("the guest loads")
}

/// What a guest with this `decide` answers.
fn ask(decide: &str) -> Result<Answer, Fault> {
    load(&deciding(decide)).decide(&context()).result
}

/// The answer of a guest that retries, in milliseconds.
fn retry_millis(result: &Result<Answer, Fault>) -> u128 {
    match result {
        Ok(Answer { action: AnswerAction::Retry { delay }, .. }) => delay.as_millis(),
        other => panic!("not a retry: {other:?}"),
    }
}
