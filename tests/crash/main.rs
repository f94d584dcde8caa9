//! `kill -9` of the real binary under load, over and over on the same folder.
//!
//! [`ledger`] keeps what was answered and checks every delivery against it. The broker is killed after a random number
//! of answers, so that no moment is spared. `CRASH_KILLS` sets how often, `CRASH_SEED` where chance begins.
//!
//! [`policies`] does the same to uploads, rollbacks, quarantines and backtests; [`lineage`] is its ledger.

#[path = "../support/guests.rs"]
#[allow(dead_code, unused_imports, reason = "it writes more kinds of guests than are needed here")]
mod guests;
mod ledger;
mod lineage;
mod policies;
mod process;
mod work;

use std::sync::{Mutex, PoisonError, mpsc};

use ledger::Ledger;
use process::Broker;
use serde_json::json;
use work::{Random, Shared, consume, produce, settle_held};

/// Kills of an ordinary run.
const KILLS: u64 = 30;
/// Pulls of a second that bring nothing before the last drain gives up: longer than any lease, delay and decision.
const EMPTY_PULLS: usize = 15;

/// What the environment sets.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

/// Lets producers and consumers work until so many answers have come, then kills the broker under them.
fn work_and_kill(broker: &mut Broker, ledger: &Mutex<Ledger>, random: &mut Random) {
    let (answers, came) = mpsc::channel();
    let client = broker.client.clone();
    let mut seed = || Random(random.below(u64::MAX));
    let seeds = [seed(), seed(), seed(), seed(), seed()];
    let after = 1 + random.below(150);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (n, random) in seeds.into_iter().enumerate() {
            let shared = Shared { client: &client, ledger, answers: answers.clone() };
            workers.push(scope.spawn(move || {
                // It ends with the broker.
                _ = if n < 2 { produce(&shared, random) } else { consume(&shared, random) };
            }));
        }
        drop(answers);
        // Fewer come only if the workers have failed, which joining them tells.
        _ = came.iter().take(after as usize).count();
        broker.kill();
    });
}

/// Everything that was answered before a kill holds after it: publishes are there, acked messages stay away, attempts
/// go on counting, delays keep their due time, and running leases their receipts.
#[test]
fn what_was_answered_survives_every_kill() {
    let mut random = Random(number("CRASH_SEED").unwrap_or(1));
    let mut broker = Broker::start();
    let ledger = Mutex::new(Ledger::default());
    broker.client.put("topics/t", &json!({})).expect("it runs");
    let retry = json!({ "delay": "200ms", "backoff": "fixed", "max_attempts": 100_000 });
    let settings = json!({ "topic": "t", "lease": "5s", "start": "earliest", "retry": retry });
    broker.client.put("subscriptions/s", &settings).expect("it runs");
    for _ in 0..number("CRASH_KILLS").unwrap_or(KILLS) {
        work_and_kill(&mut broker, &ledger, &mut random);
        broker.start_again();
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        settle_held(&broker.client, &mut ledger);
        look_at_some(&broker, &ledger, &mut random);
        ack_with_spent(&broker, &ledger, &mut random);
    }
    let mut ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    drain(&broker, &mut ledger);
    ledger.all_acked();
    assert!(ledger.acks > 0 && ledger.nacks > 0, "no work was done");
}

/// A few messages that were published and not acked are still there and open.
fn look_at_some(broker: &Broker, ledger: &Ledger, random: &mut Random) {
    let open: Vec<_> =
        ledger.messages.iter().filter(|(_, known)| !known.acked && !known.may_be_acked).collect();
    for _ in 0..5.min(open.len()) {
        let (id, known) = open[random.below(open.len() as u64) as usize];
        let message = broker.client.get(&format!("messages/{id}")).expect("it runs");
        let state = message["deliveries"][0]["state"].as_str().expect("a state");
        assert!(["ready", "delayed", "leased", "deciding"].contains(&state), "{id} is {state}: {known:?}");
    }
}

/// A receipt that was settled before the kill is stale after it.
fn ack_with_spent(broker: &Broker, ledger: &Ledger, random: &mut Random) {
    for _ in 0..5.min(ledger.spent.len()) {
        let held = &ledger.spent[random.below(ledger.spent.len() as u64) as usize];
        let ack = json!({ "receipts": [held.receipt] });
        let answer = broker.client.post("subscriptions/s/ack", &ack).expect("it runs");
        assert_eq!(answer["items"][0]["error"]["code"], "stale_receipt", "{held:?}: {answer}");
    }
}

/// Acks all that is left. Leases that nobody knows of have to run out first.
fn drain(broker: &Broker, ledger: &mut Ledger) {
    let mut empty = 0;
    while empty < EMPTY_PULLS {
        let pull = json!({ "max": 500, "wait": "1s" });
        let answer = broker.client.post("subscriptions/s/pull", &pull).expect("it runs");
        let deliveries = answer["deliveries"].as_array().expect("deliveries");
        let granted: Vec<_> = deliveries.iter().map(|delivery| ledger.granted(delivery)).collect();
        if granted.is_empty() {
            let subscription = broker.client.get("subscriptions/s").expect("it runs");
            if subscription["backlog"] == 0 {
                assert_eq!(subscription["dead_letters"], 0, "{subscription}");
                return;
            }
            empty += 1;
            continue;
        }
        empty = 0;
        let receipts: Vec<_> = granted.iter().map(|held| held.receipt.as_str()).collect();
        let acked =
            broker.client.post("subscriptions/s/ack", &json!({ "receipts": receipts })).expect("it runs");
        for (held, item) in granted.iter().zip(acked["items"].as_array().expect("items")) {
            ledger.acked(held, Some(item));
        }
    }
    panic!("something never ends: {}", broker.client.get("subscriptions/s").expect("it runs"));
}
