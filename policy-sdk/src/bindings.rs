//! The types and the export macro generated from `wit/policy.wit`, the single source of the
//! contract. Nothing outside this crate names them: every type has its own face here, so the shape
//! of the generated code is free to change.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::unwrap_used,
    reason = "generated: the canonical ABI passes raw pointers"
)]

wit_bindgen::generate!({
    world: "retry-policy",
    path: "wit/policy.wit",
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "reprise_policy::__private::bindings",
    generate_unused_types: true,
});

pub use exports::reprise::policy::policy::*;
