//! Keeps the generated parts of a policy's README true.
//!
//! A generated part stands between `<!-- NAME -->` and `<!-- /NAME -->`. A test that calls
//! [`assert_section`] fails when it is stale; the same test with `UPDATE_README=1` in the
//! environment writes it.

use core::fmt::Write as _;
use core::time::Duration;
use std::path::Path;

use super::simulation::in_words;
use super::{Schedule, Simulation};
use crate::{Description, Policy, Random, duration};

/// Width of a chart's longest bar.
const WIDTH: u128 = 48;

/// Asserts that the section `name` of `README.md` in the folder `krate` is `content`.
///
/// # Panics
///
/// If it is not, or the file or the section cannot be found.
pub fn assert_section(krate: &str, name: &str, content: &str) {
    let path = Path::new(krate).join("README.md");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let section = text.split_once(&open).and_then(|(before, rest)| {
        let (section, after) = rest.split_once(&close)?;
        Some((before, section, after))
    });
    let Some((before, section, after)) = section else {
        panic!("{} has no section {name}", path.display());
    };
    let wanted = format!("\n{}\n\n", content.trim_end());
    if section == wanted {
        return;
    }
    if std::env::var_os("UPDATE_README").is_none() {
        panic!(
            "the section {name} of {} is stale; run the test with UPDATE_README=1. It should be:\n{content}",
            path.display()
        );
    }
    let updated = [before, &open, &wanted, &close, after].concat();
    if let Err(error) = std::fs::write(&path, updated) {
        panic!("{}: {error}", path.display());
    }
}

/// The parameters as a Markdown table.
#[must_use]
pub fn params_table(description: &Description) -> String {
    let mut table = String::from("| parameter | type | default | meaning |\n|---|---|---|---|\n");
    for param in description.params() {
        let default = match param.default_json() {
            None => "must be given".into(),
            Some("null") => "-".into(),
            Some(json) => format!("`{json}`"),
        };
        let doc = param.doc().replace('|', "\\|");
        let _ = writeln!(table, "| `{}` | {} | {default} | {doc} |", param.name(), param.kind().name());
    }
    table
}

/// The schedule of a script as a Markdown code block: one line per decision, the delay with the
/// lowest and the highest draw, and a bar. `=` is waited for certain, `~` only by some.
///
/// # Panics
///
/// If the script cannot be read.
#[must_use]
pub fn chart(policy: &dyn Policy, params: &str, script: &str) -> String {
    // A policy that draws once shows its whole range with the two extreme draws alone.
    let schedules = [Random::LOWEST, Random::HIGHEST].map(|seed| {
        let simulation = Simulation::of(policy).params(params);
        simulation.same_seed(seed).script(script)
    });
    let Some(first) = schedules.first() else {
        return String::new();
    };
    let delays = |step: usize| {
        let delay = move |schedule: &Schedule| schedule.steps().get(step)?.decision.delay();
        schedules.iter().filter_map(delay)
    };
    let longest = (0..first.steps().len()).filter_map(|step| delays(step).max()).max();
    let longest = duration::whole_millis(longest.unwrap_or_default()).max(1);
    let bar = |span: Duration| {
        let share = u128::from(duration::whole_millis(span)) * WIDTH;
        share.div_ceil(u128::from(longest)) as usize
    };

    let mut text = format!("```text\n{script}   with {params}\n\nattempt  decision\n");
    for (index, step) in first.steps().iter().enumerate() {
        let attempt = step.attempt;
        let (low, high) = (delays(index).min(), delays(index).max());
        let (Some(low), Some(high)) = (low, high) else {
            let _ = writeln!(text, "{attempt:>7}  {}", in_words(&step.decision));
            continue;
        };
        let range = if low == high {
            duration::format(high)
        } else {
            format!("{} to {}", duration::format(low), duration::format(high))
        };
        let (sure, perhaps) = (bar(low), bar(high).saturating_sub(bar(low)));
        let line = format!("{attempt:>7}  {range:<18} {}{}", "=".repeat(sure), "~".repeat(perhaps));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("```\n");
    text
}
