//! `broker subscription`: who reads what, and where it stands. [`settings`] has the options of `put` and `change`.

mod settings;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::settings::{Fixed, Settings};
use super::client::Client;
use super::connection::{Asking, Format};
use super::given::{file, name, object, point};
use super::shown::{self, Message, Raw, read, there_are_more};
use super::{USAGE, note, table};
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
    /// Creates a subscription, or replaces all settings of one.
    #[command(visible_alias = "create")]
    Put(Box<Put>),
    /// Changes the settings that are named.
    Change {
        /// Its name.
        #[arg(value_parser = name)]
        subscription: String,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Shows a subscription with its settings, its policy and where it stands.
    Show(Named),
    /// Lists the subscriptions.
    List,
    /// Deletes a subscription with everything it holds, dead letters included.
    Delete {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        sure: Sure,
    },
    /// Hands nothing out until it is resumed; settlements, timers and decisions go on.
    Pause {
        #[command(flatten)]
        named: Named,
        /// Why, for whoever looks.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Hands out again what waits.
    Resume(Named),
    /// Starts again from a point: everything from there is delivered as if it had never been.
    Seek {
        #[command(flatten)]
        named: Named,
        /// Where to: earliest, latest, a sequence, or a moment such as 2026-01-31T12:00:00Z.
        #[arg(long, value_parser = point)]
        to: Value,
        /// On this topic alone, of those that a pattern takes.
        #[arg(long, value_parser = name)]
        topic: Option<String>,
    },
    /// Ends everything outstanding; dead letters stay.
    Purge {
        #[command(flatten)]
        named: Named,
        /// On this topic alone, of those that a pattern takes.
        #[arg(long, value_parser = name)]
        topic: Option<String>,
        #[command(flatten)]
        sure: Sure,
    },
    /// Shows what it has yet to settle and how each message stands; takes nothing.
    Peek {
        #[command(flatten)]
        named: Named,
        /// The most messages to show.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
}

#[derive(clap::Args, Debug)]
struct Put {
    /// Its name.
    #[arg(value_parser = name)]
    subscription: String,
    /// The file with all settings, as the API takes them; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Fixed", "Settings"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    fixed: Fixed,
    #[command(flatten)]
    settings: Settings,
}

#[derive(clap::Args, Debug)]
struct Named {
    /// Its name.
    #[arg(value_parser = name)]
    subscription: String,
}

/// What ends deliveries for good is told before it is done.
#[derive(clap::Args, Debug)]
struct Sure {
    /// Does it; without this, what has deliveries to lose is only told.
    #[arg(long)]
    yes: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    fixed: &'a Fixed,
    #[serde(flatten)]
    settings: &'a Settings,
}

impl Named {
    fn path(&self, rest: &str) -> String {
        format!("/v1/subscriptions/{}{rest}", self.subscription)
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Asking { connection, output } = &arguments.asking;
    let client = || connection.open();
    match &arguments.command {
        Command::Put(arguments) => put(arguments, &client()?, *output)?,
        Command::Change { subscription, settings } => {
            let changed = client()?.patch(&format!("/v1/subscriptions/{subscription}"), settings)?;
            shown::object(&changed, *output)?;
        }
        Command::Show(named) => shown::object(&client()?.get(&named.path(""))?, *output)?,
        Command::List => {
            let subscriptions: Vec<Raw> = client()?.list("/v1/subscriptions?limit=1000")?;
            shown::list(&subscriptions, *output, listed)?;
        }
        Command::Delete { named, sure } => {
            let client = client()?;
            if !sure.yes && held(&client, named)?.would_lose(Loss::All, named) {
                return Ok(ExitCode::from(USAGE));
            }
            client.delete(&named.path(""))?;
        }
        Command::Pause { named, reason } => {
            let paused = client()?.post(&named.path("/pause"), &json!({ "reason": reason }))?;
            shown::object(&paused, *output)?;
        }
        Command::Resume(named) => {
            shown::object(&client()?.post(&named.path("/resume"), &json!({}))?, *output)?;
        }
        Command::Seek { named, to, topic } => {
            let mut body = json!({ "to": to });
            name_topic(&mut body, topic.as_ref());
            shown::object(&client()?.post(&named.path("/seek"), &body)?, *output)?;
        }
        Command::Purge { named, topic, sure } => {
            let client = client()?;
            if !sure.yes && held(&client, named)?.would_lose(Loss::Outstanding(topic.as_deref()), named) {
                return Ok(ExitCode::from(USAGE));
            }
            let mut body = json!({});
            name_topic(&mut body, topic.as_ref());
            shown::object(&client.post(&named.path("/purge"), &body)?, *output)?;
        }
        Command::Peek { named, limit } => {
            let (messages, more) = client()?.first(&named.path("/messages"), *limit)?;
            shown::list(&messages, *output, peeked)?;
            there_are_more(more);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn put(arguments: &Put, client: &Client, output: Format) -> Result<(), Box<dyn Error>> {
    let Put { subscription, from, fixed, settings } = arguments;
    let path = format!("/v1/subscriptions/{subscription}");
    let put = match from {
        Some(from) => {
            let text = String::from_utf8(file(from, MAX_BODY_BYTES)?)?;
            let body = object(&text).map_err(|why| format!("{}: {why}", from.display()))?;
            client.put(&path, &body)?
        }
        None => client.put(&path, &Body { fixed, settings })?,
    };
    Ok(shown::object(&put, output)?)
}

fn name_topic(body: &mut Value, topic: Option<&String>) {
    if let Some(topic) = topic {
        body["topic"] = json!(topic);
    }
}

/// What a subscription holds.
#[derive(Deserialize)]
struct Held {
    backlog: u64,
    dead_letters: u64,
}

enum Loss<'a> {
    /// Everything that the subscription holds.
    All,
    /// What is not settled, perhaps on one topic alone.
    Outstanding(Option<&'a str>),
}

fn held(client: &Client, named: &Named) -> Result<Held, Box<dyn Error>> {
    Ok(client.get(&named.path(""))?)
}

impl Held {
    /// Whether there is something to lose, which is told.
    fn would_lose(&self, loss: Loss, named: &Named) -> bool {
        let Self { backlog, dead_letters } = self;
        let name = &named.subscription;
        let (is_something, plan) = match loss {
            Loss::All => (
                backlog + dead_letters > 0,
                format!("deleting {name} loses {backlog} deliveries and {dead_letters} dead letters"),
            ),
            Loss::Outstanding(None) => (*backlog > 0, format!("purging {name} ends {backlog} deliveries")),
            Loss::Outstanding(Some(topic)) => (
                *backlog > 0,
                format!("purging {name} ends those of its {backlog} deliveries that are of {topic}"),
            ),
        };
        if is_something {
            note(&format!("{plan}; do it with --yes"));
        }
        is_something
    }
}

#[derive(Deserialize)]
struct Subscription {
    name: String,
    topic: Option<String>,
    topic_pattern: Option<String>,
    mode: String,
    backlog: u64,
    in_flight: u64,
    delayed: u64,
    dead_letters: u64,
    policy: Policy,
    #[serde(flatten)]
    state: State,
}

#[derive(Deserialize)]
struct Policy {
    name: String,
    revision: u32,
}

/// Whether it hands anything out, and why not.
#[derive(Deserialize)]
pub(super) struct State {
    paused: Option<Because>,
    circuit: Circuit,
}

#[derive(Deserialize)]
struct Because {
    reason: String,
}

#[derive(Deserialize)]
struct Circuit {
    state: String,
    reason: Option<String>,
}

impl State {
    /// In a few words; nothing where all is well.
    pub(super) fn in_words(&self) -> String {
        let (word, reason) = match (&self.paused, self.circuit.state.as_str()) {
            (Some(Because { reason }), _) => ("paused", Some(reason)),
            (None, "closed") => return String::new(),
            (None, "open") => ("paused by its policy", self.circuit.reason.as_ref()),
            (None, _) => ("probing", self.circuit.reason.as_ref()),
        };
        match reason {
            Some(reason) if !reason.is_empty() => format!("{word}: {reason}"),
            _ => word.to_owned(),
        }
    }
}

fn listed(subscriptions: &[Raw]) -> Vec<String> {
    let subscriptions = subscriptions.iter().filter_map(|it| read::<Subscription>(it));
    let rows: Vec<_> = subscriptions
        .map(|it| {
            let [backlog, in_flight, delayed, dead] =
                [it.backlog, it.in_flight, it.delayed, it.dead_letters].map(|number| number.to_string());
            let policy = format!("{} {}", it.policy.name, it.policy.revision);
            let reads = it.topic.or(it.topic_pattern).unwrap_or_default();
            [it.name, reads, it.mode, policy, backlog, in_flight, delayed, dead, it.state.in_words()]
        })
        .collect();
    let heads =
        ["subscription", "reads", "mode", "policy", "backlog", "in flight", "delayed", "dead", "state"];
    table::lines(heads, &rows)
}

#[derive(Deserialize)]
struct Peeked {
    delivery: Delivery,
}

#[derive(Deserialize)]
struct Delivery {
    state: String,
    until: Option<String>,
    timeline: Option<Timeline>,
}

#[derive(Deserialize)]
struct Timeline {
    attempts: u32,
}

fn peeked(messages: &[Raw]) -> Vec<String> {
    let messages = messages.iter().filter_map(|item| Some((read::<Message>(item)?, read::<Peeked>(item)?)));
    let rows: Vec<_> = messages
        .map(|(it, Peeked { delivery })| {
            let payload = it.payload();
            let attempts = delivery.timeline.map_or(0, |timeline| timeline.attempts);
            let until = delivery.until.unwrap_or_default();
            let (sequence, key) = (it.sequence.to_string(), it.key.unwrap_or_default());
            [it.topic, sequence, it.id, delivery.state, until, attempts.to_string(), key, payload]
        })
        .collect();
    table::lines(["topic", "sequence", "message", "state", "until", "attempts", "key", "payload"], &rows)
}
