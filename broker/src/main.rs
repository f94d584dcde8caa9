//! The binary `broker`.

fn main() -> std::process::ExitCode {
    reprise_broker::cli::main()
}
