//! The host's half of the policy contract, generated from the one WIT file that the SDK uses too.

wasmtime::component::bindgen!({
    path: "../policy-sdk/wit",
    world: "retry-policy",
    // A context is lent to the guest, not cloned for it.
    ownership: Borrowing { duplicate_if_necessary: true },
});

pub(super) use exports::reprise::policy::policy as types;

/// The contract itself, for modules that keep to it without naming it.
pub(super) const TEXT: &str = include_str!("../../../policy-sdk/wit/policy.wit");

/// The exported interface, as import and export lists spell it.
pub(super) const INTERFACE: &str = "reprise:policy/policy@0.1.0";
