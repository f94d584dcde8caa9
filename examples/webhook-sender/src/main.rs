//! The program `webhook-sender`; see the README beside it.

use std::fs;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use webhook_sender::{Broker, SenderError, Setup, Target, deliver, read};

/// How long an endpoint has for its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the timeout, so that no webhook comes again while its POST is still under way.
const LEASE: Duration = Duration::from_secs(30);

/// Publishes webhooks to a Reprise broker and delivers them to an endpoint.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The webhooks, one a line: {"event": name, "payload": {...}}.
    file: PathBuf,
    /// Where they are POSTed to (http).
    #[arg(long, value_name = "URL")]
    target: String,
    /// The retry policy, a wasm module.
    #[arg(long, value_name = "WASM")]
    policy: PathBuf,
    /// Parameters of the policy, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    params: String,
    /// The broker.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7070")]
    broker: String,
    /// The broker's token, unless it runs with --no-auth.
    #[arg(long, env = "BROKER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The topic.
    #[arg(long, default_value = "webhooks")]
    topic: String,
    /// The subscription.
    #[arg(long, default_value = "webhook-sender")]
    subscription: String,
    /// POSTs at a time.
    #[arg(long, default_value = "8")]
    workers: NonZeroUsize,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(io::stderr(), "webhook-sender: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let webhooks = read(&arguments.file)?;
    let policy = fs::read(&arguments.policy)
        .map_err(|error| SenderError::File(arguments.policy.display().to_string(), error))?;
    let broker = Broker::new(&arguments.broker, arguments.token.clone())?;
    let target = Target::new(&arguments.target, TIMEOUT)?;
    let Arguments { topic, subscription, params, workers, .. } = arguments;
    broker.prepare(Setup { topic, subscription, lease: LEASE, policy: &policy, params })?;
    let ids = broker.publish(topic, &webhooks)?;
    let mut out = io::stdout();
    writeln!(out, "published   {:>5}   to {topic}", ids.len())?;
    let summary = deliver(&broker, subscription, &target, *workers)?;
    writeln!(out, "delivered   {:>5}   to {}", summary.delivered, arguments.target)?;
    for (class, count) in &summary.failed {
        writeln!(out, "  failed    {count:>5}   {class}")?;
    }
    for (queue, count) in broker.dead_letters(subscription)? {
        writeln!(out, "given up    {count:>5}   {queue}")?;
    }
    Ok(())
}
