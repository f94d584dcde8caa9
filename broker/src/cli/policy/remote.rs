//! What `broker policy` asks a running broker.

use std::error::Error;
use std::io::{BufRead, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::super::client::Module;
use super::super::connection::{Connection, Format, lines};
use super::super::output::plain;
use super::super::table;
use super::{module, params};

#[derive(clap::Args, Debug)]
pub(super) struct Subscription {
    /// The subscription.
    #[arg(long, value_parser = super::subscription)]
    subscription: String,
}

/// A policy that is tried: one that is here, or a revision, either with other parameters.
#[derive(clap::Args, Debug)]
pub(super) struct Candidate {
    /// A compiled policy, or the folder of its crate; without it, the one that is active.
    policy: Option<PathBuf>,
    /// This revision.
    #[arg(long, conflicts_with = "policy")]
    revision: Option<u32>,
    /// Parameters, a JSON object.
    #[arg(long)]
    params: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(super) struct Push {
    #[command(flatten)]
    subscription: Subscription,
    /// A compiled policy, or the folder of its crate.
    #[arg(default_value = ".")]
    policy: PathBuf,
    /// Its parameters, a JSON object.
    #[arg(long, default_value = "{}")]
    params: String,
}

#[derive(clap::Args, Debug)]
pub(super) struct Rollback {
    #[command(flatten)]
    subscription: Subscription,
    /// The revision; without it, the last healthy one before the active one.
    #[arg(long)]
    revision: Option<u32>,
}

#[derive(clap::Args, Debug)]
pub(super) struct Backtest {
    #[command(flatten)]
    subscription: Subscription,
    #[command(flatten)]
    candidate: Candidate,
    /// How many recorded failures, the newest first.
    #[arg(long, default_value_t = 1_000)]
    last: u32,
}

#[derive(clap::Args, Debug)]
pub(super) struct Shadow {
    #[command(subcommand)]
    command: ShadowCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ShadowCommand {
    /// Has a policy asked beside the active one.
    Set {
        #[command(flatten)]
        subscription: Subscription,
        #[command(flatten)]
        candidate: Candidate,
    },
    /// Shows how it agrees, and where it differs.
    Show(Subscription),
    /// Ends it.
    Remove(Subscription),
}

impl Subscription {
    pub(super) fn name(&self) -> &str {
        &self.subscription
    }

    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/subscriptions/{}/policy{rest}", self.subscription)
    }
}

/// A candidate as the API takes it: a module, or a body.
enum Given {
    Module(Module),
    Body(Map<String, Value>),
}

impl Candidate {
    fn read(&self) -> Result<Given, Box<dyn Error>> {
        let params = self.params.as_deref().map(params).transpose()?;
        if let Some(path) = &self.policy {
            let params = params.unwrap_or_else(|| json!({})).to_string();
            return Ok(Given::Module(Module { bytes: module(path)?, params }));
        }
        let mut body = Map::new();
        body.extend(self.revision.map(|revision| ("revision".to_owned(), revision.into())));
        body.extend(params.map(|params| ("params".to_owned(), params)));
        Ok(Given::Body(body))
    }
}

pub(super) fn push(
    arguments: &Push,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let params = params(&arguments.params)?.to_string();
    let module = Module { bytes: module(&arguments.policy)?, params };
    let pushed: Value = connection.open()?.put_module(&arguments.subscription.path(""), module)?;
    match output {
        Format::Json | Format::Jsonl => output.write(&pushed)?,
        Format::Table => lines([format!(
            "revision {} decides on {}: {} {}, {} bytes, {}",
            text(&pushed["revision"]),
            arguments.subscription.subscription,
            text(&pushed["name"]),
            text(&pushed["version"]),
            text(&pushed["size"]),
            text(&pushed["digest"]),
        )])?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn revisions(
    arguments: &Subscription,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let items: Vec<Value> = connection.open()?.list(&arguments.path("/revisions?limit=100"))?;
    if output != Format::Table {
        output.write(&items)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |item: &Value| {
        let state = if item["active"] == true {
            "active".to_owned()
        } else if item["quarantined"].is_object() {
            format!("quarantined: {}", text(&item["quarantined"]["fault"]))
        } else {
            String::new()
        };
        let name = format!("{} {}", text(&item["name"]), text(&item["version"]));
        [
            text(&item["revision"]),
            name,
            text(&item["created_at"]),
            text(&item["created_by"]),
            text(&item["size"]),
            text(&item["trial_fuel"]),
            text(&item["decisions"]),
            text(&item["faults"]),
            state,
            text(&item["params"]),
        ]
    };
    let heads =
        ["revision", "policy", "created", "by", "size", "trial fuel", "decisions", "faults", "", "params"];
    lines(table::lines(heads, &items.iter().map(row).collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn rollback(
    arguments: &Rollback,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let body = json!({ "revision": arguments.revision });
    let now: Value = connection.open()?.post(&arguments.subscription.path("/rollback"), &body)?;
    match output {
        Format::Json | Format::Jsonl => output.write(&now)?,
        Format::Table => lines([format!(
            "revision {} decides on {}: {} {}",
            text(&now["revision"]),
            arguments.subscription.subscription,
            text(&now["name"]),
            text(&now["version"]),
        )])?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn shadow(
    arguments: &Shadow,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let client = connection.open()?;
    let shown: Value = match &arguments.command {
        ShadowCommand::Set { subscription, candidate } => match candidate.read()? {
            Given::Module(module) => client.put_module(&subscription.path("/shadow"), module)?,
            Given::Body(body) => client.put(&subscription.path("/shadow"), &body)?,
        },
        ShadowCommand::Show(subscription) => client.get(&subscription.path("/shadow"))?,
        ShadowCommand::Remove(subscription) => {
            client.delete(&subscription.path("/shadow"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if output != Format::Table {
        output.write(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    let agreement = match shown["agreement"].as_f64() {
        None => "it has not answered yet".to_owned(),
        Some(part) => format!("agrees in {:.1} % of {} answers", part * 100.0, text(&shown["asked"])),
    };
    lines([
        format!(
            "{} {}, asked since {}",
            text(&shown["name"]),
            text(&shown["version"]),
            text(&shown["since"])
        ),
        format!("{agreement}; {} questions were left out", text(&shown["dropped"])),
    ])?;
    let counted = |item: &Value| [text(&item["class"]), text(&item["attempt"]), text(&item["count"])];
    show_rows(["class", "attempt", "differs"], &shown["differences"], counted)?;
    show_examples(&shown["examples"], ["active", "shadow"])?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn backtest(
    arguments: &Backtest,
    connection: &Connection,
    output: Format,
) -> Result<ExitCode, Box<dyn Error>> {
    let client = connection.open()?;
    let path = arguments.subscription.path("/backtest");
    let answer = match arguments.candidate.read()? {
        Given::Module(module) => client.stream_module(&format!("{path}?last={}", arguments.last), module)?,
        Given::Body(mut body) => {
            body.insert("last".to_owned(), arguments.last.into());
            client.stream(&path, &body)?
        }
    };
    let report = follow(answer)?;
    match output {
        Format::Json | Format::Jsonl => output.write(&report)?,
        Format::Table => show_report(&report)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the lines up to the report, with the progress on a terminal's standard error.
fn follow(answer: impl BufRead) -> Result<Value, Box<dyn Error>> {
    let shows = std::io::stderr().is_terminal();
    for line in answer.lines() {
        let mut line: Value = serde_json::from_str(&line?)?;
        if line["report"].is_object() {
            if shows {
                write!(std::io::stderr(), "\r\x1b[K")?;
            }
            return Ok(line["report"].take());
        }
        if line["error"].is_object() {
            return Err(format!(
                "{} ({})",
                plain(&text(&line["error"]["detail"])),
                plain(&text(&line["error"]["code"]))
            )
            .into());
        }
        if shows {
            let progress = &line["progress"];
            write!(std::io::stderr(), "\r\x1b[K{} of {}", text(&progress["done"]), text(&progress["of"]))?;
        }
    }
    Err("the broker broke off".into())
}

fn show_report(report: &Value) -> std::io::Result<()> {
    let side = |what: &str, at: &str, side: &str| text(&report[what][side][at]);
    lines([
        format!(
            "{} {} on {} recorded failures: {} decisions change",
            text(&report["policy"]["name"]),
            text(&report["policy"]["version"]),
            text(&report["failures"]),
            text(&report["changed"])
        ),
        match (report["reruns"].as_u64(), report["impure"].as_u64()) {
            (Some(0), _) => "no failure was answered by this module with these parameters".to_owned(),
            (Some(reruns), Some(0)) => format!("{reruns} answers are its own, and the same bit for bit"),
            _ => format!(
                "IMPURE: {} of its own answers differ, records {}",
                text(&report["impure"]),
                report["impure_records"]
            ),
        },
        String::new(),
    ])?;
    let counted = |item: &Value| {
        let after = match (text(&item["before"]), text(&item["after"])) {
            (before, after) if before == after => format!("{after}, another one"),
            (_, after) => after,
        };
        [text(&item["class"]), text(&item["before"]), after, text(&item["count"])]
    };
    show_rows(["class", "before", "after", "decisions"], &report["changes"], counted)?;
    let mut rows = vec![[
        "dead letters".to_owned(),
        text(&report["dead_letters"]["before"]),
        text(&report["dead_letters"]["after"]),
    ]];
    for (what, at) in [
        ("delays", "p50"),
        ("delays", "p90"),
        ("delays", "p99"),
        ("delays", "max"),
        ("fuel", "p50"),
        ("fuel", "max"),
    ] {
        rows.push([
            format!("{} {at}", what.trim_end_matches('s')),
            side(what, at, "before"),
            side(what, at, "after"),
        ]);
    }
    for (kind, count) in report["faults"].as_object().into_iter().flatten() {
        rows.push([format!("faults, {kind}"), String::new(), text(count)]);
    }
    lines(table::lines(["", "before", "after"], &rows))?;
    show_examples(&report["examples"], ["before", "after"])
}

fn show_examples(examples: &Value, [one, other]: [&str; 2]) -> std::io::Result<()> {
    let row = |item: &Value| {
        [
            text(&item["message_id"]),
            text(&item["class"]),
            text(&item["attempt"]),
            decision(&item["before"]),
            decision(&item["after"]),
        ]
    };
    show_rows(["for example", "class", "attempt", one, other], examples, row)
}

/// A table of a list, and a free line; nothing for an empty one.
fn show_rows<const N: usize>(
    heads: [&str; N],
    items: &Value,
    row: impl Fn(&Value) -> [String; N],
) -> std::io::Result<()> {
    let rows: Vec<_> = items.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    lines(table::lines(heads, &rows))?;
    lines([String::new()])
}

/// A decision in a few words: `retry in 5s`, `dead letter to s/invalid: can never succeed`.
pub(in crate::cli) fn decision(decision: &Value) -> String {
    let by = match decision["decided_by"].as_str() {
        Some("policy") | None => String::new(),
        Some(other) => format!(" ({other})"),
    };
    let because = |words: String| match decision["reason"].as_str() {
        Some(reason) if !reason.is_empty() => format!("{words}: {reason}"),
        _ => words,
    };
    let words = match decision["action"].as_str() {
        Some("retry") => format!("retry in {}", text(&decision["delay"])),
        Some("dead_letter") => because(match decision["queue"].as_str() {
            Some(queue) => format!("dead letter to {queue}"),
            None => "dead letter".to_owned(),
        }),
        Some("forward") => format!("forward to {}", text(&decision["topic"])),
        Some("drop") => because("drop".to_owned()),
        _ => return format!("fault: {}", text(&decision["fault"]["detail"])),
    };
    format!("{words}{by}")
}

/// A value without quotes; nothing for none.
pub(in crate::cli) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
