//! Testing a policy natively, without a broker and without wasm.
//!
//! - [`ContextBuilder`] makes one context, to ask one question.
//! - [`Simulation`] plays a script of [`Outcomes`] and returns the whole [`Schedule`].
//! - [`properties`] hold a policy against hostile contexts.
//! - [`fixtures`] runs cases from files; the broker's own tests run the same files through the real
//!   wasm.
//! - [`readme`] keeps tables and charts in a README true.
//!
//! Native targets only; a policy crate names the feature under its dev-dependencies:
//! `reprise-policy = { version = "0.1", features = ["testing"] }`.

mod context;
pub mod fixtures;
mod outcomes;
pub mod properties;
pub mod readme;
mod simulation;

pub use context::{ContextBuilder, NOW, SEED};
pub use outcomes::{Outcome, Outcomes, ScriptError};
pub use simulation::{ATTEMPT_LIMIT, End, Schedule, Simulation, Step};

/// What `check` says about parameters in JSON text, as the broker asks it.
///
/// # Errors
///
/// The message for people.
pub fn check(policy: &dyn crate::Policy, params: &str) -> Result<(), crate::ParamError> {
    crate::Params::parse(params).and_then(|params| policy.check(params))
}
