//! Whether every order ended where it should: the broker is asked about each message.

use std::time::{Duration, SystemTime};

use super::expectation::{self, End};
use super::{Entry, SUBSCRIPTION};
use crate::cli::answers::{Attempt, MessageView, Standing};
use crate::cli::client::{Client, ClientError};

/// What the broker says about all messages.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Orders that ended where they should.
    pub(super) right: usize,
    /// Acked at the first attempt, and later.
    pub(super) acked_at_once: usize,
    pub(super) acked_later: usize,
    /// Failures that were decided on.
    pub(super) decisions: usize,
    /// What is not as it should be.
    pub(super) complaints: Vec<String>,
}

/// Asks about every message.
///
/// # Errors
/// If the broker does not answer.
pub(super) fn check(client: &Client, entries: &[Entry]) -> Result<Findings, ClientError> {
    let mut findings = Findings::default();
    for entry in entries {
        let view: MessageView = client.get(&format!("/v1/messages/{}", entry.message))?;
        let standing = view.deliveries.iter().find(|standing| standing.subscription == SUBSCRIPTION);
        match standing {
            Some(standing) => findings.add(entry, standing),
            None => findings.complaints.push(format!("{}: the broker has lost it", entry.order.id)),
        }
    }
    Ok(findings)
}

impl Findings {
    fn add(&mut self, entry: &Entry, standing: &Standing) {
        let id = &entry.order.id;
        let (expected, found) = (place(expectation::of(&entry.order.script())), found(standing));
        if expected == found {
            self.right += 1;
        } else {
            self.complaints.push(format!("{id} should have ended as {expected}, but is {found}"));
        }
        let history = standing.timeline.as_ref().map_or(&[][..], |timeline| &timeline.history);
        match (found.as_str(), history) {
            (ACKED, []) => self.acked_at_once += 1,
            (ACKED, _) => self.acked_later += 1,
            _ => {}
        }
        self.decisions += history.len();
        for attempt in history.iter().filter(|attempt| attempt.decision.decided_by != "policy") {
            let by = &attempt.decision.decided_by;
            self.complaints.push(format!("{id}, attempt {}: decided by the {by}", attempt.attempt));
        }
        for early in history.windows(2).filter(|pair| came_early(&pair[0], &pair[1])) {
            self.complaints.push(format!("{id}, attempt {}: before its delay was over", early[1].attempt));
        }
    }
}

const ACKED: &str = "acked";

fn place(end: End) -> String {
    match end {
        End::Acked => ACKED.to_owned(),
        End::DeadLettered(queue) => in_queue(&format!("{SUBSCRIPTION}/{queue}")),
    }
}

fn found(standing: &Standing) -> String {
    match standing.dead_letter.as_ref().and_then(|letter| letter.queue.as_deref()) {
        Some(queue) => in_queue(queue),
        None => standing.state.clone(),
    }
}

fn in_queue(queue: &str) -> String {
    format!("a dead letter in {queue}")
}

/// Whether an attempt began before the delay after the one before was over.
fn came_early(before: &Attempt, after: &Attempt) -> bool {
    let delay = before.decision.delay.as_deref().and_then(|delay| humantime::parse_duration(delay).ok());
    let ended = humantime::parse_rfc3339(&before.ended_at).ok();
    let leased = after.leased_at.as_deref().and_then(|at| humantime::parse_rfc3339(at).ok());
    match (ended, leased, delay) {
        (Some(ended), Some(leased), Some(delay)) => span(ended, leased) < delay,
        _ => true,
    }
}

/// From one moment to a later one; zero if it is not later.
pub(super) fn span(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}
