//! The binary `broker`.

/// Messages are many small allocations that cross threads, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    reprise_broker::cli::main()
}
