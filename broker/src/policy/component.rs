//! From a core module or component, as it was uploaded, to a component of the contract. Nothing is compiled or run.

use std::borrow::Cow;
use std::fmt;

use wasmparser::{Parser, Payload};
use wasmtime::Engine;
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::domain::decision::cut;

use super::contract::{self, INTERFACE};
use super::refusal::Refusal;
use super::shape;

/// Imports that a refusal names: enough to see where they come from.
const NAMED_IMPORTS: usize = 16;
/// Where a core module names the contract it was made for.
const CONTRACT_SECTION: &str = "component-type";

/// A component as small as it can be: without the sections that nobody reads at run time.
///
/// # Errors
/// [`Refusal`] if the bytes are no module or component, or not one of the contract.
pub fn pack(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    component(&strip(bytes)?).map(Cow::into_owned)
}

/// A core module without its custom sections but the one that names the contract. A component is left as it is.
fn strip(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if !Parser::is_core_wasm(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut end = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| Refusal::Invalid(cut(error.to_string())))?;
        let (range, keep) = match &payload {
            Payload::Version { range, .. } => (range.clone(), true),
            Payload::CustomSection(section) => {
                (section.range(), section.name().starts_with(CONTRACT_SECTION))
            }
            payload => match payload.as_section() {
                Some((_, range)) => (range, true),
                None => continue,
            },
        };
        let next = usize::try_from(range.end).unwrap_or(usize::MAX);
        if keep {
            // With the head of the section, which is between the end of the last one and its contents.
            kept.extend_from_slice(bytes.get(end..next).unwrap_or_default());
        }
        end = next;
    }
    Ok(Cow::Owned(kept))
}

/// The bytes as a component: as they are, or around the core module that they are.
pub(super) fn component(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    glance(bytes)?;
    shape::check(bytes)?;
    if Parser::is_component(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let imports = core_imports(bytes).map_err(|error| Refusal::Invalid(cut(error.to_string())))?;
    if !imports.is_empty() {
        return Err(Refusal::Imports(imports));
    }
    let (contract, _) = wit_component::metadata::decode(bytes).map_err(mismatch)?;
    let bytes = match contract {
        Some(_) => Cow::Borrowed(bytes),
        None if exports_a_part(bytes) => Cow::Owned(with_contract(bytes)?),
        None => return Err(Refusal::NoContract),
    };
    // The engine validates what it compiles, and knows which proposals are allowed.
    let mut encoder = ComponentEncoder::default();
    let component = encoder.validate(false).module(&bytes).and_then(|encoder| encoder.encode());
    component.map(Cow::Owned).map_err(mismatch)
}

/// Whether a core module exports a function of the contract's interface, as one from a compiler that knows
/// nothing of contracts does: the names say enough.
fn exports_a_part(bytes: &[u8]) -> bool {
    let exports = Parser::new(0).parse_all(bytes).filter_map(|payload| match payload {
        Ok(Payload::ExportSection(exports)) => Some(exports.into_iter().flatten()),
        _ => None,
    });
    let function = |name: &str| name.strip_prefix(INTERFACE).is_some_and(|rest| rest.starts_with('#'));
    exports.flatten().any(|export| function(export.name))
}

/// The module with the section that the SDK's macro would have put there.
fn with_contract(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", contract::TEXT).map_err(mismatch)?;
    let world = resolve.select_world(&[package], None).map_err(mismatch)?;
    let mut module = bytes.to_vec();
    let encoding = StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).map_err(mismatch)?;
    Ok(module)
}

pub(super) fn mismatch(error: impl fmt::Display) -> Refusal {
    Refusal::Contract(cut(format!("{error:#}")))
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
