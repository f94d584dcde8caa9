//! `broker realm`: the tenants of a broker, for operators.

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::connection::{Connection, Format, lines};
use super::policy::text;
use super::size::size;
use super::table;
use crate::domain::name::{InvalidName, Name};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
    /// How data is written.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Format,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Makes a realm, or gives one another rate and other bounds.
    Create {
        /// Its name.
        #[arg(value_parser = name)]
        name: String,
        #[command(flatten)]
        rate: Rate,
        /// Messages that its topics may keep together; without it, what the broker allows every realm.
        #[arg(long)]
        max_messages: Option<u64>,
        /// Bytes of their payloads and attributes, such as "20GiB".
        #[arg(long, value_parser = size)]
        max_bytes: Option<u64>,
    },
    /// Lists the realms.
    List,
    /// Deletes a realm without topics, and its tokens with it.
    Delete {
        /// Its name.
        #[arg(value_parser = name)]
        name: String,
    },
}

/// How often something may ask.
#[derive(clap::Args, Debug)]
pub(super) struct Rate {
    /// Requests a second in the long run; without it, as many as they like.
    #[arg(long)]
    rate: Option<u32>,
    /// Requests at once after a pause; without it, those of a second.
    #[arg(long, requires = "rate")]
    burst: Option<u32>,
}

impl Rate {
    /// As the API takes it.
    pub(super) fn body(&self) -> Value {
        let rate = |rate: u32| json!({ "per_second": rate, "burst": self.burst.unwrap_or(rate) });
        self.rate.map_or(Value::Null, rate)
    }
}

/// A rate as people read it.
pub(super) fn rate(rate: &Value) -> String {
    if rate.is_null() {
        return String::new();
    }
    format!("{}/s, {} at once", text(&rate["per_second"]), text(&rate["burst"]))
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { command, connection, output } = arguments;
    let client = connection.open()?;
    match command {
        Command::Create { name, rate, max_messages, max_bytes } => {
            let body = json!({ "rate": rate.body(), "max_messages": max_messages, "max_bytes": max_bytes });
            let realm: Value = client.put(&format!("/v1/realms/{name}"), &body)?;
            show(&realm, std::slice::from_ref(&realm), *output)?;
        }
        Command::List => {
            let realms: Vec<Value> = client.list("/v1/realms?limit=1000")?;
            show(&json!(realms), &realms, *output)?;
        }
        Command::Delete { name } => client.delete(&format!("/v1/realms/{name}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(data: &Value, realms: &[Value], output: Format) -> std::io::Result<()> {
    if output != Format::Table {
        return output.write(data);
    }
    let row = |realm: &Value| {
        let [name, created, topics, tokens, messages, bytes] =
            ["name", "created_at", "topics", "tokens", "messages", "bytes"].map(|field| text(&realm[field]));
        [name, created, topics, tokens, messages, bytes, rate(&realm["rate"])]
    };
    let rows: Vec<_> = realms.iter().map(row).collect();
    lines(table::lines(["realm", "created", "topics", "tokens", "messages", "bytes", "rate"], &rows))
}

/// A realm is named in the path of a request.
fn name(name: &str) -> Result<String, InvalidName> {
    Name::new(name).map(|name| name.to_string())
}
