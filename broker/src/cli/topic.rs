//! `broker topic`: where messages are published to, and what it holds.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::connection::Asking;
use super::given::{duration, file, moment, name, object};
use super::shown::{self, Message, Raw, read, there_are_more};
use super::size::size;
use super::table;
use crate::domain::limits::MAX_BODY_BYTES;

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Creates a topic, or replaces all settings of one.
    #[command(visible_alias = "create")]
    Put {
        /// Its name.
        #[arg(value_parser = name)]
        topic: String,
        #[command(flatten)]
        settings: Box<Settings>,
        /// The file with a JSON Schema that every payload has to follow; - is standard input.
        #[arg(long, help_heading = "Settings")]
        schema: Option<PathBuf>,
    },
    /// Shows a topic with its settings and what it keeps.
    Show {
        /// Its name.
        #[arg(value_parser = name)]
        topic: String,
    },
    /// Lists the topics.
    List,
    /// Deletes a topic that nothing reads any more, and its messages.
    Delete {
        /// Its name.
        #[arg(value_parser = name)]
        topic: String,
    },
    /// Shows the messages that a topic holds, oldest first; takes nothing.
    Browse {
        /// Its name.
        #[arg(value_parser = name)]
        topic: String,
        /// The sequence to begin with.
        #[arg(long, conflicts_with = "from_time")]
        from_sequence: Option<u64>,
        /// The moment to begin with, such as 2026-01-31T12:00:00Z.
        #[arg(long, value_parser = moment)]
        from_time: Option<String>,
        /// The most messages to show.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
}

/// Those of a topic, as the API takes them. What is left out is as the broker has it by default.
#[derive(clap::Args, Serialize, Debug)]
#[command(next_help_heading = "Settings")]
struct Settings {
    /// How long a message that nobody needs any more stays readable, such as 10m.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_acked: Option<String>,
    /// The largest payload, such as 256KiB.
    #[arg(long, value_parser = size)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_message_bytes: Option<u64>,
    /// How long ids of publishers are remembered; 0s turns it off.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_window: Option<String>,
    /// The time to live of messages that bring none.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
    /// Older messages go, settled or not.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<String>,
    /// While it keeps more, the oldest messages go, settled or not; such as 20GiB.
    #[arg(long, value_parser = size)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retain_bytes: Option<u64>,
    /// Messages that it may keep before it refuses publishes.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_messages: Option<u64>,
    /// Bytes of payloads and attributes that it may keep before it refuses publishes.
    #[arg(long, value_parser = size)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    settings: &'a Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Raw>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Asking { connection, output } = &arguments.asking;
    match &arguments.command {
        Command::Put { topic, settings, schema } => {
            let schema = schema.as_deref().map(|path| {
                let text = String::from_utf8(file(path, MAX_BODY_BYTES)?)?;
                object(&text).map_err(|why| format!("{}: {why}", path.display()).into())
            });
            let schema = schema.transpose().map_err(|error: Box<dyn Error>| error)?;
            let put = connection.open()?.put(&format!("/v1/topics/{topic}"), &Body { settings, schema })?;
            shown::object(&put, *output)?;
        }
        Command::Show { topic } => {
            shown::object(&connection.open()?.get(&format!("/v1/topics/{topic}"))?, *output)?;
        }
        Command::List => {
            let topics: Vec<Raw> = connection.open()?.list("/v1/topics?limit=1000")?;
            shown::list(&topics, *output, listed)?;
        }
        Command::Delete { topic } => connection.open()?.delete(&format!("/v1/topics/{topic}"))?,
        Command::Browse { topic, from_sequence, from_time, limit } => {
            let from = match (from_sequence, from_time) {
                (Some(sequence), _) => format!("from_sequence={sequence}&"),
                (None, Some(time)) => format!("from_time={time}&"),
                (None, None) => String::new(),
            };
            let path = format!("/v1/topics/{topic}/messages?{from}");
            let (messages, more) = connection.open()?.first(&path, *limit)?;
            shown::list(&messages, *output, browsed)?;
            there_are_more(more);
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(serde::Deserialize)]
struct Topic {
    name: String,
    messages: u64,
    bytes: u64,
    subscriptions: u64,
    first_sequence: u64,
    next_sequence: u64,
    created_at: String,
}

fn listed(topics: &[Raw]) -> Vec<String> {
    let topics = topics.iter().filter_map(|topic| read::<Topic>(topic));
    let rows: Vec<_> = topics
        .map(|it| {
            let [messages, bytes, subscriptions, first, next] =
                [it.messages, it.bytes, it.subscriptions, it.first_sequence, it.next_sequence]
                    .map(|number| number.to_string());
            [it.name, messages, bytes, subscriptions, first, next, it.created_at]
        })
        .collect();
    table::lines(["topic", "messages", "bytes", "subscriptions", "first", "next", "created"], &rows)
}

fn browsed(messages: &[Raw]) -> Vec<String> {
    let messages = messages.iter().filter_map(|message| read::<Message>(message));
    let rows: Vec<_> = messages
        .map(|it| {
            let (attributes, payload) = (it.attributes(), it.payload());
            [it.sequence.to_string(), it.id, it.published_at, it.key.unwrap_or_default(), attributes, payload]
        })
        .collect();
    table::lines(["sequence", "message", "published", "key", "attributes", "payload"], &rows)
}
