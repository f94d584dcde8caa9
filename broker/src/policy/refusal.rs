//! Why an upload is not accepted.

use crate::domain::decision::Fault;

use super::contract::INTERFACE;
use super::limits::{COMPILE_CPU, COMPILE_MEMORY_BYTES, COMPILED_BYTES};

/// What there was too much of when a module was compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMuch {
    /// Processor time, or wall time on a busy machine.
    #[error("takes more than {} seconds", COMPILE_CPU.as_secs())]
    Time,
    /// Memory of the compiler.
    #[error("takes more than {} MiB of memory", COMPILE_MEMORY_BYTES >> 20)]
    Memory,
    /// Machine code.
    #[error("gives more than {} MiB of machine code", COMPILED_BYTES >> 20)]
    Code,
}

/// Why bytes and params do not become a policy. The message says what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// More bytes than a module may have.
    #[error(
        "the module has {size} bytes, {limit} are allowed; build it with --release and `opt-level = \"s\"`, and strip it"
    )]
    TooLarge {
        /// What it has.
        size: usize,
        /// What it may have.
        limit: usize,
    },
    /// Neither a core module nor a component in binary form.
    #[error(
        "this is not WebAssembly; upload the .wasm file that `cargo build --release --target wasm32-unknown-unknown` left"
    )]
    NotWasm,
    /// Machine code in wasmtime's wrapping, which nobody can check.
    #[error("this is precompiled machine code; upload the .wasm file that it was compiled from")]
    Precompiled,
    /// A core module that neither says which world it was built for nor exports a function of the contract.
    #[error(
        "the module does not name the policy contract; build it with the policy SDK and its export! macro, or export \
         {INTERFACE}#decide, #check and #describe"
    )]
    NoContract,
    /// Built for something else, or for another shape of the contract.
    #[error(
        "the module does not fit {INTERFACE}: {0}; build it with the policy SDK of this broker's version"
    )]
    Contract(String),
    /// It wants something from the outside.
    #[error(
        "a policy imports nothing, this one imports {}; build it for wasm32-unknown-unknown, without WASI, clocks or random numbers: \
         the context holds the time and a seed", .0.join(", ")
    )]
    Imports(Vec<String>),
    /// The contract's interface or one of its functions is not exported.
    #[error(
        "the module does not export {0}; call export! of the policy SDK on the type that implements Policy"
    )]
    MissingExport(String),
    /// Malformed, too large in some dimension, or using a proposal that policies may not use.
    #[error("the module cannot be loaded: {0}")]
    Invalid(String),
    /// Compiling it hits a limit of time, memory or size.
    #[error("compiling the module {0}; make its functions, tables and data smaller")]
    TooCostly(TooMuch),
    /// What it says about itself cannot be shown.
    #[error("the policy describes itself badly: {0}")]
    Description(String),
    /// The policy itself refused its parameters.
    #[error("the policy refuses these params: {0}")]
    Params(String),
    /// It broke when it was tried.
    #[error("{fault} when it was tried ({call}); run `broker policy test` on it")]
    Fault {
        /// What was called, and on what.
        call: String,
        /// How it broke.
        fault: Fault,
    },
    /// The machine did not allow it, whatever the module.
    #[error("the module could not be compiled: {0}")]
    System(String),
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopped,
}

impl TooMuch {
    pub(super) const ALL: [Self; 3] = [Self::Time, Self::Memory, Self::Code];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Code => "code",
        }
    }
}

impl Refusal {
    /// Its name on every surface.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::NotWasm => "not_wasm",
            Self::Precompiled => "precompiled",
            Self::NoContract => "no_contract",
            Self::Contract(_) => "contract",
            Self::Imports(_) => "imports",
            Self::MissingExport(_) => "missing_export",
            Self::Invalid(_) => "invalid",
            Self::Description(_) => "description",
            Self::Params(_) => "params",
            Self::Fault { .. } => "fault",
            Self::TooCostly(_) => "too_costly",
            Self::System(_) => "system",
            Self::Stopped => "stopped",
        }
    }
}
