//! `broker context`: brokers by name, so that a command need not be told where and as whom.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::connection::{Format, lines};
use super::contexts::{Context, ContextError, Contexts};
use super::given::name;
use super::policy::text;
use super::{client, table};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// How data is written.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Format,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Keeps a broker under a name, or keeps another one under it. The first one is in use at once.
    Add {
        /// What it is called here.
        #[arg(value_parser = name)]
        name: String,
        /// Where the broker is.
        #[arg(long)]
        url: String,
        /// The realm, for operators; a token has its own.
        #[arg(long)]
        realm: Option<String>,
        /// The token that it wants, kept in the file of contexts.
        // It can begin with a hyphen.
        #[arg(long, allow_hyphen_values = true)]
        token: Option<String>,
        /// The file that the token is in, which is read for every command.
        #[arg(long, conflicts_with = "token")]
        token_file: Option<PathBuf>,
    },
    /// Puts one in use: commands that are given no URL ask its broker.
    Use {
        /// What it is called.
        name: String,
    },
    /// Lists them.
    List,
    /// Shows one, without its token.
    Show {
        /// What it is called; without a name, the one in use.
        name: Option<String>,
    },
    /// Forgets one.
    Remove {
        /// What it is called.
        name: String,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::Add { name, url, realm, token, token_file } => {
            client::Client::new(url, None)?;
            let context = Context {
                url: Some(url.clone()),
                realm: realm.clone(),
                token: token.clone(),
                token_file: token_file.as_ref().map(std::path::absolute).transpose()?,
            };
            Contexts::change(|contexts| {
                contexts.contexts.insert(name.clone(), context);
                contexts.current.get_or_insert_with(|| name.clone());
                Ok(())
            })?;
        }
        Command::Use { name } => Contexts::change(|contexts| {
            known(contexts, name)?;
            contexts.current = Some(name.clone());
            Ok(())
        })?,
        Command::List => {
            let contexts = Contexts::read()?;
            let all: Vec<_> = contexts.contexts.keys().map(|name| shown(&contexts, name)).collect();
            show(&json!(all), &all, arguments.output)?;
        }
        Command::Show { name } => {
            let contexts = Contexts::read()?;
            let Some(name) = name.as_ref().or(contexts.current.as_ref()) else {
                return Err("no context is in use".into());
            };
            known(&contexts, name)?;
            let context = shown(&contexts, name);
            show(&context, std::slice::from_ref(&context), arguments.output)?;
        }
        Command::Remove { name } => Contexts::change(|contexts| {
            known(contexts, name)?;
            contexts.contexts.remove(name);
            if contexts.current.as_ref() == Some(name) {
                contexts.current = None;
            }
            Ok(())
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn known(contexts: &Contexts, name: &str) -> Result<(), ContextError> {
    let known = contexts.contexts.contains_key(name);
    if known { Ok(()) } else { Err(ContextError::Unknown(name.to_owned())) }
}

/// The token is not shown.
fn shown(contexts: &Contexts, name: &str) -> Value {
    let context = contexts.contexts.get(name).cloned().unwrap_or_default();
    json!({
        "name": name,
        "current": contexts.current.as_deref() == Some(name),
        "url": context.url,
        "realm": context.realm,
        "token": context.token.map(|_| "kept"),
        "token_file": context.token_file.map(|path| path.display().to_string()),
    })
}

fn show(data: &Value, contexts: &[Value], output: Format) -> std::io::Result<()> {
    if output != Format::Table {
        return output.write(data);
    }
    let row = |context: &Value| {
        let [name, url, realm] = ["name", "url", "realm"].map(|field| text(&context[field]));
        let used = if context["current"] == true { "*" } else { "" };
        let token = [&context["token"], &context["token_file"]].map(text).concat();
        [used.to_owned(), name, url, realm, token]
    };
    let rows: Vec<_> = contexts.iter().map(row).collect();
    lines(table::lines(["", "context", "url", "realm", "token"], &rows))
}
