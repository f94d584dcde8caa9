//! The settings of a subscription as options, each named as the API names it.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::super::given::{duration, name, object, point};
use super::super::shown::Raw;

/// What is fixed when a subscription is created.
#[derive(clap::Args, Serialize, Debug)]
#[command(next_help_heading = "Settings that stay")]
pub(super) struct Fixed {
    /// The topic that it reads.
    #[arg(long, value_parser = name, conflicts_with = "topic_pattern")]
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    /// The topics that it reads, those to come included, such as "orders.*" or "orders.>".
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_pattern: Option<String>,
    /// What a delivery is: under a lease, settled as it is handed out, or for who is connected.
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// Where it begins: earliest, latest, a sequence, or a moment such as 2026-01-31T12:00:00Z.
    #[arg(long, value_parser = point)]
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Value>,
    /// Which messages it gets, such as 'region ^= eu- and size >= 10'.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// Whether messages of a key go out one at a time, in their order.
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering: Option<Ordering>,
}

#[derive(ValueEnum, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Mode {
    Acked,
    AutoAcked,
    Live,
}

#[derive(ValueEnum, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
enum Ordering {
    None,
    Key,
}

/// What can be changed.
#[derive(clap::Args, Serialize, Debug)]
#[command(next_help_heading = "Settings")]
pub(super) struct Settings {
    /// How long a consumer has, such as 30s.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    /// How long one attempt can hold a delivery, extensions included.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_lease: Option<String>,
    /// Leases at a time.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight: Option<u32>,
    /// Leases at a time of one consumer that gives its name; 0 is no bound of its own.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight_per_consumer: Option<u32>,
    /// Deliveries in a second; 0 is no bound.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rate: Option<u32>,
    /// How long after its publish a message becomes available.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_delay: Option<String>,
    /// Parameters of the standard policy, as a JSON object.
    #[arg(long, value_parser = object, value_name = "JSON")]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Raw>,
    /// The shortest delay that a policy can choose.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_delay: Option<String>,
    /// The longest delay that a policy can choose.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delay: Option<String>,
    /// Attempts after which a delivery is given up without asking the policy.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_limit: Option<u32>,
    /// The delay after a fault of the policy, doubled for each one in a row.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback_delay: Option<String>,
    /// Faults in a row that put the policy out of service.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    fault_limit: Option<u32>,
    /// A topic that the policy may forward to. Can be repeated.
    #[arg(long, value_parser = name, value_name = "TOPIC")]
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_to: Option<Vec<String>>,
    /// Whether the policy is shown payloads.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    inspect_payload: Option<bool>,
    /// Decided failures that are kept with what the policy was shown.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    record_failures: Option<u32>,
    /// How long they are kept.
    #[arg(long, value_parser = duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    record_for: Option<String>,
}
