//! What the broker has answered, and what therefore must hold after any number of kills.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The broker's clock is the wall clock at its start, cut to the millisecond, and a monotonic one from then on: it may
/// lag a little behind ours.
const CLOCKS_DIFFER: u64 = 5;

/// One per test; shared by all producers and consumers.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Published messages by id.
    pub(crate) messages: BTreeMap<String, Known>,
    /// Payloads whose publish was not answered.
    pub(crate) unanswered: BTreeSet<String>,
    /// Leases that consumers keep over a kill.
    pub(crate) held: Vec<Held>,
    /// Receipts of attempts that were settled.
    pub(crate) spent: Vec<Held>,
    pub(crate) acks: usize,
    pub(crate) nacks: usize,
}

#[derive(Default, Debug)]
pub(crate) struct Known {
    payload: String,
    /// Its publish was answered.
    answered: bool,
    /// The last attempt that a consumer got.
    attempt: u64,
    /// Nacks that were answered.
    nacks: u64,
    /// Not to be delivered before, in milliseconds since 1970.
    not_before: u64,
    pub(crate) acked: bool,
    /// An ack was sent whose answer was lost.
    pub(crate) may_be_acked: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) receipt: String,
    pub(crate) attempt: u64,
    pub(crate) until: u64,
}

pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_millis()).expect("a moment fits")
}

pub(crate) fn millis(moment: &Value) -> u64 {
    let time = humantime::parse_rfc3339(moment.as_str().expect("a moment is a text")).expect("RFC 3339");
    u64::try_from(time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("a moment fits")
}

impl Ledger {
    /// A publish was answered. `before` is when it was sent.
    pub(crate) fn published(&mut self, id: &str, payload: String, before: u64, delay: u64) {
        // A consumer may have been faster than the answer.
        let known = self.messages.entry(id.to_owned()).or_default();
        assert!(known.payload.is_empty() || known.payload == payload, "{id} was given twice");
        known.payload = payload;
        known.answered = true;
        known.not_before = known.not_before.max(before + delay);
    }

    /// A delivery arrived.
    pub(crate) fn granted(&mut self, delivery: &Value) -> Held {
        let arrived = now();
        let id = delivery["message"]["id"].as_str().expect("an id").to_owned();
        let payload = delivery["message"]["payload"].as_str().expect("a payload").to_owned();
        let attempt = delivery["attempt"].as_u64().expect("an attempt");
        let failures = delivery["failures"].as_u64().expect("failures");
        let known = self.messages.entry(id.clone()).or_default();
        assert!(known.payload.is_empty() || known.payload == payload, "{id} holds {payload}, not {known:?}");
        known.payload = payload;
        assert!(!known.acked, "{id} was acked and came back as attempt {attempt}");
        assert!(attempt > known.attempt, "{id}: attempt {attempt} after {known:?}");
        assert!(failures >= known.nacks && failures < attempt, "{id}: {failures} failures, {known:?}");
        assert!(
            arrived + CLOCKS_DIFFER >= known.not_before,
            "{id} came at {arrived}, it is due later: {known:?}"
        );
        known.attempt = attempt;
        let receipt = delivery["receipt"].as_str().expect("a receipt").to_owned();
        Held { id, receipt, attempt, until: millis(&delivery["lease_until"]) }
    }

    /// An ack was answered, or (`None`) was not.
    pub(crate) fn acked(&mut self, held: &Held, item: Option<&Value>) {
        let known = self.messages.entry(held.id.clone()).or_default();
        match item {
            None => known.may_be_acked = true,
            Some(item) if item["status"] == "acked" => {
                assert!(!known.acked, "{held:?} was acked twice: {item}");
                assert_eq!(known.attempt, held.attempt, "an old receipt acked: {item}");
                known.acked = true;
                known.may_be_acked = false;
                self.acks += 1;
                self.spent.push(held.clone());
            }
            Some(item) => {
                assert!(held.until <= now() + CLOCKS_DIFFER, "{held:?}: {item}");
                known.may_be_acked = false;
            }
        }
    }

    /// A nack was answered.
    pub(crate) fn nacked(&mut self, held: &Held, item: &Value) {
        let known = self.messages.entry(held.id.clone()).or_default();
        let decision = &item["decision"];
        if decision.is_null() {
            assert!(held.until <= now(), "{held:?}: {item}");
            return;
        }
        assert_eq!(decision["action"], "retry", "{held:?}: {item}");
        known.nacks += 1;
        if known.attempt == held.attempt {
            known.not_before = millis(&decision["next_attempt_at"]);
        }
        self.nacks += 1;
        self.spent.push(held.clone());
    }

    /// In the end: everything that was accepted was acked, and nothing else was there.
    pub(crate) fn all_acked(&self) {
        for (id, known) in &self.messages {
            assert!(known.acked || known.may_be_acked, "{id} was never acked: {known:?}");
            let sent = known.answered || self.unanswered.contains(&known.payload);
            assert!(sent, "{id} was never published: {known:?}");
        }
        let mut payloads = BTreeSet::new();
        for known in self.messages.values() {
            assert!(
                payloads.insert(&known.payload),
                "{} was published once and is there twice",
                known.payload
            );
        }
    }
}
