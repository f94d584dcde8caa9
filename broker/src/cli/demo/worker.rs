//! A consumer of the demo: pulls one order, asks the provider to charge it, and tells the broker how it went.
//!
//! It takes no decision: whether and when there is another attempt is the policy's business.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use serde_json::json;

use super::order::{Order, Reply};
use crate::cli::answers::{Decision, Delivery, ItemError, Pulled, Settled, SettledItem};
use crate::cli::client::{Client, ClientError};

/// How long a pull waits: after it the worker looks whether it should end.
const WAIT: &str = "500ms";
/// When the provider takes the next call after too many.
const RETRY_AFTER: &str = "700ms";

/// What a worker did.
#[derive(Debug)]
pub(super) enum Event {
    /// It was charged.
    Acked(Attempted),
    /// It was not, and the broker decided what comes next.
    Nacked(Attempted, Failed, Decision),
    /// The worker is gone, with the lease in its hands.
    Died(Attempted),
    /// The lease had ended before the worker was done.
    Late(Attempted, ItemError),
    /// The broker cannot be reached, or speaks otherwise than it should.
    Broke(String),
}

/// An attempt at an order.
#[derive(Clone, Debug)]
pub(super) struct Attempted {
    pub(super) message: String,
    pub(super) attempt: u32,
}

/// How the worker described a failure.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) class: &'static str,
    pub(super) detail: String,
    retry_after: Option<&'static str>,
}

impl Failed {
    fn new(class: &'static str, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into(), retry_after: None }
    }
}

/// Works until it is told to stop, or dies.
pub(super) fn work(client: &Client, subscription: &str, stop: &AtomicBool, events: &Sender<Event>) {
    while !stop.load(Ordering::Acquire) {
        let event = match one(client, subscription) {
            Ok(None) => continue,
            Ok(Some(event)) => event,
            Err(error) => Event::Broke(error.to_string()),
        };
        let last = matches!(event, Event::Died(_) | Event::Broke(_));
        if events.send(event).is_err() || last {
            return;
        }
    }
}

/// One order, or none where there is nothing to do.
fn one(client: &Client, subscription: &str) -> Result<Option<Event>, ClientError> {
    let pull = json!({"max": 1, "wait": WAIT});
    let pulled: Pulled = client.post(&format!("/v1/subscriptions/{subscription}/pull"), &pull)?;
    let Some(Delivery { receipt, attempt, message }) = pulled.deliveries.into_iter().next() else {
        return Ok(None);
    };
    let attempted = Attempted { message: message.id, attempt };
    let reply = match message.payload.as_ref().map(|payload| serde_json::from_str::<Order>(payload.get())) {
        Some(Ok(order)) => order.script().reply(attempt).clone(),
        Some(Err(error)) => Reply::Invalid(error.to_string()),
        None => Reply::Invalid("not JSON".to_owned()),
    };
    let failed = match reply {
        Reply::Crash => return Ok(Some(Event::Died(attempted))),
        Reply::Charged => None,
        Reply::Timeout => Some(Failed::new("timeout", "no answer from the provider within 3s")),
        Reply::Invalid(mistake) => Some(Failed::new("validation", mistake)),
        Reply::RateLimited => Some(Failed {
            retry_after: Some(RETRY_AFTER),
            ..Failed::new("rate_limited", "too many calls, come back in 700ms")
        }),
    };
    let (verb, body) = match &failed {
        None => ("ack", json!({"receipts": [receipt]})),
        Some(Failed { class, detail, retry_after }) => {
            let item =
                json!({"receipt": receipt, "class": class, "detail": detail, "retry_after": retry_after});
            ("nack", json!({"items": [item]}))
        }
    };
    let settled: Settled = client.post(&format!("/v1/subscriptions/{subscription}/{verb}"), &body)?;
    let settled = settled.items.into_iter().next();
    Ok(Some(match (settled, failed) {
        (Some(SettledItem { error: Some(error), .. }), _) => Event::Late(attempted, error),
        (Some(SettledItem { decision: Some(decision), .. }), Some(failed)) => {
            Event::Nacked(attempted, failed, decision)
        }
        (Some(_), None) => Event::Acked(attempted),
        _ => Event::Broke("the broker's answer lacks a decision".to_owned()),
    }))
}
