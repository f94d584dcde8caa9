//! From uploaded bytes to machine code: read, judge by shape, wrap into a component, validate, compile.
//!
//! What would keep the compiler busy for minutes is mostly refused before it starts; what remains may still take
//! some seconds of one core and hundreds of megabytes. [`Compiler`](super::compiler::Compiler) says where it does.

use std::borrow::Cow;
use std::io;

use wasmparser::{Parser, Payload};
use wasmtime::{Engine, OutOfMemory};
use wit_component::ComponentEncoder;

use crate::domain::decision::cut;

use super::limits::COMPILED_BYTES;
use super::refusal::{Cost, Refusal};
use super::shape;

/// Imports that a refusal names: enough to see where they come from.
const NAMED_IMPORTS: usize = 16;

/// What can be told at a glance, before anything else looks at the bytes.
///
/// # Errors
/// [`Refusal`] if this is not a module or component in binary form.
pub(super) fn glance(bytes: &[u8]) -> Result<(), Refusal> {
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(Refusal::Precompiled);
    }
    if !Parser::is_component(bytes) && !Parser::is_core_wasm(bytes) {
        return Err(Refusal::NotWasm);
    }
    Ok(())
}

/// The component in wasmtime's serialized form.
///
/// # Errors
/// [`Refusal`] if the bytes are not a policy, as far as a compiler can tell.
pub(super) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    glance(bytes)?;
    shape::check(bytes)?;
    let code = engine.precompile_component(&component(bytes)?).map_err(invalid)?;
    if code.len() > COMPILED_BYTES { Err(Refusal::TooCostly(Cost::Code)) } else { Ok(code) }
}

/// The bytes as a component: as they are, or around the core module that they are.
fn component(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if Parser::is_component(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let imports = core_imports(bytes).map_err(|error| Refusal::Invalid(cut(error.to_string())))?;
    if !imports.is_empty() {
        return Err(Refusal::Imports(imports));
    }
    let mismatch = |error| Refusal::Contract(cut(format!("{error:#}")));
    let (contract, _) = wit_component::metadata::decode(bytes).map_err(mismatch)?;
    if contract.is_none() {
        return Err(Refusal::NoContract);
    }
    // The engine validates what it compiles, and knows which proposals are allowed.
    let mut encoder = ComponentEncoder::default();
    let component = encoder.validate(false).module(bytes).and_then(|encoder| encoder.encode());
    component.map(Cow::Owned).map_err(mismatch)
}

fn core_imports(bytes: &[u8]) -> wasmparser::Result<Vec<String>> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::ImportSection(imports) = payload? {
            for import in imports.into_imports() {
                let import = import?;
                if names.len() < NAMED_IMPORTS {
                    names.push(cut(format!("{}.{}", import.module, import.name)));
                }
            }
        }
    }
    Ok(names)
}

/// What the engine says against a component. Memory that it did not get is not the fault of the bytes' form.
pub(super) fn invalid(error: wasmtime::Error) -> Refusal {
    let no_memory = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<OutOfMemory>()
            || cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::OutOfMemory)
    };
    if error.chain().any(no_memory) {
        return Refusal::TooCostly(Cost::Memory);
    }
    Refusal::Invalid(cut(format!("{error:#}")))
}
