//! The broker's answers, as far as commands read them. Fields that nobody here needs are left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of a list.
#[derive(Deserialize, Debug)]
pub(super) struct List<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

/// A publish that was accepted.
#[derive(Deserialize, Debug)]
pub(super) struct Published {
    pub(super) items: Vec<PublishedItem>,
    pub(super) durability: String,
}

#[derive(Deserialize, Debug)]
pub(super) struct PublishedItem {
    pub(super) id: Option<String>,
    pub(super) error: Option<ItemError>,
}

/// Why one item of a batch was refused.
#[derive(Deserialize, Debug)]
pub(super) struct ItemError {
    pub(super) code: String,
    pub(super) detail: String,
    #[serde(default)]
    pub(super) retryable: bool,
}

/// A policy that was taken.
#[derive(Deserialize, Debug)]
pub(super) struct Uploaded {
    pub(super) revision: u32,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) size: u64,
    pub(super) trial_fuel: u64,
}

#[derive(Deserialize, Debug)]
pub(super) struct Pulled {
    pub(super) deliveries: Vec<Delivery>,
}

#[derive(Deserialize, Debug)]
pub(super) struct Delivery {
    pub(super) receipt: String,
    pub(super) attempt: u32,
    pub(super) message: Message,
}

#[derive(Deserialize, Debug)]
pub(super) struct Message {
    pub(super) id: String,
    /// Absent where it is not JSON.
    pub(super) payload: Option<Box<RawValue>>,
}

#[derive(Deserialize, Debug)]
pub(super) struct Settled {
    pub(super) items: Vec<SettledItem>,
}

/// An ack, or a nack with its decision, or why not.
#[derive(Deserialize, Debug)]
pub(super) struct SettledItem {
    pub(super) decision: Option<Decision>,
    pub(super) error: Option<ItemError>,
}

#[derive(Deserialize, Clone, Debug)]
pub(super) struct Decision {
    pub(super) action: String,
    pub(super) delay: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) note: Option<String>,
    pub(super) decided_by: String,
    pub(super) revision: Option<u32>,
    pub(super) fuel: Option<u64>,
}

impl Decision {
    /// Whether there will be no further attempt.
    pub(super) fn is_final(&self) -> bool {
        self.action != "retry"
    }
}

/// A message and what became of it.
#[derive(Deserialize, Debug)]
pub(super) struct MessageView {
    pub(super) deliveries: Vec<Standing>,
}

/// How it stands on one subscription.
#[derive(Deserialize, Debug)]
pub(super) struct Standing {
    pub(super) subscription: String,
    pub(super) state: String,
    pub(super) dead_letter: Option<Filed>,
    pub(super) timeline: Option<Timeline>,
}

#[derive(Deserialize, Debug)]
pub(super) struct Filed {
    pub(super) queue: Option<String>,
}

#[derive(Deserialize, Debug)]
pub(super) struct Timeline {
    pub(super) history: Vec<Attempt>,
}

/// An attempt that ended badly.
#[derive(Deserialize, Clone, Debug)]
pub(super) struct Attempt {
    pub(super) attempt: u32,
    pub(super) leased_at: Option<String>,
    pub(super) ended_at: String,
    pub(super) cause: String,
    pub(super) class: String,
    pub(super) detail: Option<String>,
    pub(super) decision: Decision,
}

#[derive(Deserialize, Debug)]
pub(super) struct DeadLetter {
    pub(super) queue: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) class: Option<String>,
}
