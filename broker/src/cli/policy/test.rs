//! `broker policy test`: a policy's own tests natively, then its fixtures in the sandbox.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use reprise_policy::testing::fixtures;
use serde::Serialize;

use super::super::compile;
use super::super::connection::{Format, lines};
use super::super::table;
use super::build::build;
use crate::lab::fixture::{Case, CaseError};
use crate::policy::{Limits, Program, Sandbox};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The policy's crate.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Tests the compiled policy only.
    #[arg(long)]
    skip_native: bool,
    /// The most fuel that a decision may burn, where its fixture does not say.
    #[arg(long, default_value_t = Limits::default().fuel)]
    max_fuel: u64,
}

/// What came of it.
#[derive(Serialize)]
struct Report {
    name: String,
    version: String,
    size: usize,
    max_size: usize,
    fuel: u64,
    max_fuel: u64,
    memory: usize,
    max_memory: usize,
    fixtures: Vec<FixtureReport>,
    failed: usize,
}

#[derive(Serialize)]
struct FixtureReport {
    file: String,
    name: String,
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    fuel: u64,
    memory: usize,
}

pub(super) fn run(arguments: &Arguments, output: Format) -> Result<ExitCode, Box<dyn Error>> {
    compile::find_crate(&arguments.path)?;
    if !arguments.skip_native {
        test_natively(&arguments.path)?;
    }
    let built = build(&arguments.path)?;
    let bytes = std::fs::read(&built.path).map_err(|error| format!("{}: {error}", built.path.display()))?;
    let limits = Limits::default();
    let program = Sandbox::new(limits)?.load(&bytes)?;
    let reports = fixtures::paths(&arguments.path.join("fixtures"))
        .unwrap_or_default()
        .iter()
        .map(|path| test(path, &program, arguments.max_fuel))
        .collect::<Vec<_>>();
    if reports.is_empty() {
        return Err("there are no fixtures: say in fixtures/*.json what it should decide".into());
    }
    // Without fixtures that say otherwise, no parameters are what most subscriptions begin with.
    program.rehearse("{}").map_err(|refusal| format!("a broker would refuse it: {refusal}"))?;
    let report = Report {
        name: program.description().name.clone(),
        version: program.description().version.clone(),
        size: built.size,
        max_size: limits.module_bytes,
        fuel: reports.iter().map(|report| report.fuel).max().unwrap_or(0),
        max_fuel: limits.fuel,
        memory: reports.iter().map(|report| report.memory).max().unwrap_or(0),
        max_memory: limits.memory_bytes,
        failed: reports.iter().filter(|report| !report.passed).count(),
        fixtures: reports,
    };
    match output {
        Format::Json | Format::Jsonl => output.write(&report)?,
        Format::Table => show(&report)?,
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo test`, with its output where messages go.
fn test_natively(folder: &Path) -> Result<(), Box<dyn Error>> {
    let status = Command::new(compile::program("CARGO", "cargo"))
        .arg("test")
        .arg("--quiet")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| compile::missing("cargo", error))?;
    if status.success() { Ok(()) } else { Err("its own tests fail; the reason is above".into()) }
}

fn test(path: &Path, program: &Program, max_fuel: u64) -> FixtureReport {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |name: String, problem: String, fuel: u64| FixtureReport {
        file: file.clone(),
        name,
        passed: false,
        problem: Some(problem),
        fuel,
        memory: 0,
    };
    let case = match Case::load(path) {
        Ok(case) => case,
        Err(error) => return failed(String::new(), error.to_string(), 0),
    };
    match case.holds(program) {
        Err(error) => {
            let fuel = if let CaseError::Dear { fuel, .. } = error { fuel } else { 0 };
            failed(case.name().to_owned(), error.to_string(), fuel)
        }
        Ok(took) => {
            let dear = took.fuel > max_fuel;
            FixtureReport {
                file: file.clone(),
                name: case.name().to_owned(),
                passed: !dear,
                problem: dear.then(|| format!("it burns {} fuel, {max_fuel} are allowed", took.fuel)),
                fuel: took.fuel,
                memory: took.memory_bytes,
            }
        }
    }
}

fn show(report: &Report) -> std::io::Result<()> {
    let rows: Vec<_> = report
        .fixtures
        .iter()
        .map(|fixture| {
            let outcome = if fixture.passed { "ok" } else { "FAILED" };
            let what = fixture.problem.clone().unwrap_or_else(|| fixture.name.clone());
            [outcome.to_owned(), fixture.file.clone(), fixture.fuel.to_string(), kib(fixture.memory), what]
        })
        .collect();
    lines(table::lines(["", "fixture", "fuel", "memory", "what"], &rows))?;
    let part = |used: u64, of: u64| format!("{:.1} %", used as f64 * 100.0 / of as f64);
    lines([
        String::new(),
        format!(
            "{} {}: {} of {} fixtures hold",
            report.name,
            report.version,
            report.fixtures.len() - report.failed,
            report.fixtures.len()
        ),
        format!("fuel    {} of {} ({})", report.fuel, report.max_fuel, part(report.fuel, report.max_fuel)),
        format!(
            "memory  {} of {} ({})",
            kib(report.memory),
            kib(report.max_memory),
            part(report.memory as u64, report.max_memory as u64)
        ),
        format!(
            "size    {} of {} ({})",
            kib(report.size),
            kib(report.max_size),
            part(report.size as u64, report.max_size as u64)
        ),
    ])
}

fn kib(bytes: usize) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}
