//! Compiled policies, and the one place that makes them runnable.

use wasmtime::Engine;
use wasmtime::component::Component;

use super::compile::invalid;
use super::refusal::Refusal;

/// A component as our own compiler left it.
///
/// Having one is the proof that it was not handed in from outside, so there are three places that make one: the
/// compiler of this process, the pipe from the child that compiles for it, and the cache, after the file's MAC was
/// found to be ours.
pub(super) struct MachineCode(Vec<u8>);

impl MachineCode {
    /// For the three places above.
    pub(super) fn of_our_own(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Ready to be linked.
    ///
    /// # Errors
    /// [`Refusal`] if it was compiled for another version or configuration of the engine.
    #[expect(unsafe_code, reason = "machine code is run as it is, and this type holds only our own")]
    pub(super) fn component(&self, engine: &Engine) -> Result<Component, Refusal> {
        // SAFETY: the bytes have to be what `Engine::precompile_component` made, unchanged. They come from it by
        // way of this process, of a pipe to a child that ran our own executable, or of a file under a MAC whose
        // key nobody else has; wasmtime itself checks version and configuration. An uploaded one never gets here:
        // uploads are bytes until the compiler has made something of them, and it refuses compiled ones.
        unsafe { Component::deserialize(engine, &self.0) }.map_err(invalid)
    }
}
