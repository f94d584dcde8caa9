//! `broker token`: who is let into a realm, for operators.

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::connection::{Connection, Format, lines};
use super::policy::text;
use super::realm::{Rate, rate};
use super::table;
use crate::domain::access::TokenId;

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
    /// Makes a token and shows its secret, once.
    Create {
        /// What it is called: in revisions and the audit log.
        name: String,
        /// What it is for: publish, consume, topics, policies, dead_letters, read_payload, operator. Can be repeated.
        #[arg(long = "scope", required = true)]
        scopes: Vec<String>,
        /// Topics that it is for, by name or with a * at the end; without it, all. Can be repeated.
        #[arg(long = "topic")]
        topics: Option<Vec<String>>,
        /// Subscriptions that it is for, likewise.
        #[arg(long = "subscription")]
        subscriptions: Option<Vec<String>>,
        /// How long it is good, such as 90d; without it, for ever.
        #[arg(long)]
        expires_in: Option<String>,
        #[command(flatten)]
        rate: Rate,
    },
    /// Lists the tokens of the realm.
    List,
    /// Makes another secret and shows it, once.
    Rotate {
        /// The token's id.
        #[arg(value_parser = id)]
        id: String,
        /// How long the one before it stays good, such as 1h; without it, until the next rotation.
        #[arg(long)]
        grace: Option<String>,
    },
    /// Ends a token at once.
    Revoke {
        /// The token's id.
        #[arg(value_parser = id)]
        id: String,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { command, connection, output } = arguments;
    let client = connection.open()?;
    match command {
        Command::Create { name, scopes, topics, subscriptions, expires_in, rate } => {
            let mut body = Map::from_iter([
                ("name".to_owned(), json!(name)),
                ("scopes".to_owned(), json!(scopes)),
                ("rate".to_owned(), rate.body()),
            ]);
            body.extend(topics.as_ref().map(|topics| ("topics".to_owned(), json!(topics))));
            body.extend(subscriptions.as_ref().map(|names| ("subscriptions".to_owned(), json!(names))));
            body.extend(expires_in.as_ref().map(|good| ("expires_in".to_owned(), json!(good))));
            show_secret(&client.post("/v1/tokens", &body)?, *output)?;
        }
        Command::List => {
            let tokens: Vec<Value> = client.list("/v1/tokens?limit=1000")?;
            match output {
                Format::Json | Format::Jsonl => output.write(&tokens)?,
                Format::Table => lines(listed(&tokens))?,
            }
        }
        Command::Rotate { id, grace } => {
            let body = grace.as_ref().map_or_else(|| json!({}), |grace| json!({ "grace": grace }));
            show_secret(&client.post(&format!("/v1/tokens/{id}/rotate"), &body)?, *output)?;
        }
        Command::Revoke { id } => client.delete(&format!("/v1/tokens/{id}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show_secret(token: &Value, output: Format) -> std::io::Result<()> {
    if output != Format::Table {
        return output.write(token);
    }
    let told = format!("{} {} for {}", text(&token["id"]), text(&token["name"]), all(&token["scopes"]));
    lines([told, text(&token["secret"]), "Keep the secret: it is not shown again.".to_owned()])
}

fn listed(tokens: &[Value]) -> Vec<String> {
    let row = |token: &Value| {
        let expires = match &token["expires_at"] {
            Value::Null => "never".to_owned(),
            at => text(at),
        };
        [
            text(&token["id"]),
            text(&token["name"]),
            all(&token["scopes"]),
            all(&token["topics"]),
            all(&token["subscriptions"]),
            expires,
            text(&token["secret_made_at"]),
            rate(&token["rate"]),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let heads = ["id", "name", "scopes", "topics", "subscriptions", "expires", "secret made", "rate"];
    table::lines(heads, &rows)
}

fn all(texts: &Value) -> String {
    let texts: Vec<_> = texts.as_array().into_iter().flatten().map(text).collect();
    texts.join(" ")
}

/// A token is named in the path of a request.
fn id(text: &str) -> Result<String, &'static str> {
    TokenId::parse(text).map(|id| id.to_string()).ok_or("a token's id is what list shows")
}
