//! From uploaded bytes to machine code: read, judge by shape, wrap into a component, validate, compile.
//!
//! What would keep the compiler busy for minutes is mostly refused before it starts; what remains may still take
//! some seconds of one core and hundreds of megabytes. [`Compiler`](super::compiler::Compiler) says where it does.

use std::io;

use wasmtime::{Engine, OutOfMemory};

use crate::domain::decision::cut;

use super::component::component;
use super::limits::COMPILED_BYTES;
use super::refusal::{Refusal, TooMuch};

/// The component in wasmtime's serialized form.
///
/// # Errors
/// [`Refusal`] if the bytes are not a policy, as far as a compiler can tell.
pub(super) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let code = engine.precompile_component(&component(bytes)?).map_err(invalid)?;
    if code.len() > COMPILED_BYTES { Err(Refusal::TooCostly(TooMuch::Code)) } else { Ok(code) }
}

/// What the engine says against a component. Memory that it did not get is not the fault of the bytes' form.
pub(super) fn invalid(error: wasmtime::Error) -> Refusal {
    let no_memory = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<OutOfMemory>()
            || cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::OutOfMemory)
    };
    if error.chain().any(no_memory) {
        return Refusal::TooCostly(TooMuch::Memory);
    }
    Refusal::Invalid(cut(format!("{error:#}")))
}
