//! From uploaded bytes to a [`Program`], by way of the cache or the compiler. Blocks while it compiles: give it a
//! thread that nothing else waits for.

use std::sync::Arc;

use wasmtime::component::{Component, ComponentExportIndex};

use crate::domain::decision::{Fault, cut};
use crate::domain::digest::Digest;
use crate::domain::name::{InvalidName, Name};

use super::child::Purpose;
use super::compile::invalid;
use super::component::mismatch;
use super::contract::INTERFACE;
use super::machine_code::MachineCode;
use super::output::Description;
use super::program::{Guest, Program};
use super::refusal::Refusal;
use super::rehearsal::Rehearsal;
use super::sandbox::Sandbox;

impl Sandbox {
    /// Makes an upload ready and tries it with the params it is to run with.
    ///
    /// # Errors
    /// [`Refusal`] if the bytes are not a policy, the policy refuses the params, or it breaks on any of the
    /// standard contexts.
    pub fn admit(&self, bytes: &[u8], params: &str) -> Result<(Arc<Program>, Rehearsal), Refusal> {
        let program = self.make_ready(Purpose::Admission, bytes)?;
        let rehearsal = program.rehearse(params)?;
        Ok((program, rehearsal))
    }

    /// Makes bytes ready that were admitted before. Takes a core module as the compiler left it, or a component.
    ///
    /// # Errors
    /// [`Refusal`] if the bytes are not a policy, or it breaks when it describes itself.
    pub fn load(&self, bytes: &[u8]) -> Result<Arc<Program>, Refusal> {
        self.make_ready(Purpose::Load, bytes)
    }

    fn make_ready(&self, purpose: Purpose, bytes: &[u8]) -> Result<Arc<Program>, Refusal> {
        let limit = self.limits().module_bytes;
        if bytes.len() > limit {
            return Err(Refusal::TooLarge { size: bytes.len(), limit });
        }
        let digest = Digest::of(bytes);
        if let Some(program) = self.load_compiled(digest, bytes.len()) {
            return Ok(program);
        }
        let code = self.compile(purpose, bytes)?;
        let program = self.assemble(digest, bytes.len(), &code)?;
        if let Some(cache) = self.cache() {
            cache.put(digest, &code);
        }
        Ok(program)
    }

    /// What was compiled before, unless it is of no use any more: then it will be replaced.
    fn load_compiled(&self, digest: Digest, size: usize) -> Option<Arc<Program>> {
        let code = self.cache()?.get(digest)?;
        let program = self.assemble(digest, size, &code);
        program
            .inspect_err(|refusal| tracing::warn!(%digest, refusal = refusal.to_string(), "a compiled policy is of no use"))
            .ok()
    }

    fn assemble(&self, digest: Digest, size: usize, code: &MachineCode) -> Result<Arc<Program>, Refusal> {
        let component = code.component(self.engine())?;
        let imports = component.component_type();
        let imports: Vec<_> = imports.imports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        if !imports.is_empty() {
            return Err(Refusal::Imports(imports));
        }
        let guest = self.link(&component)?;
        guest.typecheck()?;
        let description = guest.description()?;
        Ok(Arc::new(Program { digest, size, code_bytes: code.bytes().len(), description, guest }))
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
