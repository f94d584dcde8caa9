//! Which broker a command speaks to, and how it writes what it hears.

use std::error::Error;
use std::io::{self, Write as _};

use serde::Serialize;
use serde_json::value::RawValue;

use super::client::Client;
use super::contexts::{Context, Contexts};
use super::output::{escaped, plain};
use super::{json, note};

/// Where a broker is on a machine that nobody told anything else.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

#[derive(clap::Args, Debug)]
pub(super) struct Connection {
    /// The broker; without it the one of the context, or http://127.0.0.1:7070.
    #[arg(long, env = "BROKER_URL", global = true, help_heading = "Broker")]
    url: Option<String>,
    /// The token that it wants; the operator's is in operator.token of its data folder.
    // It can begin with a hyphen.
    #[arg(
        long,
        allow_hyphen_values = true,
        env = "BROKER_TOKEN",
        hide_env_values = true,
        global = true,
        help_heading = "Broker"
    )]
    token: Option<String>,
    /// The realm, for operators; a token has its own.
    #[arg(long, env = "BROKER_REALM", global = true, help_heading = "Broker")]
    realm: Option<String>,
    /// One of those that `broker context` keeps, in place of the one in use. A URL goes before it.
    #[arg(long, env = "BROKER_CONTEXT", global = true, help_heading = "Broker")]
    context: Option<String>,
}

impl Connection {
    /// # Errors
    /// If there is no such context, or the system does not allow it.
    pub(super) fn open(&self) -> Result<Client, Box<dyn Error>> {
        let context = self.context()?;
        let token = match (&self.token, &context) {
            (None, Some(context)) => context.token()?,
            (given, _) => given.clone(),
        };
        let context = context.unwrap_or_default();
        let url = self.url.clone().or(context.url);
        let client = Client::new(url.as_deref().unwrap_or(DEFAULT_URL), token.as_deref())?;
        Ok(client.within(self.realm.as_deref().or(context.realm.as_deref())))
    }

    /// A context stands behind a URL as a whole, so that its token goes to no other broker.
    fn context(&self) -> Result<Option<Context>, Box<dyn Error>> {
        if self.url.is_none() {
            return Ok(Contexts::read()?.choose(self.context.as_deref())?);
        }
        if let Some(name) = &self.context {
            note(&format!("a URL is given, so the context {name} is not used"));
        }
        Ok(None)
    }
}

/// What every command that asks a broker for data takes.
#[derive(clap::Args, Debug)]
pub(super) struct Asking {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// How data is written.
    #[arg(long, value_enum, default_value_t, global = true, help_heading = "Output")]
    pub(super) output: Format,
}

/// How a command writes its data.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// The same, one item a line.
    Jsonl,
}

impl Format {
    /// Writes a value as JSON; where items are asked for, those of a list each on a line.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(super) fn write(self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        let mut out = io::stdout().lock();
        if self != Self::Jsonl {
            return writeln!(out, "{}", escaped(&json::pretty(&text)));
        }
        let items: Result<Vec<&RawValue>, _> = serde_json::from_str(&text);
        match items {
            Ok(items) => {
                items.iter().try_for_each(|item| writeln!(out, "{}", escaped(&json::compact(item.get()))))
            }
            Err(_) => writeln!(out, "{}", escaped(&json::compact(&text))),
        }
    }
}

/// Writes lines, with nothing in them that a terminal would act upon.
///
/// # Errors
/// If nobody reads any more.
pub(super) fn lines(lines: impl IntoIterator<Item = String>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", plain(&line))?;
    }
    Ok(())
}
