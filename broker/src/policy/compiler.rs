//! Where modules are compiled: in this process, or in a child that can be killed.

use std::path::PathBuf;

use wasmtime::Engine;

use super::child::{Children, Purpose};
use super::compile::compile;
use super::component::glance;
use super::limits::Limits;
use super::machine_code::MachineCode;
use super::refusal::Refusal;

/// Where modules are compiled.
#[derive(Clone, Debug, Default)]
pub enum Compiler {
    /// In this process, on the calling thread: for tests and measurements, whose modules are their own. Nothing bounds
    /// what it takes beyond the bounds on a module's shape, and it wants a stack of 8 MiB.
    #[default]
    Here,
    /// In a child process with limits of time and memory. This is the executable, which understands
    /// `compile-policy` as [`compile_for_parent`](super::compile_for_parent) does.
    Child(PathBuf),
}

/// A compiler at work.
pub(super) enum Workshop {
    Here,
    Children(Children),
}

impl Workshop {
    pub(super) fn open(compiler: Compiler) -> Self {
        match compiler {
            Compiler::Here => Self::Here,
            Compiler::Child(program) => Self::Children(Children::new(program)),
        }
    }

    /// Compiles an upload, or what was one once.
    ///
    /// # Errors
    /// [`Refusal`] if the bytes are not a policy, or cost too much to compile.
    pub(super) fn compile(
        &self,
        engine: &Engine,
        limits: &Limits,
        purpose: Purpose,
        bytes: &[u8],
    ) -> Result<MachineCode, Refusal> {
        glance(bytes)?;
        let code = match self {
            Self::Here => compile(engine, bytes),
            Self::Children(children) => children.compile(purpose, limits.memory_bytes, bytes),
        };
        code.map(MachineCode::of_our_own)
    }

    /// From now on nothing is compiled for this purpose: whoever waits gets [`Refusal::Stopped`] at once.
    pub(super) fn stop(&self, purpose: Purpose) {
        if let Self::Children(children) = self {
            children.stop(purpose);
        }
    }
}
