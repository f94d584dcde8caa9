//! `broker demo`: the whole of Reprise in one command.
//!
//! A broker of its own, the orders policy compiled from its source, real orders, workers, a payment provider that
//! fails in every way there is, and a check of where each order ended. Start reading at [`run`].

mod check;
mod expectation;
mod order;
mod stage;
mod story;
mod worker;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, Value};

use self::expectation::End;
use self::order::Order;
use self::stage::Stage;
use self::story::Story;
use self::worker::{Attempted, Event};
use super::answers::{Attempt, MessageView, Published, Standing};
use super::client::{Client, Module};
use super::compile::{CompileError, Source, compile};
use super::interrupt::Interrupt;

const TOPIC: &str = "orders";
const SUBSCRIPTION: &str = "payments";
/// Short, so that a worker that is gone is noticed soon.
const LEASE: &str = "2s";
const WORKERS: usize = 3;
/// How often to look for signals, and for leases that ran out.
const PULSE: Duration = Duration::from_millis(100);
/// No schedule of the orders policy takes half as long.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// A compiled policy to use instead of the orders policy. Where it decides otherwise, the check at the end says
    /// so and fails.
    #[arg(long, value_name = "WASM")]
    policy: Option<PathBuf>,
    /// Parameters of the policy, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    params: String,
}

/// An order and the message that carries it.
#[derive(Debug)]
struct Entry {
    order: Order,
    message: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let mut story = Story::new();
    story.heading("Reprise: a message broker whose retry policies are programs")?;
    let (module, from) = module(arguments, &interrupt)?;
    let stage = Stage::set()?;
    let client = Client::new(stage.url(), None)?;
    story.fact("broker", &format!("{}, on a temporary folder", stage.url()))?;
    let _: Value = client.put(&format!("/v1/topics/{TOPIC}"), &json!({}))?;
    let settings = json!({"topic": TOPIC, "lease": LEASE});
    let _: Value = client.put(&format!("/v1/subscriptions/{SUBSCRIPTION}"), &settings)?;
    let module = Module { bytes: module, params: arguments.params.clone() };
    let uploaded = client.put_module(&format!("/v1/subscriptions/{SUBSCRIPTION}/policy"), module)?;
    story.policy(&uploaded, &from)?;
    let entries = publish(&client, &story)?;
    story.begin(entries.len())?;
    Run::new(&client, &entries).until_all_ended(&mut story, &interrupt)?;

    let findings = check::check(&client, &entries)?;
    let letters = client.list(&format!("/v1/dead-letters?subscription={SUBSCRIPTION}"))?;
    story.summary(&findings, &letters)?;
    if let Some(entry) = entries.iter().find(|entry| is_quarantined(entry)) {
        let standing = standing(&client, &entry.message)?;
        let history = standing.timeline.map(|timeline| timeline.history).unwrap_or_default();
        story.timeline(entry, &history, &standing.state)?;
    }
    story.verdict(&findings, entries.len())?;
    interrupt.check()?;
    Ok(if findings.complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The policy's bytes, and where they are from.
fn module(arguments: &Arguments, interrupt: &Interrupt) -> Result<(Vec<u8>, String), Box<dyn Error>> {
    if let Some(path) = &arguments.policy {
        let module = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok((module, format!("from {}", path.display())));
    }
    let broker = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = Source {
        workspace: broker.parent().unwrap_or(broker),
        folder: "examples/orders/policy",
        package: "policy-orders",
        library: "orders",
    };
    let began = Instant::now();
    let path = compile(source, interrupt).map_err(|error| match error {
        CompileError::Interrupted(interrupted) => interrupted.into(),
        error => Box::<dyn Error>::from(error),
    })?;
    let module = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let took = began.elapsed().as_secs_f64();
    Ok((module, format!("compiled from {} in {took:.1}s", source.folder)))
}

/// An order goes out in the bytes that it is written in.
#[derive(Serialize)]
struct NewMessage<'a> {
    payload: &'a RawValue,
    key: String,
    attributes: BTreeMap<&'static str, String>,
}

fn publish(client: &Client, story: &Story) -> Result<Vec<Entry>, Box<dyn Error>> {
    let orders = order::all()?;
    let messages = orders.iter().map(|(order, payload)| NewMessage {
        payload,
        key: order.customer.id.clone(),
        attributes: BTreeMap::from([("country", order.country().to_owned())]),
    });
    let messages: Vec<_> = messages.collect();
    let began = Instant::now();
    let published: Published =
        client.post(&format!("/v1/topics/{TOPIC}/messages"), &json!({ "messages": messages }))?;
    let took = began.elapsed().as_millis();
    let text = format!("{} published in {took}ms, durable ({})", orders.len(), published.durability);
    story.fact("orders", &text)?;
    let mut entries = Vec::with_capacity(orders.len());
    for ((order, _), item) in orders.into_iter().zip(published.items) {
        match (item.id, item.error) {
            (Some(message), _) => entries.push(Entry { order, message }),
            (None, Some(error)) => {
                return Err(format!("{}: {}: {}", order.id, error.code, error.detail).into());
            }
            (None, None) => return Err(format!("{}: neither an id nor an error", order.id).into()),
        }
    }
    Ok(entries)
}

fn is_quarantined(entry: &Entry) -> bool {
    expectation::of(&entry.order.script()) == End::DeadLettered("quarantine")
}

fn standing(client: &Client, message: &str) -> Result<Standing, Box<dyn Error>> {
    let view: MessageView = client.get(&format!("/v1/messages/{message}"))?;
    let mut standings = view.deliveries.into_iter();
    let standing = standings.find(|standing| standing.subscription == SUBSCRIPTION);
    standing.ok_or_else(|| format!("{message} is unknown to {SUBSCRIPTION}").into())
}

/// The workers, and what is known of the orders while they work.
struct Run<'a> {
    client: &'a Client,
    entries: HashMap<&'a str, &'a Entry>,
    /// Messages that have not ended.
    open: HashSet<&'a str>,
    /// Attempts whose worker is gone: how they are decided shows in the message's timeline.
    lost: BTreeMap<String, u32>,
    stop: Arc<AtomicBool>,
    reports: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Run<'a> {
    fn new(client: &'a Client, entries: &'a [Entry]) -> Self {
        let (reports, events) = channel();
        Self {
            client,
            entries: entries.iter().map(|entry| (entry.message.as_str(), entry)).collect(),
            open: entries.iter().map(|entry| entry.message.as_str()).collect(),
            lost: BTreeMap::new(),
            stop: Arc::default(),
            reports,
            events,
        }
    }

