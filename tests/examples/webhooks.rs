//! The webhook sender against an endpoint that answers 200, 410, 422, 429, 500, or hangs up.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use webhook_sender::{Broker, Setup, Summary, Target, deliver, read};

use crate::endpoint::{Answer, Endpoint};
use crate::process::{http_status, root, serve};

const MAX_ATTEMPTS: usize = 4;
const PARAMS: &str = r#"{"max_attempts":4,"delay":"50ms"}"#;
/// In seconds.
const RETRY_AFTER: u64 = 1;

/// How the endpoint answers this payload, time after time: one of nine plans.
fn plan(payload: &[u8], time: usize) -> Answer {
    use Answer::{HangUp, Status, TooMany};
    let sum = payload.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    match (sum % 9, time) {
        (0, _) => Status(200),
        (1, _) => Status(410),
        (2, 1) => TooMany(RETRY_AFTER),
        (3, 1 | 2) => Status(500),
        (4, 1) => HangUp,
        (5, _) => Status(500),
        (6, _) => HangUp,
        (7, _) => Status(422),
        (8, 1) => Status(302),
        (2..=4 | 8, _) => Status(204),
        _ => unreachable!("a remainder of nine"),
    }
}

/// Where the http-status policy puts a payload, in the words of its README, and after how many attempts.
fn expected(payload: &[u8]) -> (&'static str, usize) {
    for time in 1..=MAX_ATTEMPTS {
        match plan(payload, time) {
            Answer::Status(200..300) => return ("acked", time),
            Answer::Status(404 | 410) => return ("sender/gone", time),
            Answer::Status(422) => return ("sender/rejected", time),
            Answer::Status(_) | Answer::TooMany(_) | Answer::HangUp => {}
        }
    }
    ("sender/exhausted", MAX_ATTEMPTS)
}

/// Recorded webhooks where they are at hand, else the example's own.
fn file() -> PathBuf {
    let recorded = env::var_os("REPRISE_WEBHOOKS")
        .map_or_else(|| root().join("../shared/data/webhooks.jsonl"), PathBuf::from);
    if recorded.is_file() {
        return recorded;
    }
    let text =
        "note: the recorded webhooks are absent (REPRISE_WEBHOOKS names them); using the example's own\n";
    io::stderr().write_all(text.as_bytes()).unwrap();
    root().join("examples/webhook-sender/webhooks.jsonl")
}

/// Where a message ended, as the broker tells.
fn ending(broker: &str, id: &str) -> String {
    let url = format!("{broker}/v1/messages/{id}");
    let client = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let view: serde_json::Value = client.get(url).send().unwrap().json().unwrap();
    let delivery = &view["deliveries"][0];
    let queue = delivery["dead_letter"]["queue"].as_str();
    queue.or(delivery["state"].as_str()).unwrap().to_owned()
}

/// Every webhook reaches the endpoint in its exact bytes, each time; and ends where the policy says, after as many
/// POSTs as it says, no sooner than the endpoint asked for.
fn deliver_all(file: PathBuf, plans: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (_process, url) = serve(folder.path());
    let endpoint = Endpoint::start(plan);
    let webhooks = read(&file).unwrap();
    let broker = Broker::new(&url, None).unwrap();
    let policy = fs::read(http_status()).unwrap();
    let lease = Duration::from_secs(30);
    let setup = Setup { topic: "webhooks", subscription: "sender", lease, policy: &policy, params: PARAMS };
    broker.prepare(setup).unwrap();
    let ids = broker.publish("webhooks", &webhooks).unwrap();
    assert_eq!(ids.len(), webhooks.len());

    let target = Target::new(&format!("http://{}/hook", endpoint.address), Duration::from_secs(10)).unwrap();
    let summary = deliver(&broker, "sender", &target, NonZeroUsize::new(8).unwrap()).unwrap();

    let received = endpoint.received();
    assert_eq!(received.len(), webhooks.len());
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let mut posts = 0;
    for (webhook, id) in webhooks.iter().zip(&ids) {
        let requests = &received[id];
        let (end, attempts) = expected(webhook.payload());
        for (index, request) in requests.iter().enumerate() {
            assert!(request.body == webhook.payload(), "{id}: other bytes than {}", webhook.event);
            assert_eq!(request.event, webhook.event);
            assert_eq!(request.attempt, (index + 1).to_string(), "{id}");
            assert_eq!(request.content_type, "application/json");
        }
        assert_eq!(requests.len(), attempts, "{id}");
        assert_eq!(ending(&url, id), end, "{id}");
        if let Answer::TooMany(seconds) = plan(webhook.payload(), 1) {
            let waited = requests[1].at - requests[0].at;
            assert!(waited >= Duration::from_secs(seconds), "{id} came after {waited:?}");
        }
        *ends.entry(end).or_default() += 1;
        posts += attempts as u64;
    }
    let Summary { delivered, failed } = summary;
    assert_eq!(Some(&delivered), ends.get("acked"));
    assert_eq!(delivered + failed.values().sum::<u64>(), posts);
    let queues = broker.dead_letters("sender").unwrap();
    let expected: BTreeMap<String, u64> =
        ends.into_iter().filter(|(end, _)| *end != "acked").map(|(end, n)| (end.to_owned(), n)).collect();
    assert_eq!(queues, expected);
    assert!(failed.len() >= plans, "{failed:?}");
    assert_eq!(broker.backlog("sender").unwrap(), 0);
}

/// The recorded webhooks, with every way of failing among them.
#[test]
fn recorded_webhooks_end_where_the_policy_says() {
    let file = file();
    let recorded = !file.starts_with(root().join("examples"));
    deliver_all(file, if recorded { 6 } else { 1 });
}

/// The few that come with the example.
#[test]
fn the_examples_own_webhooks_end_where_the_policy_says() {
    deliver_all(root().join("examples/webhook-sender/webhooks.jsonl"), 1);
}
