//! `broker publish`: one message, or one of each line. Lines go out in batches as they come, so that a pipe that goes on
//! for ever is published as it is written.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::answers::ItemError;
use super::client::Client;
use super::connection::{Asking, Format, lines};
use super::given::{attribute, duration, file, moment, name};
use super::shown::{Raw, read};
use super::{Failures, note, table};
use crate::domain::limits::{MAX_BATCH_BYTES, MAX_BATCH_ITEMS, MAX_MESSAGE_BYTES};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The topic.
    #[arg(value_parser = name)]
    topic: String,
    /// The payload; without it and --file it is what standard input has to its end.
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// The file with the payload; - is standard input.
    #[arg(long, conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// Publishes each line that is not empty as a message of its own, as they come.
    #[arg(long, conflicts_with_all = ["payload", "dedup_id"])]
    lines: bool,
    #[command(flatten)]
    described: Described,
    #[command(flatten)]
    asking: Asking,
}

/// What a message has beside its payload, the same for each line.
#[derive(clap::Args, Serialize, Clone, Debug)]
#[command(next_help_heading = "Message")]
struct Described {
    /// Its key, for subscriptions that keep the order of keys.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// An attribute, which filters and policies see. Can be repeated.
    #[arg(long = "attribute", value_parser = attribute, value_name = "NAME=VALUE")]
    #[serde(serialize_with = "pairs", skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<(String, String)>,
    /// How long it waits before anybody gets it, such as 5s.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
    /// The moment before which nobody gets it, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_parser = moment, conflicts_with = "delay")]
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<String>,
    /// How long it is worth anything.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
    /// An id under which the topic stores one message alone, however often it is sent.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_id: Option<String>,
    /// What the payload is; without it, application/json where it is JSON.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
}

/// A name that was given twice is for the broker to refuse.
#[expect(clippy::ptr_arg, reason = "serde hands over a reference to the field")]
fn pairs<S: serde::Serializer>(pairs: &Vec<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Raw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(flatten)]
    described: &'a Described,
}

#[derive(Deserialize)]
struct Published {
    items: Vec<Raw>,
}

#[derive(Deserialize)]
struct Item {
    id: Option<String>,
    sequence: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<ItemError>,
}

impl Described {
    /// JSON goes in the text that it is written in, without the white space around it; everything else as bytes.
    fn message(&self, payload: &[u8]) -> Message<'_> {
        let may_be_json = self.content_type.as_ref().is_none_or(|it| it.ends_with("json"));
        let payload_json = if may_be_json { serde_json::from_slice(payload).ok() } else { None };
        let payload_base64 = payload_json.is_none().then(|| BASE64.encode(payload));
        Message { payload: payload_json, payload_base64, described: self }
    }

    /// As the bound of a batch counts it.
    fn bytes(&self) -> usize {
        self.attributes.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { topic, payload, file: path, lines, described, asking } = arguments;
    let client = asking.connection.open()?;
    let stdin = Path::new("-");
    let path = path.as_deref().unwrap_or(stdin);
    if payload.is_none() && path == stdin && io::stdin().is_terminal() {
        note("what is typed is published; Ctrl-D ends it");
    }
    let mut publisher = Publisher::new(&client, topic, described, asking.output);
    if *lines {
        let named = |error: io::Error| format!("{}: {error}", path.display());
        if path == stdin {
            publisher.lines(io::stdin())?;
        } else {
            publisher.lines(File::open(path).map_err(named)?)?;
        }
    } else {
        let payload = match payload {
            Some(payload) => payload.clone().into_bytes(),
            None => file(path, MAX_MESSAGE_BYTES)?,
        };
        publisher.add(&payload)?;
    }
    publisher.send()?;
    Ok(publisher.failures.code())
}

/// Messages that go to one topic.
struct Publisher<'a> {
    client: &'a Client,
    topic: &'a str,
    described: &'a Described,
    output: Format,
    batch: Vec<Message<'a>>,
    /// Of the batch.
    bytes: usize,
    /// Messages sent so far.
    sent: u64,
    failures: Failures,
}

impl<'a> Publisher<'a> {
    fn new(client: &'a Client, topic: &'a str, described: &'a Described, output: Format) -> Self {
        let failures = Failures::default();
        Self { client, topic, described, output, batch: Vec::new(), bytes: 0, sent: 0, failures }
    }

    fn lines(&mut self, input: impl io::Read) -> Result<(), Box<dyn Error>> {
        let mut input = BufReader::with_capacity(MAX_MESSAGE_BYTES, input);
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let most = MAX_MESSAGE_BYTES as u64 + 2;
            if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.len() > MAX_MESSAGE_BYTES {
                // What was read before is not held back by it.
                self.send()?;
                return Err(format!("line {number} has more than {MAX_MESSAGE_BYTES} bytes").into());
            }
            if !text.is_empty() {
                self.add(text)?;
            }
            if !input.buffer().contains(&b'\n') {
                self.send()?;
            }
        }
    }

    fn add(&mut self, payload: &[u8]) -> Result<(), Box<dyn Error>> {
        let bytes = payload.len() + self.described.bytes();
        if self.batch.len() == MAX_BATCH_ITEMS || self.bytes + bytes > MAX_BATCH_BYTES {
            self.send()?;
        }
        self.batch.push(self.described.message(payload));
        self.bytes += bytes;
        Ok(())
    }

    /// Sends what there is, and tells what became of it.
    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = BTreeMap::from([("messages", std::mem::take(&mut self.batch))]);
        self.bytes = 0;
        let published: Published = self.client.publish(self.topic, &batch)?;
        let first = self.sent + 1;
        self.sent += published.items.len() as u64;
        if self.output == Format::Table {
            lines(listed(&published.items).into_iter().skip(usize::from(first > 1)))?;
        } else {
            self.output.write(&published.items)?;
        }
        for (number, item) in (first..).zip(&published.items) {
            if let Some(Item { error: Some(error), .. }) = read(item) {
                self.failures.tell(&format!("message {number}"), &error);
            }
        }
        Ok(())
    }
}

fn listed(items: &[Raw]) -> Vec<String> {
    let items = items.iter().filter_map(|item| read::<Item>(item));
    let rows: Vec<_> = items
        .filter_map(|it| {
            let duplicate = if it.duplicate { "duplicate" } else { "" };
            Some([it.id?, it.sequence?.to_string(), duplicate.to_owned()])
        })
        .collect();
    table::lines(["message", "sequence", ""], &rows)
}