    fn until_all_ended(mut self, story: &mut Story, interrupt: &Interrupt) -> Result<(), Box<dyn Error>> {
        for _ in 0..WORKERS {
            self.hire()?;
        }
        let began = Instant::now();
        let mut looked = Instant::now();
        while !self.open.is_empty() {
            interrupt.check()?;
            match self.events.recv_timeout(PULSE) {
                Ok(event) => self.take(event, story)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("all workers are gone".into()),
            }
            if looked.elapsed() >= PULSE {
                for message in self.lost.keys().cloned().collect::<Vec<_>>() {
                    self.look_for(&message, story)?;
                }
                looked = Instant::now();
            }
            if began.elapsed() > PATIENCE {
                let open = self.open.len();
                return Err(format!("after {PATIENCE:?} {open} orders have not ended").into());
            }
        }
        Ok(())
    }

    /// Starts a worker.
    fn hire(&self) -> std::io::Result<()> {
        let (client, stop, reports) = (self.client.clone(), Arc::clone(&self.stop), self.reports.clone());
        let work = move || worker::work(&client, SUBSCRIPTION, &stop, &reports);
        std::thread::Builder::new().name("worker".to_owned()).spawn(work).map(|_| ())
    }

    fn take(&mut self, event: Event, story: &mut Story) -> Result<(), Box<dyn Error>> {
        if let Event::Acked(at) | Event::Nacked(at, ..) | Event::Died(at) | Event::Late(at, _) = &event
            && self.lost.contains_key(&at.message)
        {
            // It came again, so the attempt before is decided: first things first.
            self.look_for(&at.message, story)?;
        }
        match event {
            Event::Acked(at) => {
                story.acked(self.entry(&at)?, &at)?;
                self.open.remove(at.message.as_str());
            }
            Event::Nacked(at, failed, decision) => {
                story.nacked(self.entry(&at)?, &at, &failed, &decision)?;
                if decision.is_final() {
                    self.open.remove(at.message.as_str());
                }
            }
            Event::Died(at) => {
                story.died(self.entry(&at)?, &at)?;
                self.lost.insert(at.message, at.attempt);
                self.hire()?;
            }
            Event::Late(at, error) => {
                story.late(self.entry(&at)?, &at, &error.detail)?;
                self.lost.insert(at.message, at.attempt);
            }
            Event::Broke(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn entry(&self, at: &Attempted) -> Result<&'a Entry, String> {
        let entry = self.entries.get(at.message.as_str()).copied();
        entry.ok_or_else(|| format!("{} was never published", at.message))
    }

    /// Whether the broker has noticed that a lease ran out, and what it decided.
    fn look_for(&mut self, message: &str, story: &mut Story) -> Result<(), Box<dyn Error>> {
        let (Some(&number), Some(entry)) = (self.lost.get(message), self.entries.get(message)) else {
            return Ok(());
        };
        let history = standing(self.client, message)?.timeline.map(|timeline| timeline.history);
        let decided = |attempt: &Attempt| attempt.attempt == number;
        let Some(attempt) = history.unwrap_or_default().into_iter().find(decided) else { return Ok(()) };
        self.lost.remove(message);
        story.lease_expired(entry, &attempt)?;
        if attempt.decision.is_final() {
            self.open.remove(message);
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    /// Workers end on their own within the wait of a pull; what they still report is not read.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}
