//! Which broker a command speaks to, and how it writes what it hears.

use std::io::{self, Write as _};

use serde::Serialize;

use super::client::{Client, ClientError};
use super::output::{escaped, plain};

#[derive(clap::Args, Debug)]
pub(super) struct Connection {
    /// The broker.
    #[arg(long, env = "BROKER_URL", default_value = "http://127.0.0.1:7070", global = true)]
    url: String,
    /// The token that it wants; the operator's is in operator.token of its data folder.
    // It can begin with a hyphen.
    #[arg(long, allow_hyphen_values = true, env = "BROKER_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// The realm, for operators; a token has its own.
    #[arg(long, env = "BROKER_REALM", global = true)]
    realm: Option<String>,
}

impl Connection {
    /// # Errors
    /// If the system does not allow it.
    pub(super) fn open(&self) -> Result<Client, ClientError> {
        let client = Client::new(&self.url, self.token.as_deref())?;
        Ok(client.within(self.realm.as_deref()))
    }
}

/// How a command writes its data.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Writes a value as JSON.
///
/// # Errors
/// If nobody reads any more.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = escaped(&serde_json::to_string_pretty(value)?);
    writeln!(io::stdout().lock(), "{text}")
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
