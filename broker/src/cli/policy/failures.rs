//! `broker policy failures`: recorded failures, to look at and to save as fixtures.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::super::connection::{Connection, Format, lines};
use super::super::table;
use super::remote::{Subscription, decision, text};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    subscription: Subscription,
    /// How many, the newest first.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    last: u32,
    /// Saves these as cases, a file each, instead of listing them: their numbers.
    #[arg(long, value_name = "NUMBER", num_args = 1..)]
    save: Vec<u64>,
    /// The folder that they are saved to.
    #[arg(long, default_value = "fixtures", requires = "save")]
    folder: PathBuf,
}

pub(super) fn run(
    arguments: &Arguments,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let client = connection.open()?;
    let path = arguments.subscription.path("/failures");
    if !arguments.save.is_empty() {
        let mut saved = Vec::new();
        for number in &arguments.save {
            let case: Value = client.get(&format!("{path}/{number}/fixture"))?;
            let file = arguments.folder.join(format!("{}_{number}.json", arguments.subscription.name()));
            let wrong = |error: std::io::Error| format!("{}: {error}", file.display());
            fs::create_dir_all(&arguments.folder).map_err(wrong)?;
            fs::write(&file, format!("{case:#}\n")).map_err(wrong)?;
            saved.push(file.display().to_string());
        }
        lines(saved)?;
        return Ok(ExitCode::SUCCESS);
    }
    let page: Value = client.get(&format!("{path}?limit={}", arguments.last))?;
    let items = &page["items"];
    if output != Format::Table {
        output.write(items)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |item: &Value| {
        let answer = if item["answer"].is_object() { &item["answer"] } else { item };
        [
            text(&item["number"]),
            text(&item["at"]),
            text(&item["message_id"]),
            text(&item["attempt"]),
            text(&item["cause"]),
            text(&item["class"]),
            text(&item["revision"]),
            decision(answer),
            text(&item["fuel"]),
        ]
    };
    let rows: Vec<_> = items.as_array().into_iter().flatten().map(row).collect();
    let heads = ["number", "at", "message", "attempt", "cause", "class", "revision", "answer", "fuel"];
    lines(table::lines(heads, &rows))?;
    Ok(ExitCode::SUCCESS)
}
