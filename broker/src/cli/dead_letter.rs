//! `broker dead-letter`: what was given up on, why, and what to do about it.

use std::error::Error;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::Value;

use super::connection::{Asking, Format, lines};
use super::given::{dead_letter, in_query, name};
use super::message::attempt;
use super::shown::{self, Message, Raw, cut, read, there_are_more};
use super::{Failures, table};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Lists dead letters, oldest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// The most dead letters to show.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Shows a dead letter with its payload and what happened to it.
    Show {
        /// The id that list gave.
        #[arg(value_parser = dead_letter)]
        id: String,
    },
    /// Gives dead letters back to their subscription, with a fresh count of attempts.
    Replay(These),
    /// Ends dead letters for good.
    Discard(These),
}

#[derive(clap::Args, Debug)]
struct Filter {
    /// Of this subscription alone.
    #[arg(long, value_parser = name)]
    subscription: Option<String>,
    /// In this queue alone, with or without its subscription: billing/invalid, or invalid.
    #[arg(long)]
    queue: Option<String>,
    /// Whose last failure was of this class alone.
    #[arg(long)]
    class: Option<String>,
}

#[derive(clap::Args, Debug)]
struct These {
    /// The ids that list gave.
    #[arg(required = true, value_parser = dead_letter)]
    ids: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Asking { connection, output } = &arguments.asking;
    let client = connection.open()?;
    let mut failures = Failures::default();
    match &arguments.command {
        Command::List { filter, limit } => {
            let (letters, more) = client.first(&format!("/v1/dead-letters?{}", filter.query()), *limit)?;
            shown::list(&letters, *output, listed)?;
            there_are_more(more);
        }
        Command::Show { id } => show(&client.get(&format!("/v1/dead-letters/{id}"))?, *output)?,
        Command::Replay(These { ids }) => {
            let mut replayed: Vec<Raw> = Vec::new();
            for id in ids {
                match client.post(&format!("/v1/dead-letters/{id}/replay"), &serde_json::json!({})) {
                    Ok(answer) => replayed.push(answer),
                    Err(error) => failures.of(id, error)?,
                }
            }
            shown::list(&replayed, *output, replays)?;
        }
        Command::Discard(These { ids }) => {
            for id in ids {
                if let Err(error) = client.delete(&format!("/v1/dead-letters/{id}")) {
                    failures.of(id, error)?;
                }
            }
        }
    }
    Ok(failures.code())
}

impl Filter {
    fn query(&self) -> String {
        let fields = [("subscription", &self.subscription), ("queue", &self.queue), ("class", &self.class)];
        let given = fields.into_iter().filter_map(|(field, value)| Some((field, value.as_ref()?)));
        given.map(|(field, value)| format!("{field}={}&", in_query(value))).collect()
    }
}

#[derive(Deserialize)]
struct DeadLetter {
    id: String,
    subscription: String,
    queue: Option<String>,
    dead_at: String,
    attempts: u32,
    class: Option<String>,
    reason: String,
    message_id: String,
}

fn listed(letters: &[Raw]) -> Vec<String> {
    let letters = letters.iter().filter_map(|letter| read::<DeadLetter>(letter));
    let rows: Vec<_> = letters
        .map(|it| {
            let queue = it.queue.unwrap_or(it.subscription);
            let (attempts, class) = (it.attempts.to_string(), it.class.unwrap_or_default());
            [it.id, queue, it.dead_at, it.message_id, attempts, class, cut(&it.reason)]
        })
        .collect();
    table::lines(["dead letter", "queue", "died", "message", "attempts", "class", "reason"], &rows)
}

#[derive(Deserialize)]
struct Whole {
    message: Message,
    timeline: Timeline,
    detail: Option<String>,
}

#[derive(Deserialize)]
struct Timeline {
    history: Vec<Value>,
}

fn show(letter: &Raw, output: Format) -> Result<(), Box<dyn Error>> {
    if output != Format::Table {
        return Ok(output.write(letter)?);
    }
    lines(listed(std::slice::from_ref(letter)))?;
    if let Some(Whole { message, timeline, detail }) = read(letter) {
        let about = [
            ("topic", message.topic.clone()),
            ("published", message.published_at.clone()),
            ("key", message.key.clone().unwrap_or_default()),
            ("attributes", message.attributes()),
            ("payload", message.payload()),
            ("detail", detail.unwrap_or_default()),
        ];
        lines([String::new()])?;
        let about = about.into_iter().filter(|(_, value)| !value.is_empty());
        lines(about.map(|(field, value)| format!("{field:<10}  {value}")))?;
        lines([String::new()])?;
        lines(timeline.history.iter().map(attempt))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Replayed {
    message_id: String,
    replays: u32,
}

fn replays(replayed: &[Raw]) -> Vec<String> {
    let replayed = replayed.iter().filter_map(|it| read::<Replayed>(it));
    let rows: Vec<_> = replayed.map(|it| [it.message_id, it.replays.to_string()]).collect();
    table::lines(["message", "replays"], &rows)
}
