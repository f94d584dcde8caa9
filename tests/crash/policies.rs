//! The broker is killed while policies are uploaded, rolled back, taken out of service and tried, under failures that
//! go on.

use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reprise_broker::domain::digest::Digest;
use serde_json::{Value, json};

use super::guests;
use super::lineage::{Known, Lineage};
use super::number;
use super::process::{Broker, Client, Gone};
use super::work::Random;

/// Kills of an ordinary run: each action is hit six times.
const KILLS: u64 = 24;
/// Kills of one broker: it has room for a thousand revisions.
const KILLS_OF_ONE: u64 = 60;
/// Faults in a row that take a revision out of service.
const FAULT_LIMIT: u64 = 3;
/// Revisions that are asked again in the end, at most, from either end.
const SOME: usize = 15;
const POLICY: &str = "subscriptions/s/policy";

/// What is going on when the broker is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Upload,
    Rollback,
    Quarantine,
    Backtest,
}

const ACTIONS: [Action; 4] = [Action::Upload, Action::Rollback, Action::Quarantine, Action::Backtest];

/// What the actor and the workers share.
struct Shared<'a> {
    client: &'a Client,
    lineage: &'a Mutex<Lineage>,
    /// Whose each answer was; the test kills the broker after so many.
    answers: Sender<Whose>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Actor,
    Worker,
}

impl Shared<'_> {
    fn lineage(&self) -> MutexGuard<'_, Lineage> {
        self.lineage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, whose: Whose) -> Result<(), Gone> {
        self.answers.send(whose).map_err(|_| Gone)
    }
}

/// Whatever was answered about a policy holds after a kill; what was on its way is there as a whole or not at all;
/// decisions go on, each has one record, and the active policy answers its records as it did.
#[test]
fn what_was_answered_about_policies_survives_every_kill() {
    let seed = number("CRASH_SEED").unwrap_or(1);
    let mut random = Random(seed);
    let mut kills = number("CRASH_KILLS").unwrap_or(KILLS).max(KILLS);
    while kills > 0 {
        let some = kills.min(KILLS_OF_ONE);
        one_broker(some, &mut random);
        kills -= some;
    }
}

