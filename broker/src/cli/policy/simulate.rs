//! `broker policy simulate`: a scenario through a policy that is here, or on a broker.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::super::connection::{Connection, Format, lines};
use super::super::table;
use super::remote::{decision, text};
use super::{module, params};
use crate::http::simulate::{SimulateQuery, simulate_alone};
use crate::policy::{Limits, Sandbox};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// How the attempts end: "timeout*3, rate_limited(30s), ok".
    scenario: String,
    /// A compiled policy, or the folder of its crate.
    #[arg(long, default_value = ".", conflicts_with = "subscription")]
    policy: PathBuf,
    /// The policy of this subscription instead, with its settings.
    #[arg(long, value_parser = super::subscription)]
    subscription: Option<String>,
    /// Another revision of it than the active one.
    #[arg(long, requires = "subscription")]
    revision: Option<u32>,
    /// Parameters, a JSON object.
    #[arg(long)]
    params: Option<String>,
    /// What chance goes by; the same seed gives the same schedule.
    #[arg(long)]
    seed: Option<u64>,
    /// Plays it so many times, each with another seed, and shows percentiles.
    #[arg(long)]
    seeds: Option<u32>,
    /// How long each attempt takes.
    #[arg(long)]
    work: Option<String>,
    /// When the first attempt begins: 2026-01-31T12:00:00Z.
    #[arg(long)]
    start: Option<String>,
}

pub(super) fn run(
    arguments: &Arguments,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let played = match &arguments.subscription {
        Some(subscription) => there(arguments, connection, subscription)?,
        None => here(arguments)?,
    };
    match output {
        Format::Json | Format::Jsonl => output.write(&played)?,
        Format::Table => show(&played)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn here(arguments: &Arguments) -> Result<Value, Box<dyn Error>> {
    let params = params(arguments.params.as_deref().unwrap_or("{}"))?.to_string();
    let module = module(&arguments.policy)?;
    let program = Sandbox::new(Limits::default())?.load(&module)?;
    program.rehearse(&params)?;
    let asked = SimulateQuery {
        scenario: arguments.scenario.clone(),
        seed: arguments.seed,
        seeds: arguments.seeds,
        work: arguments.work.clone(),
        start: arguments.start.clone(),
    };
    let played = simulate_alone(&program, &params, asked).map_err(|problem| problem.detail)?;
    Ok(serde_json::to_value(&played)?)
}

fn there(
    arguments: &Arguments,
    connection: &Connection,
    subscription: &str,
) -> Result<Value, Box<dyn Error>> {
    let mut body = json!({ "scenario": arguments.scenario });
    if let Some(given) = &arguments.params {
        body["params"] = params(given)?;
    }
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    put("revision", arguments.revision.map(Value::from));
    put("seed", arguments.seed.map(Value::from));
    put("seeds", arguments.seeds.map(Value::from));
    put("work", arguments.work.clone().map(Value::from));
    put("start", arguments.start.clone().map(Value::from));
    Ok(connection.open()?.post(&format!("/v1/subscriptions/{subscription}/policy/simulate"), &body)?)
}

fn show(played: &Value) -> std::io::Result<()> {
    let rows: Vec<_> = played["steps"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|step| {
            let failed = match (step["cause"].as_str(), step["class"].as_str(), step["code"].as_str()) {
                (_, Some(class), _) if !class.is_empty() => class,
                (_, _, Some(code)) => code,
                (cause, _, _) => cause.unwrap_or_default(),
            };
            [
                text(&step["attempt"]),
                text(&step["at"]),
                failed.to_owned(),
                decision(&step["decision"]),
                text(&step["fuel"]),
                match step["decision"]["fault"]["detail"].as_str() {
                    Some(fault) => fault.to_owned(),
                    None => text(&step["decision"]["note"]),
                },
            ]
        })
        .collect();
    lines(table::lines(["attempt", "at", "failed with", "decision", "fuel", "note"], &rows))?;
    let mut end = vec![format!("{} after {}", text(&played["end"]), text(&played["total"]))];
    let seeds = &played["seeds"];
    if seeds.is_object() {
        let ends: Vec<_> = seeds["ends"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(end, count)| format!("{end} {}", text(count)))
            .collect();
        end.push(format!("over {} seeds: {}", text(&seeds["count"]), ends.join(", ")));
        for what in ["attempts", "total"] {
            let spread = |at: &str| text(&seeds[what][at]);
            end.push(format!(
                "{what:<9} p50 {}, p90 {}, p99 {}, max {}",
                spread("p50"),
                spread("p90"),
                spread("p99"),
                spread("max")
            ));
        }
    }
    lines(end)
}
