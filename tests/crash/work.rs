//! Producers and consumers that work until the broker is gone, and say so at each answer.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::ledger::{Ledger, now};
use super::process::{Client, Gone};

/// What all workers share.
pub(crate) struct Shared<'a> {
    pub(crate) client: &'a Client,
    pub(crate) ledger: &'a Mutex<Ledger>,
    /// A word for each answer; the test kills the broker after so many.
    pub(crate) answers: Sender<()>,
}

impl Shared<'_> {
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self) -> Result<(), Gone> {
        self.answers.send(()).map_err(|_| Gone)
    }
}

/// SplitMix64: each worker has its own.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

pub(crate) fn produce(shared: &Shared<'_>, mut random: Random) -> Result<(), Gone> {
    loop {
        let mut batch = Vec::new();
        let mut messages = Vec::new();
        for _ in 0..=random.below(5) {
            let payload = format!("{:016x}", random.below(u64::MAX));
            let delay = if random.below(4) == 0 { random.below(600) } else { 0 };
            messages.push(json!({ "payload": payload, "delay": format!("{delay}ms") }));
            batch.push((payload, delay));
        }
        let before = now();
        shared.ledger().unanswered.extend(batch.iter().map(|(payload, _)| payload.clone()));
        let answer = shared.client.post("topics/t/messages", &json!({ "messages": messages }))?;
        let mut ledger = shared.ledger();
        for ((payload, delay), item) in batch.into_iter().zip(answer["items"].as_array().expect("items")) {
            ledger.unanswered.remove(&payload);
            ledger.published(item["id"].as_str().expect("an id"), payload, before, delay);
        }
        drop(ledger);
        shared.answered()?;
    }
}

pub(crate) fn consume(shared: &Shared<'_>, mut random: Random) -> Result<(), Gone> {
    loop {
        let pull = json!({ "max": 1 + random.below(8), "wait": "100ms" });
        let answer = shared.client.post("subscriptions/s/pull", &pull)?;
        let deliveries = answer["deliveries"].as_array().expect("deliveries").iter();
        let granted: Vec<_> = {
            let mut ledger = shared.ledger();
            deliveries.map(|delivery| ledger.granted(delivery)).collect()
        };
        shared.answered()?;
        for held in granted {
            match random.below(10) {
                0 => shared.ledger().held.push(held),
                1..4 => {
                    let item = json!({ "receipt": held.receipt, "class": "timeout" });
                    let answer = shared.client.post("subscriptions/s/nack", &json!({ "items": [item] }))?;
                    shared.ledger().nacked(&held, &answer["items"][0]);
                    shared.answered()?;
                }
                _ => {
                    // Noted first: the kill may come between the ack and its answer.
                    shared.ledger().acked(&held, None);
                    let answer =
                        shared.client.post("subscriptions/s/ack", &json!({ "receipts": [held.receipt] }))?;
                    shared.ledger().acked(&held, Some(&answer["items"][0]));
                    shared.answered()?;
                }
            }
        }
    }
}

/// Leases go on over a kill: the delivery stands as it did, its receipt extends and acks.
pub(crate) fn settle_held(client: &Client, ledger: &mut Ledger) {
    for held in std::mem::take(&mut ledger.held) {
        // So near its end that it may run out on the way.
        let runs_out = held.until < now() + 2_000;
        let ack = json!({ "receipts": [held.receipt] });
        let extend = json!({ "items": [{ "receipt": held.receipt, "lease": "8s" }] });
        let extended = client.post("subscriptions/s/extend", &extend).expect("it runs");
        let lease_until = &extended["items"][0]["lease_until"];
        assert!(runs_out || lease_until.is_string(), "{held:?} was lost: {extended}");
        let acked = client.post("subscriptions/s/ack", &ack).expect("it runs");
        let item: &Value = &acked["items"][0];
        assert!(runs_out || item["status"] == "acked", "{held:?} was lost: {item}");
        if item["status"] == "acked" {
            ledger.acked(&held, Some(item));
        }
    }
}
