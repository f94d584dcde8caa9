//! What the commands say of themselves.

use crate::run::{Ran, command, run, text};
use crate::snapshot;

/// The names below `Commands:` of a help.
fn commands(help: &str) -> Vec<String> {
    let below = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let names =
        below.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The help of a command and of all below it.
fn pages(path: &[String]) -> String {
    let arguments: Vec<_> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let help = run(&arguments).good();
    let below = commands(&help).into_iter().map(|name| pages(&[path, &[name]].concat()));
    [format!("$ broker {}\n{help}\n", arguments.join(" "))].into_iter().chain(below).collect()
}

/// Each command says what it is for and what it takes, as it did before; and there is no page of a command that is gone.
#[test]
fn the_help_of_each_command_is_the_one_that_is_kept() {
    let root = run(&["--help"]).good();
    snapshot::same("help", &root);
    let all = commands(&root);
    for name in &all {
        snapshot::same(&format!("help-{name}"), &pages(std::slice::from_ref(name)));
    }
    for entry in std::fs::read_dir(snapshot::folder()).expect("the folder is there") {
        let file = entry.expect("it can be read").file_name().into_string().expect("a plain name");
        if let Some(name) = file.strip_prefix("help-").and_then(|rest| rest.strip_suffix(".txt")) {
            assert!(all.contains(&name.to_owned()), "{file} is of no command");
        }
    }
}

/// The page of commands names each of them, and every exit code.
#[test]
fn the_page_of_commands_is_complete() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    for name in commands(&run(&["--help"]).good()) {
        assert!(page.contains(&format!("`broker {name}")), "docs/cli.md does not name {name}");
        let below = commands(&run(&[&name, "--help"]).good());
        for verb in below {
            assert!(page.contains(&format!("`{verb}`")), "docs/cli.md does not name {name} {verb}");
        }
    }
    for code in ["0", "1", "2", "3", "4", "130"] {
        assert!(page.contains(&format!("\n| {code} |")), "docs/cli.md does not tell of {code}");
    }
}

/// A script for each shell, which knows the commands; what is no shell is a wrong command line.
#[test]
fn shells_are_told_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).good();
        assert!(script.contains("dead-letter") && script.contains("from-sequence"), "{shell}: {script}");
    }
    let complaint = run(&["completions", "tcl"]).failed(2);
    assert!(complaint.contains("[possible values: bash"), "{complaint}");
    let sourced = "source <(\"$0\" completions bash) && complete -p broker";
    let mut bash = std::process::Command::new("bash");
    let known = Ran::of(bash.args(["-c", sourced, env!("CARGO_BIN_EXE_broker")])).good();
    assert!(known.contains("_broker"), "{known}");
}

/// A page for each command, in a folder that is made; a folder that cannot be made is named.
#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let man = folder.path().join("share/man1");
    assert_eq!(run(&["man", &text(&man)]).good(), "");
    for page in ["broker.1", "broker-topic.1", "broker-topic-put.1", "broker-dead-letter-replay.1"] {
        let written = std::fs::read_to_string(man.join(page)).expect(page);
        assert!(written.contains(".TH") && written.contains(".SH DESCRIPTION"), "{page}: {written}");
    }
    assert!(!man.join("broker-compile-policy.1").exists());
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    let below = text(&file.join("below"));
    let complaint = Ran::of(&mut command(&["man", &below])).failed(1);
    assert!(complaint.starts_with(&format!("broker: {below}: ")), "{complaint}");
}