fn one_broker(kills: u64, random: &mut Random) {
    let mut broker = Broker::start();
    broker.client.put("topics/t", &json!({})).expect("it runs");
    let settings = json!({
        "topic": "t", "lease": "2s", "fault_limit": FAULT_LIMIT, "fallback_delay": "1s", "record_failures": 100_000,
        "retry": { "delay": "5ms", "jitter": "full", "max_attempts": 100_000 },
    });
    broker.client.put("subscriptions/s", &settings).expect("it runs");
    let standard = broker.client.get(POLICY).expect("it runs");
    let lineage = Mutex::new(Lineage::of_standard(&standard));
    for kill in 0..kills {
        // Something to try a policy on, and to roll back to.
        decides(&broker.client, &mut lineage.lock().unwrap_or_else(PoisonError::into_inner));
        // The first kill of each kind comes only once the actor has had an answer: on a slow machine all could come
        // before any, and nothing would be tried.
        act_and_kill(&mut broker, &lineage, ACTIONS[(kill % 4) as usize], kill < 4, random);
        broker.start_again();
        holds(&broker.client, &mut lineage.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let lineage = lineage.into_inner().unwrap_or_else(PoisonError::into_inner);
    every_record_has_its_answer(&broker.client, &lineage);
    let Lineage { uploads, rollbacks, backtests, .. } = lineage;
    assert!(uploads > 0 && rollbacks > 0 && backtests > 0 && lineage.quarantined() > 0, "no work was done");
}

/// Acts over and over, beside workers that fail all they get, until so many answers have come; then kills the broker.
fn act_and_kill(
    broker: &mut Broker,
    lineage: &Mutex<Lineage>,
    action: Action,
    answered: bool,
    random: &mut Random,
) {
    let (answers, came) = mpsc::channel();
    let client = broker.client.clone();
    let after = 1 + random.below(100);
    let chance = Random(random.below(u64::MAX));
    std::thread::scope(|scope| {
        let shared = || Shared { client: &client, lineage, answers: answers.clone() };
        let (acting, failing, failing_too) = (shared(), shared(), shared());
        // Each ends with the broker.
        scope.spawn(move || act(&acting, action, chance));
        scope.spawn(move || fail(&failing));
        scope.spawn(move || fail(&failing_too));
        drop(answers);
        // Fewer come only if the workers have failed, which joining them tells.
        let mut acted = !answered;
        for (whose, so_many) in came.iter().zip(1..) {
            acted |= whose == Whose::Actor;
            if acted && so_many >= after {
                break;
            }
        }
        broker.kill();
    });
}

fn act(shared: &Shared<'_>, action: Action, mut random: Random) -> Result<(), Gone> {
    loop {
        match action {
            Action::Upload => drop(upload(shared, &mut random, false)?),
            Action::Rollback => rollback(shared, &mut random)?,
            Action::Quarantine => quarantine(shared, &mut random)?,
            Action::Backtest => backtest(shared, &mut random)?,
        }
        shared.answered(Whose::Actor)?;
    }
}

fn upload(shared: &Shared<'_>, random: &mut Random, broken: bool) -> Result<u64, Gone> {
    let delay = 1 + random.below(50);
    let module = if broken {
        guests::after_trial("(unreachable)")
    } else {
        guests::deciding(&guests::retry(delay)).module()
    };
    // Never the same twice, so that each is a new revision.
    let params = json!({ "n": random.below(1 << 50) });
    shared.lineage().in_flight = Some(Known {
        digest: Digest::of(&module).to_string(),
        params: params.clone(),
        delay: (!broken).then(|| format!("{delay}ms")),
        broken,
        quarantined: false,
    });
    let answer = shared.client.put_module(POLICY, module, &params)?;
    Ok(shared.lineage().uploaded(&answer))
}

fn rollback(shared: &Shared<'_>, random: &mut Random) -> Result<(), Gone> {
    let target = {
        let mut lineage = shared.lineage();
        let healthy = lineage.healthy();
        let target = healthy[random.below(healthy.len() as u64) as usize];
        lineage.active.insert(target);
        target
    };
    let answer = shared.client.post(&format!("{POLICY}/rollback"), &json!({ "revision": target }))?;
    assert_eq!((&answer["revision"], &answer["active"]), (&json!(target), &json!(true)), "{answer}");
    let mut lineage = shared.lineage();
    lineage.active = [target].into();
    lineage.rollbacks += 1;
    Ok(())
}

/// A policy that breaks decides until its faults take it out of service.
fn quarantine(shared: &Shared<'_>, random: &mut Random) -> Result<(), Gone> {
    let number = upload(shared, random, true)?;
    loop {
        let active = shared.client.get(POLICY)?;
        if active["revision"] != number {
            shared.lineage().was_quarantined(number, &active);
            return Ok(());
        }
    }
}

fn backtest(shared: &Shared<'_>, random: &mut Random) -> Result<(), Gone> {
    let body = if random.below(2) == 0 { json!({}) } else { json!({ "revision": 1, "last": 500 }) };
    let report = shared.client.post(&format!("{POLICY}/backtest"), &body)?;
    assert_eq!(report["impure"], 0, "{report}");
    shared.lineage().backtests += 1;
    Ok(())
}

/// Fails all that it gets, and publishes where there is nothing.
fn fail(shared: &Shared<'_>) -> Result<(), Gone> {
    loop {
        let pulled = shared.client.post("subscriptions/s/pull", &json!({ "max": 5 }))?;
        let deliveries = pulled["deliveries"].as_array().expect("deliveries");
        if deliveries.is_empty() {
            publish(shared.client)?;
        }
        for delivery in deliveries {
            let decision = nack(shared.client, delivery)?;
            shared.lineage().decided(delivery, &decision);
            shared.answered(Whose::Worker)?;
        }
    }
}

fn publish(client: &Client) -> Result<(), Gone> {
    client.post("topics/t/messages", &json!({ "messages": [{ "payload": 1 }] })).map(drop)
}

fn nack(client: &Client, delivery: &Value) -> Result<Value, Gone> {
    let item = json!({ "receipt": delivery["receipt"], "class": "timeout" });
    let mut answer = client.post("subscriptions/s/nack", &json!({ "items": [item] }))?;
    let decision = answer["items"][0]["decision"].take();
    assert!(decision.is_object(), "{delivery} was lost: {answer}");
    Ok(decision)
}

/// After a restart.
fn holds(client: &Client, lineage: &mut Lineage) {
    let listed = client.get(&format!("{POLICY}/revisions?limit=1000")).expect("it runs");
    lineage.holds(listed["items"].as_array().expect("a list"));
    decides(client, lineage);
    read_records(client, lineage);
    let report = client.post(&format!("{POLICY}/backtest"), &json!({ "last": 100_000 })).expect("it runs");
    // Leases of consumers that went with the broker run out meanwhile.
    assert!(report["failures"].as_u64() >= Some(lineage.newest), "{report}");
    assert!(report["reruns"].as_u64().is_some_and(|reruns| reruns > 0), "{report}");
    assert_eq!((&report["impure"], &report["impure_records"]), (&json!(0), &json!([])), "{report}");
}

/// Each of the first and the last revisions, broken ones too, answers its records as it did.
fn every_record_has_its_answer(client: &Client, lineage: &Lineage) {
    let numbers: Vec<_> = lineage.numbers().collect();
    for number in numbers.iter().take(SOME).chain(numbers.iter().rev().take(SOME)) {
        let asked = json!({ "revision": number, "last": 100_000 });
        let report = client.post(&format!("{POLICY}/backtest"), &asked).expect("it runs");
        assert_eq!(
            (&report["impure"], &report["impure_records"]),
            (&json!(0), &json!([])),
            "{number}: {report}"
        );
    }
}

/// The active revision decides, as it did; one that breaks is taken out of service first.
fn decides(client: &Client, lineage: &mut Lineage) {
    let [active] = lineage.active.iter().copied().collect::<Vec<_>>()[..] else { panic!("one is active") };
    if lineage.is_broken(active) {
        for _ in 0..FAULT_LIMIT {
            fail_one(client, lineage);
        }
        lineage.was_quarantined(active, &client.get(POLICY).expect("it runs"));
        return decides(client, lineage);
    }
    let decision = fail_one(client, lineage);
    assert_eq!((&decision["decided_by"], &decision["revision"]), (&json!("policy"), &json!(active)));
    if let Some(delay) = &lineage.get(active).delay {
        assert_eq!(decision["delay"], json!(delay), "it is another policy: {decision}");
    }
}

fn fail_one(client: &Client, lineage: &mut Lineage) -> Value {
    publish(client).expect("it runs");
    let pulled = client.post("subscriptions/s/pull", &json!({ "max": 1, "wait": "10s" })).expect("it runs");
    let delivery = &pulled["deliveries"][0];
    assert!(delivery.is_object(), "a message can be pulled: {pulled}");
    let decision = nack(client, delivery).expect("it runs");
    lineage.decided(delivery, &decision);
    decision
}

/// Records that were not read before; with them, all have contiguous numbers, and each attempt has one.
fn read_records(client: &Client, lineage: &mut Lineage) {
    let (mut next, mut newest, mut cursor) = (None, None, String::new());
    loop {
        let page = client.get(&format!("{POLICY}/failures?limit=1000{cursor}")).expect("it runs");
        let items = page["items"].as_array().expect("a list");
        newest = newest.or_else(|| items.first()?["number"].as_u64());
        let more = lineage.recorded(&mut next, items);
        match page["next"].as_str() {
            Some(at) if more => cursor = format!("&cursor={at}"),
            _ => break,
        }
    }
    lineage.all_recorded(newest.unwrap_or(0));
}
