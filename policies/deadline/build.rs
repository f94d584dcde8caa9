//! How the module is linked for wasm: a small stack, because the memory of a fresh sandbox is what
//! each decision pays for, and no debug information, because it is uploaded.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32") {
        println!("cargo:rustc-link-arg-cdylib=-zstack-size=16384");
        println!("cargo:rustc-link-arg-cdylib=--strip-debug");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
