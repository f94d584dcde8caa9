//! `broker policy new`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::super::connection::lines;

/// The source of the SDK: names and texts.
const SDK: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// What is written beside it. `{name}` and `{library}` are filled in.
const TEMPLATE: [(&str, &str); 8] = [
    (".gitignore", include_str!("template/gitignore.txt")),
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("README.md", include_str!("template/README.md.txt")),
    ("build.rs", include_str!("template/build.rs.txt")),
    ("fixtures/timeout_waits.json", include_str!("template/fixtures/timeout_waits.json")),
    ("fixtures/validation_is_final.json", include_str!("template/fixtures/validation_is_final.json")),
    ("src/lib.rs", include_str!("template/src/lib.rs.txt")),
    ("tests/policy.rs", include_str!("template/tests/policy.rs.txt")),
];

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// What the policy is called, and the folder that is made: lower-case letters, digits and hyphens.
    name: String,
    /// The folder, where it is to be another.
    #[arg(long)]
    path: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let name = &arguments.name;
    if is_taken(name) {
        return Err(format!(
            "{name:?} is a word of Rust's or the name of the SDK: a crate cannot be called so"
        )
        .into());
    }
    if !is_crate_name(name) {
        return Err(format!(
            "{name:?} is no name for a policy: begin with a letter, go on with lower-case letters, digits and hyphens; --path says where it is written"
        )
        .into());
    }
    let folder = arguments.path.clone().unwrap_or_else(|| PathBuf::from(name));
    if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        return Err(format!("{} is there already", folder.display()).into());
    }
    let library = name.replace('-', "_");
    for (path, text) in TEMPLATE {
        let text = if path.ends_with(".json") {
            text.to_owned()
        } else {
            text.replace("{name}", name).replace("{library}", &library)
        };
        write(&folder.join(path), &text)?;
    }
    for (path, text) in SDK {
        write(&folder.join("reprise-policy").join(path), text)?;
    }
    let shown = folder.display();
    lines([
        format!("{shown}/src/lib.rs decides, {shown}/fixtures/ says what it should decide."),
        format!("Next: broker policy test {shown}"),
    ])?;
    Ok(ExitCode::SUCCESS)
}

/// A crate cannot be called like the SDK it depends on, or a word of the language.
fn is_taken(name: &str) -> bool {
    const KEYWORDS: [&str; 51] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
        "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
        "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
        "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
        "virtual", "where", "while", "yield",
    ];
    const TAKEN: [&str; 6] = ["reprise-policy", "test", "core", "std", "alloc", "proc-macro"];
    TAKEN.contains(&name) || KEYWORDS.contains(&name)
}

/// What both cargo and the broker take.
fn is_crate_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-')
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(wrong)?;
    }
    Ok(fs::write(path, text).map_err(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_crates() {
        for good in ["a", "payments", "pay-2"] {
            assert!(is_crate_name(good), "{good}");
        }
        for bad in ["", "2pay", "Pay", "a_b", "../a", "a-", &"a".repeat(65)] {
            assert!(!is_crate_name(bad), "{bad}");
        }
    }
}
