//! From uploaded bytes to a [`Program`].
//!
//! What would keep the compiler busy for minutes is refused before it starts; what remains may still take some
//! seconds of one core and hundreds of megabytes. So give this a thread, or a child process with limits of its
//! own, that nothing else waits for.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use wasmparser::{Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::domain::decision::{Fault, cut};
use crate::domain::digest::Digest;
use crate::domain::name::{InvalidName, Name};

use super::contract::{self, INTERFACE};
use super::output::Description;
use super::program::{Guest, Program};
use super::refusal::Refusal;
use super::rehearsal::Rehearsal;
use super::sandbox::Sandbox;
use super::shape;

impl Sandbox {
    /// Makes an upload ready and tries it with the params it is to run with.
    ///
    /// # Errors
    /// [`Refusal`] if the bytes are not a policy, the policy refuses the params, or it breaks on any of the
    /// standard contexts.
    pub fn admit(&self, bytes: &[u8], params: &str) -> Result<(Arc<Program>, Rehearsal), Refusal> {
        let program = self.load(bytes)?;
        let rehearsal = program.rehearse(params)?;
        Ok((program, rehearsal))
    }

    /// Makes bytes ready that were admitted before. Takes a core module as the compiler left it, or a component.
    ///
    /// # Errors
    /// [`Refusal`] if the bytes are not a policy, or it breaks when it describes itself.
    pub fn load(&self, bytes: &[u8]) -> Result<Arc<Program>, Refusal> {
        let limit = self.limits().module_bytes;
        if bytes.len() > limit {
            return Err(Refusal::TooLarge { size: bytes.len(), limit });
        }
        let component = Component::from_binary(self.engine(), &component(bytes)?).map_err(invalid)?;
        let imports = component.component_type();
        let imports: Vec<_> = imports.imports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        if !imports.is_empty() {
            return Err(Refusal::Imports(imports));
        }
        let guest = self.link(&component)?;
        guest.typecheck()?;
        let description = guest.description()?;
        Ok(Arc::new(Program { digest: Digest::of(bytes), size: bytes.len(), description, guest }))
    }

    fn link(&self, component: &Component) -> Result<Guest, Refusal> {
        let pre = self.linker().instantiate_pre(component).map_err(invalid)?;
        let missing = |name: &str| Refusal::MissingExport(name.to_owned());
        let interface = component.get_export_index(None, INTERFACE).ok_or_else(|| missing(INTERFACE))?;
        let function = |name: &str| -> Result<ComponentExportIndex, Refusal> {
            component
                .get_export_index(Some(&interface), name)
                .ok_or_else(|| missing(&format!("{INTERFACE}#{name}")))
        };
        Ok(Guest {
            sandbox: self.clone(),
            pre,
            decide: function("decide")?,
            check: function("check")?,
            describe: function("describe")?,
        })
    }
}

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
fn component(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(Refusal::Precompiled);
    }
    if !Parser::is_component(bytes) && !Parser::is_core_wasm(bytes) {
        return Err(Refusal::NotWasm);
    }
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

fn mismatch(error: impl fmt::Display) -> Refusal {
    Refusal::Contract(cut(format!("{error:#}")))
}

fn core_imports(bytes: &[u8]) -> wasmparser::Result<Vec<String>> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::ImportSection(imports) = payload? {
            for import in imports.into_imports() {
                let import = import?;
                names.push(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(names)
}

fn invalid(error: wasmtime::Error) -> Refusal {
    Refusal::Invalid(cut(format!("{error:#}")))
}

impl Guest {
    /// Checks the types of all three functions on an instance, which also shows that one can be made.
    fn typecheck(&self) -> Result<(), Refusal> {
        let (result, _) = self.run(|store, instance| {
            let types = self.decide(store, instance).map(drop);
            let types = types.and(self.check(store, instance).map(drop));
            Ok(types.and(self.describe(store, instance).map(drop)))
        });
        result.map_err(broke("start"))?.map_err(mismatch)
    }

    fn description(&self) -> Result<Description, Refusal> {
        let (result, _) = self.run(|store, instance| self.describe(store, instance)?.call(store, ()));
        let (description,) = result.map_err(broke("describe"))?;
        let description = Description::from(description);
        let bad = |what: &str, text: &str, reason: InvalidName| {
            Refusal::Description(format!("its {what} {:?}: {reason}", cut(text.to_owned())))
        };
        Name::new(&description.name).map_err(|reason| bad("name", &description.name, reason))?;
        for queue in &description.queues {
            Name::new(queue).map_err(|reason| bad("queue", queue, reason))?;
        }
        Ok(description)
    }
}

fn broke(call: &str) -> impl FnOnce(Fault) -> Refusal {
    |fault| Refusal::Fault { call: call.to_owned(), fault }
}
