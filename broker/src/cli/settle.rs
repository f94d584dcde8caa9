//! `broker ack`, `nack`, `release` and `extend`: what becomes of what was pulled.

use std::error::Error;
use std::io::{self, BufRead as _};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answers::ItemError;
use super::client::{Client, ClientError};
use super::connection::{Asking, Format, lines};
use super::given::{duration, name};
use super::policy::{decision, text};
use super::shown::{Raw, read};
use super::{Failures, table};
use crate::domain::limits::MAX_BATCH_ITEMS;

/// What was done, or given back.
#[derive(clap::Args, Debug)]
pub(super) struct Settle {
    #[command(flatten)]
    these: These,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args, Debug)]
pub(super) struct Nack {
    #[command(flatten)]
    these: These,
    #[command(flatten)]
    failure: Failure,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args, Debug)]
pub(super) struct Extend {
    #[command(flatten)]
    these: These,
    #[command(flatten)]
    extension: Extension,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args, Debug)]
struct These {
    /// The subscription that they were pulled from.
    #[arg(value_parser = name)]
    subscription: String,
    /// The receipts that pull gave; - reads them from standard input, one a line.
    #[arg(required = true)]
    receipts: Vec<String>,
}

#[derive(clap::Args, Serialize, Debug)]
struct Failure {
    /// What kind of failure it was, such as timeout: what policies decide by.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// Its code, such as 504.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// What happened, for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// How long whoever failed asks to wait, such as 30s.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
}

#[derive(clap::Args, Serialize, Debug)]
struct Extension {
    /// How long from now; without it, the lease of the subscription.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
}

/// As `ack` and `release` take them.
#[derive(Serialize)]
pub(super) struct Receipts<'a> {
    receipts: &'a [String],
}

/// As `nack` and `extend` take them.
#[derive(Serialize)]
struct Items<'a, T> {
    items: Vec<Item<'a, T>>,
}

#[derive(Serialize)]
struct Item<'a, T> {
    receipt: &'a str,
    #[serde(flatten)]
    more: &'a T,
}

impl<'a> Receipts<'a> {
    /// As many at a time as the broker takes.
    pub(super) fn batches(receipts: &'a [String]) -> impl Iterator<Item = Self> {
        receipts.chunks(MAX_BATCH_ITEMS).map(|receipts| Self { receipts })
    }
}

impl<'a, T> Items<'a, T> {
    fn batches(receipts: &'a [String], more: &'a T) -> impl Iterator<Item = Self> {
        let items = move |receipts: &'a [String]| {
            receipts.iter().map(|receipt| Item { receipt, more }).collect::<Vec<_>>()
        };
        receipts.chunks(MAX_BATCH_ITEMS).map(move |receipts| Self { items: items(receipts) })
    }
}

pub(super) fn ack(arguments: &Settle) -> Result<ExitCode, Box<dyn Error>> {
    let receipts = arguments.these.read()?;
    all(&arguments.these, "ack", Receipts::batches(&receipts), &arguments.asking)
}

pub(super) fn nack(arguments: &Nack) -> Result<ExitCode, Box<dyn Error>> {
    let receipts = arguments.these.read()?;
    all(&arguments.these, "nack", Items::batches(&receipts, &arguments.failure), &arguments.asking)
}

pub(super) fn release(arguments: &Settle) -> Result<ExitCode, Box<dyn Error>> {
    let receipts = arguments.these.read()?;
    all(&arguments.these, "release", Receipts::batches(&receipts), &arguments.asking)
}

pub(super) fn extend(arguments: &Extend) -> Result<ExitCode, Box<dyn Error>> {
    let receipts = arguments.these.read()?;
    all(&arguments.these, "extend", Items::batches(&receipts, &arguments.extension), &arguments.asking)
}

impl These {
    fn read(&self) -> io::Result<Vec<String>> {
        let mut receipts = Vec::new();
        for receipt in &self.receipts {
            if receipt == "-" {
                for line in io::stdin().lock().lines() {
                    receipts.extend(Some(line?.trim().to_owned()).filter(|line| !line.is_empty()));
                }
            } else {
                receipts.push(receipt.clone());
            }
        }
        Ok(receipts)
    }
}

fn all(
    these: &These,
    verb: &str,
    batches: impl Iterator<Item = impl Serialize>,
    asking: &Asking,
) -> Result<ExitCode, Box<dyn Error>> {
    let client = asking.connection.open()?;
    let mut failures = Failures::default();
    for (number, batch) in batches.enumerate() {
        let items = settle(&client, &these.subscription, verb, &batch, &mut failures)?;
        if asking.output == Format::Table {
            lines(listed(&items).into_iter().skip(usize::from(number > 0)))?;
        } else {
            asking.output.write(&items)?;
        }
    }
    Ok(failures.code())
}

#[derive(Deserialize)]
struct Settled {
    items: Vec<Raw>,
}

#[derive(Deserialize)]
struct Failed {
    receipt: String,
    error: ItemError,
}

/// Settles a batch, and tells of what was not taken.
///
/// # Errors
/// If it was refused as a whole.
pub(super) fn settle(
    client: &Client,
    subscription: &str,
    verb: &str,
    batch: &impl Serialize,
    failures: &mut Failures,
) -> Result<Vec<Raw>, ClientError> {
    let settled: Settled = client.post(&format!("/v1/subscriptions/{subscription}/{verb}"), batch)?;
    for item in &settled.items {
        if let Some(Failed { receipt, error }) = read(item) {
            failures.tell(&receipt, &error);
        }
    }
    Ok(settled.items)
}

fn listed(items: &[Raw]) -> Vec<String> {
    let items = items.iter().filter_map(|item| read::<Value>(item)).filter(|item| item["error"].is_null());
    let rows: Vec<_> = items
        .map(|item| {
            let (what, until) = if item["decision"].is_object() {
                (decision(&item["decision"]), text(&item["decision"]["next_attempt_at"]))
            } else if item["lease_until"].is_string() {
                ("extended".to_owned(), text(&item["lease_until"]))
            } else {
                let late = if item["late"] == true { ", late" } else { "" };
                (format!("{}{late}", text(&item["status"])), String::new())
            };
            [what, until, text(&item["receipt"])]
        })
        .collect();
    table::lines(["outcome", "until", "receipt"], &rows)
}
