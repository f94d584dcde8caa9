//! Simulations and backtests: what a policy would do, without doing it.

use serde_json::{Value, json};

use crate::support::{Answer, Broker, guests, policies};

const SIMULATE: &str = "/v1/subscriptions/s/policy/simulate";
const BACKTEST: &str = "/v1/subscriptions/s/policy/backtest";

fn broker(settings: Value) -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(settings);
    broker
}

fn with_module(broker: &Broker, path: &str, module: &[u8], params: Option<&str>) -> Answer {
    let request = broker.request("POST", path).header("content-type", "application/wasm");
    let request = request.body(module.to_vec());
    broker.send(match params {
        Some(params) => request.header("broker-policy-params", params),
        None => request,
    })
}

/// The active policy, step by step: attempts, times, delays, the end; nothing is delivered or counted by it.
#[test]
fn a_scenario_gives_the_schedule() {
    let retry = json!({ "delay": "1s", "factor": 3, "jitter": "none", "max_attempts": 4 });
    let broker = broker(json!({ "retry": retry, "max_delay": "5s" }));
    let before = broker.everything();
    let asked = json!({ "scenario": "timeout*2, rate_limited(30s), released, odd*", "work": "100ms" });
    let played = broker.post(SIMULATE, &asked).expect(200);
    let steps = played["steps"].as_array().expect("steps");
    let of = |field: &str| steps.iter().map(|step| step[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("attempt"), [1, 2, 3, 4, 5]);
    assert_eq!(of("failures"), [1, 2, 3, 3, 4]);
    assert_eq!(of("class"), ["timeout", "timeout", "rate_limited", "", "odd"]);
    let delays: Vec<_> = steps.iter().map(|step| step["decision"]["delay"].clone()).collect();
    assert_eq!(delays[..2], ["1s", "3s"]);
    assert_eq!(steps[1]["at"], "1s200ms");
    assert_eq!(steps[2]["retry_after"], "30s");
    assert_eq!(steps[4]["decision"]["action"], "dead_letter");
    assert_eq!((&played["end"], &played["policy"]["revision"]), (&json!("dead_lettered"), &json!(1)));
    assert!(steps.iter().all(|step| step["fuel"].as_u64().is_some_and(|fuel| fuel > 0)));
    assert_eq!(broker.post(SIMULATE, &asked).expect(200), played, "the same question, the same answer");
    assert_eq!(broker.everything(), before);
}

/// What the broker would really do then, it does: the same delays for the same failures.
#[test]
fn a_simulation_says_what_the_broker_does() {
    let retry = json!({ "delay": "100ms", "factor": 2, "jitter": "none", "max_attempts": 3 });
    let broker = broker(json!({ "retry": retry }));
    let played = broker.post(SIMULATE, &json!({ "scenario": "timeout*" })).expect(200);
    broker.publish("t", &json!(1));
    for step in played["steps"].as_array().expect("steps") {
        let delivery = broker.next("s");
        assert_eq!(json!(delivery.attempt), step["attempt"]);
        let decision = broker.nack("s", &delivery.receipt, "timeout")["decision"].clone();
        assert_eq!(
            (&decision["action"], &decision["delay"]),
            (&step["decision"]["action"], &step["decision"]["delay"])
        );
    }
    assert_eq!(broker.dead_letters("s").len(), 1);
}

/// An older revision, the same policy with other parameters, or a module from outside; many seeds give percentiles.
#[test]
fn any_candidate_can_be_simulated() {
    let broker = broker(json!({}));
    broker.upload("s", &policies::module("http-status"), None).expect(201);
    let played = broker.post(SIMULATE, &json!({ "scenario": "410", "revision": 1 })).expect(200);
    assert_eq!((&played["policy"]["name"], &played["end"]), (&json!("standard"), &json!("pending")));
    let played =
        broker.post(SIMULATE, &json!({ "scenario": "503*", "params": { "max_attempts": 2 } })).expect(200);
    assert_eq!((played["steps"].as_array().map(Vec::len), played["policy"].get("revision")), (Some(2), None));
    let guest = guests::deciding(&guests::retry(7_000)).module();
    let played = with_module(&broker, &format!("{SIMULATE}?scenario=a,b&seeds=2"), &guest, None).expect(200);
    assert_eq!((&played["policy"]["name"], &played["total"]), (&json!("guest"), &json!("14s")));
    assert_eq!(broker.revisions("s").len(), 2, "trying is not uploading");

    let many = json!({ "scenario": "503*", "seeds": 50 });
    let played = broker.post(SIMULATE, &many).expect(200);
    let seeds = &played["seeds"];
    assert_eq!((&seeds["count"], &seeds["ends"]), (&json!(50), &json!({ "dead_lettered": 50 })));
    assert_eq!(seeds["attempts"], json!({ "p50": 8, "p90": 8, "p99": 8, "max": 8 }));
    assert_ne!(seeds["total"]["p50"], seeds["total"]["max"], "the jitter differs");
    let other = broker.post(SIMULATE, &json!({ "scenario": "503*", "seed": 7 })).expect(200);
    assert_ne!(other["total"], played["total"]);
}

/// A policy that breaks is answered by the fallback, and one that never gives up by the limit of attempts.
#[test]
fn faults_and_limits_are_simulated_too() {
    let broker = broker(json!({ "fallback_delay": "2s", "attempt_limit": 3 }));
    let broken = guests::after_trial("(unreachable)");
    let played = with_module(&broker, &format!("{SIMULATE}?scenario=x*"), &broken, None).expect(200);
    let decisions: Vec<_> =
        played["steps"].as_array().expect("steps").iter().map(|s| &s["decision"]).collect();
    assert_eq!(
        decisions.iter().map(|d| d["decided_by"].clone()).collect::<Vec<_>>(),
        ["fallback", "fallback", "attempt_limit"]
    );
    assert_eq!((&decisions[0]["delay"], &decisions[1]["delay"]), (&json!("2s"), &json!("4s")));
    assert_eq!(decisions[0]["fault"]["kind"], "trap");
    let pausing = guests::deciding(&format!("{} {}", guests::pause(60_000, 1, "down"), guests::retry(1_000)));
    let played =
        with_module(&broker, &format!("{SIMULATE}?scenario=x,ok"), &pausing.module(), None).expect(200);
    assert_eq!(played["total"], "1m", "the pause is waited for");
}

/// What cannot be played is refused.
#[test]
fn bad_simulations_are_refused() {
    let broker = broker(json!({}));
    for (body, status, code) in [
        (json!({ "scenario": "" }), 400, "invalid_scenario"),
        (json!({ "scenario": "a*x" }), 400, "invalid_scenario"),
        (json!({ "scenario": "a(soon)" }), 400, "invalid_scenario"),
        (json!({}), 400, "invalid_body"),
        (json!({ "scenario": "a", "speed": 2 }), 400, "invalid_body"),
        (json!({ "scenario": "a", "seeds": 0 }), 400, "invalid_body"),
        (json!({ "scenario": "a", "seeds": 1_001 }), 400, "invalid_body"),
        (json!({ "scenario": "a", "start": "tomorrow" }), 400, "invalid_body"),
        (json!({ "scenario": format!("{}ok", "a,".repeat(3_000)) }), 400, "invalid_scenario"),
        (json!({ "scenario": format!("ok, {}", "a".repeat(129)) }), 400, "invalid_scenario"),
        (json!({ "scenario": "a", "message": { "key": "k".repeat(257) } }), 400, "invalid_message"),
        (json!({ "scenario": "a", "message": { "attributes": { "a b": "c" } } }), 400, "invalid_attribute"),
        (json!({ "scenario": "a", "work": "-1s" }), 400, "invalid_duration"),
        (json!({ "scenario": "a", "revision": 9 }), 404, "revision_not_found"),
        (json!({ "scenario": "a", "params": { "max_attempts": 0 } }), 422, "invalid_params"),
        (json!({ "scenario": "a", "params": [] }), 422, "invalid_params"),
    ] {
        assert_eq!(broker.post(SIMULATE, &body).problem(), (status, code.to_owned()), "{body}");
    }
    let answer = with_module(&broker, &format!("{SIMULATE}?scenario=a"), b"no module", None);
    assert_eq!(answer.problem().1, "invalid_policy");
    let answer = with_module(&broker, &format!("{SIMULATE}?scene=a"), b"no module", None);
    assert_eq!(answer.problem().1, "invalid_query");
}

/// The active revision over its own record agrees bit for bit; a candidate shows what would change, by class.
#[test]
fn a_backtest_tells_what_would_change() {
    let mut broker = broker(
        json!({ "retry": { "delay": "10s", "jitter": "full", "classes": { "bad": { "action": "dead_letter" } } } }),
    );
    for class in ["timeout", "timeout", "bad", "odd"] {
        broker.fail_one(json!({ "class": class }));
    }
    broker.kill_and_start_again();
    let same = broker.post(BACKTEST, &json!({})).expect(200);
    assert_eq!((&same["failures"], &same["reruns"]), (&json!(4), &json!(4)));
    assert_eq!((&same["changed"], &same["impure"]), (&json!(0), &json!(0)));
    assert_eq!(same["fuel"]["before"], same["fuel"]["after"]);
    assert_eq!(same["delays"]["before"], same["delays"]["after"]);

    let params =
        json!({ "delay": "40s", "jitter": "none", "classes": { "timeout": { "action": "dead_letter" } } });
    let before = broker.everything();
    let other = broker.post(BACKTEST, &json!({ "params": params })).expect(200);
    assert_eq!((&other["failures"], &other["changed"], &other["reruns"]), (&json!(4), &json!(4), &json!(0)));
    assert_eq!(other["dead_letters"], json!({ "before": 1, "after": 2 }));
    let changes = json!([
        { "class": "timeout", "before": "retry", "after": "dead_letter", "count": 2 },
        { "class": "bad", "before": "dead_letter", "after": "retry", "count": 1 },
        { "class": "odd", "before": "retry", "after": "retry", "count": 1 },
    ]);
    assert_eq!(other["changes"], changes);
    assert_eq!(other["delays"]["after"]["p50"], "40s");
    let example = &other["examples"][0];
    assert_eq!((&example["class"], &example["number"]), (&json!("odd"), &json!(4)), "the newest first");
    assert_eq!(example["after"]["delay"], "40s");

    let broken =
        with_module(&broker, &format!("{BACKTEST}?last=2"), &guests::after_trial("(unreachable)"), None);
    let broken = broken.expect(200);
    assert_eq!((&broken["failures"], &broken["faults"]), (&json!(2), &json!({ "trap": 2 })));
    assert_eq!(broken["changes"][0]["after"], "fault");
    assert_eq!(broker.everything(), before, "nothing was changed");
}

/// Progress comes line by line to whoever asks for lines, and the report last.
#[test]
fn a_backtest_shows_its_progress() {
    let broker = broker(json!({ "retry": { "max_attempts": 1000, "delay": "0s", "jitter": "none" } }));
    broker.publish("t", &json!(1));
    for _ in 0..150 {
        let delivery = broker.next("s");
        broker.nack("s", &delivery.receipt, "timeout");
    }
    let request = broker.request("POST", BACKTEST).header("accept", "application/x-ndjson");
    let answer = broker.send(request.header("content-type", "application/json").body("{}"));
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let text = answer.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let progress = |done: u64| json!({ "progress": { "done": done, "of": 150 } });
    assert_eq!(lines[..2], [progress(100), progress(150)]);
    assert_eq!(lines[2]["report"]["failures"], 150);
    assert_eq!(lines.len(), 3);
}

/// A backtest needs records, and says so.
#[test]
fn bad_backtests_are_refused() {
    let broker = broker(json!({}));
    assert_eq!(broker.post(BACKTEST, &json!({})).problem(), (409, "nothing_recorded".to_owned()));
    for (body, status, code) in [
        (json!({ "last": 0 }), 400, "invalid_body"),
        (json!({ "last": 100_001 }), 400, "invalid_body"),
        (json!({ "revision": 2 }), 404, "revision_not_found"),
        (json!({ "first": 1 }), 400, "invalid_body"),
    ] {
        assert_eq!(broker.post(BACKTEST, &body).problem(), (status, code.to_owned()), "{body}");
    }
    let both = broker.post(&format!("{BACKTEST}?revision=3"), &json!({}));
    assert_eq!(both.problem(), (400, "invalid_query".to_owned()));
    let missing = broker.post("/v1/subscriptions/missing/policy/backtest", &json!({}));
    assert_eq!(missing.problem().1, "subscription_not_found");
}
