//! `broker message explain`: why a message is where it is, and what happens next, in plain words.

use std::error::Error;
use std::process::ExitCode;

use serde_json::Value;

use super::connection::{Connection, Format, lines};
use super::policy::{decision, text};
use crate::domain::id::MessageId;
use crate::domain::limits::MAX_HISTORY;

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
    /// Tells why a message is where it is, and what happens next.
    Explain {
        /// The id that publish and pull gave.
        #[arg(value_parser = message_id)]
        id: String,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Command::Explain { id } = &arguments.command;
    let client = arguments.connection.open()?;
    let message: Value = client.get(&format!("/v1/messages/{id}"))?;
    if arguments.output != Format::Table {
        arguments.output.write(&message)?;
        return Ok(ExitCode::SUCCESS);
    }
    lines([format!(
        "Message {} was published to {} at {}.",
        text(&message["id"]),
        text(&message["topic"]),
        text(&message["published_at"]),
    )])?;
    let deliveries = message["deliveries"].as_array().cloned().unwrap_or_default();
    if deliveries.is_empty() {
        lines(["No subscription gets it.".to_owned()])?;
    }
    for delivery in &deliveries {
        let name = text(&delivery["subscription"]);
        // It may have been deleted meanwhile.
        let subscription: Value = client.get(&format!("/v1/subscriptions/{name}")).unwrap_or_default();
        let told = explain(delivery, &subscription);
        lines([String::new(), format!("On {name}:")])?;
        lines(told.into_iter().map(|line| format!("  {line}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An id is named in the path of a request.
fn message_id(id: &str) -> Result<String, &'static str> {
    MessageId::parse(id).map(|id| id.to_string()).map_err(|_| "a message id is what publish and pull gave")
}

/// What happened to it on a subscription, how it stands, and what is next.
fn explain(delivery: &Value, subscription: &Value) -> Vec<String> {
    let mut told: Vec<String> = earlier(&delivery["timeline"]).into_iter().collect();
    told.extend(delivery["timeline"]["history"].as_array().into_iter().flatten().map(attempt));
    let held_up = waits_for(delivery, subscription);
    told.extend(stands(delivery, held_up.is_some()));
    told.extend(held_up);
    told
}

/// Says so where the history does not go back to the beginning.
fn earlier(timeline: &Value) -> Option<String> {
    let shown = timeline["history"].as_array().map_or(0, Vec::len);
    let all = timeline["attempts"].as_u64()? + timeline["previous_attempts"].as_u64()?;
    (shown >= MAX_HISTORY && all > shown as u64)
        .then(|| format!("It was delivered {all} times. The last {shown} bad endings were:"))
}

pub(super) fn attempt(past: &Value) -> String {
    let number = past["attempt"].as_u64().unwrap_or(0);
    let life = match past["replay"].as_u64() {
        None | Some(0) => String::new(),
        Some(replay) => format!(" of replay {replay}"),
    };
    let ended = |how: &str| format!("attempt {number}{life} {how}");
    let failed = match text(&past["cause"]).as_str() {
        "nacked" => ended("was nacked"),
        "lease_expired" => ended("ended when its lease ran out: the consumer never answered"),
        "disconnected" => ended("ended when its consumer vanished"),
        "released" => ended("was given back without fault"),
        "message_expired" => format!("its time to live ran out before attempt {}{life}", number + 1),
        _ => ended("ended"),
    };
    let mut what = [("class", "as"), ("code", "with code"), ("detail", "saying")]
        .iter()
        .filter(|(field, _)| !text(&past[*field]).is_empty())
        .map(|(field, word)| format!(" {word} {:?}", text(&past[*field])))
        .collect::<String>();
    if past["retry_after"].is_string() {
        what.push_str(&format!(", asking to wait {}", text(&past["retry_after"])));
    }
    let decided = &past["decision"];
    // Who decided is said in words here.
    let mut bare = decided.clone();
    bare["decided_by"].take();
    let who = match text(&decided["decided_by"]).as_str() {
        "policy" => format!("revision {} decided", text(&decided["revision"])),
        "fallback" => format!(
            "revision {} broke ({}), so the fallback decided",
            text(&decided["revision"]),
            text(&decided["fault"]["detail"])
        ),
        _ => "the limit of attempts decided".to_owned(),
    };
    let mut line = format!("{}: {failed}{what}; {who}: {}", text(&past["ended_at"]), decision(&bare));
    if decided["clamped_from"].is_string() {
        line.push_str(&format!(
            " (it asked for {}, beyond the subscription's bounds)",
            text(&decided["clamped_from"])
        ));
    }
    if decided["pause"].is_object() {
        line.push_str(&format!(
            "; it paused the subscription for {}: {}",
            text(&decided["pause"]["duration"]),
            text(&decided["pause"]["reason"])
        ));
    }
    if decided["note"].is_string() {
        line.push_str(&format!("; note: {}", text(&decided["note"])));
    }
    line.push('.');
    line
}

fn stands(delivery: &Value, held_up: bool) -> Option<String> {
    let until = text(&delivery["until"]);
    let attempts = delivery["timeline"]["attempts"].as_u64().unwrap_or(0);
    let replayed = delivery["timeline"]["replays"].as_u64().is_some_and(|replays| replays > 0);
    let so_far = if replayed { "It was replayed" } else { "It has not been delivered yet" };
    Some(match text(&delivery["state"]).as_str() {
        "ready" if attempts == 0 && held_up => format!("{so_far}."),
        "ready" if attempts == 0 => format!("{so_far} and can be pulled."),
        "ready" if held_up => format!("It waits for attempt {}.", attempts + 1),
        "ready" => format!("It can be pulled for attempt {}.", attempts + 1),
        "delayed" if attempts == 0 && replayed => format!("{so_far} and waits until {until}."),
        "delayed" if attempts == 0 => format!("It waits until {until}, as its publisher asked."),
        "delayed" => format!("It waits until {until} for attempt {}.", attempts + 1),
        "leased" => {
            format!("A consumer holds it in attempt {attempts}, until {until} unless it asks for longer.")
        }
        "deciding" => "The policy is being asked about it.".to_owned(),
        "acked" => "It is done: a consumer acked it.".to_owned(),
        "dropped" => "It is over: a decision dropped it.".to_owned(),
        "forwarded" => "It is over here: a decision forwarded it.".to_owned(),
        "discarded" => "It is over: its dead letter was discarded.".to_owned(),
        "not_subscribed" => "The subscription began after it was published, and does not get it.".to_owned(),
        "dead_lettered" => {
            let letter = &delivery["dead_letter"];
            let place = letter["queue"].as_str().unwrap_or("the default queue");
            format!(
                "It is a dead letter in {place} since {}: {}. It stays there until it is replayed or discarded: id {}.",
                text(&letter["at"]),
                text(&letter["reason"]),
                text(&letter["id"])
            )
        }
        _ => return None,
    })
}

/// What keeps a delivery from going out that otherwise could.
fn waits_for(delivery: &Value, subscription: &Value) -> Option<String> {
    if !matches!(delivery["state"].as_str(), Some("ready" | "delayed")) {
        return None;
    }
    let circuit = &subscription["circuit"];
    match circuit["state"].as_str() {
        Some("open") => Some(format!(
            "The subscription is paused by its policy until {}: {}. Then it goes on with at most {} at a time, until one is acked.",
            text(&circuit["until"]),
            text(&circuit["reason"]),
            text(&circuit["probes"]),
        )),
        Some("half_open") => Some(format!(
            "The subscription was paused ({}) and goes on with at most {} at a time, until one is acked.",
            text(&circuit["reason"]),
            text(&circuit["probes"]),
        )),
        _ => {
            let (held, most) = (subscription["in_flight"].as_u64()?, subscription["max_in_flight"].as_u64()?);
            (held >= most).then(|| {
                format!("All leases of the subscription are taken ({held} of {most}): it waits for one.")
            })
        }
    }
}
