//! Why an upload is not accepted.

use crate::domain::decision::Fault;

use super::contract::INTERFACE;

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
        }
    }
}
