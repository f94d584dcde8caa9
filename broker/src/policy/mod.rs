//! The sandbox: retry policies as wasm components, the only place that names wasmtime.
//!
//! Knows `domain`; knows no storage, no socket and no rule of delivery. Bytes become a [`Program`] through
//! [`Sandbox::admit`]; a program turns a context into an [`Evaluation`](crate::domain::decision::Evaluation), each time in a sandbox of its own;
//! [`Evaluators`] do that on threads of their own, fairly between subscriptions. Start with [`Program::decide`].
//!
//! On the way from bytes to a program, [`Compiler`] says where it is compiled: for a broker in a child process with
//! limits, whose answer is kept on disk under a MAC for the next start.

mod admission;
mod cache;
mod child;
mod compile;
mod compiler;
mod component;
mod contract;
mod evaluators;
mod input;
mod limits;
mod machine_code;
mod output;
mod program;
mod refusal;
mod rehearsal;
mod sandbox;
mod shape;
mod turns;

#[cfg(test)]
mod tests;

pub use child::compile_for_parent;
pub use compiler::Compiler;
pub use component::pack;
pub use evaluators::{Ask, Asked, Evaluators};
pub use limits::{HOST_STACK_BYTES, Limits, THREAD_STACK_BYTES, WASM_STACK_BYTES};
pub use output::{Description, Param, ParamKind};
pub use program::Program;
pub use refusal::{Refusal, TooMuch};
pub use rehearsal::{Rehearsal, standard_contexts};
pub use sandbox::{Sandbox, SandboxError};
