//! `broker pull`: deliveries, taken as a consumer takes them.

use std::error::Error;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::connection::Asking;
use super::given::{duration, flushed, name};
use super::settle::{Receipts, settle};
use super::shown::{self, Message, Raw, read};
use super::{Failures, note, table};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The subscription.
    #[arg(value_parser = name)]
    subscription: String,
    #[command(flatten)]
    pull: Pull,
    /// Acks what was printed, once it is printed. Without it the lease of each runs, and its policy decides in the end.
    #[arg(long)]
    ack: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args, Serialize, Debug)]
struct Pull {
    /// The most deliveries to take.
    #[arg(long, default_value_t = 1)]
    max: u32,
    /// How long to wait for the first, up to a minute; without it, not at all.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<String>,
    /// Who asks, for subscriptions that bound what one consumer holds.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
    /// How payloads are given: JSON as JSON and the rest as base64, all as base64, as CloudEvents, or not at all.
    #[arg(long, value_enum, default_value = "auto")]
    payload_as: PayloadAs,
}

#[derive(ValueEnum, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
enum PayloadAs {
    Auto,
    Base64,
    CloudEvents,
    None,
}

#[derive(Deserialize)]
struct Pulled {
    deliveries: Vec<Raw>,
    paused: Option<Paused>,
}

#[derive(Deserialize)]
struct Paused {
    until: Option<String>,
    by: Option<String>,
    reason: String,
}

/// What is there in whatever form the message is given.
#[derive(Deserialize)]
struct Delivery {
    receipt: Option<String>,
    attempt: u32,
    failures: u32,
    lease_until: Option<String>,
}

#[derive(Deserialize)]
struct WithMessage {
    message: Message,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { subscription, pull, ack, asking } = arguments;
    let client = asking.connection.open()?;
    let pulled: Pulled = client.post(&format!("/v1/subscriptions/{subscription}/pull"), pull)?;
    if pulled.deliveries.is_empty() {
        note(&nothing(subscription, pulled.paused));
    }
    shown::list(&pulled.deliveries, asking.output, listed)?;
    if !ack {
        return Ok(ExitCode::SUCCESS);
    }
    // What was not printed is not acked.
    flushed()?;
    let deliveries = pulled.deliveries.iter().filter_map(|delivery| read::<Delivery>(delivery));
    let receipts: Vec<_> = deliveries.filter_map(|delivery| delivery.receipt).collect();
    let mut failures = Failures::default();
    for batch in Receipts::batches(&receipts) {
        settle(&client, subscription, "ack", &batch, &mut failures)?;
    }
    Ok(failures.code())
}

fn nothing(subscription: &str, paused: Option<Paused>) -> String {
    match paused {
        None => format!("{subscription} has nothing to deliver now"),
        Some(Paused { until: Some(until), reason, .. }) => {
            format!("{subscription} is paused by its policy until {until}: {reason}")
        }
        Some(Paused { by, reason, .. }) => {
            format!("{subscription} is paused by {}: {reason}", by.unwrap_or_default())
        }
    }
}

fn listed(deliveries: &[Raw]) -> Vec<String> {
    let deliveries = deliveries.iter().filter_map(|item| Some((item, read::<Delivery>(item)?)));
    let rows: Vec<_> = deliveries
        .map(|(item, it)| {
            // A message in the form of an event has other fields.
            let message = read::<WithMessage>(item).map(|with| with.message);
            let payload = message.as_ref().map(Message::payload).unwrap_or_default();
            let (id, key) = message.map(|message| (message.id, message.key)).unwrap_or_default();
            let [attempt, failures] = [it.attempt, it.failures].map(|number| number.to_string());
            let until = it.lease_until.unwrap_or_default();
            [id, attempt, failures, until, key.unwrap_or_default(), payload, it.receipt.unwrap_or_default()]
        })
        .collect();
    let heads = ["message", "attempt", "failures", "lease until", "key", "payload", "receipt"];
    table::lines(heads, &rows)
}
